"""Writing an output file anew: without its failed records, or in the order of the lines. It is renamed when whole."""

from __future__ import annotations

import os
import stat
import tempfile
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from .batch_earlier import Earlier, places

_CHUNK: Final = 2**20
Span = tuple[int, int]  # where it starts and ends, in bytes


def without_failed(path: Path, earlier: Earlier, lock: Callable[[int], None]) -> int:
    """Leave failed records and a torn end out of a file. Give a descriptor of the new one, locked, to append to."""
    bounds = [0, *earlier.failed, earlier.end]
    return _rewritten(path, zip(bounds[::2], bounds[1::2], strict=True), lock)


def in_order(path: Path, name: str, lock: Callable[[int], None]) -> int:
    """Put the records of a file into the order of their lines. Give a descriptor of the new one, as above."""
    import numpy as np

    lines, starts = array("Q"), array("Q")
    end = 0
    for place in places(path, name):
        lines.append(place.line)
        starts.append(place.start)
        end = place.end
    starts.append(end)
    order = np.frombuffer(lines, dtype=np.uint64).argsort(kind="stable")
    return _rewritten(path, ((starts[i], starts[i + 1]) for i in map(int, order)), lock)


def _rewritten(path: Path, spans: Iterator[Span], lock: Callable[[int], None]) -> int:
    """Replace a file by spans of it, in their order. It is as it was where that fails."""
    descriptor, aside = tempfile.mkstemp(prefix=".minigen-", dir=path.parent)
    is_whole = False
    try:
        lock(descriptor)
        with path.open("rb") as source, open(descriptor, "wb", closefd=False) as target:
            os.chmod(aside, stat.S_IMODE(os.fstat(source.fileno()).st_mode))
            for start, end in spans:
                _copy(source, target, start, end)
            target.flush()
            os.fsync(descriptor)
        os.replace(aside, path)
        is_whole = True
    finally:
        if not is_whole:
            os.close(descriptor)
            Path(aside).unlink(missing_ok=True)
    return descriptor


def _copy(source: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    source.seek(start)
    while start < end:
        chunk = source.read(min(_CHUNK, end - start))
        target.write(chunk)
        start += len(chunk)
