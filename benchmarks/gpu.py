"""Decode speed on a CUDA GPU: with graphs and without, against `model.generate` and against what the memory allows."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import torch
from minigen.generation import Engine, Model, SamplingParams, encode_raw

from .batch import Job, jobs_of
from .compiled import TEXT
from .decode import NEW, generate_rate
from .measure import alternate, default_model, plain_network, ratio, seconds, show, spread

ROUNDS = 5
LENGTHS = (128, 1000)  # tokens of context
MANY = 32  # sequences that run together
COPIED = 1 << 30  # bytes of a copy: much more than any cache holds
SAME = 64  # tokens of the texts that are held against each other


def wait(device: str) -> None:
    """Wait until a device has done all that it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def copy_rate(device: str, num_bytes: int = COPIED, times: int = 9) -> float:
    """Give the bytes a second that the median copy within a device's memory reads and writes together."""
    source = torch.ones(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        wait(device)

    copy()
    return 2 * num_bytes / sorted(seconds(copy) for _ in range(times))[times // 2]


def weight_bytes(network: Any) -> int:
    """Give the bytes of a network's weights, each of which a token reads once."""
    return sum(each.numel() * each.element_size() for each in network.parameters())


def engine_rate(engine: Engine, ids: Sequence[int], params: SamplingParams) -> float:
    """Give the tokens per second of an engine that goes on being used, prefill not counted."""
    engine.add_request(ids, params)
    while not engine.step():  # the prefill
        pass
    began, num_tokens = time.perf_counter(), 0
    while engine.has_unfinished_requests():
        num_tokens += len(engine.step())
    return num_tokens / (time.perf_counter() - began)


def single_text(model: Model, plain: Any, ids: Sequence[int], new: int = NEW) -> dict[str, Callable[[], float]]:
    """Give what is compared where one text is written."""
    greedy = SamplingParams(temperature=0, max_new_tokens=new, ignore_eos=True)
    sampled = SamplingParams(temperature=0.8, top_p=0.95, seed=1, max_new_tokens=new, ignore_eos=True)
    bare = Engine(replace(model, has_graphs=False), max_running=1)
    graphs = Engine(model, max_running=1)
    return {
        "model.generate": partial(generate_rate, plain, list(ids), do_sample=False),
        "Engine, without graphs": partial(engine_rate, bare, ids, greedy),
        "Engine": partial(engine_rate, graphs, ids, greedy),
        "Engine, T 0.8, top-p 0.95": partial(engine_rate, graphs, ids, sampled),
    }


def padded_rate(network: Any, jobs: Sequence[Job]) -> float:
    """Give the wanted tokens per second of `model.generate` on one left-padded batch, as long as the longest of it."""
    width, new = max(len(ids) for ids, _ in jobs), max(new for _, new in jobs)
    rows = torch.tensor([[0] * (width - len(ids)) + list(ids) for ids, _ in jobs], device=network.device)
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids, _ in jobs], device=network.device)
    given: dict[str, Any] = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0}
    return sum(new for _, new in jobs) / seconds(lambda: network.generate(rows, attention_mask=mask, **given))


def together_rate(engine: Engine, jobs: Sequence[Job], turns: Iterable[int]) -> float:
    """Give the tokens per second of an engine, prompts included. turns: makes the prompts of each run new to it."""
    turn = next(iter(turns))
    for ids, new in jobs:
        params = SamplingParams(temperature=0, max_new_tokens=new, ignore_eos=True)
        engine.add_request([300 + turn % 1000, *ids[1:]], params)
    began, num_tokens = time.perf_counter(), 0
    while engine.has_unfinished_requests():
        num_tokens += len(engine.step())
    return num_tokens / (time.perf_counter() - began)


def many_texts(model: Model, plain: Any, jobs: Sequence[Job]) -> dict[str, Callable[[], float]]:
    """Give what is compared where many texts are written together."""
    bare, graphs = Engine(replace(model, has_graphs=False), max_running=MANY), Engine(model, max_running=MANY)
    return {
        "model.generate, padded": partial(padded_rate, plain, jobs),
        "Engine, without graphs": partial(together_rate, bare, jobs, count()),
        "Engine": partial(together_rate, graphs, jobs, count()),
    }


def greedy_texts(engine: Engine, prompts: Iterable[Sequence[int]], new: int = SAME) -> list[list[int]]:
    """Give the ids that an engine writes for some prompts."""
    params = SamplingParams(temperature=0, max_new_tokens=new, ignore_eos=True)
    written: dict[str, list[int]] = {engine.add_request(ids, params): [] for ids in prompts}
    while engine.has_unfinished_requests():
        for output in engine.step():
            written[output.request_id] += [output.token_id] if output.token_id is not None else []
    return list(written.values())


def sameness(model: Model, prompts: Sequence[Sequence[int]], new: int = SAME) -> str:
    """Say whether greedy texts with graphs are those without."""
    engine = Engine(model, max_running=len(prompts) + 1)
    bare = Engine(replace(model, has_graphs=False), max_running=len(prompts) + 1)
    pairs = list(zip(greedy_texts(engine, prompts, new), greedy_texts(bare, prompts, new), strict=True))
    num_equal = sum(one == other for one, other in pairs)
    failure = f"; graphs failed: {engine.graph_failure}" if engine.graph_failure else ""
    return f"{model.dtype}: {num_equal} of {len(pairs)} greedy texts of {new} tokens are the same with graphs{failure}."


def table(title: str, found: dict[str, list[float]], bound: float | None = None) -> None:
    """Print tokens per second, with the ratio to the first variant and the share of a bound in tokens per second."""
    base = next(iter(found.values()))
    rows = [
        [name, spread(values), ratio(values, base)] + ([] if bound is None else [ratio(values, [bound] * len(values))])
        for name, values in found.items()
    ]
    columns = ["", "tokens/s", "× generate"] + ([] if bound is None else ["× bound"])
    show(f"{title} (medians of {len(base)} alternating runs)", columns, rows)


def run(model: Model, plain: Any, exact: Model, jobs: Sequence[Job], *, rounds: int, num_bytes: int, new: int) -> None:
    """Print the tables. plain: the library's own network with the same weights; exact: the model in float32."""
    device, size = model.device, weight_bytes(model.network)
    rate = copy_rate(device, num_bytes)
    bound = rate / size
    shown = [[f"{rate / 1e9:.0f}", f"{size / 1e6:.0f}", f"{bound:.0f}"]]
    show(f"Memory of {device}", ["copied GB/s, read and written", "MB of weights", "tokens/s at most"], shown)
    ids = encode_raw(model.tokenizer, TEXT).ids
    for length in LENGTHS:
        found = alternate(single_text(model, plain, ids[:length], new), rounds)
        table(f"One text after {length} tokens, {model.dtype}", found, bound)
    total = sum(new for _, new in jobs)
    found = alternate(many_texts(model, plain, jobs), rounds)
    table(f"{len(jobs)} requests, {total} new tokens, {model.dtype}", found)
    prompts = [ids[at : at + 20 + at] for at in range(0, 60, 15)]
    for each in (exact, model):
        print(sameness(each, prompts))


def main() -> None:
    """Print the tables, where there is a CUDA GPU."""
    if not torch.cuda.is_available():
        print("gpu: this machine has no CUDA GPU; nothing is measured.")
        return
    model = default_model("bfloat16", compiled="auto", device="cuda")
    exact = default_model("float32", compiled="auto", device="cuda")
    print(torch.cuda.get_device_name())
    run(model, plain_network(model), exact, jobs_of(model), rounds=ROUNDS, num_bytes=COPIED, new=NEW)
