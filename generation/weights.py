"""What tokens weigh before they are made to add up to 1: exp(−gap/T), where a token's gap is how far its score lies
below the highest one. In float64, and piece by piece: a whole vocabulary at once would not stay near the processor.
With numpy, which is quicker than torch at small sizes and at these waits for no other thread.
"""

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Scores = NDArray[np.float32]

PIECE = 8192  # numbers that are read at a time; dot products of more start threads, which wait for torch's
MANY = 1024  # numbers from which on torch is faster at running sums
FAR = 1e100  # the gap of a dropped token: it weighs nothing, and FAR · 0 is still a number


def gaps_below(highest: float, scores: Scores) -> Floats:
    """Give how far scores lie below the highest one; FAR for a dropped token."""
    gaps = scores.astype(np.float64)
    np.subtract(highest, gaps, out=gaps)
    return np.minimum(gaps, FAR, out=gaps)


def weights_of(gaps: Floats, inverse: float = 1.0, start: float = 0.0) -> Floats:
    """Give exp((start − gap) · inverse): the weights at a temperature of 1/inverse, 1 for a gap of `start`."""
    exponents = np.multiply(gaps - start if start else gaps, -inverse)
    return np.exp(exponents, out=exponents)


def moments(gaps: Floats, inverse: float = 1.0, start: float = 0.0) -> tuple[float, float]:
    """Give the sum of the weights, and the sum of weight times gap."""
    weights = weights_of(gaps, inverse, start)
    return float(np.add.reduce(weights)), float(weights.dot(gaps))


def pieces(numbers: Floats) -> list[Floats]:
    """Cut a row into the pieces that are read at a time."""
    return [numbers[i : i + PIECE] for i in range(0, len(numbers), PIECE)]


def running_sums(numbers: Floats) -> Floats:
    """Give the sum of the first number, of the first two, and so on."""
    return numbers.cumsum() if len(numbers) < MANY else torch.from_numpy(numbers).cumsum(0).numpy()
