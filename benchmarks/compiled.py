"""Decode speed of a compiled step against `model.generate` and llama.cpp, after 128 and 1,000 tokens."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from minigen.generation import Inspection, SamplingParams, encode_raw
from minigen.generation.compiling import compile_package
from minigen.generation.sources import WEIGHTS

from .alike import require_all_alike
from .decode import NEW, engine_rate, generate_rate, json_rate
from .llama import columns_of, decode_rate, llama_peers
from .measure import compare, default_files, default_model, plain_network

TEXT = "The cache keeps what the past has said, and each new word looks back at all of it. " * 120


def main() -> None:
    """Print the table, once for each length of the context."""
    files = default_files()
    for weights in WEIGHTS:
        compile_package(files, weights=weights)
    compiled, eager = default_model(compiled="require"), default_model()
    narrow = default_model(compiled="require", weights="int8")
    plain = {f"model.generate, {name}": plain_network(replace(eager, dtype=name)) for name in ("float32", "bfloat16")}
    greedy = SamplingParams(temperature=0, max_new_tokens=NEW, ignore_eos=True)
    sampled = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=1, max_new_tokens=NEW, ignore_eos=True)
    ten = Inspection(num_candidates=10)
    with llama_peers(files.path) as (peers, note):
        bases = {"× the better generate": list(plain), "× int8": ["Engine, compiled, int8"]}
        bases |= columns_of(peers)
        for length in (128, 1000):
            require_all_alike(compiled, peers, TEXT, length)
            ids = list(encode_raw(eager.tokenizer, TEXT).ids[:length])
            variants: dict[str, Callable[[], float]] = {
                name: partial(generate_rate, network, ids, do_sample=False) for name, network in plain.items()
            }
            variants |= {name: partial(decode_rate, peer, ids) for name, peer in peers.items()}
            variants |= {
                "Engine, plain, float32": partial(engine_rate, eager, ids, greedy),
                "Engine, compiled": partial(engine_rate, compiled, ids, greedy),
                "Engine, compiled, int8": partial(engine_rate, narrow, ids, greedy),
                "Engine, compiled, int8, T 0.8, top-k 50, top-p 0.95": partial(engine_rate, narrow, ids, sampled),
                "the same with --inspect --jsonl": partial(json_rate, narrow, ids, sampled, ten),
            }
            compare(f"Decode after {length} tokens, {NEW} tokens", variants, bases, rounds=5, note=note)
