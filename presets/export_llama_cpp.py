"""A preset as a command of llama.cpp: llama-cli for a chat, llama-completion for raw text.

Every sampling flag is written, since llama.cpp's own defaults filter and a GGUF file may bring defaults too.
"""

import math
import shlex
from collections.abc import Sequence

from ..generation.orders import LLAMA_CPP_WINDOW, LLAMA_CPP_WITH_MIROSTAT, RULES
from ..generation.params import BREAKERS, SamplingParams
from ..generation.sources import HubSource
from .counterparts import PLACE, WINDOW, Handover, is_gguf, is_hub, place_of, written

ORDER = "penalties;dry;top_n_sigma;temperature;top_k;top_p;min_p;typ_p;xtc"  # minigen's
OWN_ORDER = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
MAX_SEED = 2**32 - 2  # the one above means a random seed
_LOST_WITH_MIROSTAT = [
    name
    for name in RULES["minigen"].stages
    if name in RULES["llama.cpp"].stages and name not in LLAMA_CPP_WITH_MIROSTAT
]
_NEUTRAL = SamplingParams()
_NO_NUL = "No argument can hold a NUL"
Flags = list[tuple[str, object]]


def write_flags(handover: Handover) -> str:
    """Write the command, a group of flags a line. --repeat-last-n -1 is not used: newer versions refuse it."""
    program, prompt = _prompt(handover)
    is_own = handover.take_order("llama.cpp")
    groups: list[Flags] = [
        prompt,
        _end(handover),
        [("--samplers", OWN_ORDER if is_own else ORDER)],
        _penalties(handover, is_own=is_own),
        _dry(handover),
        _temperature(handover),
        _cuts(handover),
        _mirostat(handover, is_own=is_own),
        _bias(handover),
    ]
    lines = [" ".join(map(_word, group)) for group in groups if group]
    return " \\\n  ".join([f"{program} {' '.join(map(_word, _model(handover)))}", *lines]) + "\n"


def _word(flag: tuple[str, object]) -> str:
    name, value = flag
    return name if value is None else f"{name} {shlex.quote(str(value))}"


def _model(handover: Handover) -> Flags:
    source = handover.take_source(is_gguf, is_hub)
    if isinstance(source, HubSource):
        handover.notes.append("-hf needs a repository with GGUF files.")
        if source.revision:
            handover.notes.append(f"-hf takes no revision: {source.revision} is left out.")
        return [("-hf", source.repo)]
    if not is_gguf(source):
        handover.notes.append(f"llama.cpp reads GGUF only: make model.gguf of {source} with convert_hf_to_gguf.py.")
        return [("-m", "model.gguf")]
    return [("-m", place_of(source))]


def _prompt(handover: Handover) -> tuple[str, Flags]:
    """Give the program and its prompt. Backslashes mean themselves with --no-escape only."""
    handover.take("mode")
    text = _without_nul(handover, "template", handover.take("template") or PLACE)
    handover.notes.append(f"Put your text in place of {PLACE}.")
    texts = [text, *handover.params.stop, *handover.params.dry_sequence_breakers]
    escapes: Flags = [("--no-escape", None)] if any("\\" in item for item in texts) else []
    if handover.mode == "raw":
        return "llama-completion", [("-no-cnv", None), *escapes, ("-p", text)]
    if handover.mode == "auto":
        handover.notes.append("mode auto is written as chat; llama-completion -no-cnv continues raw text.")
    system = handover.take("system")
    systems: Flags = [("-sys", _without_nul(handover, "system text", system))] if system is not None else []
    return "llama-cli", [("-cnv", None), ("-st", None), *escapes, *systems, ("-p", text)]


def _without_nul(handover: Handover, name: str, text: str) -> str:
    if "\0" in text:
        handover.notes.append(f"{_NO_NUL}: the {name} stands without it.")
    return text.replace("\0", "")


def _holdable(handover: Handover, name: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Give the texts that an argument can hold as they are."""
    handover.notes += [f"{_NO_NUL}: the {name} {written(text)} is left out." for text in texts if "\0" in text]
    return tuple(text for text in texts if "\0" not in text)


def _end(handover: Handover) -> Flags:
    flags: Flags = [("-n", handover.take("max_new_tokens"))]
    seed = handover.take_seed("llama.cpp", MAX_SEED)
    flags += [("--seed", seed)] if seed is not None else []
    if handover.take("ignore_eos"):
        flags.append(("--ignore-eos", None))
        handover.notes.append("llama.cpp's --ignore-eos bans the end tokens; minigen lets them be drawn and goes on.")
    if stop := handover.take("stop"):
        flags += [("-r", text) for text in _holdable(handover, "stop string", stop)]
        handover.notes.append("Stop strings are written as reverse prompts (-r), which may be shown.")
    return flags


def _penalties(handover: Handover, *, is_own: bool) -> Flags:
    params = handover.params
    is_counting = params.frequency_penalty != 0 or params.presence_penalty != 0
    if is_counting and not is_own:
        handover.notes.append(
            "llama.cpp counts the prompt in frequency_penalty and presence_penalty, minigen the output alone."
        )
    is_active = is_counting or params.repetition_penalty != 1
    return [
        ("--repeat-penalty", handover.take("repetition_penalty")),
        ("--frequency-penalty", handover.take("frequency_penalty")),
        ("--presence-penalty", handover.take("presence_penalty")),
        ("--repeat-last-n", 0 if not is_active else LLAMA_CPP_WINDOW if is_own else WINDOW),
    ]


def _dry(handover: Handover) -> Flags:
    breakers = _holdable(handover, "sequence breaker", handover.take("dry_sequence_breakers"))
    if "none" in breakers:
        handover.notes.append('llama.cpp takes the sequence breaker "none" as none at all.')
    return [
        ("--dry-multiplier", handover.take("dry_multiplier")),
        ("--dry-base", handover.take("dry_base")),
        ("--dry-allowed-length", handover.take("dry_allowed_length")),
        ("--dry-penalty-last-n", handover.take("dry_range") or WINDOW),
        *([("--dry-sequence-breaker", text) for text in breakers or ("none",)] if breakers != BREAKERS else []),
    ]


def _temperature(handover: Handover) -> Flags:
    return [
        ("--top-nsigma", handover.take("top_n_sigma") or -1),
        ("--temp", handover.take("temperature")),
        ("--dynatemp-range", handover.take("dynatemp_range")),
        ("--dynatemp-exp", handover.take("dynatemp_exponent")),
    ]


def _cuts(handover: Handover) -> Flags:
    return [
        ("--top-k", handover.take("top_k")),
        ("--top-p", handover.take("top_p")),
        ("--min-p", handover.take("min_p")),
        ("--typical", handover.take("typical_p")),
        ("--xtc-probability", handover.take("xtc_probability")),
        ("--xtc-threshold", handover.take("xtc_threshold")),
    ]


def _mirostat(handover: Handover, *, is_own: bool) -> Flags:
    """With mirostat llama.cpp's chain is logit bias, temperature and mirostat, whatever --samplers says."""
    target, rate = handover.take("mirostat_tau"), handover.take("mirostat_eta")
    if target == 0:
        return [("--mirostat", 0), ("--mirostat-lr", rate)]
    lost = [name for name in _LOST_WITH_MIROSTAT if getattr(handover.params, name) != getattr(_NEUTRAL, name)]
    if lost and not is_own:
        handover.notes.append(f"With mirostat llama.cpp leaves out: {', '.join(lost)}.")
    return [("--mirostat", 2), ("--mirostat-ent", target), ("--mirostat-lr", rate)]


def _bias(handover: Handover) -> Flags:
    bias = handover.take("logit_bias")
    signs = {token_id: "-" if math.copysign(1, value) < 0 else "+" for token_id, value in bias.items()}
    return [("--logit-bias", f"{token_id}{signs[token_id]}{abs(value)}") for token_id, value in bias.items()]
