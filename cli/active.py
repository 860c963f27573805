"""The stages that a run goes through, named with the values that they work by: `temperature 0.8 · seed 3`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..generation.orders import PARTS, is_greedy, skips_filters
from ..generation.params import SamplingParams

MOST_NAMED = 8  # items of a list
COMPANIONS: Mapping[str, Sequence[str]] = {  # settings that a stage works by besides its own
    **PARTS,
    "dynatemp_range": ("temperature", *PARTS["dynatemp_range"]),
}


def active_text(params: SamplingParams, seed: int) -> str:
    """Name the stages that a draw goes through, with their values, and the seed: `temperature 0.8 · seed 3`."""
    from ..generation.arrangement import filter_stages, score_stages

    stages = score_stages(params, (), ()) + ([] if skips_filters(params) else filter_stages(params))
    parts = [_stage_text(params, name) for name, _ in stages]
    order = [] if params.order == "minigen" else [f"order {params.order}"]
    return " · ".join([*order, *(parts or ["no filters"]), "greedy" if is_greedy(params) else f"seed {seed}"])


def _stage_text(params: SamplingParams, name: str) -> str:
    """Give a stage with its value and those of its companions: `xtc_probability 0.5 (threshold 0.1)`."""
    family = name.partition("_")[0] + "_"
    others = [f"{other.removeprefix(family)} {_value(params, other)}" for other in COMPANIONS.get(name, ())]
    return f"{name} {_value(params, name)}" + (f" ({', '.join(others)})" if others else "")


def _value(params: SamplingParams, name: str) -> str:
    value = getattr(params, name)
    if name == "dry_range" and value == 0:
        return "all"
    if isinstance(value, Mapping):
        return _listed([f"{key}={number:g}" for key, number in value.items()])
    if isinstance(value, tuple | list):
        return _listed([repr(item) for item in value])
    return str(value)


def _listed(items: Sequence[str]) -> str:
    """Write a list, and of a long one only the beginning and the count."""
    if len(items) > MOST_NAMED:
        return f"{' '.join(items[:MOST_NAMED])} … ({len(items)})"
    return " ".join(items) or "none"
