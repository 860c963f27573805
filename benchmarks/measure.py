"""Alternating runs, medians, and the table that shows them."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from minigen.generation import Model, load_model
from minigen.presets import load
from rich.console import Console
from rich.table import Table


def default_model(dtype: str = "float32", *, compiled: str = "never") -> Model:
    """Load the default model on the CPU; without its compiled step, unless it is asked for."""
    return load_model(replace(load("smollm2").model, device="cpu", dtype=dtype, compile=compiled))


def plain_network(model: Model) -> Any:
    """Load the same weights as the transformers library does by itself: what minigen is compared to."""
    from transformers import AutoModelForCausalLM

    network: Any = AutoModelForCausalLM.from_pretrained(model.path, dtype=getattr(torch, model.dtype))
    return network.eval().requires_grad_(False)


def seconds(work: Callable[[], object]) -> float:
    """Give the seconds that `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternate(variants: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
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


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)


def spread(values: list[float], digits: int = 1) -> str:
    """Give the median with the lowest and highest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def ratio(values: list[float], base: list[float]) -> str:
    """Give the median of the ratios of runs made one after the other."""
    return f"{statistics.median(a / b for a, b in zip(values, base, strict=True)):.2f}"
