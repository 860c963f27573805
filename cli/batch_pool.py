"""How many workers a cluster has room for, and what each of them gets: a GPU, or some cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..generation.errors import DeviceError

_MOST_CORES: Final = 8  # of one worker: beyond them a small model gains little


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The workers of a cluster."""

    size: int
    device: Literal["cuda", "cpu"]
    threads: int | None  # of each worker; None: as many as its machine likes
    cores: int  # that each worker holds
    gpus: int  # that each worker holds


def pool_of(machines: Sequence[Mapping[str, float]], device: str, threads: int | None) -> Pool:
    """Give the workers that fit on machines: one for each GPU where there is one, else one for every few cores.

    machines: what each has, by the names CPU and GPU; device: auto, cuda or cpu; threads: cores of a worker; None: all
    of the smallest machine, up to 8. Raises DeviceError where there is no room for one.
    """
    num_gpus = sum(int(machine.get("GPU", 0)) for machine in machines)
    if device != "cpu" and num_gpus:
        return Pool(size=num_gpus, device="cuda", threads=threads, cores=0, gpus=1)
    if device == "cuda":
        raise DeviceError("The device cuda needs a GPU, and the Ray cluster has none.")
    cores = [int(machine.get("CPU", 0)) for machine in machines if machine.get("CPU", 0) >= 1]
    if not cores:
        raise DeviceError("The Ray cluster has no cores for a worker.")
    each = threads or min(_MOST_CORES, *cores)
    size = sum(count // each for count in cores)
    if not size:
        raise DeviceError(f"--threads {each} needs a machine of as many cores, and the largest has {max(cores)}.")
    return Pool(size=size, device="cpu", threads=each, cores=each, gpus=0)
