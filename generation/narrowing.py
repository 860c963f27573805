"""Which narrow layers a network gets: in the place of its own, or around weights that are there already."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from .narrow_layers import Int8Linear, NarrowEmbedding, NarrowLinear, TwelveBitLinear
from .twelve_bits import LANES, taken_apart


def make_narrow(network: Any, *, weights: str) -> None:
    """Put narrow layers in the place of a network's linear ones and embeddings; what they take and give is float32.

    weights: "saved", in the narrowest type that holds them unchanged; "exact", those in bfloat16 in 12 bits; or "int8",
    linear layers in 8 bits; the latter two as far as their rows allow.
    """
    for place in [name for name, _ in network.named_modules()]:
        parent = network.get_submodule(place)
        for name, child in list(parent.named_children()):
            if type(child) in (nn.Linear, Conv1D, NarrowLinear):
                weight = child.weight.t().contiguous() if type(child) is Conv1D else child.weight
                setattr(parent, name, _narrow_linear(_narrowest(weight.detach()), child.bias, weights))
            elif type(child) is nn.Embedding:
                setattr(parent, name, NarrowEmbedding(_narrowest(child.weight.detach())))
    for parameter in network.parameters():  # norms and the like
        parameter.requires_grad_(False)
        parameter.data = parameter.data.float()


def _narrowest(weight: Tensor) -> Tensor:
    """Give a weight in the first of these types that holds each of its numbers unchanged."""
    if weight.dtype == torch.float32 and not weight.is_meta:
        for dtype in (torch.bfloat16, torch.float16):
            narrow = weight.to(dtype)
            if torch.equal(narrow.float(), weight):
                return narrow
    return weight


def _narrow_linear(weight: Tensor, bias: Tensor | None, weights: str) -> nn.Module:
    if weights == "int8" and weight.shape[1] % LANES == 0:
        return Int8Linear(weight, bias)
    parts = taken_apart(weight) if weights == "exact" else None
    return NarrowLinear(weight, bias) if parts is None else TwelveBitLinear(parts, bias)


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
