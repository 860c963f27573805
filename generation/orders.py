"""The order of the chain, minigen's own and other engines': which stages each has, and which values it refuses.

What is said here of transformers 5.24 (`hf`), vLLM 0.33 (its PyTorch path), llama.cpp and mlx-lm was read from their
sources. An order decides which tokens are left and how likely each is. The random numbers stay this project's own: the
distribution equals the other engine's, what is drawn from it does not.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from .errors import ParameterError

Order = Literal["minigen", "hf", "vllm", "llama.cpp", "mlx"]
ORDERS: tuple[str, ...] = get_args(Order)
LLAMA_CPP_WINDOW, MLX_WINDOW = 64, 20  # tokens back that the penalties count, as both set it where nobody does
LLAMA_CPP_WITH_MIROSTAT = ("logit_bias", "temperature", "mirostat_tau")  # all that it runs then
VLLM_MOST_BIAS = 100.0
VLLM_LEAST_TEMPERATURE, VLLM_MOST_TEMPERATURE = 0.01, 2  # the least is above 0
PARTS: Mapping[str, tuple[str, ...]] = {  # settings that mean nothing while another is at its neutral value
    "dynatemp_range": ("dynatemp_exponent",),
    "xtc_probability": ("xtc_threshold",),
    "mirostat_tau": ("mirostat_eta",),
    "dry_multiplier": ("dry_base", "dry_allowed_length", "dry_range", "dry_sequence_breakers"),
}
Limit = tuple[Callable[[float], bool], str]  # whether a value is allowed, and what would be


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The stages that an engine has, by the settings that switch them on."""

    scores: tuple[str, ...]  # those that change scores, in order
    filters: tuple[str, ...]  # those that shape the distribution, in order
    is_temperature_last: bool = False  # then 0 takes the likeliest of what the filters left; else it skips them
    limits: Mapping[str, Limit] = field(default_factory=dict)

    @property
    def stages(self) -> tuple[str, ...]:
        """All of its stages, in order."""
        return (*self.scores, *self.filters)


_PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")
_DIVISION = ("temperature", "dynatemp_range")  # one takes the other's place
RULES: Mapping[str, Rules] = {
    "minigen": Rules(
        scores=("logit_bias", "allowed_token_ids", "bad_words", "min_new_tokens", *_PENALTIES, "no_repeat_ngram_size",
                "dry_multiplier"),
        filters=("top_n_sigma", *_DIVISION, "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
                 "xtc_probability", "mirostat_tau"),
    ),
    "hf": Rules(
        scores=("logit_bias", "repetition_penalty", "no_repeat_ngram_size", "bad_words", "min_new_tokens"),
        filters=("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"),
        limits={
            "temperature": (lambda value: value > 0, "above 0"),
            "epsilon_cutoff": (lambda value: value < 1, "below 1"),
            "eta_cutoff": (lambda value: value < 1, "below 1"),
        },
    ),
    "vllm": Rules(
        scores=("allowed_token_ids", "bad_words", "min_new_tokens", "logit_bias", *_PENALTIES),
        filters=("temperature", "min_p", "top_k", "top_p"),
        limits={"temperature": (lambda value: value <= VLLM_MOST_TEMPERATURE, f"at most {VLLM_MOST_TEMPERATURE}")},
    ),
    "llama.cpp": Rules(
        scores=("logit_bias", *_PENALTIES, "dry_multiplier"),
        filters=("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc_probability", *_DIVISION, "mirostat_tau"),
        is_temperature_last=True,
    ),
    "mlx": Rules(
        scores=("logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        filters=("top_p", "min_p", "xtc_probability", "top_k", "temperature"),
        limits={"xtc_threshold": (lambda value: value <= 0.5, "at most 0.5")},
    ),
}  # fmt: skip


def check_order(settings: Any) -> None:
    """Raise ParameterError for an order that is none, and for a setting that its engine does not have or refuses.

    settings: SamplingParams.
    """
    order = settings.order
    if order not in ORDERS:
        raise ParameterError("order", order, "one of " + ", ".join(ORDERS))
    rules = RULES[order]
    missing = {*RULES["minigen"].stages} - {*rules.stages}
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if spec.name in missing and value != spec.default:
            raise ParameterError(
                spec.name, value, f"{_neutral(spec.default)} with order {order}, which has no such setting"
            )
        if spec.name in rules.limits and not rules.limits[spec.name][0](value):
            raise ParameterError(spec.name, value, f"{rules.limits[spec.name][1]} with order {order}")


def skips_filters(settings: Any) -> bool:
    """Whether the choice is greedy at once: the likeliest token after the stages that change scores."""
    return settings.temperature == 0 and not RULES[settings.order].is_temperature_last


def is_greedy(settings: Any) -> bool:
    """Whether temperature 0 settles the choice, so that no random number has a part in it.

    Where temperature comes last it does not with XTC, which flips a coin before it, nor with a range of temperatures.
    """
    can_vary = RULES[settings.order].is_temperature_last and settings.mirostat_tau == 0  # which is alone there
    is_varied = can_vary and (settings.dynatemp_range > 0 or settings.xtc_probability > 0)
    return settings.temperature == 0 and not is_varied


def _neutral(default: Any) -> str:
    return "empty" if isinstance(default, Collection) else f"{default:g}"
