"""A preset as the body of a request to `vllm serve` (vLLM 0.33)."""

import json
from typing import Any

from ..generation.orders import VLLM_LEAST_TEMPERATURE, VLLM_MOST_BIAS, VLLM_MOST_TEMPERATURE
from ..generation.sources import HubSource
from .counterparts import PLACE, Handover, is_hub, place_of

_SAME = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
    "ignore_eos",
)  # fmt: skip
_LISTS = {"stop": "stop", "end_token_ids": "stop_token_ids", "bad_words": "bad_words",
          "allowed_token_ids": "allowed_token_ids"}  # fmt: skip
MAX_SEED = 2**63 - 1


def write_request(handover: Handover) -> str:
    """Write the JSON body. Without a value vLLM takes the model's own default, so neutral ones are written too."""
    body = {"model": _model(handover)} | _prompt(handover)
    body |= handover.take_all(_SAME)  # a top_k of 0 is off there too
    body |= _length(handover)
    seed = handover.take_seed("vLLM", MAX_SEED)
    body |= {"seed": seed} if seed is not None else {}
    body |= {key: list(value) for name, key in _LISTS.items() if (value := handover.take(name))}
    body |= _bias(handover)
    _differences(handover)
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _model(handover: Handover) -> str:
    """Give the name that `vllm serve` goes by, and say how to start it where it matters."""
    source = handover.take_source(is_hub)
    name = place_of(source)
    dtype = handover.take("dtype")
    flags = [f"--revision {source.revision}"] if isinstance(source, HubSource) and source.revision else []
    flags += [f"--dtype {dtype}"] if dtype else []
    if flags:
        handover.notes.append(f"vLLM takes this when it starts: vllm serve {name} {' '.join(flags)}.")
    return name


def _prompt(handover: Handover) -> dict[str, Any]:
    text = handover.take("template") or PLACE
    handover.take("mode")
    endpoint = "/v1/completions" if handover.mode == "raw" else "/v1/chat/completions"
    handover.notes.append(f"Send it to {endpoint}, with your text in place of {PLACE}.")
    if handover.mode == "raw":
        return {"prompt": text}
    if handover.mode == "auto":
        handover.notes.append("mode auto is written as chat.")
    system = handover.take("system")
    messages = [{"role": "system", "content": system}] if system is not None else []
    return {"messages": [*messages, {"role": "user", "content": text}]}


def _length(handover: Handover) -> dict[str, int]:
    most, least = handover.take("max_new_tokens"), handover.take("min_new_tokens")
    if least > most:
        handover.notes.append(f"min_new_tokens {least} is held to max_new_tokens {most}, since vLLM refuses more.")
    return {"max_tokens": most, "min_tokens": min(least, most)}


def _bias(handover: Handover) -> dict[str, Any]:
    bias = handover.take("logit_bias")
    held = {str(token_id): max(-VLLM_MOST_BIAS, min(VLLM_MOST_BIAS, value)) for token_id, value in bias.items()}
    if list(held.values()) != list(bias.values()):
        handover.notes.append(
            f"vLLM's logit_bias goes from {-VLLM_MOST_BIAS:g} to {VLLM_MOST_BIAS:g} only: "
            "what lies beyond, a ban too, is cut there."
        )
    return {"logit_bias": held} if held else {}


def _differences(handover: Handover) -> None:
    """Say what vLLM does otherwise, where these settings make it matter."""
    params, notes = handover.params, handover.notes
    least, most = VLLM_LEAST_TEMPERATURE, VLLM_MOST_TEMPERATURE
    if params.temperature > most:
        notes.append(f"vLLM refuses a temperature above {most}.")
    if params.min_new_tokens > 0 and params.stop:
        notes.append("vLLM looks for stop strings after min_tokens tokens only.")
    if handover.take_order("vllm"):
        return
    if 0 < params.temperature < least:
        notes.append(f"vLLM raises a temperature between 0 and {least} to {least}, and takes one below 0.00001 as 0.")
    if params.min_p > 0 and (params.top_k > 0 or params.top_p < 1):
        notes.append("vLLM applies min_p before top_k and top_p, minigen after them.")
    if params.top_k > 0:
        notes.append("vLLM's top_k also keeps every token that ties with the last one kept.")
