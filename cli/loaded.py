"""What a run starts from once its model is there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .samples import Run

if TYPE_CHECKING:
    from ..generation.model import Model
    from ..generation.prompt import Prompt
    from ..presets import Settings
    from .job import Flags, Job
    from .notes import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model, the settings that go with it, and the prompt in its tokens."""

    model: Model
    settings: Settings
    prompt: Prompt
    load_seconds: float

    def run_facts(self, job: Job) -> Run:
        """Give what holds for every sample of a job."""
        return Run(
            model=self.model.name,
            preset=job.preset.name,
            prompt=job.prompt,
            settings=self.settings.choices(),
            device=self.model.device,
            is_compiled=self.model.package is not None,
            num_samples=job.num_samples,
        )


def load(given: Flags, job: Job, notes: Notes) -> Loaded:
    """Load the model, settle what depends on it, and turn the prompt into ids."""
    from .. import presets
    from .encoding import choose_mode, encode
    from .opening import open_model, settled
    from .vocabulary import check_token_ids

    check_token_ids(job)
    began = time.perf_counter()
    name = given.model or job.preset.name
    model = open_model(name, job.model, notes, offline=given.offline, threads=given.threads, is_quiet=given.quiet)
    load_seconds = time.perf_counter() - began
    settings = presets.resolve(job.preset, job.flags, model.sampling_defaults)
    settings = settled(settings, model, choose_mode(settings, job, model, notes))
    prompt = encode(job, model, settings, notes)
    notes.status(f"reading the prompt ({len(prompt.ids)} tokens) ...")
    return Loaded(model=model, settings=settings, prompt=prompt, load_seconds=load_seconds)
