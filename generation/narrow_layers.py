"""Layers whose weights stay narrow: in the type that they were saved in, or in 8 bits.

In a step that is compiled, a layer is a plain sum over each row of its weight, for each token; elsewhere, for many
tokens, it is a matrix product with a weight that is made wide for that one call. Sums and exact products are in
float32; products with 8 bits are in bfloat16, which is twice as fast.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

PARTS = 2  # of a weight, each summed by an accumulator of its own
LANES = 16  # scales of a row in 8 bits; as many float32 numbers as a processor works on at once
MOST = 127  # of a number in 8 bits
WIDE = 4096  # rows of a weight that are made wide at a time


def realized(states: Tensor) -> Tensor:
    """Have the compiler compute this once, rather than again for each sum that reads it."""
    try:
        import torch._inductor.test_operators

        found: Tensor = torch.ops._inductor_test.realize(states)
    except (ImportError, AttributeError):  # a private name: without it the step is slower and as right
        return states
    return found


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Give a weight `(out, in)` as whole numbers `(out, in / 16, 16)` int8, and their scales `(out, 16)` float32.

    Every 16th number of a row shares a scale, by which the largest of them becomes 127: a sum over a row then keeps one
    running sum to each scale, side by side in one register, which are scaled at no more than the cost of a product.
    Scales have the digits of a bfloat16, for products in it, and are kept wide, so that no sum need widen them.
    """
    lanes = weight.float().view(len(weight), -1, LANES)
    scales = (lanes.abs().amax(1).clamp(min=MOST * torch.finfo(torch.float32).tiny) / MOST).bfloat16().float()
    return (lanes / scales[:, None]).round().clamp(-MOST, MOST).to(torch.int8), scales


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
        if self.bias is not None:
            product = product + self.bias
        return realized(product).view(*states.shape[:-1], self.out_features)


class Int8Linear(nn.Module):
    """A linear layer over a weight in 8 bits, as `quantised` makes it: x Wᵀ + b."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        codes, scales = quantised(weight.detach())
        self.codes: Tensor
        self.scales: Tensor
        self.bias: Tensor | None
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if bias is None else bias.detach().float())

    def forward(self, states: Tensor) -> Tensor:
        """Give `(…, out)` for `(…, in)`, float32; the product of many rows is made in bfloat16."""
        if not torch.compiler.is_exporting():
            return self._product(states)
        rows = realized(states.reshape(-1, 1, self.in_features // LANES, LANES))
        if len(rows) == 1:
            parts = zip(self.codes.chunk(PARTS), self.scales.chunk(PARTS), strict=True)
            sums = [(part.float() * scale[:, None] * rows).sum((-2, -1)) for part, scale in parts]
            product = torch.cat(sums, -1)
        else:
            wide = self.codes.float() * self.scales[:, None]
            product = torch.stack([(wide * row).sum((-2, -1)) for row in rows])
        if self.bias is not None:
            product = product + self.bias
        return realized(product).view(*states.shape[:-1], self.out_features)

    def _product(self, states: Tensor) -> Tensor:
        narrow = states.bfloat16()
        parts = zip(torch.split(self.codes, WIDE), torch.split(self.scales, WIDE), strict=True)
        wide = ((part.bfloat16() * scale.bfloat16()[:, None]).flatten(1) for part, scale in parts)
        product = torch.cat([functional.linear(narrow, part) for part in wide], -1).float()
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


def make_narrow(network: Any, *, weights: str) -> None:
    """Put narrow layers in the place of a network's linear ones and embeddings; what they take and give is float32.

    weights: "exact", or "int8" for linear layers in 8 bits, as far as the length of their rows allows.
    """
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in (nn.Linear, Conv1D, NarrowLinear):
                weight = child.weight.t().contiguous() if type(child) is Conv1D else child.weight
                is_int8 = weights == "int8" and weight.shape[1] % LANES == 0
                setattr(parent, name, (Int8Linear if is_int8 else NarrowLinear)(weight, child.bias))
            elif type(child) is nn.Embedding:
                setattr(parent, name, NarrowEmbedding(child.weight))
    for parameter in network.parameters():  # norms and the like
        parameter.requires_grad_(False)
        parameter.data = parameter.data.float()


def filled_network(config: Any, weights: str, state: Mapping[str, Tensor]) -> Any:
    """Give a network with narrow layers over tensors that are there already, all that it has, by name."""
    builder: Any = AutoModelForCausalLM
    with torch.device("meta"):
        network = builder.from_config(config).eval()
    make_narrow(network, weights=weights)
    for name, tensor in state.items():
        owner, _, own = name.rpartition(".")
        module = network.get_submodule(owner)
        is_parameter = own in dict(module.named_parameters(recurse=False))
        setattr(module, own, nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor)
    return network
