"""The timer log: a unit for each waiting message, linked with the unit before it in its slot."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from flaremq.base.logs import fields, logger
from flaremq.model.layout import (
    BLANK_MAGIC,
    TIMER_BLANK_FORMAT,
    TIMER_BLANK_SIZE,
    TIMER_DELETE,
    TIMER_MAGIC_MAX,
    TIMER_ROLL,
    TIMER_UNIT_FORMAT,
    TIMER_UNIT_SIZE,
)
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.timer.units import pack_units, read_units, walk_back

log = logger("store.timer")

_UNIT: Final = struct.Struct(TIMER_UNIT_FORMAT)
_BLANK: Final = struct.Struct(TIMER_BLANK_FORMAT)
_NEVER_MS: Final = (1 << 63) - 1
SMALLEST: Final = TIMER_UNIT_SIZE + TIMER_BLANK_SIZE
"""A file must have room for a unit and its own end."""


class TimerUnit(NamedTuple):
    before: int
    """Position of the unit before it in its slot; -1 for the first."""
    magic: int
    written_ms: int
    delay_ms: int
    offset: int
    """Where the message lies in the commit log."""
    size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        return self.written_ms + self.delay_ms

    @property
    def rolls(self) -> bool:
        """Whether it is only put back when it is due, because its moment is further away."""
        return bool(self.magic & TIMER_ROLL)

    @property
    def cancels(self) -> bool:
        """Whether it is a marker that cancels another message."""
        return bool(self.magic & TIMER_DELETE)


class TimerLog:
    """Units one behind the other, in the order of the messages in the commit log."""

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self._disk = disk
        self._folder = folder
        self._files = FileQueue(disk, (folder,), file_size)
        self._file_size = file_size

    def load(self) -> bool:
        """Find the files on the disk. Whether all are whole: one that was cut short gets its length again,
        and the units that it lacks are zeros."""
        short = list(self._short())
        for path in short:
            log.warning("a file of the timer log was cut short", extra=fields(file=path))
            self._disk.lengthen(path, self._file_size)
        self._files.load()
        return not short

    def _short(self) -> Iterator[Path]:
        """Files that are shorter than the place of the next one says, or than the last one should be. Where
        all are shorter, another size was set: that is refused, as in any log."""
        names = [name for name in self._disk.names(self._folder) if name.isascii() and name.isdigit()]
        for name, follower in zip_longest(names, names[1:]):
            size = self._disk.size(self._folder / name)
            is_in_place = follower is None or int(follower) == int(name) + self._file_size
            if is_in_place and size < self._file_size and (size or follower is not None):
                yield self._folder / name

    @property
    def begin(self) -> int:
        return self._files.begin

    @property
    def end(self) -> int:
        files = self._files.files
        return files[-1].offset + files[-1].wrote if files else 0

    def append(self, unit: TimerUnit) -> int:
        """Its position."""
        file = self._writable()
        position = file.offset + file.wrote
        file.append(_UNIT.pack(TIMER_UNIT_SIZE, *unit, 0))
        return position

    def append_many(
        self, entrants: array[int], first: int, count: int, slots: array[int], hashes: array[int], now_ms: int
    ) -> int:
        """Append the units of some messages, as many as the present file has room for; how many."""
        file = self._writable()
        room = (self._file_size - file.wrote - TIMER_BLANK_SIZE) // TIMER_UNIT_SIZE
        some = min(count, room)
        file.reserve(file.wrote + some * TIMER_UNIT_SIZE)  # If it fails, no slot has changed.
        file.append(pack_units(entrants, first, some, slots, hashes, now_ms, file.offset + file.wrote))
        return some

    def _writable(self) -> MappedFile:
        files = self._files.files
        if files and files[-1].wrote + SMALLEST <= self._file_size:
            return files[-1]
        if files:
            last = files[-1]
            left = self._file_size - last.wrote
            if left:
                last.append(_BLANK.pack(left, 0, BLANK_MAGIC).ljust(left, b"\0"))
        return self._files.add(files[-1].end if files else 0)

    def get(self, position: int) -> TimerUnit | None:
        """The unit at a position; None if no sound unit lies there."""
        file = self._files.find(position)
        at = position - file.offset if file is not None else 0
        if file is None or at + TIMER_UNIT_SIZE > file.wrote:
            return None
        size, *values, _reserved = _UNIT.unpack_from(file.view, at)
        return TimerUnit(*values) if size == TIMER_UNIT_SIZE and 0 <= values[1] <= TIMER_MAGIC_MAX else None

    def chain(
        self, position: int, slot_ms: int, count_max: int
    ) -> tuple[array[int], array[int], int, bool] | None:
        """Units of a slot from a position on, newest first; see units.walk_back. None: no file is there."""
        file = self._files.find(position)
        if file is None:
            return None
        return walk_back(file.view[: file.wrote], file.offset, position, slot_ms, count_max)

    def waiting(self, positions: array[int]) -> array[int]:
        """Rows of Waiting for the first of these units; see units.read_units."""
        file = self._files.find(positions[0]) if positions else None
        return array("q") if file is None else read_units(file.view[: file.wrote], file.offset, positions)

    def units(self, begin: int) -> Iterator[tuple[int, TimerUnit]]:
        """The units from a file's beginning on, with their positions, up to the first that is not sound."""
        for file in self._files.files:
            if file.offset < begin:
                continue
            position, view = file.offset, file.view
            whole = len(view) // TIMER_UNIT_SIZE * TIMER_UNIT_SIZE
            for size, *values, _reserved in _UNIT.iter_unpack(view[:whole]):
                if size != TIMER_UNIT_SIZE or not 0 <= values[1] <= TIMER_MAGIC_MAX:
                    break
                yield position, TimerUnit(*values)
                position += TIMER_UNIT_SIZE
            if not self._is_blank(view, position - file.offset):
                return

    def _is_blank(self, view: memoryview, at: int) -> bool:
        """Whether a file ends here, because no further unit has room in it."""
        if at + SMALLEST <= self._file_size:
            return False
        return at + TIMER_BLANK_SIZE > self._file_size or _BLANK.unpack_from(view, at)[2] == BLANK_MAGIC

    def starts(self) -> Iterator[tuple[int, TimerUnit | None]]:
        """Where files begin, oldest first, and the last unit of each full one."""
        last = (self._file_size - SMALLEST) // TIMER_UNIT_SIZE * TIMER_UNIT_SIZE
        for file in self._files.files:
            yield file.offset, self.get(file.offset + last)

    def first_written(self, since_ms: int) -> TimerUnit | None:
        """The first unit that was written at a time or later."""
        for file in self._files.files:
            count = file.wrote // TIMER_UNIT_SIZE
            at = bisect_left(range(count), since_ms, key=partial(_written_ms, file))
            if at < count and (unit := self.get(file.offset + at * TIMER_UNIT_SIZE)) is not None:
                return unit
        return None

    def cut(self, position: int) -> None:
        """Forget everything from `position` on, and go on there."""
        self._files.truncate(position, keep_first=True)

    def delete_before(self, log_min: int) -> int:
        """Delete leading files whose messages have all left the commit log; how many."""
        deleted = 0
        for _start, last in list(self.starts())[:-1]:
            if last is None or last.offset >= log_min:
                break
            file = self._files.files[0]
            file.delete()
            self._files.drop_first(file)
            deleted += 1
        return deleted

    def sync(self) -> int:
        """Bring all units to the disk; up to which position."""
        end = self.end
        for file in self._files.files:
            if file.flushed < file.committed:
                file.flush()
        return end

    def close(self) -> None:
        self._files.close()


def _written_ms(file: MappedFile, number: int) -> int:
    """When a unit was written. The end of a file counts as never."""
    size, _before, _magic, written_ms, *_rest = _UNIT.unpack_from(file.view, number * TIMER_UNIT_SIZE)
    return written_ms if size == TIMER_UNIT_SIZE else _NEVER_MS
