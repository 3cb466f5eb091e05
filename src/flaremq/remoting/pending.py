"""Calls that wait for their answers, by opaque: one future each, or one taker for many."""

from __future__ import annotations

import asyncio
import itertools
from typing import Protocol

from flaremq.protocol.command import Command


class Taker(Protocol):
    """Takes the answers to many calls as they arrive."""

    def answered(self, opaque: int, response: Command) -> None: ...

    def stored(
        self, opaque: int, queue_id: int, queue_offset: int, offset_id: str, region: str | None
    ) -> None:
        """Like `answered`, for an answer that only says where a message was stored."""

    def lost(self, opaque: int, error: Exception) -> None:
        """The connection is gone."""


class Pending:
    """The calls of one connection. Opaques count up and wrap through the negative, as Java's do."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self.taken_by: dict[int, Taker] = {}
        """Opaques that a taker waits for; it puts them here itself."""
        self._counter = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting) + len(self.taken_by)

    def next_opaque(self) -> int:
        number = next(self._counter) & 0xFFFF_FFFF
        return number - (1 << 32) if number >> 31 else number

    def expect(self, opaque: int) -> asyncio.Future[Command]:
        """A future for the answer with this opaque. The caller must `forget` it in the end."""
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = future
        return future

    def answer(self, response: Command) -> bool:
        """Hand a response to the call that waits for it; False if none does any more."""
        taker = self.taken_by.pop(response.opaque, None)
        if taker is not None:
            taker.answered(response.opaque, response)
            return True
        future = self._waiting.get(response.opaque)
        if future is None or future.done():
            return False
        future.set_result(response)
        return True

    def forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)
        self.taken_by.pop(opaque, None)

    def fail(self, error: Exception) -> None:
        """The connection is gone: fail all calls."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
        taken, self.taken_by = self.taken_by, {}
        for opaque, taker in taken.items():
            taker.lost(opaque, error)
