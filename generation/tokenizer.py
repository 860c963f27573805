"""Loading a tokenizer alone: the model's files are checked as always, and its weights are left where they are."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .collection import paused_collection
from .fetching import fetch
from .folder import inspect_folder, inspect_gguf
from .progress import SILENT, Progress
from .quiet import quiet_libraries
from .sources import ModelFiles, ModelSettings


def load_tokenizer(settings: ModelSettings, *, offline: bool = False, progress: Progress = SILENT) -> tuple[Any, str]:
    """Fetch what is not yet on disk, check it, and read its tokenizer; give it with the model's name.

    Raises SourceError and FetchError.
    """
    quiet_libraries()
    with paused_collection():
        files = fetch(settings.sources, offline=offline, progress=progress, with_code=settings.trust_remote_code)
        return _read(files, settings.trust_remote_code), files.name


def _read(files: ModelFiles, trust_remote_code: bool) -> Any:
    from .transformers_gate import read_tokenizer, require_tokenizer

    if files.gguf is None:
        inspect_folder(files.path, trust_remote_code=trust_remote_code)
        require_tokenizer(files.path)
        return read_tokenizer(files.path, trust_remote_code=trust_remote_code)
    path = files.path / files.gguf
    inspect_gguf(path)
    with TemporaryDirectory(prefix="minigen-") as folder:  # alone, so that no neighbour's settings are read
        link = Path(folder) / path.name
        link.symlink_to(path.resolve())
        return read_tokenizer(Path(folder), trust_remote_code=False, gguf=path)
