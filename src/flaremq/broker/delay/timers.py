"""Timers: messages for any moment, from the topic in which they wait into the wheel, and out of it.

    send with TIMER_* > [rewrite] > rmq_sys_wheel_timer > [enter] > wheel > [fire] > its own topic

Entering and firing are slices of work in the event loop, between which sends and pulls are served. A slot is
fired when its time is over and every message that was stored by then is entered, so that none is early, none
overtakes an older one, and a message that was cancelled in time does not come.

Messages whose moment is further away than the roll window are entered half way, and put back from there.

In a slave, they go as far as its master tells: what the master has entered is entered, slots that it has read
are cleared, and nothing is delivered. So a slave that is promoted goes on where its master was. One that acts
for its master fires to other brokers, and a master that returns passes over what has been delivered for it.

Progress is saved once the copies are on the disk: a crash repeats the deliveries of the last second or so,
and loses none.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Sleep
from flaremq.base.logs import fields, logger
from flaremq.broker.delay.copies import Copies
from flaremq.broker.delay.elsewhere import FiringElsewhere
from flaremq.broker.delay.entering import Entering
from flaremq.broker.delay.firing import Done, Firing
from flaremq.broker.deliveries import Deliveries
from flaremq.broker.features import Feature, Figure
from flaremq.broker.offload import Offload
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tables.timercounts import TimerCounts
from flaremq.broker.tasks import Task
from flaremq.model import layout
from flaremq.model.tags import java_hash
from flaremq.model.timers import WHEEL_TOPIC
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.store import MessageStore
from flaremq.store.timer.timercheck import Progress
from flaremq.store.timer.timerfiles import TimerFiles

log = logger("broker.timer")

_ENTRY: Final = struct.Struct(layout.ENTRY_FORMAT)
_LOOK_S: Final = 0.1
_SLICE_S: Final = 0.002  # Sends and pulls are served between two slices.
_REST_S: Final = 0.001
"""Between two slices while nothing is due: what only has to be entered does not take time from sends."""
_SLOTS_AT_ONCE: Final = 10_000
_COUNTED_AHEAD: Final = 60
"""RocketMQ's masters count a version once a second, and take over no progress of an older one. Before it was
gone, a master may have counted so many that it did not tell."""


class Timers(Feature):
    step = "timers"

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
        self._store = store
        self._offload = offload
        self._clock = clock
        self._sleep = sleep
        self._now_s = now_s
        self._copies = Copies(store, tables, stats)
        self._tables = tables
        self.files = TimerFiles(store.settings, store.disk)
        self.counts = TimerCounts(store.settings.root / "config" / "timermetrics", offload, clock)
        self._entering = Entering(store, self.files, self._copies, self.counts, clock, now_s=now_s)
        self._entering.keeps_late = self._is_slave
        self._firing: Firing | None = None
        self._done: Done | None = None
        """What another member has delivered for us."""
        self._fence = (0, 0, 0)
        """A time, the end of the log then, and the queue offset up to which messages are entered before slots
        before that time are read: -1 as long as it is not known."""
        self._steps: deque[tuple[int, Progress]] = deque()
        """Progress that may not be on the disk yet, each with the end of the log then."""
        self._saved = Progress()
        self._told: Progress | None = None
        """How far the master of this slave is; None while nothing is known that counts."""
        self._acts = False
        self._saving = asyncio.Lock()
        self._trouble = ""
        self._is_open = False

    # Life.

    async def start(self) -> None:
        if not self._store.settings.timer_enabled:
            return
        try:
            counted = await self._offload.run(self._open)
        except BaseException:
            self.files.close()
            raise
        if counted is not None:
            self.counts.set({
                topic: counted[hashed]
                for topic in self._tables.topics.all()
                if counted.get(hashed := java_hash(topic), 0) > 0
            })  # fmt: skip
            self.counts.total = sum(counted.values())  # Also of topics that are gone.
        else:
            await self._offload.run(self.counts.load)
        self._is_open = True
        self._store.retention.needed.append(self.needed_from)

    def _open(self) -> dict[int, int] | None:
        """How many messages wait, by the hash of their topic, if the wheel had to be rebuilt."""
        report, files = self._store.report, self.files
        assert report is not None
        counted = files.open(
            clean=report.clean and self.counts.is_kept,
            log_end=self._store.log.end,
            queue_offset_of=self._queue_offset_of,
        )
        if not files.read_ms:  # Kept before a message waits: what comes due after a crash is read from here.
            files.read_ms = self._floor(self._clock.now_ms())
            files.save(files.progress(self._clock.now_ms()))
        self._saved = files.progress(self._clock.now_ms())
        return counted

    def _queue_offset_of(self, physical_offset: int, size: int) -> int | None:
        stored = self._entering.waiting(physical_offset, size)
        return None if stored is None else stored.queue_offset

    async def stop(self) -> None:
        """Make the last copies durable, and vouch for the wheel: the next start need not rebuild it."""
        if not self._is_open:
            return
        self._is_open = False
        self._note()
        await self._offload.run(self._close)
        await self.counts.save()

    def _close(self) -> None:
        self._store.log.commit(0)
        self._store.workers.log_flusher.flush(0)
        safe = self._safe()
        done = self._firing is None and not self._steps
        self.files.save(safe, seal=done)
        self.files.close()

    def tasks(self) -> Iterable[Task]:
        settings = self._store.settings
        if settings.timer_enabled:
            yield Task("run-timers", _LOOK_S, _LOOK_S, self.run)
            period_s = settings.timer_flush_ms / 1000
            yield Task("save-timers", period_s, period_s, self.save)

    async def save(self) -> None:
        if not self._is_open:
            return
        async with self._saving:
            safe = self._safe()
            if safe[:3] != self._saved[:3]:
                await self._offload.run(lambda: self.files.save(safe))
                self._saved = safe
                self.files.log.delete_before(self._store.log.begin)
            await self.counts.save()

    def _safe(self) -> Progress:
        """The newest progress whose copies are on the disk."""
        flushed, safe = self._store.flushed.value, self._saved
        while self._steps and self._steps[0][0] <= flushed:
            safe = self._steps.popleft()[1]
        return safe

    def _note(self) -> None:
        progress = self.files.progress(self._clock.now_ms())
        latest = self._steps[-1][1] if self._steps else self._saved
        if progress[:3] != latest[:3]:
            self._steps.append((self._store.log.end, progress))

    # What others ask.

    @property
    def progress(self) -> Progress:
        """Nothing that is not on the disk."""
        return self._saved

    async def told_progress(self) -> Progress:
        """The same when another member asks. A slave is asked by a master that returns, and would deliver
        again whatever is still on its way to the disk."""
        if self._is_slave:
            await self.save()
        return self._saved

    def is_due(self, slot_ms: int) -> bool:
        """Whether a slot is read already, or will be at any moment."""
        return slot_ms < self._floor(self._clock.now_ms()) or slot_ms < self._entering.closed_ms

    def slot_count(self, slot_ms: int) -> int:
        slot = self.files.wheel.get(slot_ms) if self._is_open else None
        return slot.count if slot is not None else 0

    def needed_from(self) -> int | None:
        """Where in the log the first message may lie that still waits. Retention leaves it there."""
        queue = self._queue()
        if not self._is_open or queue is None:
            return None
        found = []
        entries = queue.entries(self.files.queue_offset, 1)
        if entries:
            found.append(_ENTRY.unpack_from(entries)[0])
        if self.counts.total:
            oldest = self.files.oldest_offset()
            if oldest is not None:
                found.append(oldest)
        return min(found, default=None)

    def figures(self) -> dict[str, str]:
        """For the runtime information."""
        if not self._is_open:
            return {}
        behind_ms, offsets = self._behind()
        return {
            "timerReadBehind": str(behind_ms // 1000),
            "timerOffsetBehind": str(offsets),
            "timerCongestNum": str(self.counts.total),
        }

    def _behind(self) -> tuple[int, int]:
        """How far, in ms, the slot to be read next lies behind now, and how many messages are not entered."""
        queue, now_ms = self._queue(), self._clock.now_ms()
        offsets = 0 if queue is None else queue.max_offset - self.files.queue_offset
        return max(0, self._floor(now_ms) - self.files.read_ms), max(0, offsets)

    def metrics(self) -> Iterable[Figure]:
        if not self._is_open:
            return
        behind_ms, offsets = self._behind()
        waiting = [((topic,), each.count) for topic, each in self.counts.wrapper().timing_count.items()]
        yield Figure("rocketmq_timing_messages", "Messages that wait", False, ("topic",), waiting)
        text = "Messages that are stored and not in the wheel yet"
        yield Figure("rocketmq_timer_enqueue_lag", text, False, (), [((), offsets)])
        text = "Milliseconds by which deliveries are late"
        yield Figure("rocketmq_timer_dequeue_latency", text, False, (), [((), behind_ms)])

    # Running.

    async def run(self) -> None:
        """Enter and fire all that is there to do."""
        if not self._is_open:
            return
        serves = self._serves()
        if self._is_slave and serves != self._acts:
            self._turn(acts=serves)
        if not serves:
            self._firing = self._entering.firing_ms = None
            while self._is_open and self._told is not None and self._follow_some(self._told):
                await self._sleep(_REST_S)
            return
        if self._is_slave:
            await self._run_elsewhere()
            return
        while self._is_open and self._run_some():
            is_late = self._firing is not None or self.files.read_ms < self._floor(self._clock.now_ms())
            await self._sleep(0 if is_late else _REST_S)

    def _run_some(self) -> bool:
        """A slice; True if there is more to do."""
        ends_s = self._now_s() + _SLICE_S
        self._follow_clock()
        self._set_fence()  # Before anything of our own is stored.
        try:
            more = self._entering.some(ends_s - _SLICE_S / 2)
            more = self._fire(ends_s) or more
        except FlareError as error:
            self._failed(error)
            return False
        finally:
            self._note()
            self._show()
        if self._trouble:
            log.info("timer messages are delivered again")
            self._trouble = ""
        return more

    async def _run_elsewhere(self) -> None:
        """The same for a slave that acts for its master: nothing is stored here."""
        more = True
        while more and self._is_open and self._serves():
            self._follow_clock()
            self._set_fence()
            try:
                more = self._entering.some(self._now_s() + _SLICE_S / 2)
                if self._firing is not None or self._begin():
                    more = True
                    await self._fire_elsewhere()
            except FlareError as error:
                self._failed(error)
                return
            finally:
                self._note()
            self._trouble = ""
            await self._sleep(0)

    async def _fire_elsewhere(self) -> None:
        firing = self._firing
        if firing is None:
            return
        assert isinstance(firing, FiringElsewhere)
        if not await firing.send(self._elsewhere, self._tables.is_awaited) and firing.is_done:
            self._finish(firing)

    def adopt(self, told: Progress) -> None:
        """Another member has delivered this far in our place, as far as it knew our messages."""
        if told.read_ms > self.files.read_ms:
            self._done = Done(told.read_ms, told.queue_offset)
            self.files.entered_before = max(self.files.entered_before, told.queue_offset)

    def log_was_cut(self) -> None:
        """Messages at the end of the log are gone, and others will come in their places: those are entered
        too. Entries of the lost ones lead to no timer message, and are passed over when they are due."""
        if self._is_open:
            self.files.queue_offset = min(self.files.queue_offset, self._store.max_offset(WHEEL_TOPIC, 0))
            self.files.entered_before = min(self.files.entered_before, self.files.queue_offset)

    def _turn(self, *, acts: bool) -> None:
        """Begin or cease to act. What the master told before is behind us, or will be."""
        self._acts, self._told = acts, None
        self._entering.is_counting = True
        if acts:
            self.files.counter += _COUNTED_AHEAD

    def follow(self, told: Progress) -> None:
        """Go as far as the master of this slave is."""
        if self._acts:
            return
        self._told = told
        self._entering.is_counting = False
        self.files.state_version, self.files.counter = told.state_version, told.counter

    def _follow_some(self, told: Progress) -> bool:
        """A slice of following the master; True if there is more to do."""
        files, to_ms = self.files, self._floor(told.read_ms)
        files.entered_before = max(files.entered_before, told.master_queue_offset)
        try:
            more = self._entering.some(self._now_s() + _SLICE_S, told.master_queue_offset)
            end_ms = min(to_ms, files.read_ms + _SLOTS_AT_ONCE * files.precision_ms)
            while (at_ms := files.wheel.next_occupied(files.read_ms, end_ms)) is not None:
                files.wheel.clear(at_ms)
                files.read_ms = at_ms + files.precision_ms
            files.read_ms = end_ms  # Less than before if the master's clock was set back.
        except FlareError as error:
            self._failed(error)
            return False
        finally:
            self._note()
        return more or files.read_ms < to_ms

    def _show(self) -> None:
        """Let consumers see what was delivered."""
        if self._store.dispatcher.behind:
            self._store.show(wait=False)

    def _follow_clock(self) -> None:
        """Read slots again whose time is to come once more: those that were fired are empty."""
        due_ms = self._floor(self._clock.now_ms())
        if self._firing is None and self.files.read_ms > due_ms:
            log.warning("the clock was set back", extra=fields(by_ms=self.files.read_ms - due_ms))
            self.files.read_ms = due_ms

    def _failed(self, error: FlareError) -> None:
        if self._trouble != type(error).__name__:
            self._trouble = type(error).__name__
            log.warning("timer messages cannot be delivered now, trying again", extra=fields(why=error))

    def _floor(self, ms: int) -> int:
        return ms // self.files.precision_ms * self.files.precision_ms

    def _queue(self) -> ConsumeQueue | None:
        queue = self._store.queues.get(WHEEL_TOPIC, 0)
        return None if queue is None or queue.is_batch else queue

    # Firing.

    def _fire(self, ends_s: float) -> bool:
        while self._firing is not None or self._begin():
            if self._firing is not None and not self._firing.step():
                self._finish(self._firing)
            self._show()  # Within the slice: it takes as long as the delivery itself.
            if self._now_s() > ends_s:
                return True
        return False

    def _begin(self) -> bool:
        """Take the next slot whose time is over; False if there is none yet."""
        self._set_fence()
        files, (due_ms, _, queue_offset) = self.files, self._fence
        if files.read_ms >= due_ms or not 0 <= queue_offset <= files.queue_offset:
            return False
        end_ms = min(due_ms, files.read_ms + _SLOTS_AT_ONCE * files.precision_ms)
        at_ms = files.wheel.next_occupied(files.read_ms, end_ms)
        files.read_ms = end_ms if at_ms is None else at_ms
        if at_ms is not None:
            self._entering.firing_ms = at_ms
            self._firing = self._firing_at(at_ms)
        return True

    def _firing_at(self, at_ms: int) -> Firing:
        if self._done is not None and at_ms >= self._done.read_ms:
            self._done = None
        kind = FiringElsewhere if self._is_slave else Firing
        files, now_ms = self.files, self._clock.now_ms
        return kind(at_ms, files, self._store, self._copies, self._leave, now_ms, self._done)

    def _set_fence(self) -> None:
        """Slots before a time are read when all is entered that was stored until then. Messages of a group
        are in no queue before it has decided on them, and a marker among them may cancel what would be fired.
        One fence after the other is passed, so that a log that always grows holds up no slot for ever."""
        store, due_ms = self._store, self._floor(self._clock.now_ms())
        if not self.files.read_ms < self._fence[0] <= due_ms:
            self._fence = due_ms, store.log.confirmed if self._is_slave else store.log.end, -1
        at_ms, log_end, queue_offset = self._fence
        if queue_offset < 0:
            self._show()
            if store.dispatcher.position >= log_end:
                self._fence = at_ms, log_end, store.max_offset(WHEEL_TOPIC, 0)

    def _leave(self, topic: str, count: int) -> None:
        self.counts.add(topic, -count)

    def _finish(self, firing: Firing) -> None:
        self.files.wheel.clear(firing.at_ms)
        self.files.read_ms = firing.at_ms + self.files.precision_ms
        self._firing = self._entering.firing_ms = None
