"""From what the user gave to ids: chat or raw, the texts around it, and a cut that is announced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..generation.errors import UsageError
from ..generation.prompt import Prompt, encode_chat, encode_raw, fit
from .reading import PLACE

if TYPE_CHECKING:
    from ..generation.model import Model
    from ..presets import Settings
    from .job import Job
    from .notes import Notes


def choose_mode(settings: Settings, job: Job, model: Model, notes: Notes) -> str:
    """Give chat or raw; `auto` is chat where there is a template."""
    has_template = model.has_chat_template or job.chat_template is not None
    mode = settings.mode if settings.mode != "auto" else "chat" if has_template else "raw"
    if mode == "chat" and not has_template:
        raise UsageError(f"The model {model.name} has no chat template: give one with --chat-template, or use --raw.")
    if mode == "raw" and job.is_system_flag:
        raise UsageError(
            f"--system needs a chat template, and {model.name} is used without one: "
            "give --chat-template, or put that text into the prompt."
        )
    if mode == "raw" and job.system is not None:
        notes.warn(f"warning: the preset's system text is left out, since {model.name} continues raw text.")
    return mode


def turns(text: str, system: str | None) -> list[dict[str, str]]:
    """Give one turn of a conversation, as a chat template takes it."""
    before = [] if system is None else [{"role": "system", "content": system}]
    return [*before, {"role": "user", "content": text}]


def chat_ids(model: Model, text: str, system: str | None) -> tuple[int, ...]:
    """Encode one turn of a conversation in the model's template. Raises UsageError where the model has none."""
    if not model.has_chat_template:
        flags = "--chat" if system is None else "--chat and --system"
        raise UsageError(f"The model {model.name} has no chat template: leave {flags} out.")
    return encode_chat(model.tokenizer, turns(text, system)).ids


def encode(job: Job, model: Model, settings: Settings, notes: Notes) -> Prompt:
    """Turn the prompt into ids that fit the model's window; a cut is announced."""

    def encode_text(text: str) -> Prompt:
        text = text if job.template is None else job.template.replace(PLACE, text, 1)
        if settings.mode == "raw":
            return encode_raw(model.tokenizer, text)
        return encode_chat(model.tokenizer, turns(text, job.system), template=job.chat_template)

    prompt, cut = fit(
        encode_text,
        job.prompt,
        window=model.window,
        max_new_tokens=settings.params.max_new_tokens,
        truncate=job.truncate,
        tokenizer=model.tokenizer,
    )
    if cut is not None:
        place = "beginning" if job.truncate == "head" else "end"
        notes.warn(
            f"warning: the prompt is too long for the window of {model.window} tokens: "
            f"{cut.dropped} tokens at its {place} were dropped, {cut.kept} kept."
        )
    return prompt
