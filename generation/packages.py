"""Where packages lie, each a model's decode step compiled for this machine, and whether one belongs to a model.

A package is native code, so it is loaded from the user's cache alone, and only where nobody else can write.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .errors import RunError
from .package_key import MOST_ROWS, difference, key_of
from .sources import ModelFiles
from .store import cache_folder, discard, size_on_disk

FACTS, STEP, WIDE, OWN = "package.json", "step.so", "wide.so", "weights.safetensors"  # in its folder
CODE: Final[Mapping[int, str]] = {1: STEP, MOST_ROWS: WIDE}  # by the rows that a step has
FILES: Final = (STEP, WIDE, OWN)  # whose digests are kept
MANY = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """What must be known of a model to start without transformers."""

    vocab_size: int
    window: int | None
    end_token_ids: Sequence[int]
    notes: Sequence[str]  # on its weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Perplexity:
    """Of the same text, with the exact weights and with those of a package."""

    exact: float
    package: float

    @property
    def rise(self) -> float:
        """By what part the package's is higher."""
        return self.package / self.exact - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFacts:
    """What a package says about itself."""

    folder: Path
    model: str
    weights: str
    key: Mapping[str, str]
    build_seconds: float
    constants: Mapping[str, Mapping[str, str]]  # by file, the names in the graph: what each is called there
    model_folder: Path
    digests: Mapping[str, str]  # sha256 of its files
    stamp: str  # of its weights, as stamp_of gives it
    light: Light | None  # what stands for transformers, where it was found to be the same
    pools: Sequence[tuple[int, int]]  # key heads and dim of the keys of every layer, then of the values
    perplexity: Perplexity | None  # what the weights cost; None where they are the exact ones


def packages_folder() -> Path:
    """The folder that holds one folder per package; it may not exist yet."""
    return cache_folder() / "packages"


def package_folders() -> list[Path]:
    """Give the folders of all packages that are there, in order."""
    return sorted(packages_folder().glob("[!.]*/"))


def folder_for(files: ModelFiles, weights: str) -> Path:
    """Give where the package of a model lies, or would."""
    place = hashlib.sha256(os.fsencode(files.path.resolve())).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", files.path.resolve().name)[:80]
    return packages_folder() / f"{name}-{place}-{weights}"


def found_package(files: ModelFiles, weights: str) -> PackageFacts | None:
    """Give the package of a model; None where there is none.

    Raises RunError with one sentence for one that does not belong here, is damaged, or is open to others.
    """
    folder = folder_for(files, weights)
    if not folder.exists():
        return None
    check_private(folder)
    facts = read_facts(folder)
    try:
        key = key_of(files, weights)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # a file of the model is missing or damaged
        return None
    if (what := difference(facts.key, key)) is not None:
        raise RunError(f"The compiled step of {files.name} was made for another {what}")
    return facts


def read_facts(folder: Path) -> PackageFacts:
    """Read what a package says about itself. Raises RunError for one that is damaged."""
    try:
        told = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return PackageFacts(
            folder=folder,
            model=str(told["model"]),
            weights=str(told["weights"]),
            key=dict(told["key"]),
            build_seconds=_number(told["build_seconds"]),
            constants={str(file): dict(names) for file, names in told["constants"].items()},
            model_folder=Path(told["model_folder"]),
            digests={name: str(told["digests"].get(name, "")) for name in FILES},  # "" is of no file
            stamp=str(told["stamp"]),
            light=None if told["light"] is None else _light(told["light"]),
            pools=[(_count(heads), _count(dim)) for heads, dim in told["pools"]],
            perplexity=None if told.get("perplexity") is None else _perplexity(told["perplexity"]),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunError(f"The compiled step in {folder} is damaged") from error


def _light(told: Mapping[str, Any]) -> Light:
    return Light(
        vocab_size=_count(told["vocab_size"]),
        window=None if told["window"] is None else _count(told["window"]),
        end_token_ids=[int(token_id) for token_id in list(told["end_token_ids"])],
        notes=[str(note) for note in list(told["notes"])],
    )


def _perplexity(told: Mapping[str, Any]) -> Perplexity:
    return Perplexity(exact=_number(told["exact"]), package=_number(told["package"]))


def _number(told: Any) -> float:
    """Read a number above 0. Raises ValueError for any other."""
    if not isinstance(told, int | float) or not 0 < told < math.inf:
        raise ValueError(told)
    return float(told)


def _count(told: Any) -> int:
    """Read a whole number from 1 on that a machine could have so many of anything of. Raises ValueError for others."""
    if not isinstance(told, int) or not 0 < told < MANY:
        raise ValueError(told)
    return told


def own_name(rows: int, name: str) -> str:
    """Give what a package calls a constant that belongs to one of its steps alone."""
    return f"{rows}:{name}"


def check_whole(facts: PackageFacts, names: Sequence[str] = FILES) -> None:
    """Raise RunError for a package with a file, of those named, that is not the one that was made."""
    if any(digest_of(facts.folder / name) != facts.digests[name] for name in names):
        raise RunError(f"The compiled step in {facts.folder} is damaged")


def check_weights(facts: PackageFacts) -> None:
    """Raise RunError for weights that are not those that were made; they are read, which is long, if moved since."""
    if stamp_of(facts.folder / OWN) != facts.stamp:
        check_whole(facts, [OWN])


def stamp_of(path: Path) -> str | None:
    """Give what changes with a file, its size and time; None for one that is not there."""
    try:
        told = path.stat()
    except OSError:
        return None
    return f"{told.st_size} {told.st_mtime_ns}"


def digest_of(path: Path) -> str | None:
    """Give the sha256 of a file; None for one that is not there."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


class OpenFolderError(RunError):
    """A folder that no code is loaded from: it belongs to another user, or others may write into it."""


def check_private(folder: Path) -> None:
    """Raise OpenFolderError where a package's folder, or the one that it is in, is not the user's alone."""
    for each in (folder.parent, folder):
        if not each.exists():
            continue
        facts = each.stat()
        is_own = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
        if not is_own or stat.S_IMODE(facts.st_mode) & 0o022:
            raise OpenFolderError(f"The folder {each} can be written by others, so no code is loaded from it")


def discard_orphans() -> int:
    """Delete the packages whose models are gone, and those that are damaged; give the bytes freed."""
    freed = 0
    for folder in package_folders():
        try:
            is_needed = read_facts(folder).model_folder.exists()
        except RunError:
            is_needed = False
        if not is_needed:
            freed += size_on_disk(folder)
            discard(folder)
    return freed
