"""Run all benchmarks, or those named: `python -m benchmarks decode start`."""

import argparse
from types import ModuleType

import torch

from . import bandwidth, batch, compiled, decode, gpu, loop, memory, prefill, start

BENCHMARKS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (loop, decode, bandwidth, compiled, prefill, batch, start, memory, gpu)
}


def usual() -> list[str]:
    """Give the names of those that this machine can run."""
    return [name for name in BENCHMARKS if name != "gpu" or torch.cuda.is_available()]


def parser() -> argparse.ArgumentParser:
    """Give what reads the command line: names, and for --help what each measures."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure minigen beside other tools, one benchmark after the other. Nothing else should run.",
        epilog="\n".join(f"  {name:10} {_told(module)}" for name, module in BENCHMARKS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "names", nargs="*", metavar="NAME", help="one of those below; without a name, all that this machine can run"
    )
    return found


def _told(module: ModuleType) -> str:
    return str(module.__doc__).partition("\n")[0]


def main() -> None:
    """Run each benchmark alone, one after the other."""
    reader = parser()
    wanted = reader.parse_args().names or usual()
    for name in wanted:
        if name not in BENCHMARKS:
            reader.error(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    for name in wanted:
        BENCHMARKS[name].main()


if __name__ == "__main__":
    main()
