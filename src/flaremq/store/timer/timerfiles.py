"""Wheel, timer log and progress together: opened, recovered, added to, read and saved.

    open > trusted, if the last stop was clean and the wheel has its checksum
         > or rebuilt: every unit of the timer log that may still wait gets its place in the wheel again

Units that the progress does not count are cut off, and their messages are entered again: of a message that
came late, which is delivered without a unit, the copy may be lost though units behind it are on the disk.
So are units whose message is no longer in the commit log after a power failure. Nothing here knows what a
message is for.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from flaremq.base.errors import ConfigError, FlareError
from flaremq.base.logs import fields, logger
from flaremq.model.layout import TIMER_DELETE, TIMER_NORMAL, TIMER_ROLL, TIMER_UNIT_SIZE
from flaremq.store.files.disk import Disk, make_way
from flaremq.store.settings import StoreSettings
from flaremq.store.timer.timercheck import Progress, TimerCheck
from flaremq.store.timer.timerlog import TimerLog, TimerUnit
from flaremq.store.timer.units import Entrant, SlotRow
from flaremq.store.timer.wheel import NOWHERE, Slot, Wheel

log = logger("store.timer")

CHECK_FILE: Final = "timercheck"
_EMPTY: Final = Slot(NOWHERE, NOWHERE, 0)

QueueOffsetOf: TypeAlias = Callable[[int, int], int | None]
"""The queue offset of the waiting message at an offset of the commit log, of a size; None without one."""


class NewTimer(NamedTuple):
    """A message to enter."""

    offset: int
    size: int
    topic_hash: int
    cancels: bool


class TimerFiles:
    """One thread uses it; `save` and `needed_from` may be called in others.

    Invariants:
      W1  all units of a slot were written within `roll_ms` before its time.
      W2  slots from `read_ms` on, less than a window of the wheel later, are all that is occupied.
    """

    def __init__(self, settings: StoreSettings, disk: Disk) -> None:
        root = settings.root
        self._disk = disk
        self._root = root
        self._check_path: Path = root / "config" / CHECK_FILE
        self._check: TimerCheck | None = None
        self.precision_ms = settings.timer_precision_ms
        self.roll_ms = settings.timer_roll_ms
        self.wheel = Wheel(disk, root / "timerwheel", self.precision_ms)
        self.log = TimerLog(disk, root / "timerlog", settings.timer_log_file_size)
        self.read_ms = 0
        """The slot to read next."""
        self.queue_offset = 0
        """The next message to enter."""
        self.entered_before = 0
        """Messages before this queue offset were entered once: those before `read_ms` are delivered."""
        self.state_version = self.counter = 0
        """The version of the progress, which members of a group compare."""

    # Opening.

    def open(self, *, clean: bool, log_end: int, queue_offset_of: QueueOffsetOf) -> Counter[int] | None:
        """`log_end` is that of the commit log.

        Returns how many messages wait, by the hash of their topic, if the wheel had to be rebuilt.
        """
        make_way(self._disk, self._root / "timerlog")
        make_way(self._disk, self._check_path.parent)
        is_whole = self.log.load()
        self._check = TimerCheck(self._disk, self._check_path)
        kept, seal = self._check.read(), self._check.seal()
        is_sound = self.wheel.open() and clean and is_whole and seal is not None
        self.read_ms = kept.read_ms // self.precision_ms * self.precision_ms
        self.entered_before = kept.queue_offset
        self.state_version, self.counter = kept.state_version, kept.counter
        self._check_precision(kept.read_ms)
        if is_sound and kept.log_end <= self.log.end and self.wheel.checksum() == seal:
            self.log.cut(kept.log_end)
            self.queue_offset = kept.queue_offset
            return None
        return self._rebuild(kept, log_end, queue_offset_of)

    def _check_precision(self, read_ms: int) -> None:
        """The slots of what waits mean other times under another precision: messages would come early."""
        assert self._check is not None
        was_ms = self._check.precision_ms()
        if was_ms is None or was_ms == self.precision_ms:
            return
        if any(unit.slot_ms >= read_ms for _, unit in self.log.units(self._first_needed())):
            raise ConfigError(
                f"timerPrecisionMs={self.precision_ms}: messages wait that were sent with {was_ms}; "
                f"set timerPrecisionMs={was_ms} until all of them are delivered"
            )

    def _rebuild(self, kept: Progress, log_end: int, queue_offset_of: QueueOffsetOf) -> Counter[int]:
        """Enter all units that may still wait in an empty wheel."""
        self.wheel.wipe()
        begin = end = self._first_needed()
        trusted = self._trusted_end(kept)
        slots: dict[int, Slot] = {}
        hashes: Counter[int] = Counter()
        there = takewhile(
            lambda each: each[1].offset + each[1].size <= log_end and each[0] < trusted, self.log.units(begin)
        )
        for position, unit in _whole(there, queue_offset_of):
            end = position + TIMER_UNIT_SIZE
            if unit.slot_ms >= self.read_ms:
                before, step = slots.get(unit.slot_ms), -1 if unit.cancels else 1
                first, count = (before.first, before.count) if before is not None else (position, 0)
                slots[unit.slot_ms] = Slot(first, position, count + step)
                hashes[unit.topic_hash] += step
        for at_ms, slot in slots.items():
            self.wheel.put(at_ms, slot)
        self.log.cut(end)
        last = self.log.get(end - TIMER_UNIT_SIZE) if end > begin else None
        entered = queue_offset_of(last.offset, last.size) if last is not None else None
        self.queue_offset = 0 if entered is None else entered + 1
        if end >= kept.log_end:  # Every unit that the progress counts is there.
            self.queue_offset = max(self.queue_offset, kept.queue_offset)
        if end:
            log.info(
                "the timer wheel was made again from the timer log",
                extra=fields(messages=sum(hashes.values()), slots=len(slots), queue_offset=self.queue_offset),
            )
        return hashes

    def _trusted_end(self, kept: Progress) -> int:
        """Up to where in the timer log units are taken as they are."""
        assert self._check is not None
        if not kept.read_ms:
            return 0  # Nothing tells what was delivered: everything is entered again.
        # RocketMQ reads its numbers one after the other: its units may fall short of its queue offset.
        return kept.log_end if self._check.precision_ms() is not None else self.log.end

    def _first_needed(self) -> int:
        """The beginning of the first file that may hold a unit that still waits."""
        oldest_ms = (
            self.read_ms - self.wheel.window_ms // 2
        )  # Whatever the roll window was when it was written.
        starts = list(self.log.starts())
        for start, last in starts[:-1]:
            if last is None or last.written_ms >= oldest_ms:
                return start
        return starts[-1][0] if starts else 0

    # Adding and reading.

    def add(self, moment_slot_ms: int, now_ms: int, unit: NewTimer) -> int:
        """Enter a message. Returns the time of its slot: an earlier one if its moment is so far away that it
        has to roll."""
        at_ms, magic = moment_slot_ms, TIMER_NORMAL | (TIMER_DELETE if unit.cancels else 0)
        ahead_ms = moment_slot_ms - now_ms
        if ahead_ms >= self.roll_ms:
            magic |= TIMER_ROLL
            # The last stretch must not be so short that the message is late.
            near = ahead_ms - self.roll_ms < self.roll_ms // 3
            at_ms = now_ms + (self.roll_ms // 2 if near else self.roll_ms)
            at_ms = at_ms // self.precision_ms * self.precision_ms
        slot = self.wheel.get(at_ms)
        before = slot.last if slot is not None else NOWHERE
        position = self.log.append(
            TimerUnit(before, magic, now_ms, at_ms - now_ms, unit.offset, unit.size, unit.topic_hash)
        )
        first, count = (slot.first, slot.count) if slot is not None else (position, 0)
        self.wheel.put(at_ms, Slot(first, position, count + (-1 if unit.cancels else 1)))
        return at_ms

    def add_many(self, entrants: array[int], slots_ms: Sequence[int], hashes: array[int], now_ms: int) -> int:
        """Enter messages that need not roll, in order. How many: fewer, but at least one, if the files have
        no more room now.

        Rows of Entrant, with the times of their slots and the hashes of their topics by number.
        """
        slots = array("q")
        for at_ms in slots_ms:
            self.wheel.reserve(at_ms)  # If it fails, nothing has changed.
            slots.extend((at_ms, *(self.wheel.get(at_ms) or _EMPTY)))
        count, done = len(entrants) // Entrant.WIDTH, 0
        try:
            while done < count:
                done += self.log.append_many(entrants, done, count - done, slots, hashes, now_ms)
        except FlareError:
            if not done:
                raise
        finally:
            for s in range(0, len(slots), SlotRow.WIDTH):
                at_ms, first, last, waiting = slots[s : s + SlotRow.WIDTH]
                if last != NOWHERE:
                    self.wheel.put(at_ms, Slot(first, last, waiting))
        return done

    @property
    def room_ms(self) -> int:
        """Slots before it can be used: the place of a later one may belong to a time that is not yet read."""
        return self.read_ms + self.wheel.window_ms

    def oldest_offset(self) -> int | None:
        """Where in the commit log the oldest message lies that may still wait."""
        unit = self.log.first_written(self.read_ms - self.roll_ms)
        return None if unit is None else unit.offset

    # Saving.

    def progress(self, now_ms: int) -> Progress:
        queued, version = self.queue_offset, (self.state_version, now_ms, self.counter)
        return Progress(self.read_ms, self.log.end, queued, queued, *version)

    def save(self, progress: Progress, *, seal: bool = False) -> None:
        """Bring wheel and timer log to the disk, and then the progress. With `seal`, for a clean stop."""
        assert self._check is not None
        self.log.sync()
        self.wheel.sync()
        self._check.write(progress, self.precision_ms, self.wheel.checksum() if seal else None)

    def close(self) -> None:
        self.wheel.close()
        self.log.close()
        if self._check is not None:
            self._check.close()
            self._check = None


def _whole(
    units: Iterable[tuple[int, TimerUnit]], queue_offset_of: QueueOffsetOf
) -> Iterator[tuple[int, TimerUnit]]:
    """Units, without the last one if it leads to no message: it may have been written in part."""
    before = None
    for each in units:
        if before is not None:
            yield before
        before = each
    if before is not None and queue_offset_of(before[1].offset, before[1].size) is not None:
        yield before
