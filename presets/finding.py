"""Where presets lie: the built-in ones in this package, a user's own in the config folder."""

import os
import re
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_config_path

from ..generation.errors import PresetError
from .reading import read_document
from .spelling import nearest

DEFAULT = "smollm2"
ENDINGS = (".yaml", ".yml")
MAX_PATH_LENGTH = 4096
_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Found(NamedTuple):
    """A preset file, not read yet."""

    name: str
    path: Path
    label: str  # the file in messages: as typed, a full path, or a built-in's file name
    is_user: bool


class Listed(NamedTuple):
    """A preset as a list shows it."""

    name: str
    path: Path
    description: str
    is_user: bool

    @property
    def is_shadowing(self) -> bool:
        """True for a user's preset that takes a built-in's place."""
        return self.is_user and self.name in builtin_names()


def user_folder() -> Path | None:
    """Give the folder of the user's presets, which need not exist; None where there is no home folder."""
    folder = user_config_path("minigen", appauthor=False)
    try:
        if not folder.is_absolute():  # the XDG standard: a relative XDG_CONFIG_HOME is ignored
            folder = Path.home() / ".config" / "minigen"
    except RuntimeError:
        return None
    return folder / "presets" if folder.is_absolute() else None


def builtin_names() -> list[str]:
    """Give the names of the presets that come with minigen."""
    files = resources.files(__package__).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def names() -> list[Listed]:
    """List every preset by name, a user's own in place of a built-in that it shadows."""
    found = {name: builtin(name) for name in builtin_names()}
    found |= {name: _user(name) for name in _user_names()}
    return [Listed(name, file.path, _description(file), file.is_user) for name, file in sorted(found.items())]


def is_path(text: str) -> bool:
    """Tell a path (`./mine.yaml`) from a preset's name (`mine`)."""
    return "/" in text or os.sep in text or text.endswith(ENDINGS)


def check_name(name: str) -> str:
    """Give the name back if a preset may have it; raise PresetError otherwise."""
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise PresetError(f"A preset's name has letters, digits and . _ - only, not {name[:80]!r}.")
    if name.endswith(ENDINGS):
        raise PresetError(f"A preset's name is given without its ending, not {name[:80]!r}.")
    return name


def find(text: str | Path, *, base: Path | None = None, beyond: Path | None = None) -> Found:
    """Find a preset by name or by path; raise PresetError for an unknown one.

    base: the folder that a relative path starts from (default: the current one).
    beyond: a file that is not meant, so that a user's preset can extend the built-in that it shadows.
    """
    if isinstance(text, Path) or is_path(text):
        return _find_path(str(text), base)
    name = check_name(text)
    user = name in _user_names()
    if user and (beyond is None or _user(name).path != beyond):
        return _inside(_user(name))
    if name in builtin_names():
        return builtin(name)
    if user:
        return _inside(_user(name))
    known = sorted({*builtin_names(), *_user_names()})
    guess = nearest(name, known)
    hint = f"; did you mean {guess}?" if guess else "."
    raise PresetError(f"There is no preset named {name[:80]}{hint} The presets are: {', '.join(known)}.")


def _find_path(text: str, base: Path | None) -> Found:
    if len(text) > MAX_PATH_LENGTH or not text.endswith(ENDINGS):
        raise PresetError(f"{text[:80]!r} is neither a preset's name nor a path that ends in .yaml.")
    path = Path(os.path.expanduser(text))
    label = text
    if path.name == text and path.stem in builtin_names() and base is None and not path.exists():
        raise PresetError(f"There is no preset file {text}; the preset {path.stem} is named without an ending.")
    if base is not None and not path.is_absolute():
        path = base / path
        label = str(path)
    return Found(path.stem, path, label, is_user=False)


def builtin(name: str) -> Found:
    """Give a preset that comes with minigen."""
    path = Path(str(resources.files(__package__) / f"{name}.yaml"))
    return Found(name, path, path.name, is_user=False)


def _user(name: str) -> Found:
    folder = user_folder()
    assert folder is not None  # the name came from a listing of it
    path = folder / f"{name}.yaml"
    return Found(name, path, str(path), is_user=True)


def _user_names() -> list[str]:
    folder = user_folder()
    if folder is None:
        return []
    try:
        stems = [file.name.removesuffix(".yaml") for file in folder.iterdir()]
    except OSError:  # no such folder, or not ours to read
        return []
    return sorted(stem for stem in stems if _NAME.fullmatch(stem) and (folder / f"{stem}.yaml").is_file())


def _inside(found: Found) -> Found:
    """Refuse a link in the user's folder that leads out of it."""
    real, folder = found.path.resolve(), found.path.parent.resolve()
    if not real.is_relative_to(folder):
        raise PresetError(f"{found.label} is a link that leaves the preset folder; give the path of its file instead.")
    return found


def _description(file: Found) -> str:
    try:
        found = _inside(file) if file.is_user else file
        text = read_document(found.path, found.label).data.get("description")
    except PresetError:
        return f"(not usable; `minigen presets check {file.name}` says why)"
    return text if isinstance(text, str) else ""
