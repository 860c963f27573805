"""Linear layers whose weights are packed once, in the order in which the CPU's matrix library reads them.

PyTorch's own layer packs its weight anew at every call. The calls used here are private to PyTorch, so they are tried
first; where they fail a network keeps its layers as they are.
"""

from typing import Any

import torch
from torch import Tensor, nn

ROWS = 256  # tokens a call that the order is chosen for; it serves any number
PART = 32  # tokens; a product of so many or more is made in parts
TYPES = (torch.float32, torch.bfloat16)


class PackedLinear(nn.Module):
    """A linear layer for inference: x Wᵀ + b, as `nn.Linear`; equal to it but for rounding."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)
        self.bias = None if linear.bias is None else linear.bias.detach()

    @property
    def weight(self) -> Tensor:
        """The weight as it was, `(out_features, in_features)`, unpacked anew: some models compute with it."""
        dense: Tensor = self._packed.to_dense()
        return dense

    def forward(self, states: Tensor) -> Tensor:
        """Give `(…, out_features)` for `(…, in_features)`.

        The library keeps a plan of about 1 MB for every number of rows that it meets, so a long product is made in two
        parts, of which the second is short: so few numbers come up.
        """
        rows = states.reshape(-1, self.in_features)
        whole = len(rows) // PART * PART
        parts = [part for part in (rows[:whole], rows[whole:]) if len(part)] or [rows]
        out = [torch.ops.mkldnn._linear_pointwise(part, self._packed, self.bias, "none", [], "") for part in parts]
        product: Tensor = out[0] if len(out) == 1 else torch.cat(out)
        return product.view(*states.shape[:-1], self.out_features)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Add what a plain layer has, for whoever saves the network."""
        destination[f"{prefix}weight"] = self.weight
        if self.bias is not None:
            destination[f"{prefix}bias"] = self.bias

    def extra_repr(self) -> str:
        """Say what it is, as PyTorch prints it."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def pack_linears(network: Any) -> None:
    """Put packed layers in the place of a network's linear ones, as far as the machine and their type allow.

    The weights they had are freed, but for one that is shared with an embedding.
    """
    tried: dict[torch.dtype, bool] = {}
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear or child.weight.device.type != "cpu":
                continue
            dtype = child.weight.dtype
            if dtype not in tried:
                tried[dtype] = can_pack(dtype)
            if tried[dtype]:
                setattr(parent, name, PackedLinear(child))


def can_pack(dtype: torch.dtype) -> bool:
    """Tell whether weights of a type can be packed here, and give the right product."""
    if dtype not in TYPES:
        return False
    linear = nn.Linear(16, 8).to(dtype).requires_grad_(False)
    states = torch.linspace(-1, 1, 32).view(2, 16).to(dtype)
    try:
        packed = PackedLinear(linear)(states)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return torch.allclose(packed, linear(states), rtol=0.02, atol=0.02)
