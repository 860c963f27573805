"""Decode speed of the engine against `model.generate`, and what inspection costs."""

import io
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from minigen.cli.destination import Destination
from minigen.cli.documents import DocumentView
from minigen.cli.job import TOP, TRACE_WIDTH
from minigen.cli.samples import Run
from minigen.cli.token_names import TokenNames
from minigen.cli.trace_writing import TraceView, header_facts
from minigen.cli.views import TextView, View
from minigen.generation import Engine, Inspection, Model, SamplingParams, encode_raw
from minigen.generation.trace import UNMEASURED
from minigen.generation.words import NO_WORDS
from minigen.presets.settings import Choice

from .measure import alternate, default_model, plain_network, ratio, show, spread

NEW = 48
RUN = Run(model="default", preset="smollm2", prompt="", settings={"seed": Choice(1, "flag")}, device="cpu")
PROMPT = "A key-value cache keeps the keys and values of the tokens that a model has already seen, so that"


def engine_rate(
    model: Model, ids: list[int], params: SamplingParams, inspection: Inspection = UNMEASURED, view: View | None = None
) -> float:
    """Give the tokens per second of the engine, prefill not counted, with what a view does of each token."""
    engine = Engine(model)
    engine.add_request(ids, params, inspection=inspection)
    while not engine.step():  # the prefill
        pass
    began = time.perf_counter()
    for _ in range(1, NEW):
        for output in engine.step():
            if view is not None:
                view.show(output)
    return (NEW - 1) / (time.perf_counter() - began)


def json_rate(model: Model, ids: list[int], params: SamplingParams, inspection: Inspection) -> float:
    """Give the rate with a line of JSON for each token, as --jsonl writes it."""
    names = TokenNames(model.tokenizer)
    view = DocumentView(io.StringIO(), RUN, names.text, does_stream=True, does_inspect=True)
    return engine_rate(model, ids, params, inspection, view)


def trace_rate(model: Model, ids: list[int], params: SamplingParams) -> float:
    """Give the rate with a trace of the default width written to a file."""
    inspection = Inspection(num_candidates=TOP, has_stages=True, num_leading=TRACE_WIDTH)
    facts = header_facts(model.vocab_size, ids, NO_WORDS, TRACE_WIDTH)
    with TemporaryDirectory() as folder, Destination(Path(folder) / "run.trace", "--trace") as trace:
        text = TextView(io.StringIO(), is_terminal=False)
        view = TraceView(text, trace, RUN, TokenNames(model.tokenizer), facts)
        view.start(1)
        view.begin(0)
        return engine_rate(model, ids, params, inspection, view)


def generate_rate(network: Any, ids: list[int], **settings: object) -> float:
    """Give the tokens per second of `model.generate`, its prefill taken off by a run of one token."""
    row = torch.tensor([ids], device=network.device)

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
        "Engine, the same with --inspect --jsonl": lambda: json_rate(
            model, ids, sampled, Inspection(num_candidates=TOP)
        ),
        "Engine, the same with --inspect --stages --jsonl": lambda: json_rate(
            model, ids, sampled, Inspection(num_candidates=TOP, has_stages=True)
        ),
        "Engine, the same with --trace": lambda: trace_rate(model, ids, sampled),
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
