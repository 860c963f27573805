"""What a loaded model says about itself: its window, the width of its logits, and the tokens that end a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

_WINDOW_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
)
_TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<turn|>",
    "<|endofturn|>",
)


def window_of(config: Any) -> int | None:
    """Give how many tokens a model can look at, or None where its configuration does not say."""
    for part in _configs(config):
        for name in _WINDOW_NAMES:
            value = getattr(part, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def rotary_switch_of(config: Any) -> int | None:
    """Give the tokens beyond which a text has other rotary frequencies, at all its positions; None: nothing changes.

    So models with LongRoPE do: the keys of a text that outgrows that length must be computed anew.
    """
    for rules in _rotary_rules(config):
        if rules.get("rope_type") == "longrope":
            return rules.get("original_max_position_embeddings")
    return None


def rotary_type_of(config: Any) -> str | None:
    """Give the kind of a model's rotary positions, such as default or dynamic; None where it has none."""
    return next((str(rules["rope_type"]) for rules in _rotary_rules(config) if rules.get("rope_type")), None)


def _rotary_rules(config: Any) -> Iterator[dict[str, Any]]:
    """Yield the rules of a model's rotary positions; some models have several, by kinds of layers."""
    for part in _configs(config):
        rules = getattr(part, "rope_parameters", None)
        if isinstance(rules, dict):
            yield rules
            yield from (each for each in rules.values() if isinstance(each, dict))


def _configs(config: Any) -> Iterator[Any]:
    """Yield the configuration of the text part first, then the whole."""
    get_text_config = getattr(config, "get_text_config", None)
    if callable(get_text_config):
        yield get_text_config(decoder=True)
    nested = getattr(config, "text_config", None)
    if nested is not None:
        yield nested
    if config is not None:
        yield config


def vocab_size_of(network: Any) -> int | None:
    """Give the width of a network's logits: the output head's rows, which may be more than the tokenizer's ids."""
    get_head = getattr(network, "get_output_embeddings", None)
    head = get_head() if callable(get_head) else None
    weight = getattr(head, "weight", None)
    if weight is not None:
        return int(weight.shape[0])
    for part in _configs(getattr(network, "config", None)):
        if isinstance(getattr(part, "vocab_size", None), int):
            return int(part.vocab_size)
    return None


def end_token_ids(network: Any, tokenizer: Any, more: Iterable[int] = ()) -> tuple[int, ...]:
    """Give every id that ends a text, each once, in the order of where they are named.

    The order is: generation_config, config with its text part, tokenizer, `more` (what GGUF metadata names), then the
    known turn ends of a chat model that are single special tokens. Ids outside the vocabulary are left out.
    """
    named = [getattr(getattr(network, "generation_config", None), "eos_token_id", None)]
    config = getattr(network, "config", None)
    named += [getattr(part, "eos_token_id", None) for part in (config, *_configs(config))]
    named += [getattr(tokenizer, "eos_token_id", None), list(more), _turn_end_ids(tokenizer)]
    limit = vocab_size_of(network)
    found: dict[int, None] = {}
    for value in named:
        found |= {token_id: None for token_id in _flat(value) if limit is None or token_id < limit}
    return tuple(found)


def _flat(value: Any) -> list[int]:
    """Give the ids in an id, a list or tensor of ids or anything else; ids are whole numbers, 0 or more."""
    value = value.tolist() if hasattr(value, "tolist") else value
    values = value if isinstance(value, list | tuple) else [value]
    return [each for each in values if isinstance(each, int) and not isinstance(each, bool) and each >= 0]


def _turn_end_ids(tokenizer: Any) -> list[int]:
    """Find the ids of known turn ends: only single special tokens, and only where there is a chat template."""
    if not getattr(tokenizer, "chat_template", None):
        return []
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    ids = {str(token): token_id for token_id, token in added.items() if getattr(token, "special", False)}
    return [ids[name] for name in _TURN_ENDS if name in ids]
