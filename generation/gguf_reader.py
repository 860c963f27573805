"""Reads the values of a GGUF header one after another, and never past the end of the file."""

import mmap
import struct
from typing import Any

UINT32, STRING, ARRAY, UINT64 = 4, 8, 9, 10
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_NAME = 65_535  # bytes


class DamageError(Exception):
    """What is wrong with the file, as the end of a sentence."""


class GgufReader:
    """A place in a file that is little-endian, as GGUF files are."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.place = 0
        self.size = len(data)

    def skip(self, count: int) -> int:
        """Step over `count` bytes and give where they began."""
        start = self.place
        if count > self.size - start:
            raise DamageError("it ends in the middle of its header")
        self.place = start + count
        return start

    def raw(self, count: int) -> bytes:
        start = self.skip(count)
        return self._data[start : self.place]

    def number(self, kind: int) -> Any:
        form = "<" + _FORMATS[kind]
        (value,) = struct.unpack_from(form, self._data, self.skip(struct.calcsize(form)))
        return value

    def text(self) -> str:
        try:
            return self.raw(self.number(UINT64)).decode("utf-8")
        except UnicodeDecodeError:
            raise DamageError("a text in its header is not UTF-8") from None

    def name(self) -> str:
        name = self.text()
        if not name or len(name) > _MAX_NAME:
            raise DamageError(f"a name in its header has {len(name)} characters")
        return name

    def value(self, kind: int) -> Any:
        """A value of any kind; an array is stepped over and gives None, for nothing here needs one."""
        if kind == STRING:
            return self.text()
        if kind in _FORMATS:
            return self.number(kind)
        if kind != ARRAY:
            raise DamageError(f"its header has a value of the unknown type {kind}")
        inner, count = self.number(UINT32), self.number(UINT64)
        if inner in _FORMATS:
            self.skip(count * struct.calcsize("<" + _FORMATS[inner]))
        elif inner == STRING:
            for _ in range(count):
                self.skip(self.number(UINT64))
        else:
            raise DamageError(f"its header has an array of the unknown type {inner}")
        return None
