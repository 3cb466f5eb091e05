"""Queue entries of a store folder, read one by one where they lie, without trusting any of them."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from flaremq.base.errors import CorruptStore
from flaremq.model import layout
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import NAME_DIGITS
from flaremq.store.queue.entries import valid

_ENTRY: Final = struct.Struct(layout.ENTRY_FORMAT)
_LONG_MAX: Final = (1 << 63) - 1
_QUEUES_OPEN: Final = 256  # Each has a map, and the maps of a process are limited.


class Entry(NamedTuple):
    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        return self.size == layout.FILLER_SIZE


@dataclass(frozen=True, slots=True)
class OfflineQueueFile:
    first: int
    """Queue offset of its first entry."""
    count: int
    path: Path

    @property
    def end(self) -> int:
        return self.first + self.count


class QueueFiles:
    """The files of one queue. One of them is open at a time, because readers move forward."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.folder = folder
        self.files = [
            OfflineQueueFile(
                int(name) // layout.ENTRY_SIZE, disk.size(folder / name) // layout.ENTRY_SIZE, path
            )
            for name in disk.names(folder)
            if len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
            for path in (folder / name,)
        ]
        self._open: tuple[OfflineQueueFile, memoryview] | None = None
        self.end = self._find_end()

    @property
    def begin(self) -> int:
        return self.files[0].first if self.files else 0

    def entry(self, queue_offset: int) -> Entry | None:
        """None where the files do not reach, or where nothing was ever written."""
        view = self._view_for(queue_offset)
        if view is None or self._open is None:
            return None
        at = (queue_offset - self._open[0].first) * layout.ENTRY_SIZE
        if at + layout.ENTRY_SIZE > len(view):
            return None
        found = Entry(*_ENTRY.unpack_from(view, at))
        return found if found.size > 0 else None

    def entries(self, begin: int, end: int) -> Iterator[tuple[int, Entry | None]]:
        for queue_offset in range(begin, end):
            yield queue_offset, self.entry(queue_offset)

    def run(self, first: int, count: int) -> bytes:
        """The entries of these queue offsets, as they lie in the files, up to the first that is not there."""
        found = bytearray()
        while count > 0 and (view := self._view_for(first)) is not None and self._open is not None:
            at = (first - self._open[0].first) * layout.ENTRY_SIZE
            part = view[at : at + count * layout.ENTRY_SIZE]
            found += part
            first, count = first + len(part) // layout.ENTRY_SIZE, count - len(part) // layout.ENTRY_SIZE
        return bytes(found)

    def first_of(self, log_begin: int) -> int:
        """The first queue offset whose record is still in the log, or `end`."""
        low, high = self.begin, self.end
        while low < high:
            middle = (low + high) // 2
            found = self.entry(middle)
            if found is not None and not found.is_filler and found.physical_offset >= log_begin:
                high = middle
            else:
                low = middle + 1
        return low

    def _find_end(self) -> int:
        """Behind the last entry that makes sense in the last file that has any."""
        for file in reversed(self.files):
            view = self._view_for(file.first)
            if view is None:
                continue
            count, _ = valid(view, len(view) // layout.ENTRY_SIZE, _LONG_MAX)
            if count:
                return file.first + count
        return self.begin

    def _view_for(self, queue_offset: int) -> memoryview | None:
        if self._open is not None and self._open[0].first <= queue_offset < self._open[0].end:
            return self._open[1]
        for file in self.files:
            if file.first <= queue_offset < file.end:
                try:
                    self._open = file, self._disk.look(file.path)
                except CorruptStore:
                    return None  # Deleted by the broker meanwhile.
                return self._open[1]
        return None


class OfflineQueues:
    """All queues of a folder; those asked for last are kept open."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root = root / "consumequeue"
        self._disk = disk
        self._open: OrderedDict[tuple[str, int], QueueFiles | None] = OrderedDict()

    def names(self) -> list[tuple[str, int]]:
        return [
            (topic, int(name))
            for topic in self._disk.folders(self._root)
            for name in sorted(self._disk.folders(self._root / topic), key=lambda text: (len(text), text))
            if name.isascii() and name.isdigit()
        ]

    def forget(self, topic: str, queue_id: int) -> None:
        """Look at the queue anew when it is asked for again: it may have got more files."""
        self._open.pop((topic, queue_id), None)

    def get(self, topic: str, queue_id: int) -> QueueFiles | None:
        """None if there is no such queue."""
        key = topic, queue_id
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key]
        folder = self._root / topic / str(queue_id)
        # The name comes out of a record: it must not lead anywhere else.
        is_inside = "/" not in topic and "\0" not in topic and topic not in ("", ".", "..")
        found = QueueFiles(self._disk, folder) if is_inside and folder.is_dir() else None
        self._open[key] = found
        if len(self._open) > _QUEUES_OPEN:
            self._open.popitem(last=False)
        return found
