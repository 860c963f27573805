"""A preset as ollama's Modelfile."""

import re

from ..generation.orders import LLAMA_CPP_WINDOW
from ..generation.sources import HubSource, PathSource
from .counterparts import PLACE, WINDOW, Handover, is_gguf, is_hub, place_of, written

_SAME = ("temperature", "top_k", "top_p", "min_p", "typical_p", "presence_penalty", "frequency_penalty")
MAX_SEED = 2**31 - 1
_CLOSING = re.compile('"{3,}')


def write_modelfile(handover: Handover) -> str:
    """Write the instructions. ollama's own defaults filter (temperature 0.8, top_k 40, top_p 0.9), so all are set."""
    lines = [f"FROM {_quoted(handover, _model(handover))}", *_prompt(handover)]
    is_counting = handover.params.presence_penalty != 0 or handover.params.frequency_penalty != 0
    is_penalizing = is_counting or handover.params.repetition_penalty != 1
    is_own = handover.take_order("llama.cpp")
    values = handover.take_all(_SAME) | {
        "repeat_penalty": handover.take("repetition_penalty"),
        "repeat_last_n": 0 if not is_penalizing else LLAMA_CPP_WINDOW if is_own else WINDOW,
        "num_predict": handover.take("max_new_tokens"),
        "seed": handover.take_seed("ollama", MAX_SEED),
    }
    lines += [f"PARAMETER {name} {value}" for name, value in values.items() if value is not None]
    lines += [f"PARAMETER stop {_quoted(handover, text)}" for text in _stop(handover)]
    _differences(handover, is_own=is_own)
    if is_penalizing:
        handover.notes.append("Some versions of ollama's own engine do without penalties.")
    if is_counting and not is_own:
        handover.notes.append(
            "ollama counts the prompt in frequency_penalty and presence_penalty, minigen the output alone."
        )
    return "".join(f"{line}\n" for line in lines)


def _model(handover: Handover) -> str:
    source = handover.take_source(is_gguf, lambda source: isinstance(source, PathSource), is_hub)
    if not isinstance(source, HubSource):
        return place_of(source)
    handover.notes.append("ollama takes a hub repository with GGUF files only.")
    if source.revision:
        handover.notes.append(f"FROM takes no revision: {source.revision} is left out.")
    return f"hf.co/{source.repo}"


def _prompt(handover: Handover) -> list[str]:
    """Raw text is a template of its own; around a chat's text a Modelfile can put nothing but the system text."""
    if handover.mode == "raw":
        handover.take("mode")
        before, after = (handover.take("template") or PLACE).split(PLACE)
        return [f"TEMPLATE {_quoted(handover, _literal(before) + '{{ .Prompt }}' + _literal(after))}"]
    if handover.mode == "chat":
        handover.take("mode")  # it is what a Modelfile without a template means
    system = handover.take("system")
    return [f"SYSTEM {_quoted(handover, system)}"] if system is not None else []


def _stop(handover: Handover) -> list[str]:
    """Give the stop strings that stand in a Modelfile as they are: a changed one would end other texts."""
    kept = []
    for text in handover.take("stop"):
        if _CLOSING.search(text) or not all(map(_is_kept, text)):
            handover.notes.append(f"A Modelfile cannot hold the stop string {written(text)}: it is left out.")
        else:
            kept.append(text)
    return kept


def _literal(text: str) -> str:
    """Give a text that a Go template writes as it stands."""
    return text.replace("{", '{{ "{" }}')


def _quoted(handover: Handover, text: str) -> str:
    """Quote a value; the file has no escapes, and its reader leaves out characters that cannot be printed.

    Those go first, since quotes that they part would close the value once they are gone.
    """
    if lost := sorted({char for char in text if not _is_kept(char)}):
        handover.notes.append(f"A Modelfile drops characters that cannot be printed: {', '.join(map(ascii, lost))}.")
        text = "".join(filter(_is_kept, text))
    if _CLOSING.search(text):
        handover.notes.append("A Modelfile cannot hold three double quotes in a row: '\"' stands for them in it.")
        text = _CLOSING.sub('"', text)
    is_plain = text == text.strip() and not set(text) & set('"\n\r')
    if is_plain and text:
        return text
    return f'"""{text}"""' if '"' in text else f'"{text}"'


def _is_kept(char: str) -> bool:
    """Whether ollama's reader keeps a character of a value."""
    return char.isprintable() or char in "\n\r\t"


def _differences(handover: Handover, *, is_own: bool) -> None:
    """Say in which order ollama's two engines run, where these settings make it matter."""
    params, notes = handover.params, handover.notes
    is_cut = params.top_p < 1 or params.min_p > 0 or params.typical_p < 1
    if is_own:
        notes.append("Only ollama's llama.cpp engine has this order; its own runs top_k, temperature, top_p, min_p.")
    elif is_cut and params.temperature not in (0, 1):
        notes.append(
            "ollama's llama.cpp engine applies the temperature after top_p, min_p and typical_p, minigen before them."
        )
    if params.typical_p < 1:
        notes.append("ollama's own engine does without typical_p.")
