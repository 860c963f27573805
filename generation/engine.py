"""The engine: a state machine that advances requests one step at a time."""

from collections.abc import Callable, Iterable, Mapping, Sequence as SequenceOf
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from .device import is_out_of_memory, out_of_memory
from .errors import MinigenError, ParameterError, RunError
from .model import Model
from .params import TOKEN_IDS, SamplingParams
from .prompt import Prompt, check_room, encode_raw
from .ranges import as_number
from .runner import Runner
from .sampler import Sampler
from .scheduler import Scheduler
from .sequence import Sequence
from .text import TextStream
from .trace import UNINSPECTED, Draw, FinishReason, Inspection, Output
from .words import Words, words_for


class Engine:
    """Generates for requests: `add_request`, then `step` while `has_unfinished_requests`.

    It knows ids and text, and never prints, reads a file or sleeps. Requests start in order of arrival, at most
    `max_running` at a time. kv_memory: the most bytes of keys and values; None: chosen by the device.
    """

    def __init__(self, model: Model, *, max_running: int = 1, kv_memory: int | None = None) -> None:
        self.model = model
        self.runner = Runner(model.network)
        self.scheduler = Scheduler(max_running)
        self.one_at_a_time: str | None = None  # why this model cannot run several sequences together
        self._last_outputs: list[Output] = []  # of aborted requests, for the next step
        self._numbers = count()
        self._last_words: tuple[SamplingParams, Words] | None = None  # samples of a run differ by their seed alone

    def add_request(
        self,
        prompt: str | SequenceOf[int] | Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        inspection: Inspection = UNINSPECTED,
    ) -> str:
        """Queue a request and give its id.

        A string is raw text, ids are taken as they are; a `Prompt` comes from `encode_chat` or `encode_raw`.
        `inspection` is what each Draw tells besides its token. Raises PromptError for an empty prompt or one that
        leaves no room in the window, ParameterError for ids outside the vocabulary, a bad word without tokens or an id
        that is in use.
        """
        params = sampling_params or SamplingParams()
        request_id = self._free_id(request_id)
        prompt = encode_raw(self.model.tokenizer, prompt) if isinstance(prompt, str) else prompt
        if not isinstance(prompt, Prompt):
            ids = self._checked_ids("prompt", _listed(prompt))
            prompt = Prompt(ids, context_ids=ids)
        check_room(len(prompt.ids), self.model.window)
        prompt_ids = self._checked_ids("prompt", prompt.ids)
        self._checked_ids("logit_bias", params.logit_bias)
        for name in TOKEN_IDS:
            self._checked_ids(name, getattr(params, name))
        end_ids = (*self.model.end_token_ids, *params.end_token_ids)
        sequence = Sequence(
            request_id=request_id,
            prompt_ids=prompt_ids,
            params=params,
            sampler=Sampler(params, prompt_ids=prompt_ids, words=self.words_of(params), inspection=inspection),
            text=TextStream(self.model.tokenizer, prompt.context_ids, params.stop),
            end_token_ids=frozenset(() if params.ignore_eos else end_ids),
            window=self.model.window,
        )
        self.scheduler.add(sequence)
        return request_id

    def words_of(self, params: SamplingParams) -> Words:
        """Give the token ids for which texts and names in `params` stand with this model's tokenizer."""
        seedless = replace(params, seed=None)
        if self._last_words is None or self._last_words[0] != seedless:
            end_ids = (*self.model.end_token_ids, *params.end_token_ids)
            self._last_words = seedless, words_for(params, self.model.tokenizer, end_ids)
        return self._last_words[1]

    def has_unfinished_requests(self) -> bool:
        """Tell whether another step has something to give."""
        return bool(self._last_outputs) or len(self.scheduler) > 0

    @property
    def num_unfinished(self) -> int:
        """The number of requests that are waiting or running."""
        return len(self.scheduler)

    def step(self) -> list[Output]:
        """Advance every running sequence by one token; give what that did, one output for each."""
        outputs, self._last_outputs = self._last_outputs, []
        return outputs + [
            self._alone(sequence, partial(self._advance, sequence)) for sequence in self.scheduler.schedule()
        ]

    def abort_request(self, request_id: str) -> None:
        """End a request now. The next step gives its last output, with the text that was held back."""
        sequence = self.scheduler.find(request_id)
        if sequence is not None:
            self._last_outputs.append(self._alone(sequence, lambda: self._finish(sequence, "interrupted")))

    def seed_of(self, request_id: str) -> int:
        """Give the seed of a request that is waiting or running, chosen or given."""
        sequence = self.scheduler.find(request_id)
        if sequence is None:
            raise ParameterError("request_id", request_id, "the id of an unfinished request")
        return sequence.sampler.seed

    def _alone(self, sequence: Sequence, work: Callable[[], Output]) -> Output:
        """Do one sequence's work; if it fails, that sequence ends with the error and the others go on."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - one failing sequence fails alone
            return self._finish(sequence, "error", error=self._translated(error, sequence))

    def _advance(self, sequence: Sequence) -> Output:
        return self._accept(sequence, self._next_draw(sequence))

    def _next_draw(self, sequence: Sequence) -> Draw:
        if sequence.slot is None:
            sequence.slot = self.runner.new_slot(sequence.most_tokens)
            logits = self.runner.prefill(sequence.prompt_ids, sequence.slot)
        else:
            logits = self.runner.decode(sequence.token_ids[-1], sequence.length - 1, sequence.slot)
        return sequence.sampler.draw(logits)  # logits: (vocab,)

    def _accept(self, sequence: Sequence, draw: Draw) -> Output:
        sequence.token_ids.append(draw.token_id)
        reason = sequence.finish_after(draw.token_id)
        if reason == "stop":  # an end token is not part of the text
            return self._finish(sequence, "stop", draw=draw, stop=draw.token_id)
        text = sequence.text.push(draw.token_id)
        if reason or sequence.text.stopped_by is not None:
            return self._finish(sequence, reason or "stop", text, draw=draw)
        return Output(request_id=sequence.request_id, text=text, token_id=draw.token_id, draw=draw)

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        text: str = "",
        *,
        draw: Draw | None = None,
        stop: str | int | None = None,
        error: MinigenError | None = None,
    ) -> Output:
        text += sequence.text.flush()
        self.scheduler.remove(sequence)
        sequence.slot = None  # its keys and values are freed
        if draw is not None and stop is None and sequence.text.stopped_by is not None:
            reason, stop = "stop", sequence.text.stopped_by
        return Output(
            request_id=sequence.request_id,
            text=text,
            token_id=draw.token_id if draw else None,
            draw=draw,
            finish_reason=reason,
            stop=stop,
            error=error,
        )

    def _translated(self, error: Exception, sequence: Sequence) -> MinigenError:
        if isinstance(error, MinigenError):
            return error
        step = len(sequence.token_ids) + 1
        if is_out_of_memory(error):
            failure: MinigenError = out_of_memory(f"computing token {step}", self.model.device)
        else:
            failure = RunError(f"The model failed at token {step}: {_first_line(error)}.")
        failure.__cause__ = error
        return failure

    def _free_id(self, request_id: str | None) -> str:
        if request_id is None:
            return next(name for n in self._numbers if self.scheduler.find(name := str(n)) is None)
        if self.scheduler.find(request_id) is not None:
            raise ParameterError("request_id", request_id, "an id that is not in use")
        return request_id

    def _checked_ids(self, name: str, ids: Iterable[Any]) -> tuple[int, ...]:
        """Give ids of any library's whole numbers as Python's own; raise ParameterError for one that is no token's."""
        checked = []
        for token_id in ids:
            number = token_id if type(token_id) is int else as_number(int, token_id)
            if not 0 <= number < self.model.vocab_size:
                raise ParameterError(name, token_id, f"token ids from 0 to {self.model.vocab_size - 1}")
            checked.append(int(number))
        return tuple(checked)


def _listed(prompt: Any) -> Iterable[Any]:
    """Give the ids of a list, an array or a tensor one by one."""
    if isinstance(prompt, bytes | Mapping) or not hasattr(prompt, "__iter__"):
        raise ParameterError("prompt", prompt, "a text, token ids or a Prompt")
    ids: Iterable[Any] = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    return ids


def _first_line(error: Exception) -> str:
    """Name an error's kind, with the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
