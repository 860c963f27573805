"""Peak memory of a 4,000-token prefill over that after loading, against its KV cache."""

import subprocess
import sys

from .measure import show

CHILD = """
import resource
from benchmarks.measure import default_model
from minigen.generation import Engine, SamplingParams
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
model = default_model()
engine = Engine(model)
engine.add_request([5] * 10, SamplingParams(temperature=0, max_new_tokens=2, ignore_eos=True))
while engine.has_unfinished_requests(): engine.step()
before = peak()
engine.add_request([5 + i % 900 for i in range(4000)], SamplingParams(temperature=0, max_new_tokens=2), "r")
engine.step()
layers = engine.scheduler.find("r").slot.layers
cache = sum(t.numel() * t.element_size() for layer in layers for t in (layer.keys, layer.values)) / 2**20
print(before, peak() - before, cache)
"""


def main() -> None:
    """Print the table."""
    done = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    before, rise, cache = (float(word) for word in done.stdout.split())
    rows = [[f"{before:.0f}", f"{rise:.0f}", f"{cache:.0f}", f"{rise - cache:.0f}"]]
    columns = ["peak after loading, MiB", "rise of the peak", "KV cache", "rise without it (at most 300)"]
    show("A 4,000-token prompt, float32", columns, rows)
