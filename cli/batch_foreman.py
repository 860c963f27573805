"""What hands the parcels of a batch to a cluster, one by one, and knows which workers keep dying."""

from __future__ import annotations

import asyncio
from collections import Counter


class Foreman:
    """Keeps each parcel until it is answered, and counts how often a worker was started since it last answered one.

    It lives in an actor of its own, beside the batch. Parcels are asked for by their numbers, so that what reads them
    can begin again where it was lost.
    """

    def __init__(self) -> None:
        self._parcels: dict[int, bytes | None] = {}  # by their numbers; empty: answered; None: the end
        self._have_come = asyncio.Condition()
        self._starts: Counter[str] = Counter()

    async def put(self, number: int, parcel: bytes | None) -> None:
        """Take a parcel; None is the end."""
        async with self._have_come:
            self._parcels[number] = parcel
            self._have_come.notify_all()

    async def parcel(self, number: int) -> bytes | None:
        """Give a parcel, once it has come; None is the end, and an empty one is answered already."""
        async with self._have_come:
            await self._have_come.wait_for(lambda: number in self._parcels)
            return self._parcels[number]

    async def forget(self, number: int) -> None:
        """Let go of a parcel whose answer has arrived."""
        self._parcels[number] = b""

    async def start(self, worker: str) -> int:
        """Count the start of a worker, and give how many there were since it last answered a parcel."""
        self._starts[worker] += 1
        return self._starts[worker]

    async def succeed(self, worker: str) -> None:
        """Forget the starts of a worker that has answered a parcel."""
        self._starts.pop(worker, None)
