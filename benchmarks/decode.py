"""Decode speed of the engine against `model.generate`, and what inspection costs."""

import time
from collections.abc import Callable
from typing import Any

import torch
from minigen.cli.documents import line_of, token_record
from minigen.cli.token_names import TokenNames
from minigen.generation import Engine, Inspection, Model, SamplingParams, encode_raw
from minigen.generation.trace import UNINSPECTED

from .measure import alternate, default_model, plain_network, ratio, show, spread

NEW = 48
PROMPT = "A key-value cache keeps the keys and values of the tokens that a model has already seen, so that"


def engine_rate(model: Model, ids: list[int], params: SamplingParams, inspection: Inspection = UNINSPECTED) -> float:
    """Give the tokens per second of the engine, prefill not counted; with candidates each is written as JSON."""
    engine, names = Engine(model), TokenNames(model.tokenizer)
    engine.add_request(ids, params, inspection=inspection)
    engine.step()
    began = time.perf_counter()
    for index in range(1, NEW):
        for output in engine.step():
            if inspection.num_candidates:
                line_of(token_record(index, output, names.text, does_inspect=True))
    return (NEW - 1) / (time.perf_counter() - began)


def generate_rate(network: Any, ids: list[int], **settings: object) -> float:
    """Give the tokens per second of `model.generate`, its prefill taken off by a run of one token."""
    row = torch.tensor([ids])

    def run(count: int) -> float:
        began = time.perf_counter()
        network.generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=count,
            min_new_tokens=count,
            pad_token_id=0,
            **settings,
        )
        return time.perf_counter() - began

    first = run(1)
    return (NEW - 1) / (run(NEW) - first)


def main() -> None:
    """Print the table."""
    model = default_model()
    network = plain_network(model)
    ids = list(encode_raw(model.tokenizer, PROMPT).ids)
    greedy = SamplingParams(temperature=0, max_new_tokens=NEW, ignore_eos=True)
    sampled = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=1, max_new_tokens=NEW, ignore_eos=True)
    variants: dict[str, Callable[[], float]] = {
        "model.generate, greedy": lambda: generate_rate(network, ids, do_sample=False),
        "Engine, greedy": lambda: engine_rate(model, ids, greedy),
        "model.generate, T 0.8, top-k 50, top-p 0.95": lambda: generate_rate(
            network, ids, do_sample=True, temperature=0.8, top_k=50, top_p=0.95
        ),
        "Engine, T 0.8, top-k 50, top-p 0.95": lambda: engine_rate(model, ids, sampled),
        "Engine, the same with --inspect --json": lambda: engine_rate(
            model, ids, sampled, Inspection(num_candidates=10)
        ),
        "Engine, the same with --inspect --stages --json": lambda: engine_rate(
            model, ids, sampled, Inspection(num_candidates=10, has_stages=True)
        ),
        "Engine, the same inspected as for --trace": lambda: engine_rate(
            model, ids, sampled, Inspection(num_candidates=10, has_stages=True, num_leading=1024)
        ),
    }
    found = alternate(variants, rounds=11)
    names = list(variants)
    bases = {names[1]: names[0], names[3]: names[2]} | dict.fromkeys(names[4:], names[3])
    rows = [
        [
            name,
            spread(found[name]),
            f"{ratio(found[name], found[bases[name]])} × {bases[name]}" if name in bases else "",
        ]
        for name in names
    ]
    title = f"Decode, {NEW} tokens, float32, {torch.get_num_threads()} threads (medians of 11 alternating runs)"
    show(title, ["", "tokens/s", "ratio"], rows)
