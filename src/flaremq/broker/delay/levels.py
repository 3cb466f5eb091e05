"""Delay levels: messages that wait for a span of time, in one queue per level.

    send with DELAY=3 > [rewrite] > SCHEDULE_TOPIC_XXXX, queue 2 > 10 s > [delivery] > its own topic and queue

All messages of a level wait equally long, so the first of its queue is the next that is due, and one look
at that queue entry tells when: dispatch writes the time of delivery where other topics have a tags code.

A message is delivered by appending it again, to its own topic. The offset in delayOffset.json moves only
after the copy is on the disk, so a crash repeats the deliveries of the last seconds, and loses none. While
the store refuses a copy, the messages behind it wait.

A slave that acts for its master appends nothing: it sends what is due to other brokers, each level by itself.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Owned, Sleep
from flaremq.base.logs import fields, logger
from flaremq.base.units import SECOND_MS
from flaremq.broker.delay.copies import Copies
from flaremq.broker.delay.elsewhere import AT_ONCE, outgoing
from flaremq.broker.delay.waiting import Due
from flaremq.broker.deliveries import Deliveries
from flaremq.broker.features import Feature
from flaremq.broker.offload import Offload
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tasks import Task
from flaremq.model import layout
from flaremq.model.delays import SCHEDULE_TOPIC
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.queue.extension import is_address
from flaremq.store.store import MessageStore

log = logger("broker.delay")

_ENTRY: Final = struct.Struct(layout.ENTRY_FORMAT)
_LOOK_S: Final = 0.1  # As RocketMQ: a message is delivered at most this much late.
_FIRST_S: Final = 1.0
_SLICE_S: Final = 0.002  # Sends and pulls are served between two slices.
_READ_AT_ONCE: Final = 256
_AT_ONCE: Final = 128


@dataclass(slots=True)
class _Level:
    number: int
    next: int
    """Queue offset of the next message to deliver."""
    copied: deque[tuple[int, int]] = field(default_factory=deque)
    """Deliveries that may not be on the disk yet: the end of the log after a slice, and `next` then."""
    ahead_until: int = 0
    """Messages before this queue offset were stored before the clock was set back."""
    ahead_since_s: float = 0.0
    """When that was seen, by the monotonic clock: they wait their span from then on."""
    trouble: str = ""
    """Why the last delivery failed; logged once."""


class DelayedMessages(Feature):
    """Delivers waiting messages when they are due."""

    step = "delayed messages"

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        stats: Stats,
        offload: Offload,
        clock: Clock,
        *,
        deliveries: Deliveries,
        sleep: Sleep = asyncio.sleep,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._serves, self._elsewhere = deliveries
        self._is_slave = store.follows
        self._sending = Owned()
        self._under_way: set[int] = set()
        """Levels whose messages are on their way to other brokers."""
        self._store = store
        self._tables = tables
        self._copies = Copies(store, tables, stats)
        self._offload = offload
        self._clock = clock
        self._sleep = sleep
        self._now_s = now_s
        self._levels: dict[int, _Level] = {}
        self._last_level = 0
        """The highest that has a queue: it may hold messages though it is no longer configured."""

    # Life.

    async def start(self) -> None:
        found = [queue_id for (topic, queue_id), _ in self._store.queues.items() if topic == SCHEDULE_TOPIC]
        self._last_level = max(found, default=-1) + 1
        self._store.retention.needed.append(self.needed_from)

    async def stop(self) -> None:
        """Make the last copies durable, or the next start would deliver them again."""
        await self._sending.aclose(timeout_s=5)
        if any(level.copied for level in self._levels.values()):
            await self._offload.run(self._flush)
        await self.save()

    def _flush(self) -> None:
        self._store.log.commit(0)  # With the transient pool, only committed bytes can be flushed.
        self._store.workers.log_flusher.flush(0)

    def tasks(self) -> Iterable[Task]:
        yield Task("deliver-delayed", _FIRST_S, _LOOK_S, self.deliver)
        period_s = self._store.settings.flush_delay_offsets_ms / 1000
        yield Task("save-delay-offsets", period_s, period_s, self.save)

    async def save(self) -> None:
        flushed = self._store.flushed.value
        for level in self._levels.values():
            while level.copied and level.copied[0][0] <= flushed:
                self._tables.delays.set(level.number, level.copied.popleft()[1])
        if self._tables.delays.dirty:
            await self._tables.delays.save()

    def figures(self) -> dict[str, str]:
        """For the runtime information: the next queue offset of each level, and the end of its queue."""
        found = {}
        for number in range(1, self._levels_end()):
            queue = self._store.queues.get(SCHEDULE_TOPIC, number - 1)
            if queue is not None:
                level = self._levels.get(number)
                begin = self._tables.delays.get(number) if level is None else level.next
                found[f"scheduleMessageOffset_{number}"] = f"{begin},{queue.max_offset}"
        return found

    def needed_from(self) -> int | None:
        """Where in the log the first message lies that still waits. Retention leaves it there."""
        found = []
        for number, begin in self._begins():
            queue = self._store.queues.get(SCHEDULE_TOPIC, number - 1)
            entry = queue.entries(begin, 1) if queue is not None and not queue.is_batch else b""
            if entry:
                found.append(_ENTRY.unpack_from(entry)[0])
        return min(found, default=None)

    def _begins(self) -> list[tuple[int, int]]:
        """The levels, and where delivery goes on in each. The table tells for those that this broker does not
        deliver now: all of them in a slave, and while a member still exchanges with the others what they
        know."""
        known = {number: level.next for number, level in list(self._levels.items())}
        ends = sorted(key[1] + 1 for key, _ in self._store.queues.items() if key[0] == SCHEDULE_TOPIC)
        delays = self._tables.delays
        return [(n, known[n] if n in known else self._within(n, delays.get(n))) for n in ends]

    def _within(self, number: int, begin: int) -> int:
        """An offset of a level, or the nearest that its queue has."""
        queue = self._store.queues.get(SCHEDULE_TOPIC, number - 1)
        return begin if queue is None else max(queue.min_offset, min(begin, queue.max_offset))

    def _levels_end(self) -> int:
        return max(len(self._store.settings.delay_levels_ms), self._last_level) + 1

    # Delivering.

    async def deliver(self) -> None:
        """Deliver everything that is due, a slice of each level in turn."""
        if not self._serves():
            if not self._under_way:
                self._levels.clear()  # Who delivers meanwhile goes on from the table, and so do we later.
            return
        if self._is_slave:
            self._send_all()
            return
        due = [*range(1, self._levels_end())]
        while due := [number for number in due if self._deliver_some(number)]:
            await self._sleep(0)

    def _deliver_some(self, number: int) -> bool:
        """Deliver for as long as a slice lasts. True if more is due."""
        queue = self._store.queues.get(SCHEDULE_TOPIC, number - 1)
        if queue is None or queue.is_batch:
            return False
        level = self._level(number, queue)
        entries = queue.entries(level.next, _READ_AT_ONCE)
        ends_s, before = self._now_s() + _SLICE_S, level.next
        try:
            due = self._due(level, queue, entries)
            done = 0
            while done < len(due):
                some = self._deliver_many(level, due[done : done + _AT_ONCE])
                if not some:
                    self._deliver_one(level, *due[done])
                done += some or 1
                if self._now_s() > ends_s:
                    return True
            return bool(due) and len(due) * layout.ENTRY_SIZE == len(entries)
        except FlareError as error:
            self._failed(level, error)
            return False
        finally:
            if level.next != before:
                level.copied.append((self._store.log.end, level.next))
                self._store.show(wait=False)

    # Delivering elsewhere.

    def _send_all(self) -> None:
        """A level that waits for a broker that takes its messages holds up no other."""
        for number in range(1, self._levels_end()):
            queue = self._store.queues.get(SCHEDULE_TOPIC, number - 1)
            if queue is not None and not queue.is_batch and number not in self._under_way:
                level = self._level(number, queue)
                if self._due(level, queue, queue.entries(level.next, 1)):
                    self._under_way.add(number)
                    self._sending.spawn(f"send level {number}", self._send_level(level, queue))

    async def _send_level(self, level: _Level, queue: ConsumeQueue) -> None:
        try:
            while self._serves():
                due = self._due(level, queue, queue.entries(level.next, AT_ONCE))
                if not due or not await self._send_some(level, due):
                    return
        finally:
            self._under_way.discard(level.number)

    async def _send_some(self, level: _Level, due: Sequence[tuple[int, int]]) -> bool:
        """Whether all of them are done with: stored by other brokers, or no longer there."""
        found = [self._copies.read(*each) for each in due]
        there = [stored for stored in found if stored is not None]
        has_topic = self._tables.is_awaited
        sent = await self._elsewhere([outgoing(stored, has_topic) for stored in there])
        left = there[sent] if sent < len(there) else None
        level.next += len(due) if left is None else found.index(left)
        self._tables.delays.set(level.number, level.next)
        return left is None

    def _level(self, number: int, queue: ConsumeQueue) -> _Level:
        """Where a level continues: within its queue, whatever the file says and retention has deleted."""
        level = self._levels.get(number)
        if level is None:
            level = self._levels[number] = _Level(number, self._tables.delays.get(number))
        within = max(queue.min_offset, min(level.next, queue.max_offset))
        if within != level.next:
            log.warning(
                "delayed messages between these queue offsets are not in the log",
                extra=fields(level=number, begin=min(level.next, within), end=max(level.next, within)),
            )
            level.next = within
            level.copied.clear()
            self._tables.delays.set(number, within)
        return level

    def _due(
        self, level: _Level, queue: ConsumeQueue, entries: bytes | memoryview
    ) -> Sequence[tuple[int, int]]:
        """Physical offset and size of those at the beginning that are due. The first is the level's next."""
        now_ms = self._clock.now_ms()
        found: list[tuple[int, int]] = []
        for physical_offset, size, code in _ENTRY.iter_unpack(entries):
            at = level.next + len(found)
            if not 0 <= code <= now_ms and not self._is_due(level, queue, at, physical_offset, size, code):
                break
            found.append((physical_offset, size))
        return found

    def _is_due(
        self,
        level: _Level,
        queue: ConsumeQueue,
        queue_offset: int,
        physical_offset: int,
        size: int,
        code: int,
    ) -> bool:
        """Whether the moment has come that was stored with a message, whatever its level means now.

        One that was stored later than now does not wait for the clock, which was set back, perhaps by years.
        It waits as long as its level was, from when this is seen on.
        """
        spans_ms, store_time = self._store.settings.delay_levels_ms, self._store.log.store_time
        now_ms = self._clock.now_ms()
        span_ms = spans_ms[min(level.number, len(spans_ms)) - 1]
        if is_address(code):
            ext = self._store.queues.ext_of((SCHEDULE_TOPIC, level.number - 1))
            unit = ext.get(code) if ext is not None else None
            code = unit.tags_code if unit is not None else store_time(physical_offset, size) + span_ms
        was_seen = queue_offset < level.ahead_until
        if code <= now_ms or (code <= now_ms + span_ms and not was_seen):
            return code <= now_ms
        stored_ms = store_time(physical_offset, size)
        if stored_ms < 0:
            return True  # It is no longer in the log: to deliver it says so.
        if not was_seen:
            if stored_ms <= now_ms:
                return False  # Its level was longer then.
            level.ahead_until, level.ahead_since_s = queue.max_offset, self._clock.monotonic_s()
            log.warning(
                "the clock was set back: delayed messages wait as long as their level again",
                extra=fields(level=level.number, by_ms=stored_ms - now_ms),
            )
        return (self._clock.monotonic_s() - level.ahead_since_s) * SECOND_MS >= code - stored_ms

    def _deliver_many(self, level: _Level, due: Sequence[tuple[int, int]]) -> int:
        """Deliver the first ordinary ones in one append. How many: 0 if the first must go alone."""
        waiting = array("q", (number for each in due for number in (*each, 0)))
        done = self._copies.put_some(waiting, Due(SCHEDULE_TOPIC, self._store.settings.message_size_max))
        stored = sum(done.values())
        level.next += stored
        if stored:
            self._succeeded(level)
        return stored

    def _deliver_one(self, level: _Level, physical_offset: int, size: int) -> None:
        waiting = self._copies.read(physical_offset, size)
        if waiting is not None:
            self._copies.deliver(waiting)
        level.next += 1
        self._succeeded(level)

    def _succeeded(self, level: _Level) -> None:
        if level.trouble:
            log.info("delayed messages are delivered again", extra=fields(level=level.number))
            level.trouble = ""

    def _failed(self, level: _Level, error: FlareError) -> None:
        if level.trouble != type(error).__name__:
            level.trouble = type(error).__name__
            log.warning(
                "delayed messages cannot be delivered now, trying again",
                extra=fields(level=level.number, why=error),
            )
