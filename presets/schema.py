"""What a preset file may hold: its pydantic model, which checks files, and the JSON schema made from it.

The sampling section is built from SamplingParams and its RANGES, which hold the only copy of every bound.
"""

from dataclasses import fields
from functools import partial
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema, create_model

from ..generation.about import SETTINGS
from ..generation.errors import ParameterError
from ..generation.orders import ORDERS
from ..generation.params import MAX_TEXTS, TEXTS, TOKEN_IDS, SamplingParams
from ..generation.ranges import RANGES
from .sections import ModelSection, Printable, PromptSection, Section, refusal

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _sampling_setting(name: str, value: Any) -> Any:
    """Check one sampling setting the way SamplingParams does."""
    if value is None:
        return None
    try:
        return getattr(SamplingParams(**{name: value}), name)
    except ParameterError as error:
        raise refusal(error.wanted, error.value) from None


def _json_of(name: str) -> dict[str, Any]:
    """Write a sampling setting's type and bounds as a JSON schema."""
    if name in RANGES:
        bounds = RANGES[name]
        schema: dict[str, Any] = {"type": "integer" if bounds.kind is int else "number"}
        schema["exclusiveMinimum" if bounds.is_low_open else "minimum"] = bounds.low
        if bounds.high is not None:
            schema["maximum"] = bounds.high
        return schema
    if name in TEXTS:
        text = {"type": "string", "minLength": 1}
        return {"anyOf": [text, {"type": "array", "items": text, "maxItems": MAX_TEXTS}]}
    if name in TOKEN_IDS:
        return {"type": "array", "items": {"type": "integer", "minimum": 0}}
    others: dict[str, dict[str, Any]] = {
        "logit_bias": {"type": "object", "additionalProperties": {"type": "number"}},
        "ignore_eos": {"type": "boolean"},
        "order": {"enum": list(ORDERS)},
    }
    return others[name]


def _sampling_field(name: str) -> Any:
    check = PlainValidator(partial(_sampling_setting, name))
    schema = WithJsonSchema({"anyOf": [_json_of(name), {"type": "null"}]})
    return Annotated[Any, check, schema], Field(None, description=SETTINGS[name])


SamplingSection = create_model(
    "SamplingSection",
    __base__=Section,
    __doc__="Sampling settings. Merged over the parent's key by key.",
    **{spec.name: _sampling_field(spec.name) for spec in fields(SamplingParams)},
)


class PresetFile(Section):
    """A minigen preset: a model, a prompt form and sampling settings."""

    description: str | None = Field(None, description="One line for lists of presets.")
    extends: Printable | None = Field(None, description="One parent: a preset's name or a path to a file.")
    model: ModelSection | None = None
    prompt: PromptSection | None = None
    sampling: SamplingSection | None = None  # type: ignore[valid-type]  # made from SamplingParams at run time


SECTIONS: dict[str, type[Section]] = {
    "model": ModelSection,
    "prompt": PromptSection,
    "sampling": SamplingSection,
}


def json_schema() -> dict[str, Any]:
    """Give the JSON schema of preset files, for editors."""
    return {"$schema": DIALECT, **PresetFile.model_json_schema()}
