"""Loading a preset: read its file and its parents', check each, merge them, keep every value's place."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..generation.errors import ParameterError, PresetError
from ..generation.params import TEXTS, SamplingParams
from ..generation.sources import HubSource, ModelSettings
from .explain import sentences
from .finding import DEFAULT, Found, builtin, find
from .preset import Place, Preset, PromptSettings
from .reading import Document, read_document
from .schema import SECTIONS, PresetFile
from .sections import source_named


@dataclass(frozen=True, slots=True)
class Layer:
    """One file on the way from a preset to its last parent."""

    found: Found
    document: Document
    content: PresetFile

    def place(self, *path: str) -> Place:
        """Tell where a key is written."""
        return Place(self.found.name, self.found.label, self.document.line_of(path))


def load(name_or_path: str | Path) -> Preset:
    """Load a preset by name or path; raise PresetError with file and line if it is not valid."""
    return merge(_layers(find(name_or_path)))


def problems(name_or_path: str | Path) -> list[str]:
    """Give one sentence for each fault of a preset, none for a valid one."""
    try:
        found = find(name_or_path)
        document = read_document(found.path, found.label)
        PresetFile.model_validate(document.data)
        merge(_layers(found))
    except ValidationError as error:
        return sentences(error, document)
    except PresetError as error:
        return [str(error)]
    return []


def _read(found: Found) -> Layer:
    document = read_document(found.path, found.label)
    try:
        return Layer(found, document, PresetFile.model_validate(document.data))
    except ValidationError as error:
        raise PresetError(sentences(error, document)[0]) from None


def _layers(found: Found) -> list[Layer]:
    """Read a preset and its parents, the child first."""
    layers = [_read(found)]
    while parent := layers[-1].content.extends:
        child = layers[-1]
        place = child.place("extends")
        try:
            above = find(parent, base=child.found.path.parent, beyond=child.found.path)
        except PresetError as error:
            raise PresetError(f"{place}: extends: {error}") from None
        seen = [layer.found.path.resolve() for layer in layers]
        if above.path.resolve() in seen:
            chain = " -> ".join([*(layer.found.name for layer in layers), above.name])
            raise PresetError(f"{place}: extends goes round in a circle: {chain}.")
        layers.append(_read(above))
    return layers


def merge(layers: list[Layer]) -> Preset:
    """Lay each child over its parent, key by key; a null leaves the parent's value.

    A preset without any model.source has the default preset's.
    """
    values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    places: dict[str, Place] = {}
    for layer in reversed(layers):
        for section in SECTIONS:
            given = _given(layer, section)
            if "source" in given:  # a revision belongs to its source
                values["model"].pop("revision", None)
                places.pop("model.revision", None)
            values[section] |= given
            places |= {f"{section}.{key}": layer.place(section, key) for key in given}
    child = layers[0]
    _check_together(values["sampling"], places)
    return Preset(
        name=child.found.name,
        path=child.found.path,
        description=child.content.description or "",
        model=_model(values["model"], places),
        prompt=PromptSettings(**values["prompt"]),
        sampling=values["sampling"],
        places=places,
        warnings=_warnings(values["sampling"], places),
    )


def _given(layer: Layer, section: str) -> dict[str, Any]:
    content = getattr(layer.content, section)
    if content is None:
        return {}
    values = {key: getattr(content, key) for key in type(content).model_fields}
    given = {key: value for key, value in values.items() if value is not None}
    if "source" in given:
        folder = layer.found.path.parent
        entries = given["source"] if isinstance(given["source"], list) else [given["source"]]
        given["source"] = [
            source_named(entry, folder) if isinstance(entry, str) else entry.record(folder) for entry in entries
        ]
    return given


def _model(values: dict[str, Any], places: dict[str, Place]) -> ModelSettings:
    sources = values.get("source")
    if sources is None:
        sources = _given(_read(builtin(DEFAULT)), "model")["source"]
    revision = values.get("revision")
    if revision is not None:
        is_open = [isinstance(source, HubSource) and source.revision is None for source in sources]
        if not any(is_open):
            place = places["model.revision"]
            raise PresetError(f"{place}: model.revision is for a hub source, and model.source has none to use it.")
        sources = [
            replace(source, revision=revision) if takes_it else source
            for source, takes_it in zip(sources, is_open, strict=True)
        ]
    where = {key: values[key] for key in ("device", "dtype", "compile", "weights") if key in values}
    try:
        return ModelSettings(sources=tuple(sources), **where)
    except ParameterError as error:  # settings that do not go together; each by itself is checked before
        raise PresetError(f"{places[f'model.{error.name}']}: model.{error}") from None


def _check_together(sampling: dict[str, Any], places: dict[str, Place]) -> None:
    """Refuse a setting that the engine of `order` does not have; each by itself is checked before."""
    try:
        SamplingParams(**sampling)
    except ParameterError as error:
        raise PresetError(f"{places[f'sampling.{error.name}']}: sampling.{error}") from None


def _warnings(sampling: dict[str, Any], places: dict[str, Place]) -> tuple[str, ...]:
    r"""Warn of texts with a backslash and an n, which was most likely meant as a line break."""
    doubtful = [name for name in TEXTS if any(r"\n" in text for text in sampling.get(name, ()))]
    return tuple(
        f"{places[f'sampling.{name}']}: sampling.{name} holds a backslash and an n, which is not a line break; "
        r'in double quotes, "\n" is one.'
        for name in doubtful
    )
