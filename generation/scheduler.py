"""The scheduler: which sequences run in the next step, and how many of its tokens each of them reads."""

from collections import defaultdict, deque

from .block_tables import BlockTables
from .sequence import Sequence, Work
from .slots import Slots


class Scheduler:
    """First come, first served: at most `max_running` sequences run, the others wait.

    A step reads at most `step_tokens`: one token of each sequence that is being written, and with what is left of that
    budget prompts, which are so read in chunks beside them. Where the KV cache has no room left, the sequence that came
    last is set back to the head of the queue, to be read again later.
    """

    def __init__(self, memory: BlockTables | Slots, *, max_running: int, step_tokens: int) -> None:
        self.memory, self.max_running, self.step_tokens = memory, max_running, step_tokens
        self._unfinished: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of arrival
        self._followers: defaultdict[Sequence, list[Sequence]] = defaultdict(list)  # of one whose prompt they share

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def running(self) -> tuple[Sequence, ...]:
        """The sequences that run, in order of arrival."""
        return tuple(self._running)

    def find(self, request_id: str) -> Sequence | None:
        """Give the sequence of a request that is waiting or running."""
        return self._unfinished.get(request_id)

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence at the end of the queue. Raises ParameterError for one that could never run."""
        self.memory.check_fits(sequence)
        self._unfinished[sequence.request_id] = sequence
        self._waiting.append(sequence)

    def schedule(self) -> list[Work]:
        """Give what the next step reads: first the sequences that are being written, then prompts.

        A sequence that has nothing to read lost its logits in a step that was interrupted, and is read again.
        """
        for sequence in self._running:
            if not sequence.num_uncached:
                self.memory.release(sequence)
        counts: dict[Sequence, int] = {}
        budget, num_running = self.step_tokens, len(self._running)
        for sequence in sorted(self._running, key=lambda each: each.num_uncached > 1):
            count = self.memory.portion(sequence, budget)
            is_running = sequence in self._running  # or was set back to make room for an earlier one
            if count and is_running and self._make_room(sequence, sequence.num_cached + count):
                counts[sequence] = count
                budget -= count
        if len(self._running) == num_running:  # nobody had to be set back
            self._admit(counts, budget)
        return [Work(sequence, count) for sequence, count in counts.items() if sequence in self._running]

    def advance(self, works: list[Work]) -> None:
        """Note that works have been done."""
        for work in works:
            work.sequence.num_cached += work.count
            self.memory.publish(work.sequence)

    def followers(self, leader: Sequence) -> tuple[Sequence, ...]:
        """Give the sequences that wait for a prompt which another is reading."""
        return tuple(self._followers.get(leader, ()))

    def fork(self, leader: Sequence) -> list[Sequence]:
        """Start the sequences that waited for a prompt which has just been read, and give them.

        They have the leader's next logits. Those for whom there is no room go back to the head of the queue.
        """
        forked: list[Sequence] = []
        followers = self._followers.pop(leader, [])
        for follower in followers:
            if len(self._running) >= self.max_running or not self.memory.fork(leader, follower):
                break
            self._running.append(follower)
            forked.append(follower)
        self._waiting.extendleft(reversed(followers[len(forked) :]))
        return forked

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it stands, and free its memory."""
        del self._unfinished[sequence.request_id]
        self.memory.release(sequence)
        for queue in (self._running, self._waiting, *self._followers.values()):
            if sequence in queue:
                queue.remove(sequence)
        self._waiting.extendleft(reversed(self._followers.pop(sequence, [])))

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Make room for a running sequence at the cost of those that came after it; False if it was itself set back."""
        while not self.memory.grow(sequence, num_tokens):
            newest = self._running.pop()
            self.memory.release(newest)
            self._waiting.extendleft(reversed([newest, *self._followers.pop(newest, [])]))
            if newest is sequence:
                return False
        return True

    def _admit(self, counts: dict[Sequence, int], budget: int) -> None:
        """Let waiting sequences run while there is room: for each that runs, one more block is left free."""
        while self._waiting and len(self._running) < self.max_running and budget > 0:
            sequence = self._waiting[0]
            if (leader := self._leader(sequence)) is not None:
                self._followers[leader].append(self._waiting.popleft())
                continue
            self.memory.adopt(sequence)
            count = self.memory.portion(sequence, budget)
            if self.memory.is_being_read(sequence, self._running) or not self.memory.grow(
                sequence, sequence.num_cached + count, spare=len(self._running)
            ):
                self.memory.release(sequence)
                break
            self._running.append(self._waiting.popleft())
            counts[sequence] = count
            budget -= count

    def _leader(self, sequence: Sequence) -> Sequence | None:
        """Give a running sequence that is reading the same prompt, and so does the work for both."""
        if sequence.token_ids:
            return None
        readers = (each for each in self._running if not each.token_ids)
        return next((each for each in readers if each.prompt_ids == sequence.prompt_ids), None)
