"""Peak memory: of a 4,000-token prefill over that after loading, and of whole runs over that of `import torch`."""

import os
import subprocess
import sys

from minigen.generation.compiling import compile_package
from minigen.generation.sources import WEIGHTS

from .measure import default_files, show

CHILD = """
from pathlib import Path
from benchmarks.measure import default_model
from minigen.generation import Engine, SamplingParams

def mebibytes(name):  # VmRSS: in use now; VmHWM: the peak since it was last set back
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024

engine = Engine(default_model(), max_running=1)
engine.add_request([5] * 10, SamplingParams(temperature=0, max_new_tokens=2, ignore_eos=True))
while engine.has_unfinished_requests():
    engine.step()
Path("/proc/self/clear_refs").write_text("5")  # loading has a peak of its own, which would hide the prefill's
before = mebibytes("VmRSS")
engine.add_request([5 + i % 900 for i in range(4000)], SamplingParams(temperature=0, max_new_tokens=2), "r")
while not engine.step():  # a chunk of the prompt each
    pass
layers = engine.scheduler.find("r").slot.layers
cache = sum(t.numel() * t.element_size() for layer in layers for t in (layer.keys, layer.values)) / 2**20
print(before, mebibytes("VmHWM") - before, cache)
"""


def peak(*argv: str) -> float:
    """Give the peak memory of a Python process, in MiB."""
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    process = os.posix_spawn(sys.executable, [sys.executable, *argv], os.environ, file_actions=null)
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{argv} ended with status {status}")
    return used.ru_maxrss / 1024


def show_runs() -> None:
    """Print the table of whole runs."""
    for weights in WEIGHTS:
        compile_package(default_files(), weights=weights)
    torch = peak("-c", "import torch")
    rows = []
    for name, flags in (
        ("not compiled, float32", ["--compile", "never"]),
        ("compiled", ["--compile", "require"]),
        ("compiled, int8", ["--compile", "require", "--weights", "int8"]),
    ):
        found = []
        for prompt in ("The cache keeps", "The cache keeps what the past has said. " * 80):
            run = ["run", prompt, "--raw", "-q", "--device", "cpu", "--ignore-eos", "--max-new-tokens", "100", *flags]
            found.append(f"{peak('-m', 'minigen.cli', *run) - torch:.0f}")
        rows.append([name, *found])
    size = sum(path.stat().st_size for path in default_files().path.glob("*.safetensors")) / 2**20
    title = f"Peak memory of a run of 100 tokens, MiB above that of import torch (the checkpoint has {size:.0f} MiB)"
    show(title, ["", "a short prompt", "a prompt of 720 tokens"], rows)


def main() -> None:
    """Print the tables."""
    show_runs()
    done = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    before, rise, cache = (float(word) for word in done.stdout.split())
    rows = [[f"{before:.0f}", f"{rise:.0f}", f"{cache:.0f}", f"{rise - cache:.0f}"]]
    columns = ["in use after loading, MiB", "rise to the peak", "KV cache", "rise without it (at most 300)"]
    show("A 4,000-token prompt, float32", columns, rows)
