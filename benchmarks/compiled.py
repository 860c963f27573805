"""Decode speed of a compiled step against the plain loop and `model.generate`, after 128 and 1,000 tokens."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from minigen.generation import Inspection, SamplingParams, encode_raw
from minigen.generation.compiling import compile_package
from minigen.generation.sources import locate
from minigen.presets import load

from .decode import NEW, engine_rate, generate_rate, json_rate
from .measure import alternate, default_model, plain_network, ratio, show, spread

TEXT = "The cache keeps what the past has said, and each new word looks back at all of it. " * 120


def main() -> None:
    """Print the table, once for each length of the context."""
    files = next(found for source in load("smollm2").model.sources if (found := locate(source)))
    compile_package(files)
    compiled, eager = default_model(compiled="require"), default_model()
    plain = {name: plain_network(replace(eager, dtype=name)) for name in ("float32", "bfloat16")}
    greedy = SamplingParams(temperature=0, max_new_tokens=NEW, ignore_eos=True)
    sampled = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=1, max_new_tokens=NEW, ignore_eos=True)
    for length in (128, 1000):
        ids = list(encode_raw(eager.tokenizer, TEXT).ids[:length])
        variants: dict[str, Callable[[], float]] = {
            f"model.generate, {name}": partial(generate_rate, network, ids, do_sample=False)
            for name, network in plain.items()
        }
        variants |= {
            "Engine, plain, float32": partial(engine_rate, eager, ids, greedy),
            "Engine, compiled": partial(engine_rate, compiled, ids, greedy),
            "Engine, compiled, T 0.8, top-k 50, top-p 0.95": partial(engine_rate, compiled, ids, sampled),
            "the same with --inspect --jsonl": partial(
                json_rate, compiled, ids, sampled, Inspection(num_candidates=10)
            ),
        }
        found = alternate(variants, rounds=5)
        names = list(variants)
        best = [max(pair) for pair in zip(found[names[0]], found[names[1]], strict=True)]
        rows = [
            [name, spread(found[name]), ratio(found[name], best), ratio(found[name], found[names[3]])] for name in names
        ]
        title = (
            f"Decode after {length} tokens, {NEW} tokens, {torch.get_num_threads()} threads "
            "(medians of 5 alternating runs)"
        )
        show(title, ["", "tokens/s", "× the better generate", "× compiled"], rows)
