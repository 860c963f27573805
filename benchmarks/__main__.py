"""Run all benchmarks, or those named: `python -m benchmarks decode start`."""

import sys

import torch

from . import bandwidth, batch, compiled, decode, gpu, loop, memory, prefill, start

BENCHMARKS = {
    "loop": loop.main,
    "decode": decode.main,
    "bandwidth": bandwidth.main,
    "compiled": compiled.main,
    "prefill": prefill.main,
    "batch": batch.main,
    "start": start.main,
    "memory": memory.main,
    "gpu": gpu.main,
}


def usual() -> list[str]:
    """Give the names of those that this machine can run."""
    return [name for name in BENCHMARKS if name != "gpu" or torch.cuda.is_available()]


def main() -> None:
    """Run each benchmark alone, one after the other."""
    wanted = sys.argv[1:] or usual()
    for name in wanted:
        if name not in BENCHMARKS:
            sys.exit(f"No benchmark {name!r}; there are: {', '.join(BENCHMARKS)}.")
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
