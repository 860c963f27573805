"""Layers whose weights stay narrow: in the type that they were saved in, in 12 bits that tell the same, or in 8.

In a step that is compiled, a layer is a plain sum over each row of its weight, for each token; elsewhere, for many
tokens, it is a matrix product with a weight that is made wide for that one call. Sums and exact products are in
float32; products with 8 bits are in bfloat16, which is twice as fast.
"""

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from .twelve_bits import LANES, LIFT, TwelveBits, put_together, small_numbers

PARTS = 2  # of a weight, each summed by an accumulator of its own
MOST, MOST_SCALE = 127, 255  # of a number in 8 bits, and of a scale
FEW = 500  # numbers that a compiled loop does not deal out to threads
WIDE = 4096  # rows of a weight that are made wide at a time


def realized(states: Tensor) -> Tensor:
    """Have the compiler compute this once, rather than again for each sum that reads it."""
    try:
        import torch._inductor.test_operators

        found: Tensor = torch.ops._inductor_test.realize(states)
    except (ImportError, AttributeError):  # a private name: without it the step is slower and as right
        return states
    return found


def quantised(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give a weight `(out, in)` as whole numbers `(out, in / 16, 16)` int8, scales `(out, 16)` uint8, units `(out,)`.

    Every 16th number of a row shares a scale, so many units of the row, by which the largest of them becomes 127, as
    near as units go: a sum over a row then keeps one running sum to each scale, side by side in one register, which are
    scaled at no more than the cost of a product.
    """
    lanes = weight.float().view(len(weight), -1, LANES)
    largest = lanes.abs().amax(1) / MOST
    units = (largest.amax(1) / MOST_SCALE).clamp(min=torch.finfo(torch.float32).tiny)
    scales = (largest / units[:, None]).round().clamp(1, MOST_SCALE)
    codes = (lanes / (scales * units[:, None])[:, None]).round().clamp(-MOST, MOST)
    return codes.to(torch.int8), scales.to(torch.uint8), units


class NarrowLinear(nn.Module):
    """A linear layer over a weight that stays in its own type: x Wᵀ + b."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", weight.detach())
        self.register_buffer("bias", None if bias is None else bias.detach().float())

    def forward(self, states: Tensor) -> Tensor:
        """Give `(…, out)` for `(…, in)`, float32."""
        if not torch.compiler.is_exporting():
            return functional.linear(states, self.weight.float(), self.bias)
        rows = realized(states.reshape(-1, 1, self.in_features))
        if len(rows) == 1:
            product = torch.cat([(part.float() * rows).sum(-1) for part in self.weight.chunk(PARTS)], -1)
        else:  # one loop, in which a number is made wide once for the sums of all rows
            product = torch.stack([(self.weight.float() * row).sum(-1) for row in rows])
        return _finished(product, self.bias, states)


class TwelveBitLinear(nn.Module):
    """A linear layer over a weight in bfloat16 that is taken apart: x Wᵀ + b, with just the weights that it had."""

    def __init__(self, parts: TwelveBits, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = len(parts.units), 2 * LANES * parts.codes.shape[1]
        self.codes: Tensor
        self.units: Tensor
        self.rows: Tensor
        self.columns: Tensor
        self.aside: Tensor
        self.bias: Tensor | None
        for name, tensor in parts._asdict().items():
            self.register_buffer(name, tensor)
        self.register_buffer("bias", None if bias is None else bias.detach().float())

    @property
    def weight(self) -> Tensor:
        """The weight, `(out, in)` bfloat16."""
        return put_together(TwelveBits(self.codes, self.units, self.rows, self.columns, self.aside))

    def forward(self, states: Tensor) -> Tensor:
        """Give `(…, out)` for `(…, in)`, float32."""
        if not torch.compiler.is_exporting():
            return functional.linear(states, self.weight.float(), self.bias)
        rows, numbers = _lifted(states).reshape(-1, 1, self.in_features), small_numbers(self.codes)
        sums = [_sum_of(numbers, row) for row in rows.chunk(len(rows))]
        product = (sums[0] if len(sums) == 1 else torch.cat(sums)) * self.units
        if len(self.aside):
            product = self._with_aside(product, rows[:, 0])
        return _finished(product, self.bias, states)

    def _with_aside(self, product: Tensor, rows: Tensor) -> Tensor:
        """Add what is kept aside to a product `(rows, out)`, so few at once that a single thread does, in one order."""
        count = -(-len(self.aside) * len(rows) // FEW)
        for places, columns, aside in zip(
            self.rows.chunk(count), self.columns.chunk(count), self.aside.chunk(count), strict=True
        ):
            product = product.index_add(1, places, rows[:, columns] / LIFT * aside.float())
        return product


@lru_cache(maxsize=1)
def _lifted(states: Tensor) -> Tensor:
    """Give states times LIFT: the same tensor to all layers that read the same states, whose sums are then one loop.

    The states of one layer after the other are traced, and none is changed in place.
    """
    return realized(states * LIFT)


def _sum_of(numbers: tuple[Tensor, Tensor], row: Tensor) -> Tensor:
    """Give the sums of numbers, `(out, in / 32, 16)` twice, over states `(1, 1, in)`: two that run side by side."""
    first, second = row.view(1, 1, -1, 2, LANES).unbind(3)
    sums: Tensor = (numbers[0] * first).sum((-2, -1)) + (numbers[1] * second).sum((-2, -1))
    return sums


def _finished(product: Tensor, bias: Tensor | None, states: Tensor) -> Tensor:
    """Give a product `(rows, out)` with a bias in the shape of the states, `(…, out)`."""
    return (product if bias is None else product + bias).view(*states.shape[:-1], -1)


class Int8Linear(nn.Module):
    """A linear layer over a weight in 8 bits, as `quantised` makes it: x Wᵀ + b."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        codes, scales, units = quantised(weight.detach())
        self.codes: Tensor
        self.scales: Tensor
        self.units: Tensor
        self.bias: Tensor | None
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.register_buffer("units", units)
        self.register_buffer("bias", None if bias is None else bias.detach().float())

    def forward(self, states: Tensor) -> Tensor:
        """Give `(…, out)` for `(…, in)`, float32; the product of many rows is made in bfloat16."""
        if not torch.compiler.is_exporting():
            return self._product(states)
        rows = realized(states.reshape(-1, 1, self.in_features // LANES, LANES))
        if len(rows) == 1:
            parts = zip(self.codes.chunk(PARTS), self.scales.chunk(PARTS), strict=True)
            sums = [(part.float() * scale.float()[:, None] * rows).sum((-2, -1)) for part, scale in parts]
            product = torch.cat(sums, -1) * self.units
        else:
            wide = self.codes.float() * self.scales.float()[:, None]
            product = torch.stack([(wide * row).sum((-2, -1)) for row in rows]) * self.units
        return _finished(product, self.bias, states)

    def _product(self, states: Tensor) -> Tensor:
        narrow = states.bfloat16()
        parts = zip(torch.split(self.codes, WIDE), torch.split(self.scales, WIDE), strict=True)
        wide = ((part.bfloat16() * scale.bfloat16()[:, None]).flatten(1) for part, scale in parts)
        product = torch.cat([functional.linear(narrow, part) for part in wide], -1) * self.units
        return product if self.bias is None else product + self.bias


class NarrowEmbedding(nn.Module):
    """An embedding whose table stays in its own type; it may be the weight of the output head."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight: Tensor
        self.register_buffer("weight", weight.detach())

    def forward(self, ids: Tensor) -> Tensor:
        """Give float32 rows of the table, `(…, dim)`."""
        return self.weight[ids].float()
