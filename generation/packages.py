"""Packages: a model's decode step, compiled ahead of time for this machine, in a folder of the user's cache.

A package is native code, so it is loaded from there alone, and only where nobody else can write.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import RunError
from .package_key import BLOCK_SIZE, difference, key_of
from .safetensors_file import weight_files
from .sources import ModelFiles
from .store import cache_folder, discard, size_on_disk

if TYPE_CHECKING:
    from torch import Tensor

FACTS, STEP, OWN = "package.json", "step.so", "weights.safetensors"  # in its folder
WEIGHTS: Final = ("exact",)  # kinds of packages


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """What must be known of a model to start without transformers."""

    vocab_size: int
    window: int | None
    end_token_ids: Sequence[int]
    notes: Sequence[str]  # on its weights


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
    light: Light | None  # what stands for transformers, where it was found to be the same
    pools: Sequence[tuple[int, int]]  # key heads and dim of the keys of every layer, then of the values


def packages_folder() -> Path:
    """The folder that holds one folder per package; it may not exist yet."""
    return cache_folder() / "packages"


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
    except OSError:  # a file of the model is missing, which loading it will say
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
            build_seconds=float(told["build_seconds"]),
            constants={str(file): dict(names) for file, names in told["constants"].items()},
            model_folder=Path(told["model_folder"]),
            digests={str(name): str(digest) for name, digest in told["digests"].items()},
            light=None if told["light"] is None else Light(**told["light"]),
            pools=[(int(heads), int(dim)) for heads, dim in told["pools"]],
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(f"The compiled step in {folder} is damaged") from error


def check_whole(facts: PackageFacts) -> None:
    """Raise RunError for a package whose files are not those that were made."""
    if any(digest_of(facts.folder / name) != digest for name, digest in facts.digests.items()):
        raise RunError(f"The compiled step in {facts.folder} is damaged")


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


def package_for(files: ModelFiles, choice: str, *, device: str, dtype: str) -> tuple[Package | None, tuple[str, ...]]:
    """Load the package of a model, if there is one that can be used, with warnings on one that cannot.

    choice: auto, never or require, which raises RunError where there is none.
    """
    if choice == "never":
        return None, ()
    if (device, dtype) != ("cpu", "float32") or files.gguf is not None:
        if choice == "require":
            raise RunError(f"{files.name} has no compiled step: it takes safetensors, on a CPU, in float32.")
        return None, ()
    advice = "minigen models compile makes one"
    try:
        facts = found_package(files, "exact")
        if facts is not None:
            return Package(facts), ()
        reason = f"{files.name} has no compiled step"
    except RunError as error:
        reason = str(error)
        if isinstance(error, OpenFolderError):
            advice = "chmod go-w takes that away"
    if choice == "require":
        raise RunError(f"{reason}; {advice}.")
    return None, () if reason.endswith("has no compiled step") else (f"{reason}; the plain loop runs ({advice}).",)


class Package:
    """A compiled step, loaded. Its weights are mapped from the model's own files, which all processes share."""

    def __init__(self, facts: PackageFacts) -> None:
        self.facts = facts
        from safetensors import SafetensorError

        check_whole(facts)
        try:
            weights = _mapped(facts)
            self._runner = runner_of(facts.folder / STEP)
            names = self._runner.get_constant_names_to_original_fqns()
            self._constants = {
                inner: weights[name] for inner, name in names.items()
            }  # read in place, so they must stay
            self._runner.update_constant_buffer(self._constants, False, True, True)  # (…, all are given, ours to keep)
        except (OSError, RuntimeError, AttributeError, LookupError, ValueError, SafetensorError) as error:
            raise RunError(f"The compiled step in {facts.folder} cannot be loaded") from error

    def step(self, ids: Tensor, positions: Tensor, tables: Tensor, pools: Sequence[Tensor]) -> Tensor:
        """Read one token of one row: `(1,)` id and position, `(1, blocks)` table of at least 2 blocks of 64 tokens.

        pools: the keys of every layer, then the values, `(blocks, key heads, 64, dim)` float32, which it writes to.
        Gives the logits `(1, vocab)`, float32.
        """
        logits: Tensor = self._runner.run([ids, positions, tables, *pools])[0]
        return logits


def runner_of(path: Path) -> Any:
    """Open compiled code where it lies: PyTorch's official way unpacks it for every run anew, and leaves that."""
    import torch

    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1)


def _mapped(facts: PackageFacts) -> dict[str, Tensor]:
    """Map the weights of a step: most from the model's files, the few that were changed from its own."""
    from safetensors import safe_open

    known = {path.name: path for path in weight_files(facts.model_folder)}
    constants = {}
    for name, names in facts.constants.items():
        with safe_open(known[name] if name != OWN else facts.folder / OWN, "pt") as file:
            for inner, outer in names.items():
                constants[inner] = file.get_tensor(outer)
    return constants


__all__ = ["BLOCK_SIZE", "WEIGHTS", "Package", "PackageFacts", "folder_for", "found_package", "packages_folder"]


def discard_orphans() -> int:
    """Delete the packages whose models are gone, and those that are damaged; give the bytes freed."""
    freed = 0
    for folder in sorted(packages_folder().glob("[!.]*/")):
        try:
            is_needed = read_facts(folder).model_folder.exists()
        except RunError:
            is_needed = False
        if not is_needed:
            freed += size_on_disk(folder)
            discard(folder)
    return freed
