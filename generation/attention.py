"""Attention over blocks: one pass reads tokens of many sequences, each of which sees its own keys alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from .errors import RunError
from .plan import Chunk, Plan
from .tiles import MOST_KEYS, attend_in_tiles, can_tile

HARMLESS = frozenset({  # what a model may hand on to its attention that changes nothing here
    "position_ids", "cache_position", "use_cache", "output_attentions", "output_hidden_states", "return_dict",
    "logits_to_keep", "is_causal", "num_items_in_batch", "output_router_logits",
})  # fmt: skip


class Pool(Protocol):
    """The keys and values of one layer: what a query meets lies side by side, a number of each key, or a value."""

    keys: Any  # Tensor (blocks, key heads, dim, block_size); None before the first pass
    values: Any  # (blocks, key heads, block_size, dim)
    window: int | None  # how many keys a token sees, its own among them; None: all


@dataclass(frozen=True, slots=True)
class Pass:
    """What the attention of every layer must know of a pass."""

    plan: Plan
    pools: Sequence[Pool]  # by layer
    workspace: "Workspace"


class Workspace:
    """Memory that the keys and values of a pass are gathered into: one for all layers, grown where it is too small.

    A fresh allocation of this size costs more than the gathering itself.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def gathered(self, name: str, pool: Tensor, parts: Tensor) -> Tensor:
        """Give parts of a pool `(blocks, heads, …)`, seen as `(blocks · heads, …)`: one after the other, `(*parts, …)`.

        parts: `(…, blocks)`.
        """
        each = pool.flatten(0, 1)
        needed = parts.numel() * each[0].numel()
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < needed or (buffer.dtype, buffer.device) != (pool.dtype, pool.device):
            buffer = self._buffers[name] = torch.empty(needed, dtype=pool.dtype, device=pool.device)
        out = buffer[:needed].view(-1, *each.shape[1:])
        torch.index_select(each, 0, parts.flatten(), out=out)
        return out.view(*parts.shape, *each.shape[1:])


@dataclass(frozen=True, slots=True)
class _Rule:
    """How scores become weights."""

    scale: float
    softcap: float | None
    sinks: Tensor | None  # (heads,) scores of what each head may look at instead of any key
    window: int | None  # how many keys a token sees, its own among them; None: all

    @property
    def is_plain(self) -> bool:
        """Whether PyTorch's own product knows it."""
        return self.softcap is None and self.sinks is None

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Give the weights `(rows, key heads, queries, keys)`, in float32 or wider.

        scores: products of queries and keys, where the queries are those of each head in turn; mask: 0 or −inf.
        """
        if self.softcap is None:
            scores = torch.add(mask, scores, alpha=self.scale)
        else:
            scores = mask + torch.tanh(scores.float() * (self.scale / self.softcap)) * self.softcap
        if self.sinks is None:
            return scores.softmax(-1)
        key_heads, queries = scores.shape[1:3]
        each = queries * key_heads // len(self.sinks)  # queries of a head
        sinks = self.sinks.float().repeat_interleave(each).view(1, key_heads, queries, 1)
        return torch.cat([scores, sinks.expand(len(scores), -1, -1, -1)], -1).softmax(-1)[..., :-1]


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    of_pass: Pass | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend for every token of a pass; gives `(1, tokens, heads, dim)`, in the form of the transformers library.

    query: `(1, heads, tokens, dim)`; key, value: `(1, key heads, tokens, dim)`, those of the pass alone.
    Raises RunError where the model asks for something that is not known here.
    """
    check_asked(others, is_more=of_pass is None or attention_mask is not None or dropout > 0)
    assert of_pass is not None
    plan, pool = of_pass.plan, of_pass.pools[module.layer_idx]
    check_window(sliding_window, pool.window)
    rule = _Rule(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap, s_aux, pool.window)
    parts = []
    if plan.num_rows:
        parts.append(_rows(query[0, :, : plan.num_rows], pool, of_pass, rule))
    for chunk in plan.chunks:
        span = slice(chunk.first, chunk.last)
        parts.append(_chunk(query[:, :, span], key[:, :, span], value[:, :, span], chunk, pool, of_pass, rule))
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[None], None


def check_asked(others: Mapping[str, Any], *, is_more: bool) -> None:
    """Raise RunError where a model hands something on to its attention that is not known, or more than is known."""
    unknown = [name for name, given in others.items() if given is not None and name not in HARMLESS]
    if is_more or unknown:
        raise RunError(f"its attention asks for {', '.join(unknown) or 'more than keys and values'}")


def check_window(asked: int | None, kept: int | None) -> None:
    """Raise RunError where a layer's attention and its cache differ in how many keys a token sees."""
    if asked not in (None, kept):
        raise RunError(f"its attention sees {asked} keys where its cache says {kept}")


def _rows(query: Tensor, pool: Pool, of_pass: Pass, rule: _Rule) -> Tensor:
    """Attend for the sequences that read one token: all in one product over their gathered blocks.

    query: `(heads, rows, dim)`; gives `(rows, heads, dim)`. The queries that share a key head stay together, so that no
    key is repeated.
    """
    heads, rows, dim = query.shape
    key_heads = pool.keys.shape[1]
    parts = of_pass.plan.read(key_heads)
    keys = of_pass.workspace.gathered("keys", pool.keys, parts)  # (rows, key heads, blocks, dim, block_size)
    values = of_pass.workspace.gathered("values", pool.values, parts).flatten(2, 3)  # (rows, key heads, keys, dim)
    grouped = query.transpose(0, 1).reshape(rows, key_heads, 1, heads // key_heads, dim)
    scores = torch.matmul(grouped, keys).transpose(2, 3).flatten(3)  # (rows, key heads, queries, keys)
    weights = rule.weights(scores, of_pass.plan.mask(rule.window)).to(values.dtype)
    return torch.matmul(weights, values).reshape(rows, heads, -1)


def _chunk(query: Tensor, key: Tensor, value: Tensor, chunk: Chunk, pool: Pool, of_pass: Pass, rule: _Rule) -> Tensor:
    """Attend for the tokens of one sequence; gives `(tokens, heads, dim)`."""
    plan, key_heads = of_pass.plan, pool.keys.shape[1]
    if chunk.context:
        parts, num_keys = plan.chunk_read(chunk, key_heads)[None], chunk.context + chunk.last - chunk.first
        key = of_pass.workspace.gathered("keys", pool.keys, parts).transpose(-1, -2).flatten(2, 3)[:, :, :num_keys]
        value = of_pass.workspace.gathered("values", pool.values, parts).flatten(2, 3)[:, :, :num_keys]
    num_keys, sees_all = key.shape[2], rule.window is None or rule.window >= key.shape[2]
    if rule.is_plain and sees_all and num_keys <= MOST_KEYS and can_tile(query.device.type, query.dtype):
        return attend_in_tiles(query[0], key[0], value[0], rule.scale)
    is_seen = plan.chunk_mask(chunk, rule.window)
    if not rule.is_plain:
        return _by_hand(query, key, value, is_seen, rule)
    out = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=is_seen,
        is_causal=is_seen is None,
        scale=rule.scale,
        enable_gqa=query.shape[1] != key_heads,
    )
    return out[0].transpose(0, 1)


def _by_hand(query: Tensor, key: Tensor, value: Tensor, is_seen: Tensor | None, rule: _Rule) -> Tensor:
    """Attend by a rule that PyTorch's own product does not know."""
    heads, tokens, dim = query.shape[1:]
    key_heads = key.shape[1]
    if is_seen is None:
        is_seen = torch.ones(tokens, tokens, dtype=torch.bool, device=query.device).tril()
    mask = torch.zeros(is_seen.shape, device=query.device).masked_fill_(~is_seen, -torch.inf)
    grouped = query.reshape(1, key_heads, heads // key_heads * tokens, dim)
    scores = torch.matmul(grouped, key.transpose(-1, -2))
    weights = rule.weights(scores, mask.repeat(heads // key_heads, 1)).to(value.dtype)
    return torch.matmul(weights, value).view(heads, tokens, -1).transpose(0, 1)
