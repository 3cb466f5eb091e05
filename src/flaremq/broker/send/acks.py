"""From append to answer: what a put must wait for, and who is told when it need wait no longer.

    append > [wait: flushed] > dispatch > answer

One wait serves everything that was appended in a turn. Under ASYNC_FLUSH there is none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flaremq.protocol.codes import ResponseCode
from flaremq.store.settings import FlushDisk
from flaremq.store.store import MessageStore

log = logging.getLogger(__name__)

Finish = Callable[[int], None]
"""Answers what waited, with this response code: SUCCESS, FLUSH_DISK_TIMEOUT or SYSTEM_ERROR."""

_MARGIN_S: Final = 0.01


@dataclass(slots=True, frozen=True)
class _Held:
    end: int
    deadline_s: float
    finish: Finish


class Waits:
    """Answers that are held until the log is safe up to where they lie, oldest first."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._held: deque[_Held] = deque()
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_s = store.settings.sync_flush_timeout_ms / 1000
        self._idle = asyncio.Event()
        self._idle.set()
        self.needed = store.settings.flush_disk is FlushDisk.SYNC_FLUSH
        """Whether a put that asks to be safe must wait at all."""
        if self.needed:
            store.flushed.watch(self._flushed)

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, end: int, finish: Finish) -> None:
        """Call `finish` when the log is safe up to `end`, or too late."""
        deadline_s = self._loop.time() + self._timeout_s
        self._held.append(_Held(end, deadline_s, finish))
        self._idle.clear()
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s + _MARGIN_S, self._expire)
        if self._store.flushed.value >= end or self._store.flushed.failure is not None:
            self._release()

    def _flushed(self, _to: int) -> None:
        """In the flusher's thread: ask the loop to look, unless it was asked already."""
        if not self._asked:
            self._asked = True
            try:
                self._loop.call_soon_threadsafe(self._release)
            except RuntimeError:  # The loop has ended: so have those who waited.
                self._asked = False

    def _release(self) -> None:
        self._asked = False
        flushed = self._store.flushed
        if self._held and flushed.value >= self._held[0].end:
            self._store.show(wait=False)  # First: whoever is told that a message is safe also finds it.
            while self._held and flushed.value >= self._held[0].end:
                self._finish(self._held.popleft(), ResponseCode.SUCCESS)
        if flushed.failure is not None:
            while self._held:
                self._finish(self._held.popleft(), ResponseCode.SYSTEM_ERROR)

    def _expire(self) -> None:
        self._timer = None
        self._release()
        now_s = self._loop.time()
        while self._held and self._held[0].deadline_s <= now_s:
            self._finish(self._held.popleft(), ResponseCode.FLUSH_DISK_TIMEOUT)
        if self._held:
            self._timer = self._loop.call_at(self._held[0].deadline_s + _MARGIN_S, self._expire)

    def _finish(self, held: _Held, code: int) -> None:
        try:
            held.finish(code)
        except Exception:  # One answer that cannot be written must not keep back the others.
            log.exception("an answer could not be given")
        if not self._held:
            self._idle.set()

    async def drain(self) -> None:
        """Wait until everyone has been answered."""
        await self._idle.wait()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
