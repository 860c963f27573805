"""The records of a batch: what one line has come to, and what held for all of them.

`batch_schema.py` says what stands in a record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from ..generation.params import SamplingParams
from .batch_encoding import Refusal, Request
from .json_line import line_of

if TYPE_CHECKING:
    from ..generation.model import Model
    from ..generation.trace import Output
    from ..presets import Settings
    from .batch_requests import Form
    from .job import Job

SCHEMA: Final = 1
_LONGEST: Final = 200  # characters of a value that stands in every record


@dataclass(slots=True, kw_only=True)
class Answering:
    """A request on its way to a record."""

    request: Request
    texts: list[str] = field(default_factory=list)
    num_tokens: int = 0

    def take(self, output: Output) -> None:
        """Add what one step did."""
        self.num_tokens += output.token_id is not None
        if output.text:
            self.texts.append(output.text)


def run_facts(job: Job, model: Model, settings: Settings, *, seed: int, form: Form) -> dict[str, Any]:
    """Give what holds for every line and shapes its text, as JSON has it; neutral settings are left out.

    seed: of line 1. Two runs with the same facts write the same texts for the same lines, but for near ties on other
    machines.
    """
    neutral = SamplingParams()
    changed = {
        spec.name: value
        for spec in fields(SamplingParams)
        if spec.name != "seed" and (value := getattr(settings.params, spec.name)) != getattr(neutral, spec.name)
    }
    others = {
        "revision": model.revision,
        "weights": None if settings.weights == "exact" else settings.weights,
        "lines": form == "text" or None,
        "system": job.system if settings.mode == "chat" else None,
        "template": job.template,
        "chat_template": job.chat_template if settings.mode == "chat" else None,
        "truncate": job.truncate,
    }
    named = {"model": model.name, "dtype": model.dtype, "mode": settings.mode, "seed": seed}
    named |= changed | {name: value for name, value in others.items() if value is not None}
    return {name: _brief(value) for name, value in named.items()}


def _brief(value: Any) -> Any:
    """Give a value as it comes back from JSON, and a digest of one that is long."""
    written = line_of(value)
    if len(written) > _LONGEST:
        return f"sha256:{sha256(written.encode()).hexdigest()[:16]}"
    return json.loads(written)


def finished_record(one: Answering, last: Output, run: Mapping[str, Any]) -> dict[str, Any]:
    """Give the record of a request that has ended, with its last output."""
    request = one.request
    prompt_tokens = len(request.prompt.ids)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "id": request.id,
        "line": request.line,
        "text": "".join(one.texts),
        "finish_reason": last.finish_reason,
        "stop": last.stop,
        "seed": request.seed,
        "usage": _usage(prompt_tokens, one.num_tokens),
    }
    if request.cut is not None:
        record["truncated"] = asdict(request.cut)
    if last.error is not None:
        record["error"] = str(last.error)
    return record | {"input": request.digest, "run": run}


def refused_record(refusal: Refusal, run: Mapping[str, Any]) -> dict[str, Any]:
    """Give the record of a line that nothing could be generated for."""
    return {
        "schema": SCHEMA,
        "id": refusal.id,
        "line": refusal.line,
        "text": "",
        "finish_reason": "error",
        "stop": None,
        "seed": None,
        "usage": _usage(0, 0),
        "error": str(refusal.error),
        "input": refusal.digest,
        "run": run,
    }


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
