"""The last MLP of a network, for the tokens whose logits are asked for: nothing looks at what it gives for others.

In a long prompt that is one MLP less of all that its layers have.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


def last_mlp_of(network: Any) -> nn.Module | None:
    """Give the MLP of a network's last layer; None where the network is built in another way."""
    depth = getattr(network.config.get_text_config(), "num_hidden_layers", None)
    stacks = [each for each in network.modules() if type(each) is nn.ModuleList and len(each) == depth]
    mlp = getattr(stacks[0][-1], "mlp", None) if len(stacks) == 1 else None
    return mlp if isinstance(mlp, nn.Module) else None


@contextmanager
def kept_alone(mlp: nn.Module | None, kept: Tensor | int, tokens: int) -> Iterator[None]:
    """Let an MLP work for the kept tokens alone; what it gives for the others is 0.

    kept: their places, or 0 for all; tokens: of the pass.
    """
    if mlp is None or isinstance(kept, int) or len(kept) >= tokens:
        yield
        return

    is_open = [True]  # or an interrupt has left a hook behind, which then does nothing
    hooks: list[Any] = []

    def narrow(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        is_known = is_open and not named and len(given) == 1 and given[0].shape[:-1] == (1, tokens)
        return ((given[0][:, kept],), named) if is_known else None

    def widen(_: nn.Module, __: tuple[Any, ...], out: Any) -> Any:
        if isinstance(out, tuple):  # with what a router thought
            return widen(_, __, out[0]), *out[1:]
        if not is_open or out.shape[:-1] != (1, len(kept)):
            return out
        return out.new_zeros(1, tokens, out.shape[-1]).index_copy_(1, kept, out)

    try:
        hooks.append(mlp.register_forward_pre_hook(narrow, with_kwargs=True))
        hooks.append(mlp.register_forward_hook(widen))
        yield
    finally:
        is_open.clear()
        for hook in hooks:
            hook.remove()
