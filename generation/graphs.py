"""Graphs: work on tensors that stay in their place, recorded once and then done again by one call.

A step is some thousand kernels, which a GPU often does faster than Python can ask for them. A graph asks for all of
them at once. What it reads is written into its inputs before; what it gives stands where it stood the first time.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .errors import first_line


@dataclass(frozen=True, slots=True)
class Graph:
    """Recorded work: `replay` does it again with what its inputs then hold, and `result` holds what comes out."""

    replay: Callable[[], None]
    result: Tensor


class Capture(Protocol):
    """Records work, which it may do as often as it needs to. Raises RuntimeError for work that cannot be recorded.

    Work may make no tensor of numbers that the host has, and ask for no number that the device has.
    """

    def __call__(self, work: Callable[[], Tensor]) -> Graph:
        """Give the graph of `work`."""


class CudaCapture:
    """Records CUDA graphs. They share the memory of what lies between input and result: one runs at a time."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._stream: Any = None  # a single one: the matrix library keeps a workspace for each
        self._pool: Any = None

    def __call__(self, work: Callable[[], Tensor]) -> Graph:
        """Do the work once, so that libraries are ready, and then record it."""
        with torch.cuda.device(self._device):
            if self._stream is None:
                self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # the library's
                self._pool = torch.cuda.graph_pool_handle()
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                work()
            current.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                result = work()
            return Graph(graph.replay, result)


def capture_on(device: str) -> Capture | None:
    """Give what records graphs on a device; None where there is no such thing."""
    return CudaCapture(device) if device.startswith("cuda") else None


class Graphs:
    """Graphs by what they are for, each recorded when it is first wanted.

    After a failure there are none any more, and `failure` says what it was.
    """

    def __init__(self, capture: Capture | None) -> None:
        self._capture = capture
        self._graphs: dict[Hashable, Graph] = {}
        self.failure: str | None = None

    @property
    def are_open(self) -> bool:
        """Whether work is done by graphs."""
        return self._capture is not None

    def result(self, key: Hashable, work: Callable[[], Tensor]) -> Tensor | None:
        """Give what `work` gives, by its graph; it stands there until the next call with this key.

        None where there are no graphs, or no longer.
        """
        if self._capture is None:
            return None
        try:
            if key not in self._graphs:
                self._graphs[key] = self._capture(work)
            graph = self._graphs[key]
            graph.replay()
        except RuntimeError as error:  # the same work can be done without
            self._capture, self.failure = None, first_line(error)
            self._graphs.clear()
            return None
        return graph.result


class StaticInput:
    """A tensor that the host fills and one copy brings to its place on the device, without waiting for it."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        self._on_host = torch.zeros(shape, dtype=dtype, pin_memory=is_cuda)
        self._has_come: Any = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call]  # the library's
        self._numbers = self._on_host.numpy()
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)

    def numbers(self) -> Any:
        """Give the numbers to fill in, an array, once the copy of those before has been made."""
        if self._has_come is not None:
            self._has_come.synchronize()  # long past: a step ends with a transfer
        return self._numbers

    def send(self) -> Tensor:
        """Copy them to the device and give the tensor there."""
        self.tensor.copy_(self._on_host, non_blocking=True)
        if self._has_come is not None:
            self._has_come.record(torch.cuda.current_stream(self.tensor.device))
        return self.tensor


def bucket(count: int, least: int = 1) -> int:
    """Give the power of two that holds `count`, not below `least`, itself one: few graphs then serve every number."""
    return max(least, 1 << (count - 1).bit_length())
