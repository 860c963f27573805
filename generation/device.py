"""Devices and number types: what this machine has, what is chosen, and what running out of memory means."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .errors import DeviceError, OutOfMemory, UsageError
from .progress import bytes_text

if TYPE_CHECKING:
    import torch

_NATIVE_BFLOAT16 = (8, 0)  # compute capability from which an NVIDIA GPU computes bfloat16 itself


def available_devices() -> tuple[str, ...]:
    """Name the devices of this machine, the fastest kind first: `("cuda:0", "cuda:1", "cpu")`."""
    import torch

    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    apple = ["mps"] if torch.backends.mps.is_available() else []
    return (*gpus, *apple, "cpu")


def choose_device(wanted: str) -> str:
    """Give the device that `wanted` means here; `auto` is cuda, then mps, then cpu.

    Raises DeviceError for a device that this machine does not have.
    """
    here = available_devices()
    if wanted == "auto":
        return here[0].removesuffix(":0")
    if wanted == "balanced":
        return _checked_balanced(here)
    if wanted in here or f"{wanted}:0" in here:
        return wanted
    raise DeviceError(f"{wanted} is not available here; this machine has: {', '.join(here)}.")


def _checked_balanced(here: tuple[str, ...]) -> str:
    if importlib.util.find_spec("accelerate") is None:
        raise UsageError('The device balanced needs accelerate: pip install "minigen-cli[balanced]".')
    if not here[0].startswith("cuda"):
        raise DeviceError(f"balanced needs a CUDA GPU; this machine has: {', '.join(here)}.")
    return "balanced"


def choose_dtype(wanted: str, device: str) -> str:
    """Give the number type for a chosen device; `auto` is float32 on a CPU, bfloat16 where a GPU is good at it."""
    if wanted != "auto":
        return wanted
    if device == "cpu":
        return "float32"
    return "bfloat16" if device != "mps" and _has_native_bfloat16(device) else "float16"


def _has_native_bfloat16(device: str) -> bool:
    """Whether every GPU in question computes bfloat16 natively: emulation is slower than float16."""
    import torch

    indices = range(torch.cuda.device_count()) if device == "balanced" else [torch.device(device).index or 0]
    return all(torch.cuda.get_device_capability(index) >= _NATIVE_BFLOAT16 for index in indices)


def dtype_warnings(dtype: str, device: str) -> tuple[str, ...]:
    """Give the warnings that a number type on a device deserves."""
    if device == "cpu" and dtype == "float16":
        return ("float16 is slow and less exact on a CPU; float32 or bfloat16 is better there.",)
    return ()


def free_memory(device: str) -> int | None:
    """Give the free bytes of a device, or None where that is not known."""
    import torch

    if device.startswith("cuda") or device == "balanced":
        indices = range(torch.cuda.device_count()) if device == "balanced" else [torch.device(device).index or 0]
        return sum(torch.cuda.mem_get_info(index)[0] for index in indices)
    return _free_main_memory() if device == "cpu" else None


def _free_main_memory() -> int | None:
    """Read MemAvailable, which Linux alone gives."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            sizes = dict(line.split(":") for line in lines)
        return int(sizes["MemAvailable"].split()[0]) * 1024  # the file counts in KiB
    except (OSError, ValueError, KeyError):
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that a device has no memory left."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


@contextmanager
def memory_translated(doing: str, device: str | torch.device, needed: int | None = None) -> Iterator[None]:
    """Turn a device's out-of-memory error within the block into OutOfMemory.

    doing: what was going on ("loading the model"); needed: bytes, where known.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(doing, str(device), needed) from error


def out_of_memory(doing: str, device: str, needed: int | None = None) -> OutOfMemory:
    """Say that `device` ran out of memory, with the sizes that are known and what would help."""
    free = free_memory(device)
    sizes = [f"{bytes_text(needed)} needed"] if needed is not None else []
    sizes += [f"{bytes_text(free)} free"] if free is not None else []
    known = f" ({', '.join(sizes)})" if sizes else ""
    other = "a GPU" if device == "cpu" else "--device cpu"
    return OutOfMemory(
        f"{device} ran out of memory while {doing}{known}; "
        f"a smaller dtype, a smaller model, fewer tokens or {other} would help."
    )
