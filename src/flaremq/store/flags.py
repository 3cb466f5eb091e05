"""Whether the store can be written and read, and if not, why, by how much, and what to do about it.

A part that finds trouble sets a flag here, with its figures. Every put checks the flags first, so a
refused producer learns the cause.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import DiskFull, DispatchBehind, FlareError, FlushFailed, NotWritable, PageCacheBusy


class Flag(IntFlag):
    """The running flags, with Java's bits: admin tools show the sum."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    QUEUE_ERROR = 4
    INDEX_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    QUEUE_DISK_FULL = 64


_DISK: Final = Flag.DISK_FULL | Flag.QUEUE_DISK_FULL
_WRITE: Final = Flag.NOT_WRITABLE | Flag.QUEUE_ERROR | Flag.INDEX_ERROR | Flag.FENCED | _DISK
# Queues go on while the log is full or fenced: what it holds already must still be found.
_QUEUE_WRITE: Final = _WRITE & ~(Flag.DISK_FULL | Flag.FENCED)
_MEANING: Final = {
    Flag.NOT_WRITABLE: "writing was switched off",
    Flag.QUEUE_ERROR: "a queue entry could not be written; see the log of this broker, then start again",
    Flag.INDEX_ERROR: "an index entry could not be written; see the log of this broker, then start again",
    Flag.DISK_FULL: "the disk of the log is full",
    Flag.FENCED: "another broker is master now",
    Flag.QUEUE_DISK_FULL: "the disk of the queues is full",
}


class Flags:
    """State of the whole store, asked once per turn of puts.

    A failed flush is final: there is no telling which of its bytes have reached the disk, so every check
    raises that failure from then on, whatever flags are cleared.
    """

    def __init__(self, clock: Clock, *, page_cache_busy_ms: int, dispatch_lag_max: int) -> None:
        self._now_s = clock.monotonic_s
        self._busy_limit_ms = page_cache_busy_ms
        self._lag_max = dispatch_lag_max
        self._lock = threading.Lock()
        self._why: dict[Flag, str] = {}
        self._troubles: dict[str, str] = {}
        self._failure: FlushFailed | None = None
        self._append_began_s: float | None = None
        self._last_append_ms = 0
        self._last_append_ended_s = 0.0
        self.bits = Flag(0)
        self._sound = True  # No flag stands against writing: what every put asks, kept as one word.

    def set(self, flag: Flag, why: str = "") -> None:
        """Raise a flag; `why` has the figures, and replaces an older reason."""
        with self._lock:
            self.bits |= flag
            self._why[flag] = why or _MEANING.get(flag, "")
            self._sound = self.writable

    def clear(self, flag: Flag) -> None:
        with self._lock:
            self.bits &= ~flag
            self._why.pop(flag, None)
            self._sound = self.writable

    def failed(self, error: FlushFailed) -> None:
        """A sync failed: stop for good. The first failure is the one that is reported."""
        with self._lock:
            if self._failure is None:
                self._failure = error
                self._why[Flag.NOT_WRITABLE] = str(error)
            self.bits |= Flag.NOT_WRITABLE
            self._sound = False

    @property
    def failure(self) -> FlushFailed | None:
        return self._failure

    # Parts that fail and come again, while messages are taken.

    def trouble(self, part: str, error: Exception) -> None:
        """A part does not get its work done, and tries again."""
        why = str(error) if isinstance(error, FlareError) else f"{type(error).__name__}: {error}"
        with self._lock:
            self._troubles[part] = why

    def healed(self, part: str) -> None:
        with self._lock:
            self._troubles.pop(part, None)

    @property
    def degraded(self) -> str:
        """Which parts do not get their work done just now, each with its reason; empty if all do."""
        with self._lock:
            return "; ".join(f"{part}: {why}" for part, why in sorted(self._troubles.items()))

    @property
    def readable(self) -> bool:
        return not self.bits & Flag.NOT_READABLE

    @property
    def writable(self) -> bool:
        return self._failure is None and not self.bits & _WRITE

    @property
    def queue_writable(self) -> bool:
        return self._failure is None and not self.bits & _QUEUE_WRITE

    def check(self, records_behind: int) -> None:
        """All three checks of a put. Nearly free while all is well."""
        if (
            self._sound
            and records_behind <= self._lag_max
            and self._append_began_s is None
            and self._last_append_ms <= self._busy_limit_ms
        ):
            return
        self.check_writable()
        self.check_page_cache()
        self.check_lag(records_behind)

    def check_writable(self) -> None:
        """Raise FlushFailed, NotWritable, or DiskFull if space is all that is short."""
        self._check_failure()
        if not self.bits & _WRITE:
            return
        with self._lock:
            raised = self.bits & _WRITE
            why = "; ".join(self._why[flag] for flag in Flag if flag & raised)
        if raised & ~_DISK:
            raise NotWritable(f"this store takes no messages: {why}")
        if raised:
            raise DiskFull(
                f"this store takes no messages: {why}. Add space, or lower fileReservedTime so that old "
                "files go sooner; writing goes on by itself"
            )

    def append_began(self) -> None:
        self._append_began_s = self._now_s()

    def append_ended(self) -> None:
        began_s = self._append_began_s
        assert began_s is not None, "an append that never began cannot end"
        self._last_append_ended_s = now_s = self._now_s()
        self._last_append_ms = int((now_s - began_s) * 1000)
        self._append_began_s = None

    def append_stuck_ms(self) -> int:
        """How long the append under way takes, or the last one took if it was too slow just now.

        The second half is for the appending thread itself: it can ask only between two appends.
        """
        now_s, began_s = self._now_s(), self._append_began_s
        if began_s is not None:
            under_way_ms = round((now_s - began_s) * 1000)
            if under_way_ms > self._busy_limit_ms:
                return under_way_ms
        slow = self._last_append_ms > self._busy_limit_ms
        recent = (now_s - self._last_append_ended_s) * 1000 < self._busy_limit_ms
        return self._last_append_ms if slow and recent else 0

    def check_page_cache(self) -> None:
        """Raise PageCacheBusy while appends take too long."""
        self._check_failure()
        stuck_ms = self.append_stuck_ms()
        if stuck_ms:
            raise PageCacheBusy(
                f"an append takes {stuck_ms} ms, limit is {self._busy_limit_ms} "
                "(osPageCacheBusyTimeOutMills): the page cache cannot take more; send again later"
            )

    def check_lag(self, records_behind: int) -> None:
        """Raise DispatchBehind if the queues are too many records behind the log."""
        self._check_failure()
        if records_behind > self._lag_max:
            raise DispatchBehind(
                f"{records_behind} records are stored but not yet in their queues, limit is {self._lag_max} "
                "(putMsgIndexHightWater): send again later"
            )

    def _check_failure(self) -> None:
        failure = self._failure
        if failure is not None:
            # A fresh one each time: a raised exception collects a traceback and is no thread's to share.
            raise FlushFailed(*failure.args) from failure


@dataclass(frozen=True, slots=True)
class Reporter:
    """Hears for the flags how the work of one part goes (a `lifecycle.Listener`)."""

    flags: Flags
    part: str

    def failed(self, error: Exception) -> None:
        self.flags.trouble(self.part, error)

    def recovered(self) -> None:
        self.flags.healed(self.part)
