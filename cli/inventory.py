"""Which models there are: those that presets name, and those in the caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import presets
from ..generation.errors import MinigenError
from ..generation.fetching import locate
from ..generation.installed import Installed, installed
from ..generation.sources import WEIGHTS, ModelFiles, PathSource, Source
from ..generation.store import size_on_disk
from .compiled_steps import compiled_models


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model that a preset names or a cache holds."""

    name: str
    presets: tuple[str, ...]  # those that use it
    source: str
    path: Path | None  # None: not fetched
    num_bytes: int | None
    compiled: Sequence[str] = ()  # the weights of its compiled steps

    @property
    def label(self) -> str:
        """What to type: the presets that use it, else its own name."""
        return ", ".join(self.presets) or self.name

    def as_json(self) -> dict[str, Any]:
        """Give the entry as plain data."""
        return {
            "name": self.name,
            "presets": list(self.presets),
            "source": self.source,
            "path": str(self.path) if self.path else None,
            "bytes": self.num_bytes,
            "compiled": list(self.compiled),
        }


def entries(warn: Callable[[str], None] = lambda text: None) -> list[Entry]:
    """Give the presets' models, then every other model in the caches.

    warn: is told of presets that cannot be read; they are left out.
    """
    cached, compiled = installed(), compiled_models()
    found = [_of_presets(sources, names, cached) for sources, names in _by_sources(warn).items()]
    taken = {entry.path for entry in found}
    found += [
        Entry(name=model.name, presets=(), source=model.kind, path=model.path, num_bytes=model.num_bytes)
        for model in cached
        if model.path not in taken
    ]
    return [replace(entry, compiled=_weights_in(entry.path, compiled)) for entry in found]


def _weights_in(path: Path | None, compiled: Mapping[Path, Sequence[str]]) -> list[str]:
    """Give the weights of the compiled steps of a model, whose folder may hold several revisions."""
    if path is None:
        return []
    places = (path.resolve(), path.resolve() / "snapshots")
    held = [weights for folder, weights in compiled.items() if folder == places[0] or folder.parent == places[1]]
    return [weights for weights in WEIGHTS if any(weights in each for each in held)]


def _by_sources(warn: Callable[[str], None]) -> dict[tuple[Source, ...], list[str]]:
    """Give the presets' names by the sources of their models; the default preset goes first."""
    users: dict[tuple[Source, ...], list[str]] = {}
    for item in sorted(presets.names(), key=lambda item: item.name != presets.DEFAULT):
        try:
            users.setdefault(presets.load(item.name).model.sources, []).append(item.name)
        except MinigenError as error:
            warn(str(error))
    return users


def _of_presets(sources: tuple[Source, ...], names: list[str], cached: list[Installed]) -> Entry:
    files = next(filter(None, map(locate, sources)), None)
    shown = files.source if files else sources[0]
    path, num_bytes = _place(files, cached) if files else (None, None)
    name = files.name if files else str(shown)
    return Entry(name=name, presets=tuple(names), source=str(shown), path=path, num_bytes=num_bytes)


def _place(files: ModelFiles, cached: list[Installed]) -> tuple[Path, int]:
    """Give the folder and the bytes of a model on this disk: for a hub model all of its revisions."""
    if files.gguf is not None and isinstance(files.source, PathSource):
        return files.path / files.gguf, (files.path / files.gguf).stat().st_size
    for model in cached:
        if files.path.is_relative_to(model.path):
            return model.path, model.num_bytes
    return files.path, size_on_disk(files.path)
