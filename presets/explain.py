"""From pydantic's errors to sentences with a file and a line."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from ..generation.params import TEXTS
from .building import KeyPath, dotted
from .reading import Document
from .schema import SECTIONS, PresetFile
from .spelling import nearest

SOURCE_FORMS = "OWNER/NAME, a path, or a mapping with wheel, file and sha256, with hub, or with path"
MAX_SHOWN = 60  # characters of a value in a message
_WANTED = {
    "model_type": "a mapping (keys with values)",
    "dict_type": "a mapping (keys with values)",
    "union_tag_not_found": SOURCE_FORMS,
    "union_tag_invalid": SOURCE_FORMS,
    "too_short": "a list with at least one source",
}
_BIAS = ("sampling", "logit_bias")
_TEXT_LISTS = {(name,) for name in TEXTS}
_TEXT_KEYS = {(name,) for name in (*TEXTS, "device", "dtype")}


def sentences(error: ValidationError, document: Document) -> list[str]:
    """Write each error as one sentence, `FILE:LINE: what is wrong`, by line, and there a misspelt key first."""
    found = [_explained(dict(item), document) for item in error.errors(include_url=False)]
    return [f"{document.label}:{line}: {text}" for line, text in sorted(found, key=_by_line)]


def _by_line(found: tuple[int, str]) -> tuple[int, bool, str]:
    line, text = found
    return line, "did you mean" not in text, text


def _explained(item: dict[str, Any], document: Document) -> tuple[int, str]:
    path = _real_path(item["loc"], document)
    line = document.line_of(path)
    kind, name = item["type"], dotted(path)
    if kind in {"extra_forbidden", "invalid_key"}:
        return line, _unknown(path)
    if kind == "missing":
        return line, f"{dotted(path[:-1])} has no {path[-1]}, which it needs."
    if kind == "sentence":
        return line, f"{name}: {item['ctx']['text']}"
    quoted = _word_to_quote(kind, path, item["input"], document)
    if quoted:
        at, word = quoted
        return document.line_of(at), f'{dotted(at)} is {_read_as(word)}; put it in quotes: "{word}".'
    if kind == "wanted" and path == _BIAS and (key := _wrong_key(item["ctx"].get("value"))) is not None:
        wrong = f"{name} must have token ids (0 or more) as its keys, not {shown(key)}."
        return document.line_of((*path, key)), wrong
    path, value = _culprit(path, item)
    written = document.words.get(path)
    what = _read_as(written) if written and isinstance(value, bool) else shown(value, written)
    return document.line_of(path), f"{dotted(path)} must be {_wanted(item, path)}, not {what}."


def _wrong_key(entry: Any) -> str | int | None:
    """Give the key of the entry of `logit_bias` that the check names, where it is not a token id."""
    key = next(iter(entry), None) if isinstance(entry, dict) and len(entry) == 1 else None
    return None if isinstance(key, int) and key >= 0 else key


def _culprit(path: KeyPath, item: dict[str, Any]) -> tuple[KeyPath, Any]:
    """Give the value at fault: an entry of `logit_bias` or of a list where the check names it."""
    value, part = item["input"], item.get("ctx", {}).get("value")
    if path == _BIAS and isinstance(value, dict) and isinstance(part, dict) and len(part) == 1:
        return (*path, *part), next(iter(part.values()))
    if isinstance(value, list) and not isinstance(part, list | None):
        return path, part
    return path, value


def _wanted(item: dict[str, Any], path: KeyPath) -> str:
    kind, value = item["type"], item["input"]
    items = value if isinstance(value, list) else [value]
    if path[:1] == ("sampling",) and path[1:] in _TEXT_LISTS and any(isinstance(each, dict) for each in items):
        return "a text or a list of texts"
    if kind == "wanted":
        return str(item["ctx"]["wanted"])
    if kind == "literal_error":
        return str(item["ctx"]["expected"]).replace("'", "")
    if kind == "string_type":
        return "text"
    return _WANTED.get(kind, str(item["msg"]))


def _real_path(loc: tuple[str | int, ...], document: Document) -> KeyPath:
    """Drop the tags that pydantic puts among the keys, such as <wheel>."""
    path: KeyPath = ()
    for part in loc:
        is_tag = isinstance(part, str) and part.startswith("<") and (*path, part) not in document.lines
        path = path if is_tag else (*path, part)
    return path


def _unknown(path: KeyPath) -> str:
    key, parents = str(path[-1])[:60], path[:-1]
    if path == ("model", "trust_remote_code"):
        return (
            "model.trust_remote_code cannot stand in a preset, since presets are shared; "
            "give --trust-remote-code on the command line."
        )
    homes = [name for name, section in SECTIONS.items() if key in section.model_fields and parents != (name,)]
    if homes:
        return f"{dotted(path)} is not known here; {key} belongs under {homes[0]}."
    known = _keys_at(parents)
    guess = nearest(key, known)
    hint = f"did you mean {guess}?" if guess else f"the keys here are {', '.join(known)}."
    return f"{dotted(path)} is not known; {hint}"


def _keys_at(parents: KeyPath) -> list[str]:
    if not parents:
        return list(PresetFile.model_fields)
    section = SECTIONS.get(str(parents[0])) if len(parents) == 1 else None
    return list(section.model_fields) if section else ["wheel", "file", "sha256", "hub", "revision", "path"]


def _word_to_quote(kind: str, path: KeyPath, value: Any, document: Document) -> tuple[KeyPath, str] | None:
    """Find the word that stands where text is wanted, but that YAML reads as true, false or a number."""
    if kind not in {"string_type", "literal_error"} and path[-1:] not in _TEXT_KEYS:
        return None
    items = enumerate(value) if isinstance(value, list) else iter([(None, value)])
    return next(_misread(items, path, document), None)


def _misread(items: Any, path: KeyPath, document: Document) -> Iterator[tuple[KeyPath, str]]:
    for index, value in items:
        at = path if index is None else (*path, index)
        if isinstance(value, bool | int | float) and at in document.words:
            yield at, document.words[at]


def _read_as(word: str) -> str:
    lowered = word.lower()
    if lowered in {"true", "false"}:
        return word
    if lowered in {"yes", "on"}:
        return f"{word}, which YAML reads as true"
    return f"{word}, which YAML reads as {'false' if lowered in {'no', 'off'} else 'a number'}"


def shown(value: Any, word: str | None = None) -> str:
    """Write a value shortly: scalars as they stand in the file, text in quotes."""
    if isinstance(value, dict):
        return "a mapping"
    text = json.dumps(value) if isinstance(value, list | bool) else word or repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
