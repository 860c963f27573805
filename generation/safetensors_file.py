"""Safetensors files by their headers alone: whether a file is whole, and what a folder's files hold."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from .errors import SourceError
from .progress import bytes_text

_MAX_HEADER = 100 << 20  # bytes, the format's own limit
_POINTER = b"version https://git-lfs"
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFacts:
    """The sizes of a folder's weights."""

    num_bytes: int  # on disk
    num_weights: int
    dtypes: Mapping[str, int] = field(default_factory=dict)  # "BF16" -> weights stored so


def read_weight_facts(folder: Path) -> WeightFacts:
    """Read the headers of the files that an inspected folder's weights are in."""
    num_bytes = 0
    dtypes: Counter[str] = Counter()
    for path in weight_files(folder):
        num_bytes += path.stat().st_size
        header, _ = _read_header(path)
        for name, tensor in header.items():
            if name != "__metadata__":
                dtypes[tensor["dtype"]] += math.prod(tensor["shape"])
    return WeightFacts(num_bytes=num_bytes, num_weights=dtypes.total(), dtypes=dict(dtypes))


def weight_files(folder: Path) -> list[Path]:
    """Give the files that an inspected folder's weights are in: one, or those that its index names."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return [single]
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [folder / name for name in sorted(set(names))]


def inspect_safetensors(path: Path) -> None:
    """Raise SourceError unless the file is whole: its tensors fill it exactly, without gap or overlap."""
    try:
        header, size = _read_header(path)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from error
    spans = sorted(_span(path, name, tensor) for name, tensor in header.items() if name != "__metadata__")
    reached = 0
    for start, end in spans:
        if start != reached:
            _damaged(path, "its tensors leave a gap or overlap")
        reached = end
    if reached != size:
        _damaged(path, f"it has {size} bytes of weights where its header promises {reached}")


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and how many bytes of weights follow it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(len(_POINTER))
        if start == _POINTER:
            raise SourceError(
                f"{path} is a git-lfs pointer of {size} bytes, not the weights: run `git lfs pull` in its folder."
            )
        length = int.from_bytes(start[:8], "little")
        if size < 8 or length > min(_MAX_HEADER, size - 8):
            _damaged(path, "it ends before its header does")
        file.seek(8)
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        _damaged(path, "its header is not JSON")
    if not isinstance(header, dict) or not header:
        _damaged(path, "its header lists no tensors")
    return header, size - 8 - length


def _span(path: Path, name: str, tensor: Any) -> tuple[int, int]:
    """Where the tensor lies, in bytes after the header."""
    try:
        start, end = tensor["data_offsets"]
        shape, kind = tensor["shape"], tensor["dtype"]
        numbers = [*shape, start, end]
        is_sane = all(type(number) is int and number >= 0 for number in numbers) and start <= end
    except (KeyError, TypeError, ValueError):
        is_sane = False
    if not is_sane:
        _damaged(path, f"its header describes the tensor {name[:80]!r} wrongly")
    if kind in _BITS and (end - start) * 8 != math.prod(shape) * _BITS[kind]:
        _damaged(path, f"the size of the tensor {name[:80]!r} does not fit its shape")
    return start, end


def _damaged(path: Path, reason: str) -> NoReturn:
    size = bytes_text(path.stat().st_size)
    raise SourceError(f"{path} is damaged or cut short ({size}): {reason}; fetch the model again.")
