"""Which model an argument of `minigen models` names: a preset's, one of the hub, a folder or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..generation.sources import ModelFiles, Source


def _model_names(incomplete: str) -> list[str]:
    """Give the names of presets and cached models, for the shell's completion."""
    from .inventory import entries

    names = [name for entry in entries() for name in (*entry.presets, entry.name)]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


Which = Annotated[
    str, typer.Argument(metavar="MODEL", help="A preset, hub id, folder or .gguf file.", autocompletion=_model_names)
]
Revision = Annotated[
    str | None, typer.Option("--revision", metavar="NAME", help="A hub model's branch, tag or commit.")
]


def sources_of(which: str, revision: str | None) -> tuple[Source, ...]:
    """Give the sources of a preset, by name or file, or the one source that the text names."""
    from .. import presets
    from ..generation.errors import SourceError
    from ..generation.sources import parse_source

    if not which.endswith((".yaml", ".yml")) and which not in {item.name for item in presets.names()}:
        return (parse_source(which, revision),)
    if revision is not None:
        raise SourceError(f"A revision ({revision}) goes with a hub model only, and {which} is a preset.")
    return presets.load(which).model.sources


def files_of(which: str, revision: str | None) -> ModelFiles:
    """Give the files of a model that is on this disk. Raises SourceError for one that is not."""
    from ..generation.errors import SourceError
    from ..generation.fetching import locate

    for source in sources_of(which, revision):
        if files := locate(source):
            return files
    raise SourceError(f"The model {which} is not on this machine; minigen models pull {which} fetches it.")
