"""How many bytes the processor reads a second, and how many tokens that allows: each reads every weight once."""

import statistics

import torch
from minigen.generation.safetensors_file import read_weight_facts

from .measure import default_files, seconds, show

NUMBERS = 1 << 26  # 256 MiB in float32: much more than any cache holds
BITS = {"float32": 32, "bfloat16, F16": 16, "Q8_0": 8.5}  # Q8_0: 32 weights and their scale in 34 bytes


def gigabytes_a_second(times: int = 9) -> float:
    """Give the median rate at which a sum reads a large tensor, in 10⁹ bytes."""
    numbers = torch.ones(NUMBERS)
    numbers.sum()
    return 4 * NUMBERS / statistics.median(seconds(numbers.sum) for _ in range(times)) / 1e9


def main() -> None:
    """Print the table."""
    num_weights = read_weight_facts(default_files().path).num_weights
    rate = gigabytes_a_second()
    rows = []
    for name, bits in BITS.items():
        size = num_weights * bits / 8e9
        rows.append([name, f"{size * 1000:.0f}", f"{rate / size:.0f}"])
    title = f"Memory is read at {rate:.1f} GB/s, {torch.get_num_threads()} threads; what that allows"
    show(title, ["weights", "MB a token", "tokens/s at most"], rows)
