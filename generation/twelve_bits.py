"""Weights in bfloat16 as 12 bits each, none of them changed: most of a row lie within a few powers of two.

A byte tells the sign and the seven digits of a weight, half a byte by how many powers it is above the lowest of its
row. Put where a float32 has them, they make a number that is very small, which a factor of the row brings up to size.
The few weights of a row that are farther apart are kept aside. (A 0 loses its sign.)
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor

_LIFTED = 64  # powers of two
LANES: Final = 16  # float32 numbers that a processor works on at once; so many bytes of a row lie side by side
LIFT: Final = 2.0**_LIFTED  # by which states are multiplied: their products with numbers so small would else be nothing
FEWEST: Final = 1000  # weights to each that is kept aside: to read more of those takes too long
_SPAN = 15  # powers of two
_HIGHEST = _SPAN + _LIFTED + 127  # a power, as a bfloat16 stores it: with a higher one the factor of a row is too large
_SIGN_AND_DIGITS = 0x807F0000 - (1 << 32)  # in the 32 bits of a number
_POWER = 0x07800000
_AT_ONCE = 2**22  # weights that are taken apart together, each in some integers


class TwelveBits(NamedTuple):
    """A weight `(out, in)`, taken apart."""

    codes: Tensor  # (out, in / 32, 3, 16) int8: of 32 weights the bytes of 16 and of 16, and the powers of both
    units: Tensor  # (out,) float32, by which the small numbers are multiplied, divided by LIFT
    rows: Tensor  # (aside,) int64: where those are that are kept aside, in whose places is 0
    columns: Tensor  # (aside,) int64
    aside: Tensor  # (aside,) bfloat16: what they are


def taken_apart(weight: Tensor) -> TwelveBits | None:
    """Take a weight `(out, in)` apart, or give None.

    None for one in another type, of rows that do not part into 32, with numbers from 2^80 on (or none), and where more
    weights would be kept aside than one in FEWEST.
    """
    width = weight.shape[1]
    if weight.dtype != torch.bfloat16 or width % (2 * LANES):
        return None
    parts, first, most = [], 0, weight.numel() // FEWEST
    for some in torch.split(weight, max(1, _AT_ONCE // width)):
        part = _part_of(some.contiguous())
        if part is None or (most := most - len(part.aside)) < 0:
            return None
        parts.append(part._replace(rows=part.rows + first))
        first += len(some)
    return TwelveBits(*map(torch.cat, zip(*parts, strict=True)))


def _part_of(weight: Tensor) -> TwelveBits | None:
    """Take some rows apart; None where a number is too large, or none."""
    out = len(weight)
    bits = weight.view(torch.int16).int()
    stored = bits >> 7 & 0xFF
    is_told = (stored > 0) & (weight != 0)  # what is not 0 or nearly so
    highest = _highest_powers(stored, is_told)
    if int(stored.amax()) > _HIGHEST:
        return None
    powers = stored - (highest[:, None] - _SPAN)  # from 1 to _SPAN
    is_told &= (powers >= 1) & (powers <= _SPAN)
    told = (bits & 0x7F | bits >> 8 & 0x80).masked_fill(~is_told, 0).view(out, -1, 2, LANES)
    low, high = powers.masked_fill(~is_told, 0).view(out, -1, 2, LANES).chunk(2, 2)
    rows, columns = (~is_told & (weight != 0)).nonzero(as_tuple=True)
    return TwelveBits(
        codes=torch.cat([told, low | high << 4], 2).to(torch.uint8).view(torch.int8),
        units=torch.ldexp(torch.ones(out), highest - (_SPAN + _LIFTED)),
        rows=rows,
        columns=columns,
        aside=weight[rows, columns],
    )


def _highest_powers(stored: Tensor, is_told: Tensor) -> Tensor:
    """Give the highest power of each row that is not kept aside, such that the fewest weights are: `(out,)`."""
    counts = torch.zeros(len(stored), 256, dtype=torch.int32).scatter_add_(1, stored.long(), is_told.int())
    up_to = counts.cumsum(1)
    within = up_to - torch.nn.functional.pad(up_to, (_SPAN, 0))[:, :256]  # of the powers that end with each
    return within.argmax(1)


def small_numbers(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Give weights divided by the units of their rows and LIFT, as float32 `(out, in / 32, 16)`.

    That is the first 16 of each 32 weights, and the others.
    """
    told, both = codes[:, :, :2].int() << 16 & _SIGN_AND_DIGITS, codes[:, :, 2].int()
    first, second = told[:, :, 0] | (both & 15) << 23, told[:, :, 1] | both << 19 & _POWER
    return first.view(torch.float32), second.view(torch.float32)


def put_together(parts: TwelveBits) -> Tensor:
    """Give the weight that was taken apart, `(out, in)` bfloat16."""
    numbers = torch.stack(small_numbers(parts.codes), 2).flatten(1).double() * parts.units.double()[:, None] * LIFT
    return numbers.bfloat16().index_put((parts.rows, parts.columns), parts.aside)
