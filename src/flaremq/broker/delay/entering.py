"""Timer messages on their way into the wheel, in the order of their queue.

Nearly all of them go the same short way, many at once. One that comes late, rolls, or was entered before a
crash is looked at alone.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.logs import fields, logger
from flaremq.broker.delay.copies import Copies, is_number
from flaremq.broker.delay.waiting import Enterable, to_enter
from flaremq.broker.tables.timercounts import TimerCounts
from flaremq.model import layout, properties
from flaremq.model.columns import Check
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode
from flaremq.model.tags import java_hash
from flaremq.model.timers import WHEEL_TOPIC
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.store import MessageStore
from flaremq.store.timer.timerfiles import NewTimer, TimerFiles
from flaremq.store.timer.units import Entrant

log = logger("broker.timer")

_ENTRY: Final = struct.Struct(layout.ENTRY_FORMAT)
_AT_ONCE: Final = 512
_NEVER_ENTERED: Final = (1 << 63) - 1  # RocketMQ's TIMER_ENQUEUE_MS of a message that came too late.
_NO_LIMIT: Final = (1 << 63) - 1
_SLACK_MS: Final = 60_000
_HASHES_MAX: Final = 10_000


class Entering:
    def __init__(
        self,
        store: MessageStore,
        files: TimerFiles,
        copies: Copies,
        counts: TimerCounts,
        clock: Clock,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._files = files
        self._copies = copies
        self._counts = counts
        self._clock = clock
        self._now_s = now_s
        self._hashes: dict[bytes, int] = {}
        self.firing_ms: int | None = None
        """The slot that is being fired."""
        self.keeps_late = False
        """Whether messages that come late wait for the next slot, instead of being delivered at once."""
        self.is_counting = True
        """Off in a slave, whose master tells the counts."""

    @property
    def closed_ms(self) -> int:
        """Slots before it take no more messages."""
        firing_ms = self.firing_ms
        return self._files.read_ms if firing_ms is None else firing_ms + self._files.precision_ms

    def some(self, ends_s: float, limit: int | None = None) -> bool:
        """Enter messages until a time, those before a queue offset if there is a limit. True if there are
        more."""
        queue, files = self._queue(), self._files
        if queue is None:
            return False
        within = max(queue.min_offset, min(files.queue_offset, queue.max_offset))
        if within != files.queue_offset:
            log.warning(
                "timer messages between these queue offsets are not in the log",
                extra=fields(begin=min(within, files.queue_offset), end=max(within, files.queue_offset)),
            )
            files.queue_offset = within
        end = _NO_LIMIT if limit is None else limit
        while entries := queue.entries(files.queue_offset, max(0, min(_AT_ONCE, end - files.queue_offset))):
            if not self._enter_many(entries) and not self._enter_first(entries):
                return False
            if self._now_s() > ends_s:
                break
        return files.queue_offset < min(end, queue.max_offset)

    def _queue(self) -> ConsumeQueue | None:
        queue = self._store.queues.get(WHEEL_TOPIC, 0)
        return None if queue is None or queue.is_batch else queue

    # Many at once.

    def _enter_many(self, entries: memoryview) -> int:
        """Enter the ordinary ones at the beginning. How many."""
        files, now_ms = self._files, self._floor(self._clock.now_ms())
        window = self._store.log.window(_ENTRY.unpack_from(entries)[0])
        if window is None or files.queue_offset < files.entered_before:
            return 0
        latest_ms = min(now_ms + files.roll_ms, files.room_ms) - 1
        terms = Enterable(WHEEL_TOPIC, files.precision_ms, self.closed_ms, latest_ms)
        entrants, slots_ms, topics = to_enter(*window, entries, terms)
        done = files.add_many(entrants, slots_ms, array("q", map(self._hash, topics)), now_ms)
        files.queue_offset += done
        self._count(entrants[: done * Entrant.WIDTH], topics)
        return done

    def _count(self, entrants: array[int], topics: Sequence[bytes]) -> None:
        counts = Counter(entrants[Entrant.TOPIC :: Entrant.WIDTH])
        if any(entrants[Entrant.CANCELS :: Entrant.WIDTH]):  # Those are no messages that wait.
            pairs = zip(
                entrants[Entrant.TOPIC :: Entrant.WIDTH],
                entrants[Entrant.CANCELS :: Entrant.WIDTH],
                strict=True,
            )
            counts = Counter(topic for topic, cancels in pairs if not cancels)
        for number, count in counts.items():
            if topics[number]:
                self._counts.add(topics[number].decode("utf-8", "replace"), count)

    def _hash(self, topic: bytes) -> int:
        known = self._hashes.get(topic)
        if known is None:
            if len(self._hashes) > _HASHES_MAX:
                self._hashes.clear()
            known = self._hashes[topic] = java_hash(topic.decode("utf-8", "replace"))
        return known

    # One alone.

    def _enter_first(self, entries: memoryview) -> bool:
        """False if the wheel has no room for it yet: it must be read first."""
        physical_offset, size, _code = _ENTRY.unpack_from(entries)
        stored = self.waiting(physical_offset, size)
        if stored is not None and not self._enter_one(stored, size):
            return False
        self._files.queue_offset += 1
        return True

    def waiting(self, physical_offset: int, size: int) -> StoredMessage | None:
        """The message at an offset; None if no sound one waits there."""
        record = self._store.record(physical_offset)
        stored = decode(record, check=Check.NOTHING) if record is not None and len(record) == size else None
        if stored is None or stored.topic.encode() != WHEEL_TOPIC:
            log.error("a timer message is no longer in the log", extra=fields(offset=physical_offset))
            return None
        return stored

    def _enter_one(self, stored: StoredMessage, size: int) -> bool:
        known, files = stored.properties, self._files
        now_ms = self._floor(self._clock.now_ms())
        text = known.get(properties.TIMER_OUT_MS, "")
        if not is_number(text):
            log.error(
                "a timer message does not say when it is due, and is not delivered",
                extra=fields(offset=stored.physical_offset),
            )
            return True
        slot_ms = self._floor(int(text))
        cancels = properties.TIMER_DEL_UNIQKEY in known
        topic = known.get(properties.REAL_TOPIC, "")
        if stored.queue_offset < files.entered_before and self._was_fired(slot_ms, stored.store_timestamp_ms):
            return True
        if slot_ms < self.closed_ms and self.keeps_late:
            slot_ms = self.closed_ms
        elif slot_ms < self.closed_ms:
            if not cancels:
                late = {
                    properties.TIMER_ENQUEUE_MS: str(_NEVER_ENTERED),
                    properties.TIMER_DEQUEUE_MS: str(self._clock.now_ms()),
                }
                self._copies.deliver(stored, late)
            return True
        if min(slot_ms, now_ms + files.roll_ms) >= files.room_ms:
            return False
        files.add(slot_ms, now_ms, NewTimer(stored.physical_offset, size, java_hash(topic), cancels))
        if not cancels and self.is_counting:
            self._counts.add(topic, 1)
        return True

    def _floor(self, ms: int) -> int:
        return ms // self._files.precision_ms * self._files.precision_ms

    def _was_fired(self, slot_ms: int, stored_ms: int) -> bool:
        """Whether a message that was entered once has left the wheel since, by delivery or by rolling."""
        if slot_ms < self._files.read_ms:
            return True
        rolled_ms = stored_ms + self._files.roll_ms + _SLACK_MS
        return slot_ms - stored_ms >= self._files.roll_ms and rolled_ms < self._files.read_ms
