"""The engine: a state machine that advances requests one step at a time."""

from collections.abc import Callable, Sequence as SequenceOf
from functools import partial
from itertools import count
from typing import TypeVar

from .device import is_out_of_memory, out_of_memory
from .drawing import row_draws
from .errors import MinigenError, ParameterError, RunError
from .model import Model
from .params import SamplingParams
from .placement import placed
from .prompt import Prompt
from .ranges import Range
from .requests import Requests
from .scheduler import Scheduler
from .sequence import Sequence, Work
from .trace import UNINSPECTED, Draw, FinishReason, Inspection, Output
from .words import Words

MAX_RUNNING = 16  # sequences that run together
STEP_TOKENS = 512  # tokens that one pass reads at most, unless more sequences run
BLOCK_SIZE = 64  # tokens of a block in the KV cache

Given = TypeVar("Given")


class Engine:
    """Generates for requests: `add_request`, then `step` while `has_unfinished_requests`.

    It knows ids and text, and never prints, reads a file or sleeps. Requests start in order of arrival, at most
    `max_running` at a time, and share one forward pass a step, of at most `step_tokens` tokens. kv_memory: the most
    bytes of keys and values; None: what suits the device. A model whose past cannot be kept in blocks of `block_size`
    tokens runs one request at a time; `one_at_a_time` then says why.
    """

    def __init__(
        self,
        model: Model,
        *,
        max_running: int = MAX_RUNNING,
        kv_memory: int | None = None,
        block_size: int = BLOCK_SIZE,
        step_tokens: int | None = None,
    ) -> None:
        max_running = int(Range(int, 1).check("max_running", max_running))
        if step_tokens is None:
            step_tokens = max(STEP_TOKENS, max_running)
        step_tokens = int(Range(int, max_running).check("step_tokens", step_tokens))
        block_size = int(Range(int, 1).check("block_size", block_size))
        placement = placed(model, max_running=max_running, kv_memory=kv_memory, block_size=block_size)
        self.model, self.runner = model, placement.runner
        self.max_running, self.one_at_a_time = placement.max_running, placement.one_at_a_time
        self.scheduler = Scheduler(placement.memory, max_running=self.max_running, step_tokens=step_tokens)
        self._requests = Requests(model)
        self._last_outputs: list[Output] = []  # of aborted requests, for the next step
        self._numbers = count()

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
        leaves no room in the window, ParameterError for ids outside the vocabulary, a bad word without tokens, an id
        that is in use, or a request that could never fit the KV memory.
        """
        request_id = self._free_id(request_id)
        params = sampling_params or SamplingParams()
        self.scheduler.add(self._requests.sequence(prompt, params, request_id, inspection))
        return request_id

    def words_of(self, params: SamplingParams) -> Words:
        """Give the token ids for which texts and names in `params` stand with this model's tokenizer."""
        return self._requests.words_of(params)

    def has_unfinished_requests(self) -> bool:
        """Tell whether another step has something to give."""
        return bool(self._last_outputs) or len(self.scheduler) > 0

    @property
    def num_unfinished(self) -> int:
        """The number of requests that are waiting or running."""
        return len(self.scheduler)

    def step(self) -> list[Output]:
        """Make one forward pass, and give one output for each sequence that got a token or ended."""
        outputs, self._last_outputs = self._last_outputs, []
        for sequence, draw in self._draws(self.scheduler.schedule()):
            outputs.append(self._alone(sequence, partial(self._advance, sequence, draw)))
        return outputs

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

    def _draws(self, works: list[Work]) -> list[tuple[Sequence, Callable[[], Draw]]]:
        """Do the works; give the sequences that have logits now, each with what draws from them, or what failed.

        A pass that fails is made again for each sequence alone, so that only those end that fail by themselves.
        """
        if not works:
            return []
        logits = _attempted(lambda: self.runner.forward(works))
        if isinstance(logits, Exception):
            if len(works) == 1:
                return [(works[0].sequence, partial(_raise, logits))]
            return [draw for work in works for draw in self._draws([work])]
        ready = [work.sequence for work in works if work.is_last]
        self.scheduler.advance(works)
        forks = [(leader, *self.scheduler.fork(leader)) for leader in ready]  # they share a row of logits
        sequences = [sequence for fork in forks for sequence in fork]
        if len(sequences) > len(ready):
            logits = logits[[row for row, fork in enumerate(forks) for _ in fork]]
        return list(zip(sequences, row_draws([each.sampler for each in sequences], logits), strict=True))

    def _alone(self, sequence: Sequence, work: Callable[[], Output]) -> Output:
        """Do one sequence's work; if it fails, that sequence ends with the error and the others go on."""
        done = _attempted(work)
        if isinstance(done, Exception):
            return self._finish(sequence, "error", error=self._translated(done, sequence))
        return done

    def _advance(self, sequence: Sequence, draw: Callable[[], Draw]) -> Output:
        return self._accept(sequence, draw())

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


def _first_line(error: Exception) -> str:
    """Name an error's kind, with the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _raise(error: Exception) -> Draw:
    raise error


def _attempted(work: Callable[[], Given]) -> Given | Exception:
    """Do some work of one sequence, or of several that can be done again; give what it gives or why it failed."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - one failing sequence fails alone
        return error
