"""Devices and number types: what is chosen, what is refused, and what running out of memory says."""

from importlib.machinery import ModuleSpec
from typing import Any

import pytest
import torch
from minigen.generation import device as devices
from minigen.generation.device import (
    choose_device,
    choose_dtype,
    dtype_warnings,
    is_out_of_memory,
    memory_translated,
)
from minigen.generation.errors import DeviceError, OutOfMemory, ParameterError, UsageError
from minigen.generation.sources import ModelSettings, PathSource


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with so many GPUs of a compute capability, with or without an Apple GPU."""

    def build(gpus: int = 0, capability: tuple[int, int] = (9, 0), apple: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (2**30, 2**34))
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)

    return build


@pytest.mark.parametrize(
    ("gpus", "apple", "chosen"), [(2, True, "cuda"), (0, True, "mps"), (0, False, "cpu"), (1, False, "cuda")]
)
def test_auto_takes_cuda_then_mps_then_cpu(machine: Any, gpus: int, apple: bool, chosen: str) -> None:
    machine(gpus, apple=apple)
    assert choose_device("auto") == chosen


@pytest.mark.parametrize("wanted", ["cuda", "cuda:0", "cuda:1", "cpu"])
def test_a_device_that_is_there_is_taken_as_named(machine: Any, wanted: str) -> None:
    machine(2)
    assert choose_device(wanted) == wanted


@pytest.mark.parametrize("wanted", ["cuda", "cuda:0", "mps"])
def test_a_missing_device_names_what_is_there(machine: Any, wanted: str) -> None:
    machine()
    with pytest.raises(DeviceError) as caught:
        choose_device(wanted)
    assert str(caught.value) == f"{wanted} is not available here; this machine has: cpu."


def test_a_gpu_number_too_high_names_what_is_there(machine: Any) -> None:
    machine(1)
    with pytest.raises(DeviceError, match=r"^cuda:3 is not available here; this machine has: cuda:0, cpu\.$"):
        choose_device("cuda:3")


def test_balanced_needs_accelerate(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(2)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        choose_device("balanced")
    assert str(caught.value) == 'The device balanced needs accelerate: pip install "minigen-cli[balanced]".'


def test_balanced_needs_a_gpu(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: ModuleSpec(name, None))
    with pytest.raises(DeviceError) as caught:
        choose_device("balanced")
    assert str(caught.value) == "balanced needs a CUDA GPU; this machine has: cpu."


def test_balanced_is_taken_where_there_are_gpus(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(2)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: ModuleSpec(name, None))
    assert choose_device("balanced") == "balanced"


@pytest.mark.parametrize(
    ("device", "capability", "dtype"),
    [
        ("cpu", (0, 0), "float32"),
        ("mps", (0, 0), "float16"),
        ("cuda", (7, 5), "float16"),
        ("cuda:1", (8, 0), "bfloat16"),
        ("balanced", (9, 0), "bfloat16"),
        ("balanced", (7, 0), "float16"),
    ],
)
def test_auto_dtype_follows_the_device(machine: Any, device: str, capability: tuple[int, int], dtype: str) -> None:
    machine(2, capability)
    assert choose_dtype("auto", device) == dtype


def test_a_named_dtype_wins() -> None:
    """DEV-2"""
    assert choose_dtype("bfloat16", "cpu") == "bfloat16"


def test_an_unknown_dtype_lists_the_allowed_ones() -> None:
    """DEV-2"""
    with pytest.raises(ParameterError, match="auto, float32, float16, bfloat16, not 'bfloat32'"):
        ModelSettings(sources=(PathSource(path=None),), dtype="bfloat32")  # type: ignore[arg-type]  # never read


def test_float16_on_a_cpu_is_warned_about() -> None:
    """DEV-1"""
    assert dtype_warnings("float16", "cpu") == (
        "float16 is slow and less exact on a CPU; float32 or bfloat16 is better there.",
    )
    assert dtype_warnings("float16", "cuda") == dtype_warnings("bfloat16", "cpu") == ()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("DefaultCPUAllocator"), False),
    ],
)
def test_out_of_memory_has_many_faces(error: Exception, expected: bool) -> None:
    """DEV-4"""
    assert is_out_of_memory(error) is expected


def test_out_of_memory_says_sizes_and_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """DEV-4"""
    monkeypatch.setattr(devices, "free_memory", lambda device: 3 * 10**9)
    with pytest.raises(OutOfMemory) as caught, memory_translated("loading the model", "cpu", needed=5 * 10**9):
        raise MemoryError
    assert str(caught.value) == (
        "cpu ran out of memory while loading the model (5.0 GB needed, 3.0 GB free); "
        "a smaller dtype, a smaller model, fewer tokens or a GPU would help."
    )


def test_out_of_memory_without_known_sizes_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """DEV-4"""
    monkeypatch.setattr(devices, "free_memory", lambda device: None)
    with pytest.raises(OutOfMemory) as caught, memory_translated("reading the prompt", torch.device("mps")):
        raise torch.OutOfMemoryError("MPS backend out of memory")
    assert str(caught.value) == (
        "mps ran out of memory while reading the prompt; "
        "a smaller dtype, a smaller model, fewer tokens or --device cpu would help."
    )


def test_other_errors_pass_the_memory_gate() -> None:
    with pytest.raises(RuntimeError, match=r"^shapes$"), memory_translated("loading the model", "cpu"):
        raise RuntimeError("shapes")


def test_free_memory_of_a_gpu_is_asked_of_the_driver(machine: Any) -> None:
    machine(2)
    assert devices.free_memory("cuda:1") == 2**30
    assert devices.free_memory("balanced") == 2**31
    assert devices.free_memory("mps") is None
