"""What a folder's safetensors files hold, read from their headers alone."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """The sizes of a folder's weights."""

    num_bytes: int  # on disk
    num_tensors: int
    num_weights: int
    dtypes: Mapping[str, int] = field(default_factory=dict)  # "BF16" -> weights stored so


def read_headers(folder: Path) -> Headers:
    """Read the headers of the files that an inspected folder's weights are in."""
    num_bytes = num_tensors = 0
    dtypes: Counter[str] = Counter()
    for path in weight_files(folder):
        num_bytes += path.stat().st_size
        for name, tensor in _read_header(path).items():
            if name != "__metadata__":
                num_tensors += 1
                dtypes[tensor["dtype"]] += prod(tensor["shape"])
    return Headers(num_bytes=num_bytes, num_tensors=num_tensors, num_weights=dtypes.total(), dtypes=dict(dtypes))


def weight_files(folder: Path) -> list[Path]:
    """Give the files that an inspected folder's weights are in: one, or those that its index names."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return [single]
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [folder / name for name in sorted(set(names))]


def _read_header(path: Path) -> dict[str, Any]:
    """Read the JSON header of a safetensors file: eight bytes of length, then that many of text."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(length))
    return header
