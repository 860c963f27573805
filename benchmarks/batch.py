"""Many requests at once, against the library's own batches and against one at a time."""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from minigen.generation import Engine, Model, SamplingParams
from minigen.generation.block_tables import BlockTables
from minigen.generation.compiling import compile_package
from minigen.generation.package_key import MOST_ROWS
from minigen.generation.sampler import Sampler
from minigen.generation.sources import WEIGHTS
from minigen.generation.trace import UNMEASURED

from .measure import alternate, default_files, default_model, plain_network, ratio, show, spread

ROWS = 16  # sequences that run together
TEXT = "the cache keeps what a model has seen so that every step reads one token of each text and no more"
Job = tuple[list[int], int]  # the ids of a prompt, and how many tokens are wanted


def jobs_of(model: Model) -> list[Job]:
    """Give the 32 requests: prompts of 10 to 400 tokens of English, 8 to 200 new tokens, always the same."""
    dice = random.Random(11)
    words = TEXT.split()
    text = " ".join(dice.choice(words) for _ in range(12000))
    ids = model.tokenizer(text)["input_ids"]
    found = []
    for _ in range(32):
        start, length = dice.randrange(len(ids) - 400), dice.randint(10, 400)
        found.append((ids[start : start + length], dice.randint(8, 200)))
    return found


def engine_seconds(model: Model, jobs: list[Job], spy: Callable[[Engine], None] = lambda engine: None) -> float:
    """Give the seconds that one engine takes for all requests, greedy."""
    engine = Engine(model, max_running=ROWS)
    for ids, new in jobs:
        engine.add_request(ids, SamplingParams(temperature=0, max_new_tokens=new, ignore_eos=True))
    began = time.perf_counter()
    while engine.has_unfinished_requests():
        engine.step()
        spy(engine)
    return time.perf_counter() - began


def padded_seconds(network: Any, jobs: list[Job]) -> float:
    """Give the seconds of `model.generate` on left-padded batches of 16, each as long as its longest request."""
    began = time.perf_counter()
    for start in range(0, len(jobs), ROWS):
        part = jobs[start : start + ROWS]
        width = max(len(ids) for ids, _ in part)
        rows = torch.tensor([[0] * (width - len(ids)) + ids for ids, _ in part])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids, _ in part])
        new = max(new for _, new in part)
        network.generate(
            rows, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0
        )
    return time.perf_counter() - began


def continuous_seconds(network: Any, jobs: list[Job]) -> float:
    """Give the seconds of the library's own continuous batching, for the requests with their own lengths."""
    from transformers import GenerationConfig

    settings = GenerationConfig(do_sample=False, max_new_tokens=200, eos_token_id=-1, pad_token_id=0)
    manager = network.init_continuous_batching(generation_config=settings)
    began = time.perf_counter()
    manager.start()
    try:
        for ids, new in jobs:
            manager.add_request(ids, max_new_tokens=new)
        found = 0
        while found < len(jobs):
            found += manager.get_result(timeout=60) is not None
    finally:
        manager.stop(block=True)
    return time.perf_counter() - began


def throughput(dtype: str, rounds: int) -> None:
    """Print how many new tokens per second all 32 requests come to."""
    model = default_model(dtype)
    network, jobs = plain_network(model), jobs_of(model)
    total = sum(new for _, new in jobs)
    found = alternate(
        {
            "model.generate, padded batches of 16": lambda: total / padded_seconds(network, jobs),
            "Engine": lambda: total / engine_seconds(model, jobs),
        },
        rounds=rounds,
    )
    base = next(iter(found.values()))
    rows = [[name, spread(values), ratio(values, base)] for name, values in found.items()]
    try:
        once = total / continuous_seconds(network, jobs)
        rows.append(
            ["transformers' continuous batching (one run)", f"{once:.1f}", f"{once / statistics.median(base):.2f}"]
        )
    except (AttributeError, ImportError, RuntimeError, TypeError, ValueError) as error:
        rows.append([f"transformers' continuous batching: {str(error)[:60]}", "", ""])
    show(f"32 requests, {total} new tokens, {dtype}, medians of {rounds}", ["", "tokens/s", "ratio"], rows)


def decode_rate(model: Model, rows: int, new: int = 24) -> float:
    """Give the tokens per second of so many sequences that are all being written."""
    engine = Engine(model, max_running=max(rows, 2))
    for row in range(rows):
        ids = [300 + row, *range(400, 520)]
        engine.add_request(
            ids, SamplingParams(temperature=0.8, top_p=0.95, seed=row, max_new_tokens=new + 8, ignore_eos=True)
        )
    while len([each for each in engine.scheduler.running if each.token_ids]) < rows:
        engine.step()
    began, count = time.perf_counter(), 0
    for _ in range(new // 2):
        count += len(engine.step())
    return count / (time.perf_counter() - began)


def many_against_one(dtype: str) -> None:
    """Print what sixteen sequences come to beside one."""
    model = default_model(dtype)
    names = {"1 sequence": 1, f"{ROWS} sequences": ROWS}
    found = alternate({name: partial(decode_rate, model, count) for name, count in names.items()}, rounds=7)
    one = found["1 sequence"]
    rows = [[name, spread(values), ratio(values, one)] for name, values in found.items()]
    show(f"Decode together, {dtype}, both by the same engine", ["", "tokens/s", "ratio (at least 6)"], rows)


def compiled_against_not() -> None:
    """Print what one, four and sixteen sequences come to through compiled steps, beside the network."""
    models = {
        "Engine": default_model(),
        "Engine, compiled": default_model(compiled="require"),
        "Engine, compiled, int8": default_model(compiled="require", weights="int8"),
    }
    for count in (1, MOST_ROWS, ROWS):
        found = alternate({name: partial(decode_rate, model, count) for name, model in models.items()}, rounds=5)
        base = found["Engine"]
        rows = [[name, spread(values), ratio(values, base)] for name, values in found.items()]
        show(f"Decode together, {count} at a time, float32", ["", "tokens/s", "ratio"], rows)


def first_tokens_seconds(model: Model, samples: int) -> float:
    """Give the seconds until the last of `samples` of one prompt of 1,000 tokens has its first token."""
    engine = Engine(model, max_running=ROWS)
    ids = [300 + i % 700 for i in range(1000)]
    for seed in range(samples):
        engine.add_request(ids, SamplingParams(seed=seed, max_new_tokens=4, ignore_eos=True))
    began, waiting = time.perf_counter(), samples
    while waiting:
        waiting -= len(engine.step())
    return time.perf_counter() - began


def samples() -> None:
    """Print the time to the last first token."""
    model = default_model()
    names = {"1 sample": 1, f"{ROWS} samples": ROWS}
    found = alternate({name: partial(first_tokens_seconds, model, count) for name, count in names.items()}, rounds=7)
    one = found["1 sample"]
    rows = [[name, spread(values, 2), ratio(values, one)] for name, values in found.items()]
    show("A prompt of 1,000 tokens", ["", "seconds to the last first token", "ratio (at most 1.2)"], rows)


def memory() -> None:
    """Print how much of the blocks in use is really used, over the run of 32 requests."""
    shares: list[float] = []

    def look(engine: Engine) -> None:
        tables = engine.scheduler.memory
        assert isinstance(tables, BlockTables)
        tokens = sum(each.num_cached for each in engine.scheduler.running)
        if tokens:
            shares.append(tables.pool.num_used * tables.pool.block_size / tokens)

    model = default_model()
    engine_seconds(model, jobs_of(model), look)
    title = "KV memory in blocks with an owner, over that of the tokens in play"
    show(title, ["steps", "mean (at most 1.25)"], [[str(len(shares)), f"{statistics.mean(shares):.3f}"]])


@contextmanager
def timed(owner: Any, name: str, times: list[float]) -> Iterator[None]:
    """Add up what calls of a method take."""
    method = getattr(owner, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            times.append(time.perf_counter() - began)

    setattr(owner, name, run)
    try:
        yield
    finally:
        setattr(owner, name, method)


def shares() -> None:
    """Print where the time of a decode step of 16 sequences goes."""
    model = default_model()
    engine = Engine(model, max_running=ROWS)
    for row in range(ROWS):
        params = SamplingParams(temperature=0.8, top_p=0.95, seed=row, max_new_tokens=80, ignore_eos=True)
        engine.add_request([300 + row, *range(400, 520)], params, inspection=UNMEASURED)  # as minigen batch does
    while len([each for each in engine.scheduler.running if each.token_ids]) < ROWS:
        engine.step()
    passes: list[float] = []
    draws: list[float] = []
    began = time.perf_counter()
    with timed(model.network, "forward", passes), timed(Sampler, "draw", draws):
        for _ in range(60):
            engine.step()
    whole = time.perf_counter() - began
    rest = whole - sum(passes) - sum(draws)
    rows = [
        [name, f"{part / 60 * 1e3:.1f}", f"{part / whole:.1%}"]
        for name, part in {
            "a step": whole,
            "the forward pass": sum(passes),
            "sampling (under 10 %)": sum(draws),
            "scheduler, plan, text, records (under 5 %)": rest,
        }.items()
    ]
    show(f"A step of {ROWS} sequences, temperature 0.8, top-p 0.95, float32", ["", "ms", "share"], rows)


def main() -> None:
    """Print the tables."""
    for weights in WEIGHTS:
        compile_package(default_files(), weights=weights)
    shares()
    memory()
    samples()
    many_against_one("float32")
    many_against_one("bfloat16")
    compiled_against_not()
    throughput("float32", rounds=3)
    throughput("bfloat16", rounds=3)
