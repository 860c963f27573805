"""How long work reports what it does: a note, or a count of bytes; the caller decides how it looks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """A listener to long work: notes are one line each, and a phase counts bytes between `start` and `finish`."""

    def note(self, text: str) -> None: ...

    def start(self, label: str, total: int | None) -> None: ...

    def advance(self, amount: int) -> None: ...

    def finish(self) -> None: ...


class _Silent:
    """A listener that shows nothing."""

    def note(self, text: str) -> None:
        pass

    def start(self, label: str, total: int | None) -> None:
        pass

    def advance(self, amount: int) -> None:
        pass

    def finish(self) -> None:
        pass


SILENT: Progress = _Silent()


@contextmanager
def phase(progress: Progress, label: str, total: int | None = None) -> Iterator[None]:
    """Hold one phase open: it is finished however the work inside ends. total: bytes, None when unknown."""
    progress.start(label, total)
    try:
        yield
    finally:
        progress.finish()


def bytes_text(count: int) -> str:
    """A number of bytes as people read it, in decimal units: `93 MB`."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    digits = 1 if size < 9.95 and unit in ("GB", "TB") else 0
    return f"{size:.{digits}f} {unit}"
