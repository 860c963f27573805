"""Norms and gated MLPs of a network on a CPU, in fewer passes over memory than the transformers library makes.

Each takes the place of the library's layer only where it gives the same.
"""

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

PARTS = ("gate_proj", "up_proj", "down_proj")
SCALES = torch.tensor([[1.0], [30.0], [1e3]])  # of the trials' states: some layers hold large ones within bounds
APART = 1e-5  # of the largest number that a layer gives for a token in a trial, or of 1
FAILURES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class LeanNorm(nn.Module):
    """x · w / √(mean(x²) + ε), for states `(…, dim)` (RMSNorm, arXiv 1910.07467)."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)
        self._least = torch.tensor(epsilon)

    def forward(self, states: Tensor) -> Tensor:
        """Give the normed states."""
        states = states.float()
        length = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
        factor = torch.addcmul(self._least, length, length, value=1 / states.shape[-1]).rsqrt_()
        return (states * factor).mul_(self.weight)


class LeanMLP(nn.Module):
    """down(act(gate(x)) · up(x)), for states `(…, dim)`; what lies between is written over."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj, self.act_fn = (getattr(mlp, name) for name in (*PARTS, "act_fn"))
        sample = torch.linspace(-9, 9, 19)
        self._is_silu = torch.equal(self.act_fn(sample), functional.silu(sample))

    def forward(self, states: Tensor) -> Tensor:
        """Give what the MLP adds to the states."""
        gate = self.gate_proj(states)
        gate = functional.silu(gate, inplace=True) if self._is_silu else self.act_fn(gate)
        out: Tensor = self.down_proj(gate.mul_(self.up_proj(states)))
        return out


def make_lean(network: Any) -> None:
    """Put lean layers in the place of those of a network whose states are float32, where they give the same."""
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if (lean := _lean(child)) is not None:
                setattr(parent, name, lean)


def _lean(layer: Any) -> nn.Module | None:
    """Give a lean layer that does the same; None where there is none."""
    children, own = dict(layer.named_children()), dict(layer.named_parameters(recurse=False))
    try:
        if len(inspect.signature(layer.forward).parameters) != 1:  # a norm may take a gate too
            return None
        if not children and own.keys() == {"weight"} and hasattr(layer, "variance_epsilon") and _is_plain(layer.weight):
            norm = LeanNorm(layer.weight, layer.variance_epsilon)
            return norm if _are_alike(layer, norm, torch.linspace(-3, 2, len(layer.weight)).cos() * SCALES) else None
        if children.keys() == {*PARTS, "act_fn"} and not own:
            tiny = _with_tiny_parts(layer)
            return (
                LeanMLP(layer)
                if _are_alike(tiny, LeanMLP(tiny), torch.linspace(-9, 9, 24).view(3, 8) * SCALES)
                else None
            )
    except FAILURES:  # it is made in another way
        return None
    return None


def _is_plain(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.dim() == 1


def _with_tiny_parts(mlp: nn.Module) -> Any:
    """Give the same MLP around small weights, so that a trial costs nothing."""
    twin = copy.copy(mlp)
    twin._modules = dict(mlp._modules)
    for name, (width, height) in zip(PARTS, ((8, 6), (8, 6), (6, 8)), strict=True):
        linear = nn.Linear(width, height, bias=False)
        linear.weight = nn.Parameter(
            torch.linspace(-2, 3, width * height).sin().view(height, width), requires_grad=False
        )
        twin._modules[name] = linear
    return twin


@torch.inference_mode()
def _are_alike(layer: nn.Module, lean: nn.Module, states: Tensor) -> bool:
    given, expected = lean(states.clone()), layer(states.clone())
    return bool(((given - expected).abs() <= APART * expected.abs().amax(-1, keepdim=True).clamp(min=1)).all())
