"""The compiled steps of models as `minigen models` tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..generation.errors import RunError

if TYPE_CHECKING:
    from ..generation.packages import Perplexity
    from ..generation.sources import ModelFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """A compiled step of a model."""

    weights: str
    build_seconds: float | None  # None: it does not say
    perplexity: Perplexity | None  # what the weights cost; None where they are the exact ones
    reason_not_used: str | None

    def as_json(self) -> dict[str, Any]:
        """Give the step as plain data."""
        return {
            "weights": self.weights,
            "build_seconds": self.build_seconds,
            "perplexity": None if self.perplexity is None else _as_json(self.perplexity, self.weights),
            "reason_not_used": self.reason_not_used,
        }

    def as_text(self) -> str:
        """Give the step on one line."""
        if self.reason_not_used is not None:
            return f"{self.weights} weights, not used: {self.reason_not_used}"
        cost = "" if self.perplexity is None else f", {cost_text(self.perplexity)}"
        return f"{self.weights} weights, in {self.build_seconds:.0f} s{cost}"


def cost_text(perplexity: Perplexity) -> str:
    """Say what other weights than the exact ones cost, as perplexities of the same text."""
    return f"perplexity {perplexity.exact:.2f} to {perplexity.package:.2f} ({100 * perplexity.rise:+.2f} %)"


def compiled_steps(files: ModelFiles) -> list[CompiledStep]:
    """Give the compiled steps of a model, at most one for each kind of weights, with why one is not used."""
    from ..generation.sources import WEIGHTS

    if files.gguf is not None:
        return []
    return [step for weights in WEIGHTS if (step := _step(files, weights)) is not None]


def compiled_models() -> Mapping[Path, list[str]]:
    """Give the folders of the models that have compiled steps for use, with the weights of those."""
    from ..generation.packages import found_package, package_folders, read_facts
    from ..generation.sources import ModelFiles, PathSource

    found: dict[Path, list[str]] = {}
    for folder in package_folders():
        with suppress(RunError):
            facts = read_facts(folder)
            place = facts.model_folder
            files = ModelFiles(path=place, gguf=None, source=PathSource(place), name=place.name)
            if found_package(files, facts.weights) is not None:
                found.setdefault(place, []).append(facts.weights)
    return found


def _step(files: ModelFiles, weights: str) -> CompiledStep | None:
    from ..generation.packages import folder_for, found_package, read_facts

    reason = None
    try:
        facts = found_package(files, weights)
    except RunError as error:
        reason, facts = str(error), None
        with suppress(RunError):
            facts = read_facts(folder_for(files, weights))
    if facts is None and reason is None:
        return None
    return CompiledStep(
        weights=weights,
        build_seconds=None if facts is None else facts.build_seconds,
        perplexity=None if facts is None else facts.perplexity,
        reason_not_used=reason,
    )


def _as_json(perplexity: Perplexity, weights: str) -> dict[str, float]:
    return {"exact": perplexity.exact, weights: perplexity.package, "rise": perplexity.rise}
