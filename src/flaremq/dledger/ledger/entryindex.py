"""Where each entry of a ledger lies, and its term: the files in `index/`, a unit for each entry.

    unit    magic 1, physical offset of the entry, its size, its index, its term; at 32 * index

So an entry is found by its index in one step, and by its place in a few. All of it can be made again from the
entries.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from flaremq.base.errors import CorruptStore
from flaremq.base.logs import logger
from flaremq.model import layout
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import MappedFile, OpenFiles

log = logger("dledger.entryindex")
_UNIT: Final = struct.Struct(layout.DLEDGER_UNIT_FORMAT)
_SIZE: Final = layout.DLEDGER_UNIT_SIZE
_OPEN_MAX: Final = 8


class EntryUnit(NamedTuple):
    """What the index knows of an entry."""

    magic: int
    position: int
    """Physical offset of its head."""
    size: int
    """With the head."""
    index: int  # type: ignore[assignment]
    term: int

    @property
    def end(self) -> int:
        return self.position + self.size

    @classmethod
    def iter_unpack(cls, units: memoryview) -> Iterator[EntryUnit]:
        return map(cls._make, _UNIT.iter_unpack(units))


class EntryIndex:
    """Units are written by one thread; any thread may read those below what was written."""

    def __init__(self, disk: Disk, folder: Path, file_size: int = layout.DLEDGER_INDEX_FILE_SIZE) -> None:
        self.files = FileQueue(disk, (folder,), file_size, open_files=OpenFiles(_OPEN_MAX))

    def load(self) -> None:
        """Find the files. All units in them count, whatever they are; files that cannot be are deleted."""
        try:
            self.files.load()
        except CorruptStore as error:
            log.warning("the index of a ledger is made again: %s", error)
            for name in self.files.disk.names(self.files.folder):
                self.files.disk.delete(self.files.folder / name)

    def unit(self, index: int) -> EntryUnit | None:
        """None if there is none, or what lies there is not its unit."""
        place = index * _SIZE
        file = self.files.find(place) if index >= 0 else None
        if file is None or place + _SIZE > file.offset + file.wrote:
            return None
        unit = EntryUnit._make(_UNIT.unpack_from(file.view, place - file.offset))
        return unit if unit.index == index and unit.magic == layout.DLEDGER_MAGIC else None

    def last_before(self, physical_end: int, first: int, last: int) -> int:
        """The newest of the entries [first, last] that ends there or before; first - 1 if none does."""
        return first - 1 + bisect_right(range(first, last + 1), physical_end, key=self._end_of)

    def last_of_term(self, term: int, first: int, last: int) -> int:
        """The newest of the entries [first, last] that is of no higher term; first - 1 if none is."""
        return first - 1 + bisect_right(range(first, last + 1), term, key=self._term_of)

    def _end_of(self, index: int) -> int:
        unit = self.unit(index)
        assert unit is not None, f"no unit for entry {index}"
        return unit.end

    def _term_of(self, index: int) -> int:
        unit = self.unit(index)
        assert unit is not None, f"no unit for entry {index}"
        return unit.term

    # Writing.

    def reserve(self, first: int, count: int) -> None:
        """Have room on the disk for these units, so that writing them cannot fail."""
        place, end = first * _SIZE, (first + count) * _SIZE
        while place < end:
            file = self._file_of(place)
            upto = min(end, file.end)
            file.reserve(upto - file.offset)
            place = upto

    def put(self, first: int, units: memoryview) -> None:
        """Write these from the entry `first` on."""
        place = first * _SIZE
        while units:
            file = self._file_of(place)
            at = place - file.offset
            size = min(len(units), file.size - at)
            file.reserve(at + size)
            file.file.put(at, units[:size])
            file.wrote = file.committed = max(file.wrote, at + size)
            file.flushed = min(file.flushed, at)
            place, units = place + size, units[size:]

    def differs(self, first: int, units: memoryview) -> bool:
        """Whether other units than these lie there."""
        place = first * _SIZE
        while units:
            file = self.files.find(place)
            if file is None:
                return True
            at = place - file.offset
            size = min(len(units), file.size - at)
            if file.wrote < at + size or file.view[at : at + size] != units[:size]:
                return True
            place, units = place + size, units[size:]
        return False

    def _file_of(self, place: int) -> MappedFile:
        """The file of this place, made if need be. If that leaves a gap, nothing before it is of use."""
        files = self.files.files
        begin = place // self.files.file_size * self.files.file_size
        if files and not files[0].offset <= begin <= files[-1].end:
            self.clear()
        if not self.files.files or begin == self.files.files[-1].end:
            self.files.add(begin)
        found = self.files.find(place)
        assert found is not None
        return found

    def truncate(self, index: int) -> None:
        """Forget the units from this entry on."""
        self.files.truncate(index * _SIZE)

    def trim(self, first: int) -> None:
        """Delete files that know nothing of the entry before this one, or later ones."""
        for file in self.files.files[:-1]:
            if file.end > (first - 1) * _SIZE:
                return
            self.files.drop_first(file)
            file.delete()

    def clear(self) -> None:
        """Forget all units."""
        self.files.destroy()

    def flush(self) -> None:
        """Bring to the disk what was written."""
        for file in self.files.files:
            file.flush()

    def close(self) -> None:
        self.files.close()
