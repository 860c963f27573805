"""Token ids among the settings, held against the vocabulary before the weights are loaded, if the files tell it."""

from __future__ import annotations

from ..generation.errors import ParameterError
from ..generation.params import TOKEN_IDS
from ..presets.spelling import flag_of
from .job import Job

_SETTINGS = ("logit_bias", *TOKEN_IDS)


def check_token_ids(job: Job) -> None:
    """Raise ParameterError, naming the flag or the preset's line, for a token id that the model does not have."""
    given = {name: label for name in _SETTINGS if (label := _label(job, name))}
    if not given:
        return
    vocab_size = _vocab_size(job)
    for name, label in given.items():
        ids = job.flags[name] if job.flags.get(name) is not None else job.preset.sampling[name]
        wrong = next((token_id for token_id in ids if vocab_size is not None and token_id >= vocab_size), None)
        if wrong is not None and vocab_size is not None:
            raise ParameterError(label, wrong, f"token ids from 0 to {vocab_size - 1}")


def _label(job: Job, name: str) -> str | None:
    """Name the place of a setting as messages do; None where it is not given."""
    if job.flags.get(name) is not None:
        return flag_of(name)
    place = job.preset.places.get(f"sampling.{name}")
    return f"{place}: sampling.{name}" if place else None


def _vocab_size(job: Job) -> int | None:
    from ..generation.describe import describe
    from ..generation.fetching import locate

    for source in job.model.sources:
        if files := locate(source, with_code=job.model.trust_remote_code):
            return describe(files).vocab_size
    return None  # not fetched yet: the engine will see
