"""The cache folder: models are made aside under a lock and renamed into place whole."""

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from .errors import DiskError, FetchError
from .progress import Progress, bytes_text

if sys.platform != "win32":
    import fcntl

_MAKING = ".making-"  # temporary folders; whoever holds the lock may sweep them
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


def cache_folder() -> Path:
    """The folder that minigen keeps models in: MINIGEN_CACHE, else the system's place for caches. It may not exist."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("MINIGEN_CACHE", "")
    folder = Path(chosen) if os.path.isabs(chosen) else user_cache_path("minigen", appauthor=False)
    if not folder.is_absolute():
        raise FetchError("There is no home folder to keep models in; set MINIGEN_CACHE to a folder.")
    return folder


def models_folder() -> Path:
    """The folder that holds one folder per converted model; it may not exist yet."""
    return cache_folder() / "models"


def place(final: Path, make: Callable[[Path], None], is_done: Callable[[Path], bool], progress: Progress) -> None:
    """Fill the folder `final` by calling `make` with an empty folder, unless it is done already.

    make: leaves the finished files in `model/` below the folder it is given. Nothing is seen at `final` before all
    of it is on the disk; one process at a time makes a model, and the others wait for it.
    """
    models = final.parent
    try:
        models.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        models.mkdir(mode=0o700, exist_ok=True)
        with _locked(models / ".lock", progress) as is_locked:
            if is_done(final):
                return
            if is_locked:
                sweep(models)
            _make_aside(final, make)
    except OSError as error:
        raise disk_error(error, models) from error


def _make_aside(final: Path, make: Callable[[Path], None]) -> None:
    aside = Path(tempfile.mkdtemp(prefix=_MAKING, dir=final.parent))
    try:
        make(aside)
        _sync(aside / "model")
        if final.exists():  # made by another version, or damaged by hand
            final.rename(aside / "old")
        (aside / "model").rename(final)
        _sync_folder(final.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def discard(folder: Path) -> None:
    """Delete a finished folder: renamed first, so that a half-deleted model is never loaded."""
    doomed = folder.with_name(f"{_MAKING}removed-{folder.name}")
    try:
        shutil.rmtree(doomed, ignore_errors=True)
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    except OSError as error:
        raise FetchError(f"{folder} cannot be deleted: {error.strerror}.") from error


def size_on_disk(path: Path) -> int:
    """The bytes that the files below `path` take, each counted once; links are followed to files only."""
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                status = os.stat(os.path.join(parent, name))
            except FileNotFoundError:  # a dangling link, or just deleted
                continue
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def sweep(models: Path) -> None:
    """Remove what killed processes left half made; only the holder of the lock may call it."""
    for left in models.glob(f"{_MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[bool]:
    """Hold the lock file while the block runs; gives False where the file system has no locks."""
    with path.open("ab") as file:
        yield _lock(file.fileno(), progress)  # closing the file, or the process's death, gives the lock back


def _lock(descriptor: int, progress: Progress) -> bool:
    if sys.platform == "win32":
        return False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.note("Another minigen is at work in the same folder; waiting for it to finish.")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def _sync(folder: Path) -> None:
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_space(folder: Path, needed: int) -> None:
    """Raise FetchError unless `needed` bytes are free on the disk of `folder`."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskError(
            f"The disk is too full: {bytes_text(needed)} are needed in {folder} and {bytes_text(free)} are free."
        )


def disk_error(error: OSError, folder: Path) -> DiskError:
    """What to say when writing below `folder` failed."""
    reason = error.strerror or str(error)
    if error.errno in FULL:
        with contextlib.suppress(OSError):
            reason = f"the disk is full ({bytes_text(shutil.disk_usage(folder).free)} free)"
    return DiskError(f"The model could not be written to {folder}: {reason}.")
