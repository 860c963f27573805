"""The library: the loop, sampling and the engine. Its public names are imported when they are first used."""

from importlib import import_module
from typing import Any

_HOMES = {
    "SamplingParams": "params",
    "Sampler": "sampler",
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
    "Candidate": "trace",
    "Output": "trace",
    "MinigenError": "errors",
    "apply_logit_bias": "filters",
    "apply_repetition_penalty": "filters",
    "apply_frequency_penalty": "filters",
    "apply_presence_penalty": "filters",
    "apply_no_repeat_ngram": "filters",
    "apply_temperature": "filters",
    "apply_top_k": "filters",
    "apply_top_p": "filters",
    "apply_min_p": "filters",
    "apply_typical_p": "filters",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
