"""What `minigen sweep` is asked for, checked before any model is loaded: the grid of settings, and the seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from .. import presets
from ..generation.errors import UsageError
from ..generation.params import next_seed
from ..presets.spelling import flag_of
from .contradictions import refuse_together
from .job import Flags, Job, build_job, check_contradictions
from .notes import Notes
from .option_groups import sampling_settings
from .sweep_options import LISTED, joined_values

MOST_COMBINATIONS: Final = 256
MOST_TEXTS: Final = 4096
Values = Mapping[str, Any]  # one value for each swept setting, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What is to be generated."""

    given: Flags
    job: Job  # what holds for every combination
    axes: Mapping[str, Sequence[Any]]  # the settings with several values, as the command line has them
    combinations: Sequence[Values]  # the last setting moves first
    named_seeds: Sequence[int]  # empty where they count on from one
    num_seeds: int
    shows_texts: bool

    def flags_of(self, values: Values) -> dict[str, Any]:
        """Give the flags of one combination, for presets.resolve."""
        return {**self.job.flags, **values}

    def seeds_from(self, first: int) -> list[int]:
        """Give the seeds that every combination is drawn with."""
        return list(self.named_seeds) or [next_seed(first, i) for i in range(self.num_seeds)]


def sweep_plan(params: Mapping[str, Any], notes: Notes) -> SweepPlan:
    """Check the options and read the prompt. Raises UsageError and its kind."""
    listed = {name: joined_values(name, params[name]) for name in params if name in LISTED and params[name]}
    seeds = listed.pop("seed", ())
    axes = {name: values for name, values in listed.items() if len(values) > 1}
    num_seeds = len(seeds) if len(seeds) > 1 else params["seeds"] or 1
    _check(params, axes, num_seeds, names_seeds=len(seeds) > 1)
    single = {name: values[0] for name, values in [*listed.items(), ("seed", seeds or (None,))]}
    given = _flags(params, single)
    check_contradictions(given)
    combinations = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    plan = SweepPlan(
        given=given,
        job=build_job(given, notes, command="sweep"),
        axes=axes,
        combinations=combinations,
        named_seeds=seeds if len(seeds) > 1 else (),
        num_seeds=num_seeds,
        shows_texts=params["show"],
    )
    for values in combinations:
        presets.resolve(plan.job.preset, plan.flags_of(values))  # says what is wrong with settings together
    return plan


def _flags(params: Mapping[str, Any], single: Values) -> Flags:
    """Give the command line as `minigen run` has it for the first combination."""
    named = {name: value for name, value in params.items() if name in Flags.__dataclass_fields__}
    named |= {"prompt": params["prompt"][0] if params["prompt"] else None}
    sampling = sampling_settings({**params, **dict.fromkeys(LISTED), **single})
    return Flags(**named, sampling=sampling)


def _check(params: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], num_seeds: int, *, names_seeds: bool) -> None:
    if params["prompt"] and len(params["prompt"]) > 1:
        raise UsageError(
            f"{params['prompt'][1]!r} is one argument too many: a prompt of several words goes in quotes, "
            'and so does a list with spaces, such as --temperature "0.2, 0.7".'
        )
    refuse_together(
        [
            (names_seeds, "--seed with several values", params["seeds"] is not None, "--seeds"),
            (params["jsonl"], "--jsonl", params["show"], "--show"),
        ]
    )
    sizes = [len(values) for values in axes.values()]
    num_combinations = math.prod(sizes)
    if num_combinations > MOST_COMBINATIONS:
        written = " × ".join(f"{len(values)} of {flag_of(name)}" for name, values in axes.items())
        raise UsageError(
            f"The lists make {written}: {num_combinations:,} combinations, and at most {MOST_COMBINATIONS} are "
            "allowed: give shorter lists."
        )
    if num_combinations * num_seeds > MOST_TEXTS:
        raise UsageError(
            f"{num_combinations} combinations with {num_seeds} seeds make {num_combinations * num_seeds:,} texts, and "
            f"at most {MOST_TEXTS:,} are allowed: give shorter lists or fewer seeds."
        )
