"""Where a package belongs: the machine, the libraries, the model and the shapes that it was compiled for."""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from .safetensors_file import weight_files
from .sources import ModelFiles

FORMAT: Final = 3  # of a package's folder
BLOCK_SIZE: Final = 64  # tokens of a block in the pools that a step reads
MOST_ROWS: Final = 4  # sequences that read a token at once; for the sums of more a processor has no registers
FLAGS: Final[Mapping[str, Any]] = {  # of the compiler
    "cpp.enable_floating_point_contract_flag": "fast",  # a product and a sum in one instruction
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.allow_stack_allocation": sys.platform == "linux",  # whose threads have room: see compiled_code.py
}
_TEXT_FILES: Final = ("tokenizer*", "special_tokens*", "chat_template*", "generation_config.json")
_SOURCES: Final = (
    "step.py",
    "step_attention.py",
    "pooled_layer.py",
    "pools.py",
    "narrow_layers.py",
    "narrowing.py",
    "twelve_bits.py",
    "compile_process.py",
    "compiled_code.py",
    "placed_weights.py",
    "package_key.py",
    "light_tokenizer.py",
    "chat_template.py",
)  # that shape the step
Key = Mapping[str, str]


def key_of(files: ModelFiles, weights: str) -> Key:
    """Give what a package of a model's folder must match in, by what a person would call it.

    weights: "exact" or "int8".
    """
    return {
        "format": str(FORMAT),
        "minigen": _digest(*(Path(__file__).with_name(name).read_bytes() for name in _SOURCES)),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "processor": _digest(_processor().encode()),
        "number of processors": str(most_threads()),
        "compiler flags": _digest(json.dumps(FLAGS, sort_keys=True).encode()),
        "configuration": _digest((files.path / "config.json").read_bytes()),
        "tokenizer": _digest(*(_stamp(path).encode() for path in _others(files.path))),
        "weight files": _digest(*(_stamp(path).encode() for path in weight_files(files.path))),
        "weights": weights,
        "block size": str(BLOCK_SIZE),
        "number of rows": str(MOST_ROWS),
    }


@cache
def most_threads() -> int:
    """Give how many threads a step may run on: its sums have room for so many."""
    return os.cpu_count() or 1


def difference(one: Key, other: Key) -> str | None:
    """Name the first thing in which two keys differ; None where they are the same."""
    return next((name for name in {**one, **other} if one.get(name) != other.get(name)), None)


def _others(folder: Path) -> list[Path]:
    """Give the files of a model's folder that say how text becomes tokens, and what ends it."""
    return sorted(path for pattern in _TEXT_FILES for path in folder.glob(pattern))


def _stamp(path: Path) -> str:
    facts = path.stat()  # of what a link leads to
    return f"{path.name} {facts.st_size} {facts.st_mtime_ns}"


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:16]


@cache
def _processor() -> str:
    """Name the processor and all that it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = [line for line in lines if line.startswith(("model name", "flags", "Features"))][:2]
    return "\n".join([platform.machine(), platform.processor(), *told])
