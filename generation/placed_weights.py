"""Where a package finds the weights of its steps: in the model's files, where they are as they were, or in its own."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from .packages import OWN
from .safetensors_file import weight_files


def placed(constants: Mapping[str, Tensor], model: Path, out: Path) -> dict[str, dict[str, str]]:
    """Find each constant among the weights of a model; save those that are not there.

    Give, by file, what each constant is called there.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    found: dict[str, dict[str, str]] = {}
    left = dict(constants)
    for path in weight_files(model):
        with safe_open(path, "pt") as file:
            saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        for inner, tensor in constants.items():
            outer = next((name for name in _names(inner) if name in saved), None)
            if inner in left and outer is not None and _is_same(saved[outer], tensor):
                found.setdefault(path.name, {})[inner] = outer
                del left[inner]
    save_file({name: tensor.contiguous().clone() for name, tensor in left.items()}, out / OWN)
    if left:
        found[OWN] = {name: name for name in left}
    return found


def _names(inner: str) -> list[str]:
    """Give what a constant of the graph may be called in the model's files."""
    name = inner.removeprefix("network.")
    return [name, "model.embed_tokens.weight" if name == "lm_head.weight" else name]


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and other.is_contiguous() and torch.equal(one, other)
