"""The library: the loop, sampling and the engine. Its public names are imported when they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bans import (
        apply_allowed_token_ids as apply_allowed_token_ids,
        apply_bad_words as apply_bad_words,
        apply_min_new_tokens as apply_min_new_tokens,
    )
    from .cutoffs import (
        apply_epsilon_cutoff as apply_epsilon_cutoff,
        apply_eta_cutoff as apply_eta_cutoff,
        apply_mirostat as apply_mirostat,
        apply_top_n_sigma as apply_top_n_sigma,
        apply_xtc as apply_xtc,
    )
    from .dry import apply_dry as apply_dry
    from .engine import Engine as Engine
    from .errors import MinigenError as MinigenError
    from .filters import (
        apply_dynatemp as apply_dynatemp,
        apply_min_p as apply_min_p,
        apply_temperature as apply_temperature,
        apply_top_k as apply_top_k,
        apply_top_p as apply_top_p,
        apply_typical_p as apply_typical_p,
    )
    from .model import Model as Model, load_model as load_model
    from .params import SamplingParams as SamplingParams
    from .penalties import (
        apply_frequency_penalty as apply_frequency_penalty,
        apply_logit_bias as apply_logit_bias,
        apply_no_repeat_ngram as apply_no_repeat_ngram,
        apply_presence_penalty as apply_presence_penalty,
        apply_repetition_penalty as apply_repetition_penalty,
    )
    from .prompt import Prompt as Prompt, encode_chat as encode_chat, encode_raw as encode_raw
    from .sampler import Sampler as Sampler
    from .simple import greedy_generate as greedy_generate, simple_generate as simple_generate
    from .sources import ModelSettings as ModelSettings
    from .text import TextStream as TextStream
    from .trace import (
        Candidate as Candidate,
        Draw as Draw,
        Inspection as Inspection,
        Interval as Interval,
        Leading as Leading,
        Margin as Margin,
        OrderEffect as OrderEffect,
        Output as Output,
        Stage as Stage,
    )
    from .words import Words as Words, words_for as words_for

_HOMES = {
    "SamplingParams": "params",
    "Sampler": "sampler",
    "Words": "words",
    "words_for": "words",
    "Engine": "engine",
    "Prompt": "prompt",
    "encode_chat": "prompt",
    "encode_raw": "prompt",
    "Model": "model",
    "ModelSettings": "sources",
    "load_model": "model",
    "simple_generate": "simple",
    "greedy_generate": "simple",
    "TextStream": "text",
    "Draw": "trace",
    "Inspection": "trace",
    "Interval": "trace",
    "Leading": "trace",
    "Margin": "trace",
    "OrderEffect": "trace",
    "Stage": "trace",
    "Candidate": "trace",
    "Output": "trace",
    "MinigenError": "errors",
    "apply_logit_bias": "penalties",
    "apply_repetition_penalty": "penalties",
    "apply_frequency_penalty": "penalties",
    "apply_presence_penalty": "penalties",
    "apply_no_repeat_ngram": "penalties",
    "apply_allowed_token_ids": "bans",
    "apply_bad_words": "bans",
    "apply_min_new_tokens": "bans",
    "apply_dry": "dry",
    "apply_top_n_sigma": "cutoffs",
    "apply_temperature": "filters",
    "apply_dynatemp": "filters",
    "apply_top_k": "filters",
    "apply_top_p": "filters",
    "apply_min_p": "filters",
    "apply_typical_p": "filters",
    "apply_epsilon_cutoff": "cutoffs",
    "apply_eta_cutoff": "cutoffs",
    "apply_xtc": "cutoffs",
    "apply_mirostat": "cutoffs",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
