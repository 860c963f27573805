"""A preset as transformers' generation_config.json (5.24)."""

import json
import math
from typing import Any

from .counterparts import Handover

_PLAIN = ("repetition_penalty", "no_repeat_ngram_size", "max_new_tokens", "min_new_tokens")
_SAMPLED = ("temperature", "top_k", "top_p", "min_p", "typical_p")
_CUTOFFS = ("epsilon_cutoff", "eta_cutoff")
NO_TOKEN = -1  # as eos_token_id: no token has it, and unlike null it is not filled from the model's own file


def write_generation_config(handover: Handover) -> str:
    """Write a GenerationConfig's keys. transformers' own top_k is 50; 0 is off."""
    params = handover.params
    config: dict[str, Any] = {"do_sample": params.temperature > 0}
    if params.temperature > 0:
        config |= handover.take_all(_SAMPLED)
        config |= handover.take_all(name for name in _CUTOFFS if getattr(params, name) < 1)  # above: it ignores them
    else:
        handover.take("temperature")  # do_sample says it
    config |= handover.take_all(_PLAIN)
    config |= _bias(handover) | _end(handover)
    if params.min_new_tokens > params.max_new_tokens:
        handover.notes.append(
            f"transformers warns that min_new_tokens {params.min_new_tokens} is above max_new_tokens "
            f"{params.max_new_tokens}, and ends the text there."
        )
    if not handover.take_order("hf") and params.top_k > 0:
        handover.notes.append("transformers' top_k also keeps every token that ties with the last one kept.")
    if params.bad_words:
        handover.notes.append("Its bad_words_ids takes token ids, which only the model's tokenizer knows.")
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _bias(handover: Handover) -> dict[str, Any]:
    """A ban goes into suppress_tokens, since JSON has no infinity."""
    bias = handover.take("logit_bias")
    finite = [[[token_id], value] for token_id, value in bias.items() if math.isfinite(value)]
    banned = [token_id for token_id, value in bias.items() if not math.isfinite(value)]
    return ({"sequence_bias": finite} if finite else {}) | ({"suppress_tokens": banned} if banned else {})


def _end(handover: Handover) -> dict[str, Any]:
    """Write where the text ends."""
    config: dict[str, Any] = {}
    if stop := handover.take("stop"):
        config["stop_strings"] = list(stop)
        handover.notes.append("stop_strings need generate(tokenizer=…), and stay in the text.")
    end_token_ids = handover.take("end_token_ids")
    if handover.take("ignore_eos"):
        config["eos_token_id"] = NO_TOKEN
        handover.notes.append("transformers warns of eos_token_id -1, which no token has, and writes on.")
    elif end_token_ids:
        config["eos_token_id"] = list(end_token_ids)
        handover.notes.append("eos_token_id takes the place of the model's own end tokens: add those to the list.")
    else:
        handover.notes.append(
            "The end tokens are the model's: give this config to generate(), which takes them from the model's own, "
            "or copy its eos_token_id from there."
        )
    return config
