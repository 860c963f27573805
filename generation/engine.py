"""The engine: a state machine that advances requests one step at a time."""

from collections.abc import Callable, Sequence as SequenceOf
from functools import partial
from itertools import count

from torch import Tensor

from .device import is_out_of_memory, out_of_memory
from .errors import MinigenError, ParameterError, RunError, first_line
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


class Engine:
    """Generates for requests: `add_request`, then `step` while `has_unfinished_requests`.

    It knows ids and text, and never prints, reads a file or sleeps. Requests start in order of arrival, at most
    `max_running` at a time, and share one forward pass a step, of at most `step_tokens` tokens. kv_memory: bytes that
    keys and values may take; None: what suits the device. A short trial, of four passes, shows whether the model's past
    can be kept in blocks of `block_size` tokens. If not, or with max_running=1 and no kv_memory, requests run one at a
    time, each in a cache of its own that no kv_memory bounds, and some read their prompt in one pass; `one_at_a_time`
    says why. A CUDA GPU has blocks for one request too: its steps are replayed as graphs.
    Raises ParameterError for a number out of its range and for a kv_memory that holds not even one block.
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
        self.model, self.runner, self._transfer = model, placement.runner, placement.transfer
        self.max_running, self.one_at_a_time = placement.max_running, placement.one_at_a_time
        self.scheduler = Scheduler(placement.memory, max_running=self.max_running, step_tokens=step_tokens)
        self._requests = Requests(model)
        self._outputs: list[Output] = []  # that no step has given yet
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

    @property
    def graph_failure(self) -> str | None:
        """Why steps are not replayed as graphs any more; None where they are, or never were."""
        failures = [getattr(each, "failure", None) for each in (self.runner, self._transfer)]
        return next((each for each in failures if each is not None), None)

    def words_of(self, params: SamplingParams) -> Words:
        """Give the token ids for which texts and names in `params` stand with this model's tokenizer."""
        return self._requests.words_of(params)

    def has_unfinished_requests(self) -> bool:
        """Tell whether another step has something to give."""
        return bool(self._outputs) or len(self.scheduler) > 0

    def step(self) -> list[Output]:
        """Make one forward pass, and give one output for each sequence that got a token or ended.

        On a CPU rows are drawn from one by one, so a draw is the same to the last bit in any company. After a
        KeyboardInterrupt the next step goes on: it reads again what has not been drawn from.
        """
        for sequence, row in self._rows(self.scheduler.schedule()):
            self._outputs.append(self._alone(sequence, partial(self._advance, sequence, row)))
        outputs, self._outputs = self._outputs, []
        return outputs

    def abort_request(self, request_id: str) -> None:
        """End a request now. The next step gives its last output, with the text that was held back."""
        sequence = self.scheduler.find(request_id)
        if sequence is not None:
            self._outputs.append(self._alone(sequence, lambda: self._finish(sequence, "interrupted")))

    def seed_of(self, request_id: str) -> int:
        """Give the seed of a request that is waiting or running, chosen or given; ParameterError for another id."""
        return self._found(request_id).sampler.seed

    def num_cached(self, request_id: str) -> int:
        """Give how many tokens of a request have been read; ParameterError for one that has ended."""
        return self._found(request_id).num_cached

    def _found(self, request_id: str) -> Sequence:
        sequence = self.scheduler.find(request_id)
        if sequence is None:
            raise ParameterError("request_id", request_id, "the id of an unfinished request")
        return sequence

    def _rows(self, works: list[Work]) -> list[tuple[Sequence, Tensor | Draw | Exception]]:
        """Do the works; give the sequences that have logits now, each with its row `(vocab,)` or a draw, or a failure.

        A pass that fails is made again for each sequence alone, so that only those end that fail by themselves.
        """
        if not works:
            return []
        leaders = [work.sequence for work in works if work.is_last]
        places = {each: place for place, one in enumerate(leaders) for each in (one, *self.scheduler.followers(one))}
        try:
            logits = self.runner.forward(works)
            rows = self._transfer.taken(logits, [(each.sampler, place) for each, place in places.items()])
        except Exception as error:  # noqa: BLE001 - whatever the model raises
            if len(works) == 1:
                return [(works[0].sequence, error)]
            return [row for work in works for row in self._rows([work])]
        self.scheduler.advance(works)
        going = {each for leader in leaders for each in (leader, *self.scheduler.fork(leader))}
        return [(each, row) for each, row in zip(places, rows, strict=True) if each in going]

    def _alone(self, sequence: Sequence, work: Callable[[], Output]) -> Output:
        """Do one sequence's work; if it fails, that sequence ends with the error and the others go on."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - one failing sequence fails alone
            return self._finish(sequence, "error", error=self._translated(error, sequence))

    def _advance(self, sequence: Sequence, row: Tensor | Draw | Exception) -> Output:
        """Draw a sequence's next token from its row of logits, if it is not drawn yet, and end it where it ends."""
        if isinstance(row, Exception):
            raise row
        draw = sequence.sampler.accept(row) if isinstance(row, Draw) else sequence.sampler.draw(row)
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
            failure = RunError(f"The model failed at token {step}: {first_line(error)}.")
        failure.__cause__ = error
        return failure

    def _free_id(self, request_id: str | None) -> str:
        if request_id is None:
            return next(name for n in self._numbers if self.scheduler.find(name := str(n)) is None)
        if self.scheduler.find(request_id) is not None:
            raise ParameterError("request_id", request_id, "an id that is not in use")
        return request_id
