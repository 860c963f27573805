"""The whole loop on one screen, without a cache: the reference for the rest.

Each new token costs a pass over everything so far, so the loop grows slower with every token; the engine keeps the keys
and values of the past instead and gives the same text.
"""

from dataclasses import replace
from typing import Any

import torch

from .errors import ParameterError
from .facts import end_token_ids, window_of
from .orders import is_greedy
from .params import SamplingParams
from .prompt import check_room, encode_raw
from .sampler import Sampler
from .stops import StopStrings
from .text import decode_new
from .words import words_for

HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"  # what a text ends with whose last character is not yet whole


@torch.inference_mode()
def simple_generate(
    model: Any, tokenizer: Any, prompt: str, *, sampling_params: SamplingParams | None = None, **settings: Any
) -> str:
    """Continue raw text with a transformers model and tokenizer; give the new text only.

    `settings` are single fields of SamplingParams (`temperature=0.8`), or pass `sampling_params`, not both. Raises
    ParameterError, PromptError for a prompt that is empty or fills the window, NumberError for logits that are none.
    """
    params = _params(sampling_params, settings)
    prompt_ids = list(encode_raw(tokenizer, prompt).ids)
    window = window_of(getattr(model, "config", None))
    check_room(len(prompt_ids), window)
    end_ids = (*end_token_ids(model, tokenizer), *params.end_token_ids)
    device = getattr(model, "device", "cpu")
    sampler = Sampler(params, prompt_ids=prompt_ids, words=words_for(params, tokenizer, end_ids))

    new_ids: list[int] = []
    while len(new_ids) < params.max_new_tokens and (window is None or len(prompt_ids) + len(new_ids) < window):
        input_ids = torch.tensor([prompt_ids + new_ids], device=device)  # (1, length)
        logits = model(input_ids=input_ids).logits[0, -1]  # (vocab,): what may follow the last token
        token_id = sampler.draw(logits).token_id
        if token_id in end_ids and not params.ignore_eos:
            break
        new_ids.append(token_id)
        text = decode_new(tokenizer, prompt_ids, new_ids).rstrip(HALF_A_CHARACTER)
        if any(stop in text for stop in params.stop):
            break
    stops = StopStrings(params.stop)
    return stops.push(decode_new(tokenizer, prompt_ids, new_ids)) + stops.flush()


def greedy_generate(
    model: Any, tokenizer: Any, prompt: str, *, sampling_params: SamplingParams | None = None, **settings: Any
) -> str:
    """Continue raw text at temperature 0, with the likeliest token each time; else as simple_generate.

    Raises ParameterError for another temperature, and for an order in which temperature 0 is not greedy.
    """
    if "temperature" in settings:
        raise ParameterError("temperature", settings["temperature"], "left out: greedy_generate means 0")
    params = _params(sampling_params, settings)
    if not is_greedy(replace(params, temperature=0.0)):
        raise ParameterError("order", params.order, "one that is greedy at temperature 0 with these settings")
    return simple_generate(model, tokenizer, prompt, sampling_params=replace(params, temperature=0.0))


def _params(params: SamplingParams | None, settings: dict[str, Any]) -> SamplingParams:
    if params is not None and settings:
        raise ParameterError("sampling_params", sorted(settings), "given alone, without single settings")
    return params or SamplingParams(**settings)
