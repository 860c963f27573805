"""Alternating runs, medians, and the table that shows them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from minigen.generation import Model, load_model
from minigen.generation.fetching import fetch
from minigen.generation.sources import ModelFiles
from minigen.presets import load
from rich.console import Console
from rich.table import Table


def default_files() -> ModelFiles:
    """Give the files of the default model, fetched first if need be."""
    return fetch(load("smollm2").model.sources)


def default_model(
    dtype: str = "float32", *, compiled: str = "never", weights: str = "exact", device: str = "cpu"
) -> Model:
    """Load the default model, on the CPU unless said otherwise; without its compiled step, unless it is asked for."""
    return load_model(replace(load("smollm2").model, device=device, dtype=dtype, compile=compiled, weights=weights))


def plain_network(model: Model) -> Any:
    """Load the same weights as the transformers library does by itself: what minigen is compared to."""
    from transformers import AutoModelForCausalLM

    network: Any = AutoModelForCausalLM.from_pretrained(model.path, dtype=getattr(torch, model.dtype))
    return network.to(model.device).eval().requires_grad_(False)


def seconds(work: Callable[[], object]) -> float:
    """Give the seconds that `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternate(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run each variant once to warm up, then all of them in turn, `rounds` times; give what each returned.

    Each round starts with another one, so that none always follows the same one.
    """
    for run in variants.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for turn in range(rounds):
        first = turn % len(order)
        for name in order[first:] + order[:first]:
            found[name].append(variants[name]())
    return found


def show(title: str, columns: list[str], rows: list[list[str]], note: str = "") -> None:
    """Print a table, and below it what has to be said of it."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=place < 2)
    for row in rows:
        table.add_row(*row)
    console = Console(width=120)
    console.print(table)
    if note:
        console.print(note, markup=False, highlight=False)


def spread(values: list[float], digits: int = 1) -> str:
    """Give the median with the lowest and highest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def ratio(values: list[float], base: list[float]) -> str:
    """Give the median of the ratios of runs made one after the other."""
    return f"{statistics.median(a / b for a, b in zip(values, base, strict=True)):.2f}"


def compare(
    title: str,
    variants: Mapping[str, Callable[[], float]],
    bases: Mapping[str, Sequence[str]],
    rounds: int,
    note: str = "",
) -> None:
    """Run variants in turn and print tokens per second, with the ratio to the best of each column's variants.

    bases: the variants that a column compares to, by its heading; a column of variants that are not there is left out.
    """
    found = alternate(variants, rounds)
    columns = {
        heading: [max(turn) for turn in zip(*(found[name] for name in names), strict=True)]
        for heading, names in bases.items()
        if all(name in found for name in names)
    }
    rows = [
        [name, spread(values), *(ratio(values, base) for base in columns.values())] for name, values in found.items()
    ]
    told = f"{title}, {torch.get_num_threads()} threads (medians of {rounds} alternating runs)"
    show(told, ["", "tokens/s", *columns], rows, note)
