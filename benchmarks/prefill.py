"""How fast a prompt of 512 ids is read: the engine against a forward pass of transformers and against llama.cpp."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from minigen.generation import Engine, Model, SamplingParams, encode_raw
from minigen.generation.compiling import compile_package

from .alike import require_all_alike
from .compiled import TEXT
from .llama import columns_of, llama_peers, prefill_rate
from .measure import compare, default_files, default_model, plain_network

LENGTH = 512  # ids


def forward_rate(network: Any, ids: Sequence[int]) -> float:
    """Give the ids per second of a forward pass that fills a cache, with the logits of the last one alone."""
    row = torch.tensor([ids])
    began = time.perf_counter()
    network(row, use_cache=True, logits_to_keep=1)
    return len(ids) / (time.perf_counter() - began)


def engine_prefill_rate(model: Model, ids: Sequence[int]) -> float:
    """Give the ids per second of the engine, up to the first new token."""
    engine = Engine(model)
    engine.add_request(ids, SamplingParams(temperature=0, max_new_tokens=2, ignore_eos=True))
    began = time.perf_counter()
    while not engine.step():  # a chunk of the prompt each
        pass
    return len(ids) / (time.perf_counter() - began)


def main() -> None:
    """Print the table."""
    model = default_model()
    ids = encode_raw(model.tokenizer, TEXT).ids[:LENGTH]
    variants: dict[str, Callable[[], float]] = {
        f"transformers, {dtype}": partial(forward_rate, plain_network(replace(model, dtype=dtype)), ids)
        for dtype in ("float32", "bfloat16")
    }
    bases = {"× transformers": list(variants)}
    variants["Engine, float32"] = partial(engine_prefill_rate, model, ids)
    compile_package(default_files(), weights="int8")
    variants["Engine, int8"] = partial(engine_prefill_rate, default_model(compiled="require", weights="int8"), ids)
    with llama_peers(default_files().path) as (peers, note):
        require_all_alike(model, peers, TEXT, LENGTH)
        variants |= {name: partial(prefill_rate, peer, ids) for name, peer in peers.items()}
        bases |= columns_of(peers)
        compare(f"A prompt of {LENGTH} ids", variants, bases, rounds=5, note=note)
