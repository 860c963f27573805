"""A double for CUDA graphs on the CPU: it records every call that work makes, and makes the same calls again.

It refuses what a CUDA graph could not hold. What it replays goes into the very tensors of the recording, so that a
result which hangs on anything but the inputs comes out wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from minigen.generation.graphs import Graph
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

WAITING = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "tolist"}  # for what the device computes


class RefusedError(RuntimeError):
    """What a CUDA graph cannot hold."""


def check_capturable(function: Any, arguments: Any) -> None:
    """Raise RefusedError for a call that waits for the device, or moves numbers from or to the host."""
    name = function._schema.name.removeprefix("aten::")
    tensors = [each for each in tree_leaves(arguments) if isinstance(each, Tensor)]
    if name in WAITING or torch.Tag.data_dependent_output in function.tags:
        raise RefusedError(f"{name} waits for a number")
    is_boolean_index = name.startswith("index") and any(each.dtype is torch.bool for each in tensors[1:])
    if is_boolean_index or (torch.Tag.dynamic_output_shape in function.tags and not name.startswith("index")):
        raise RefusedError(f"{name} gives as much as the numbers say")
    if name == "lift_fresh" and tensors[0].dim() > 0:
        raise RefusedError("numbers of the host become a tensor")
    if name == "detach_" and tensors[0].device.type != "cpu":  # the trace of torch.tensor(..., device=...)
        raise RefusedError("numbers of the host become a tensor on the device")
    moves = name in {"_to_copy", "copy_"}  # other calls may take a single number of the host along
    devices = {str(each.device) for each in tensors if each.dim() > 0 or moves}
    devices |= {str(each) for each in tree_leaves(arguments) if isinstance(each, torch.device)}
    if len(devices) > 1:
        raise RefusedError(f"{name} joins {' and '.join(sorted(devices))}")


class Recorder(TorchDispatchMode):
    """Makes each call, and keeps it with the tensors that it took and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is not torch.ops.prim.device.default:
            with self:
                parts = function.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
            check_capturable(function, (args, kwargs))
        given = function(*args, **kwargs)
        self.calls.append((function, args, kwargs, given))
        return given

    def replay(self) -> None:
        """Make the same calls, each into the tensors that it gave."""
        for function, args, kwargs, given in self.calls:
            again = function(*args, **kwargs)
            for old, new in zip(tree_leaves(given), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def device_of(call: Any) -> str:
    """Give the devices of the tensors that a recorded call took and gave, as a text."""
    leaves = [each for each in tree_leaves(call) if isinstance(each, Tensor)]
    return " and ".join(sorted({each.device.type for each in leaves})) or "meta"


class RecordedCapture:
    """Captures on the CPU, with one recorder for each graph; `num_replays` counts how often any was replayed.

    is_silent: whether a watch does not see what a replay does, as a host does not see what a graph does.
    """

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []
        self.num_replays = 0
        self.is_silent = False

    def __call__(self, work: Callable[[], Tensor]) -> Graph:
        work()
        recorder = Recorder()
        with recorder:
            result = work()
        self.recorders.append(recorder)

        def replay() -> None:
            self.num_replays += 1
            with _disable_current_modes() if self.is_silent else nullcontext():
                recorder.replay()

        result.fill_(torch.nan if result.is_floating_point() else -1)  # a capture computes nothing
        return Graph(replay, result)


class Watch(TorchDispatchMode):
    """Counts the calls that cross between host and device, or wait, where both are the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function._schema.name.removeprefix("aten::"))
        return function(*args, **kwargs or {})


@contextmanager
def watched() -> Iterator[list[str]]:
    """Give the names of the calls that are made within the block."""
    with Watch() as watch:
        yield watch.names
