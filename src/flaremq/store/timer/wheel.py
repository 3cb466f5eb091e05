"""The timer wheel: for each span of time, where the units of its messages lie in the timer log."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from flaremq.base.logs import fields, logger
from flaremq.model.layout import PAGE, WHEEL_SLOT_FORMAT, WHEEL_SLOT_SIZE, WHEEL_SLOTS
from flaremq.store.files.disk import Disk, DiskFile

log = logger("store.timer")

NOWHERE: Final = -1

_SLOT: Final = struct.Struct(WHEEL_SLOT_FORMAT)
_TIME: Final = struct.Struct(">q")


class Slot(NamedTuple):
    first: int
    last: int
    """Positions in the timer log."""
    count: int  # type: ignore[assignment]
    """Of waiting messages: those to cancel are subtracted."""


class Wheel:
    """Slots by time, over a window of `slots * precision_ms`. A slot belongs to the one time written in it.

    Two times whose distance is a multiple of the window share a place, so whoever adds keeps within a window
    of the oldest slot that is still occupied.
    """

    def __init__(self, disk: Disk, path: Path, precision_ms: int, slots: int = WHEEL_SLOTS) -> None:
        self._disk = disk
        self._path = path
        self._precision_ms = precision_ms
        self._slots = slots
        self._size = slots * WHEEL_SLOT_SIZE
        self._file: DiskFile | None = None
        self._used: set[int] = set()
        """Pages that have their space on the disk. The file is sparse and the disk may be full: writing to
        another page would end the process, and so would reading it on a disk in memory. It is empty."""

    @property
    def window_ms(self) -> int:
        return self._slots * self._precision_ms

    def open(self) -> bool:
        """Open the file; False if it was missing or of another size, and is empty now."""
        disk, path = self._disk, self._path
        sound = disk.exists(path) and disk.size(path) == self._size
        if not sound:
            if disk.exists(path):
                log.warning(
                    "the timer wheel has another size and is made again",
                    extra=fields(file=path, size=disk.size(path), size_wanted=self._size),
                )
                disk.delete(path)
            disk.create(path, self._size)
            disk.sync_folder(path.parent)
        self._file = disk.open(path, self._size, lasting=True)
        self._used = set(self._written())
        return sound

    def _written(self) -> Iterator[int]:
        """The pages that have ever been written to."""
        at = self._disk.data_from(self._path, 0)
        while at is not None and at < self._size:
            yield at // PAGE
            at = self._disk.data_from(self._path, (at // PAGE + 1) * PAGE)

    @property
    def _view(self) -> memoryview:
        assert self._file is not None
        return self._file.view

    def _place(self, at_ms: int) -> int:
        return at_ms // self._precision_ms % self._slots * WHEEL_SLOT_SIZE

    def get(self, at_ms: int) -> Slot | None:
        """The slot of a time; None if it is empty."""
        if self._place(at_ms) // PAGE not in self._used:
            return None
        time, first, last, count, _magic = _SLOT.unpack_from(self._view, self._place(at_ms))
        if time != at_ms // self._precision_ms or last < 0:
            return None
        return Slot(first, last, count)

    def reserve(self, at_ms: int) -> None:
        """Have disk space for a slot."""
        assert self._file is not None
        page = self._place(at_ms) // PAGE
        if page not in self._used:
            self._file.reserve(page * PAGE, min(PAGE, self._size - page * PAGE))
            self._used.add(page)

    def put(self, at_ms: int, slot: Slot) -> None:
        self.reserve(at_ms)
        _SLOT.pack_into(self._view, self._place(at_ms), at_ms // self._precision_ms, *slot, 0)

    def clear(self, at_ms: int) -> None:
        """Empty a slot: all its messages are delivered."""
        if self.get(at_ms) is not None:
            _SLOT.pack_into(self._view, self._place(at_ms), 0, NOWHERE, NOWHERE, 0, 0)

    def next_occupied(self, begin_ms: int, end_ms: int) -> int | None:
        """The first time from `begin_ms` up to `end_ms`, not included, whose slot is occupied."""
        view, precision_ms = self._view, self._precision_ms
        number, end = begin_ms // precision_ms, -(-end_ms // precision_ms)
        while number < end:
            place = number % self._slots * WHEEL_SLOT_SIZE
            if place // PAGE not in self._used:
                number += (min(place // PAGE * PAGE + PAGE, self._size) - place) // WHEEL_SLOT_SIZE
                continue
            if _TIME.unpack_from(view, place)[0] == number and self.get(number * precision_ms):
                return number * precision_ms
            number += 1
        return None

    def wipe(self) -> None:
        assert self._file is not None
        self._file.clear_from(0)
        self._used.clear()

    def checksum(self) -> int:
        """Of the whole file; 0 if it was never used."""
        view, found = self._view, 0
        for page in range(-(-self._size // PAGE)) if self._used else ():
            at, end = page * PAGE, min(page * PAGE + PAGE, self._size)
            found = zlib.crc32(view[at:end] if page in self._used else bytes(end - at), found)
        return found

    def sync(self) -> None:
        assert self._file is not None
        self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
