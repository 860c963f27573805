"""Peak memory of a 4,000-token prefill over that after loading, against its KV cache."""

import subprocess
import sys

from .measure import show

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


def main() -> None:
    """Print the table."""
    done = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    before, rise, cache = (float(word) for word in done.stdout.split())
    rows = [[f"{before:.0f}", f"{rise:.0f}", f"{cache:.0f}", f"{rise - cache:.0f}"]]
    columns = ["in use after loading, MiB", "rise to the peak", "KV cache", "rise without it (at most 300)"]
    show("A 4,000-token prompt, float32", columns, rows)
