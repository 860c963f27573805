"""Checks a GGUF file before it is loaded: its header is walked, and every tensor must lie inside the file."""

import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import SourceError
from .gguf_reader import UINT32, UINT64, DamageError, GgufReader
from .progress import bytes_text

# What transformers can read and what is a causal language model among it.
READABLE = {
    *("bloom", "deci", "falcon", "gemma2", "gemma3", "gemma4", "gpt2", "gpt_oss", "lfm2", "llama", "mamba"),
    *("minimax_m2", "mistral", "nemotron", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen35"),
    *("qwen35moe", "stablelm", "starcoder2"),
}
# Names that files use for some of them.
_SAME_AS = {"gpt-oss": "gpt_oss", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "minimax-m2": "minimax_m2"}
_END_IDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
_POINTER = b"version https://git-lfs"
_MAX_DIMENSIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFacts:
    """What a GGUF file says of itself."""

    architecture: str
    num_weights: int  # the numbers in all tensors: times two, the bytes that they need as bfloat16
    tensor_names: tuple[str, ...]
    end_token_ids: tuple[int, ...]  # end of text, of turn, of message; without repeats


def inspect_gguf(path: Path) -> GgufFacts:
    """What the GGUF file holds. Raises SourceError when it is damaged or no causal language model that can be read."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(len(_POINTER)) == _POINTER:
                raise SourceError(f"{path} is a git-lfs pointer of {size} bytes: run `git lfs pull` in its folder.")
            if size == 0:
                raise DamageError("it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                facts = _walk(GgufReader(data))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from error
    except DamageError as damage:
        what = f"{path} is damaged or no GGUF file ({bytes_text(size)})"
        raise SourceError(f"{what}: {damage}; fetch it again.") from None
    kind = _SAME_AS.get(facts.architecture, facts.architecture)
    if kind not in READABLE:
        raise SourceError(f"{path}: GGUF files of the architecture {facts.architecture!r} cannot be read.")
    return facts


def _walk(reader: GgufReader) -> GgufFacts:
    """Read the header from its beginning and hold every tensor against the file's size."""
    if reader.raw(4) != b"GGUF":
        raise DamageError("it does not begin with GGUF")
    version = reader.number(UINT32)
    if version not in (2, 3):
        raise DamageError(f"its version is {version}, not 2 or 3")
    num_tensors, num_fields = reader.number(UINT64), reader.number(UINT64)
    # The smallest field takes 13 bytes, the smallest tensor entry 33.
    if num_tensors == 0 or num_tensors * 33 + num_fields * 13 > reader.size:
        raise DamageError(f"it claims {num_tensors} tensors and {num_fields} settings")
    fields = _fields(reader, num_fields)
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
        raise DamageError(f"its alignment is {alignment!r}")
    tensors = [_tensor(reader, alignment) for _ in range(num_tensors)]
    _place_all(reader, alignment, tensors)
    architecture = fields.get("general.architecture")
    if not isinstance(architecture, str):
        raise DamageError("it names no architecture")
    end_ids = (fields.get(key) for key in _END_IDS)
    return GgufFacts(
        architecture=architecture,
        num_weights=sum(tensor.num_weights for tensor in tensors),
        tensor_names=tuple(tensor.name for tensor in tensors),
        end_token_ids=tuple(dict.fromkeys(number for number in end_ids if type(number) is int and number >= 0)),
    )


def _fields(reader: GgufReader, count: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(count):
        name = reader.name()
        if name in fields:
            raise DamageError(f"the setting {name[:80]!r} is there twice")
        fields[name] = reader.value(reader.number(UINT32))
    return fields


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    num_weights: int
    start: int  # bytes after the header
    length: int  # bytes


def _tensor(reader: GgufReader, alignment: int) -> _Tensor:
    name = reader.name()
    num_dimensions = reader.number(UINT32)
    if num_dimensions > _MAX_DIMENSIONS:
        raise DamageError(f"the tensor {name[:80]!r} has {num_dimensions} dimensions")
    shape = [reader.number(UINT64) for _ in range(num_dimensions)]
    kind, start = reader.number(UINT32), reader.number(UINT64)
    per_block, block_bytes = _block(kind)
    if not per_block:
        raise DamageError(f"the tensor {name[:80]!r} has the unknown type {kind}")
    if 0 in shape or (shape or [1])[0] % per_block or start % alignment:
        raise DamageError(f"the tensor {name[:80]!r} has the shape {shape} at {start}")
    num_weights = math.prod(shape)
    return _Tensor(name, num_weights, start, num_weights // per_block * block_bytes)


def _block(kind: int) -> tuple[int, int]:
    """How many weights a block of this type holds and how many bytes it takes; (0, 0) for an unknown type."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        return GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        return 0, 0


def _place_all(reader: GgufReader, alignment: int, tensors: list[_Tensor]) -> None:
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise DamageError("a tensor is there twice")
    data_start = -(-reader.place // alignment) * alignment
    reached = 0
    for tensor in sorted(tensors, key=lambda tensor: tensor.start):
        if tensor.start < reached:
            raise DamageError(f"the tensor {tensor.name[:80]!r} overlaps another")
        reached = tensor.start + tensor.length
    if data_start + reached > reader.size:
        raise DamageError("it ends before its last tensor does")
