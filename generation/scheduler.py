"""The scheduler: which sequences run in the next step."""

from collections import deque

from .sequence import Sequence


class Scheduler:
    """First come, first served; at most `max_running` at a time, the others wait."""

    def __init__(self, max_running: int = 1) -> None:
        self.max_running = max_running
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence at the end of the queue."""
        self._waiting.append(sequence)

    def schedule(self) -> list[Sequence]:
        """Give the sequences of the next step, in order of arrival."""
        while self._waiting and len(self._running) < self.max_running:
            self._running.append(self._waiting.popleft())
        return list(self._running)

    def find(self, request_id: str) -> Sequence | None:
        """Give the sequence of a request that is waiting or running."""
        return next((s for s in (*self._running, *self._waiting) if s.request_id == request_id), None)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it stands."""
        queue = self._running if sequence in self._running else self._waiting
        queue.remove(sequence)
