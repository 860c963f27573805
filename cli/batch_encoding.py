"""From a line's request to what the engine takes: ids that fit the window, and the settings that hold for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ..generation.errors import MinigenError, UsageError
from ..generation.params import SamplingParams, next_seed
from ..generation.prompt import Cut, Prompt, encode_chat, encode_raw, fit
from .batch_input import Line
from .batch_requests import Form, LineRequest, fields_of, id_of, request_of
from .encoding import turns
from .reading import PLACE

if TYPE_CHECKING:
    from ..generation.model import Model
    from ..presets import Settings
    from .job import Job

_SHORT: Final = 4  # bytes for each token of the window: a text up to there is encoded to see whether it fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A line that can be generated for."""

    line: int
    digest: str
    id: str | int | None
    prompt: Prompt
    params: SamplingParams
    seed: int
    cut: Cut | None  # what --truncate took from the prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A line that cannot be generated for."""

    line: int
    digest: str
    id: str | int | None  # None also where it could not be read
    error: MinigenError


class LineEncoder:
    """Makes requests of lines. A line's own setting beats the flags, a flag the preset.

    settings: with the mode chosen; seed: of line 1. Line n has seed + n − 1, unless it says its own.
    """

    def __init__(self, job: Job, model: Model, settings: Settings, *, seed: int, form: Form) -> None:
        self._job, self._model, self._settings, self._seed, self._form = job, model, settings, seed, form

    def request(self, line: Line) -> Request | Refusal:
        """Give the request of a line, or why there is none."""
        label: str | int | None = None
        try:
            fields = fields_of(line, self._form)
            label = id_of(fields)
            wanted = request_of(fields)
            params = self._params(wanted, line.number)
            prompt, cut = self._prompt(wanted, params.max_new_tokens)
        except MinigenError as error:
            return Refusal(line=line.number, digest=line.digest, id=label, error=error)
        except RecursionError:
            too_deep = UsageError("The line is nested too deeply.")
            return Refusal(line=line.number, digest=line.digest, id=label, error=too_deep)
        assert params.seed is not None
        return Request(
            line=line.number,
            digest=line.digest,
            id=label,
            prompt=prompt,
            params=params,
            seed=params.seed,
            cut=cut,
        )

    def _params(self, wanted: LineRequest, number: int) -> SamplingParams:
        changed: dict[str, Any] = {"seed": next_seed(self._seed, number - 1), **wanted.settings}
        return replace(self._settings.params, **changed)

    def _prompt(self, wanted: LineRequest, max_new_tokens: int) -> tuple[Prompt, Cut | None]:
        """Encode a prompt or messages; --truncate cuts the prompt, or the last message."""
        if self._settings.mode == "raw" and (wanted.messages or wanted.system is not None):
            name = "messages need" if wanted.messages else "system needs"
            raise UsageError(f"{name} a chat template, and {self._model.name} is used without one.")
        text = wanted.prompt if wanted.prompt is not None else wanted.messages[-1]["content"]

        def encode(text: str) -> Prompt:
            return self._encode(wanted, text)

        window = self._model.window
        if window is None or len(text.encode()) <= _SHORT * window:
            prompt = encode(text)
            if window is None or len(prompt.ids) < window:
                return prompt, None
        return fit(
            encode,
            text,
            window=window,
            max_new_tokens=max_new_tokens,
            truncate=self._job.truncate,
            tokenizer=self._model.tokenizer,
        )

    def _encode(self, wanted: LineRequest, text: str) -> Prompt:
        job, tokenizer = self._job, self._model.tokenizer
        if wanted.prompt is not None:
            text = text if job.template is None else job.template.replace(PLACE, text, 1)
        if self._settings.mode == "raw":
            return encode_raw(tokenizer, text)
        system = wanted.system if wanted.system is not None else job.system
        if wanted.prompt is not None:
            return encode_chat(tokenizer, turns(text, system), template=job.chat_template)
        last = {**wanted.messages[-1], "content": text}
        has_system = system is None or any(message["role"] == "system" for message in wanted.messages)
        before = [] if has_system else [{"role": "system", "content": str(system)}]
        return encode_chat(tokenizer, [*before, *wanted.messages[:-1], last], template=job.chat_template)
