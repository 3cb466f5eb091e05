"""One queue of a topic: twenty bytes per message that say where its record lies.

    dispatch > [append] > reader

The n-th entry is the message with queue offset n. Entries before the first real one of a queue
that did not begin at 0 are fillers: they name no record and are never shown.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from flaremq.base.errors import CorruptStore
from flaremq.model.layout import ENTRY_FORMAT, ENTRY_SIZE, EXT_ADDRESS_MAX, FILLER_SIZE
from flaremq.store.api import Boundary, Entry, Located, TimeOf
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.queue.entries import FILLER, valid
from flaremq.store.queue.timesearch import GONE, UNKNOWN, UnitSpan, find_unit

log = logging.getLogger(__name__)

_ENTRY = struct.Struct(ENTRY_FORMAT)
_LONG_MAX = (1 << 63) - 1
_GAP_FILES_MAX = 100  # Missing entries that are believed: 30 million, with files as they are by default.
_RECOVER_FILES = 3  # Older files are trusted: they were full and flushed long ago.


class ConsumeQueue:
    """Entries [min_offset, max_offset) of one queue.

    Invariants:
      C1  entry n lies at byte 20 * n of the run of files.
      C2  physical offsets grow with n, but for fillers.
      C3  every record below `physical_end` that belongs here has its entry.
    """

    is_batch: ClassVar[Literal[False]] = False
    __slots__ = ("_files", "min_offset", "physical_end", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, files: FileQueue) -> None:
        assert files.file_size % ENTRY_SIZE == 0
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.physical_end = -1  # Nothing yet.
        self._files = files

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message will have."""
        files = self._files.files
        return (files[-1].offset + files[-1].wrote) // ENTRY_SIZE if files else 0

    @property
    def newest(self) -> int:
        """Where its newest record ends."""
        return self.physical_end

    @property
    def folder(self) -> Path:
        return self._files.folder

    @property
    def file_count(self) -> int:
        return len(self._files.files)

    def has_room(self, count: int) -> bool:
        """Whether this many entries can be added without making a file."""
        files = self._files.files
        return bool(files) and files[-1].wrote + count * ENTRY_SIZE <= files[-1].size

    def load(self) -> None:
        self._files.load()

    def append(self, entries: memoryview, first: int, end: int) -> None:
        """Add entries, the first of which has queue offset `first`; their last record ends at `end`."""
        if self._is_unbegun(first):
            self._begin_at(first)
        if first > self.max_offset:
            self._leave_empty(first - self.max_offset)
        self._write(entries)
        self.physical_end = end

    def _leave_empty(self, count: int) -> None:
        """Entries are missing before the next one. Their places stay empty, so that it gets its own.

        So many that no queue can have lost them are a lie, and are passed over, as Java does with any.
        """
        log.error(
            "queue %s-%d misses %d entries from %d on", self.topic, self.queue_id, count, self.max_offset
        )
        per_file = self._files.file_size // ENTRY_SIZE
        if count > _GAP_FILES_MAX * per_file:
            return
        for begin in range(0, count, per_file):
            self._write(memoryview(FILLER * min(per_file, count - begin)))

    def _is_unbegun(self, first: int) -> bool:
        """Without a file, or with one for this entry that nothing could be written to yet."""
        files = self._files.files
        if not files:
            return True
        return (
            len(files) == 1 and files[0].wrote == 0 and files[0].offset <= first * ENTRY_SIZE < files[0].end
        )

    def _begin_at(self, first: int) -> None:
        """The first file of a queue whose earlier messages are gone, or never were here."""
        at = first * ENTRY_SIZE
        files = self._files.files
        file = files[0] if files else self._files.add(at - at % self._files.file_size)
        if at > file.offset:
            file.append(FILLER * ((at - file.offset) // ENTRY_SIZE))
        self.min_offset = first

    def _write(self, entries: memoryview) -> None:
        while entries:
            file = self._files.files[-1]
            room = file.size - file.wrote
            if room == 0:
                self._files.add(file.end)
                continue
            file.append(entries[:room])
            if room < len(entries):  # The next file may not be had, and what is in must not come again.
                offset, size, _ = _ENTRY.unpack_from(entries, room - ENTRY_SIZE)
                self.physical_end = offset + size if size != FILLER_SIZE else self.physical_end
            entries = entries[room:]

    def entries(self, queue_offset: int, count_max: int) -> memoryview:
        """Entries from `queue_offset` on, as they lie: no more than asked, none behind the file's end."""
        file = self._files.find(queue_offset * ENTRY_SIZE)
        if file is None:
            return memoryview(b"")
        at = queue_offset * ENTRY_SIZE - file.offset
        try:
            return file.view[at : min(file.committed, at + count_max * ENTRY_SIZE)]
        except CorruptStore:  # Deleted between finding and opening: its records have left the log.
            return memoryview(b"")

    def entry(self, queue_offset: int) -> Entry | None:
        raw = self.entries(queue_offset, 1)
        return _ENTRY.unpack(raw) if len(raw) == ENTRY_SIZE else None

    def locate(self, queue_offset: int) -> Located | None:
        entry = self.entry(queue_offset)
        return None if entry is None else Located(entry[0], entry[1], None)

    def listed(self, first: int, count: int) -> list[Entry]:
        found: list[Entry] = []
        for queue_offset in range(max(first, self.min_offset), min(first + count, self.max_offset)):
            entry = self.entry(queue_offset)
            if entry is None:
                break
            found.append(entry)
        return found

    def next_file_offset(self, queue_offset: int) -> int:
        """The first queue offset behind the file that holds this one."""
        per_file = self._files.file_size // ENTRY_SIZE
        return queue_offset - queue_offset % per_file + per_file

    def recover(self, trusted_end: int = 0) -> None:
        """Find the end of what makes sense in the last files, and forget what lies behind it.

        Entries of records below `trusted_end` are said to be whole. Raises CorruptStore if they are
        not, or an older file is not what it must be: then all is to be made anew.
        """
        files = self._files.files
        if not files:
            return
        self.physical_end = self._check_old(files[:-_RECOVER_FILES])
        for file in files[-_RECOVER_FILES:]:
            count, end = valid(file.view, file.size // ENTRY_SIZE, _LONG_MAX, max(self.physical_end, 0))
            self.physical_end = max(self.physical_end, end or -1)
            if count * ENTRY_SIZE < file.size:
                at = count * ENTRY_SIZE
                goes_on = file is not files[-1] or any(file.view[at : at + ENTRY_SIZE])
                if goes_on and max(self.physical_end, 0) < trusted_end:
                    raise CorruptStore(f"{file.path}: the entry at byte {at} points nowhere")
                self._cut(file, count)
                break
        if files[0].offset > 0:
            self.min_offset = max(self.min_offset, files[0].offset // ENTRY_SIZE)

    def _check_old(self, files: Sequence[MappedFile]) -> int:
        """The ends of files that were full long ago: a look at two entries of each costs little.

        Gives the end of their last record, -1 without any.
        """
        before = end = -1
        for file in files:
            first, last = (
                _ENTRY.unpack_from(file.view, 0),
                _ENTRY.unpack_from(file.view, file.size - ENTRY_SIZE),
            )
            filler = first[1] == FILLER_SIZE
            if not (before < first[0] or filler) or first[1] <= 0 or last[1] <= 0 or last[0] < first[0]:
                raise CorruptStore(f"{file.path}: entries that point nowhere")
            before = last[0]
            end = last[0] + last[1] if last[1] != FILLER_SIZE else end
        return end

    def truncate_to(self, physical_offset: int) -> None:
        """Forget the entries of records at or behind `physical_offset`, the newest file first."""
        for file in reversed(self._files.files):
            count, end = valid(file.view, file.wrote // ENTRY_SIZE, physical_offset)
            self.physical_end = end or -1
            self._cut(file, count)
            if count:
                break

    def _cut(self, file: MappedFile, count: int) -> None:
        self._files.truncate(file.offset + count * ENTRY_SIZE)

    def correct_min(self, log_min: int) -> None:
        """Move min_offset to the first entry whose record is still in the log.

        A filler never counts, not even while the log still begins at 0.
        """
        low, high = max(self.min_offset, self._files.begin // ENTRY_SIZE), self.max_offset
        while low < high:
            middle = (low + high) // 2
            if self._lives(middle, log_min):
                high = middle
            else:
                low = middle + 1
        self.min_offset = low

    def _lives(self, queue_offset: int, log_min: int) -> bool:
        entry = self.entry(queue_offset)
        return entry is not None and entry[0] >= log_min and entry[1] != FILLER_SIZE

    def delete_before(self, log_min: int) -> int:
        """Delete leading files of which even the last entry's record is gone; never the last file."""
        deleted = 0
        for file in self._files.files[:-1]:
            offset, _, _ = _ENTRY.unpack_from(file.view, file.size - ENTRY_SIZE)
            if offset >= log_min:
                break
            file.delete()  # First: if the disk says no, the file is still ours, and is deleted later.
            self._files.drop_first(file)
            deleted += 1
        return deleted

    def offset_by_time(self, timestamp_ms: int, boundary: Boundary, log_min: int, time_of: TimeOf) -> int:
        """The queue offset that belongs to a time, within what is there."""
        if self.max_offset == 0:
            return 0

        def time_at(queue_offset: int) -> int:
            entry = self.entry(queue_offset)
            if entry is None:
                return UNKNOWN
            if entry[0] < log_min or entry[1] == FILLER_SIZE:
                return GONE
            return time_of(entry[0], entry[1])

        self.correct_min(log_min)
        spans = list(self._spans(time_at))
        found = find_unit(spans, self.min_offset, timestamp_ms, boundary, time_at)
        return max(self.min_offset, min(self.max_offset, found))

    def _spans(self, time_at: Callable[[int], int]) -> Iterator[UnitSpan]:
        files = self._files.files
        for file in files:
            first, end = file.offset // ENTRY_SIZE, (file.offset + file.wrote) // ENTRY_SIZE
            if first < end:
                last_ms = time_at(end - 1) if file is not files[-1] else UNKNOWN
                yield UnitSpan(first, end, time_at(first), last_ms)

    def last_address(self) -> int | None:
        """The newest address of an extension unit among the entries."""
        for offset in range(self.max_offset - 1, self.min_offset - 1, -1):
            entry = self.entry(offset)
            if entry is not None and entry[2] <= EXT_ADDRESS_MAX:
                return entry[2]
        return None

    def first_address(self) -> int | None:
        """The oldest one that is still needed."""
        for offset in range(self.min_offset, self.max_offset):
            entry = self.entry(offset)
            if entry is not None and entry[2] <= EXT_ADDRESS_MAX:
                return entry[2]
        return None

    def flush(self, least_pages: int) -> None:
        """Sync the files with at least this many dirty pages; 0 means all that have any."""
        for file in self._files.files:
            if file.flushed < file.committed and file.dirty_pages() >= least_pages:
                file.flush()

    def close(self) -> None:
        self._files.close()

    def destroy(self) -> None:
        self._files.destroy()
        self.min_offset = 0
        self.physical_end = -1
