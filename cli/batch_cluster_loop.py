"""The loop of a batch on a cluster: parcels go out as there is room for them, records are written as they arrive."""

from __future__ import annotations

from typing import Final, Protocol

from .batch_arrivals import Arrivals
from .batch_parcels import CALLS, Answers, Begin, Message, Order, Packer
from .batch_progress import BatchProgress
from .interrupts import Interrupts

AWAY: Final = 3 * CALLS  # parcels for each worker: those that it answers, and twice as many on their way
AWAY_ORDERED: Final = 8 * CALLS  # with --ordered, where one that takes long holds up what comes after it
_GLANCE: Final = 0.1  # seconds for which something is waited for before a signal is looked for


class Channel(Protocol):
    """The way to a cluster, as far as the loop knows it."""

    def send(self, message: Order) -> None: ...

    def receive(self, patience: float) -> Message | None: ...


class ClusterLoop:
    """Sends every line that is not done, a bounded number at a time, and writes what comes back."""

    def __init__(
        self,
        channel: Channel,
        packer: Packer,
        arrivals: Arrivals,
        progress: BatchProgress,
        interrupts: Interrupts,
        *,
        num_workers: int,
        is_ordered: bool,
    ) -> None:
        self._channel, self._packer, self._arrivals = channel, packer, arrivals
        self._progress, self._interrupts, self._num_workers = progress, interrupts, num_workers
        self._most_away = num_workers * (AWAY_ORDERED if is_ordered else AWAY)
        self._away: set[int] = set()  # the numbers of parcels that are not answered
        self._has_told_end = False

    def run(self) -> int:
        """Generate, and give the exit code: 0, 1 where a line failed, 130, 143 or 129 after a signal.

        At a signal what has come back is written, and the rest is left for another time.
        """
        with self._interrupts.deferred():
            while self._interrupts.exit_code is None and self._advance():
                if self._arrivals.has_begun:
                    self._progress.show()
                elif self._away:
                    self._arrivals.wait()
            while self._interrupts.exit_code is not None and self._away and self._take(0.0):
                pass
        if self._interrupts.exit_code is not None:
            return self._interrupts.exit_code
        self._packer.check_end()
        self._arrivals.begin()
        return 1 if self._progress.num_failed else 0

    def _advance(self) -> bool:
        """Send a parcel where there is room, and take one that has come; tell whether there is more to do."""
        has_sent = self._send()
        if self._packer.has_ended and not self._has_told_end:
            self._has_told_end = True
            self._channel.send(None)
        if self._away:
            self._take(0.0 if has_sent else _GLANCE)
        return bool(self._away) or not self._packer.has_ended

    def _send(self) -> bool:
        if self._packer.has_ended or len(self._away) == self._most_away:
            return False
        is_idle = not self._away
        parcel = self._packer.next(_GLANCE if is_idle else 0.0)
        if parcel is None:
            if is_idle and not self._packer.has_ended:
                self._progress.wait(self._packer.name)
            return False
        if parcel.number == 0:
            self._channel.send(Begin(num_workers=self._num_workers))
        self._channel.send(parcel)
        self._away.add(parcel.number)
        return True

    def _take(self, patience: float) -> bool:
        message = self._channel.receive(patience)
        if isinstance(message, Answers) and message.number in self._away:  # however often it was answered
            self._away.remove(message.number)
            self._arrivals.write(message)
        return message is not None
