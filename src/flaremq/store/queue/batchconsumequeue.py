"""The queue of a topic whose messages are stored as inner batches: one entry for many messages.

Entry and queue offset have no fixed relation here, so an entry is found by binary search over the
first queue offset (base) that each one holds. Entries are numbered by place: number n lies at byte
46*n of the queue, whatever files were deleted before it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from flaremq.base.errors import CorruptStore
from flaremq.base.logs import fields, logger
from flaremq.model.layout import BATCH_ENTRY_FORMAT, BATCH_ENTRY_SIZE
from flaremq.store.api import Boundary, Entry, Located, TimeOf
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.queue.timesearch import find_batch

log = logger("store.batchconsumequeue")

_ENTRY: Final = struct.Struct(BATCH_ENTRY_FORMAT)
_NOT_COMPACTED: Final = -1
_COUNT_MAX: Final = 32767
_RECOVER_FILES: Final = 3  # Older ones were whole when they became full.


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """Where a batch of messages lies, and which queue offsets [base_offset, end_offset) it holds."""

    physical_offset: int
    size: int
    tags_code: int
    store_ms: int
    base_offset: int
    count: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def valid(self) -> bool:
        return self.physical_offset >= 0 and self.size > 0 and self.base_offset >= 0 and self.count > 0


class BatchConsumeQueue:
    """One writer; readers on any thread.

    Invariants:
      B1  physical offsets grow from entry to entry, and each base is not below the end before it.
      B2  min_offset <= max_offset, and both only grow unless the log is truncated.
      B3  `max_physical_offset` is where the last batch *begins* (in a plain queue: where it ends).
    """

    is_batch: ClassVar[Literal[True]] = True

    def __init__(self, files: FileQueue) -> None:
        assert files.file_size % BATCH_ENTRY_SIZE == 0, "an entry is never split"
        self._files = files
        self._first_live = 0  # Number of the entry that holds min_offset.
        self.min_offset = 0
        self.max_offset = 0
        self.max_physical_offset = -1

    @property
    def newest(self) -> int:
        """Where its newest batch begins (B3)."""
        return self.max_physical_offset

    @property
    def folder(self) -> Path:
        return self._files.folder

    @property
    def file_count(self) -> int:
        return len(self._files.files)

    def has_room(self, count: int) -> bool:
        """Whether this many entries can be added without making a file."""
        files = self._files.files
        return bool(files) and files[-1].wrote + count * BATCH_ENTRY_SIZE <= files[-1].size

    def load(self) -> None:
        """Find the files; `recover` must follow before anything is appended."""
        self._files.load()

    def append(self, entry: BatchEntry) -> bool:
        """Add an entry; False if the queue has it already, which is how a log is dispatched twice."""
        assert entry.valid and entry.count <= _COUNT_MAX, entry
        if entry.physical_offset <= self.max_physical_offset:
            return False
        if entry.base_offset < self.max_offset:
            log.error("a batch comes too late for its place", extra=fields(entry=entry, end=self.max_offset))
            return False
        files = self._files.files
        full = not files or files[-1].wrote == files[-1].size
        file = self._files.add(files[-1].end if files else 0) if full else files[-1]
        file.append(
            _ENTRY.pack(
                entry.physical_offset,
                entry.size,
                entry.tags_code,
                entry.store_ms,
                entry.base_offset,
                entry.count,
                _NOT_COMPACTED,
                0,
            )
        )
        if self.min_offset == self.max_offset:  # Nothing was alive before it.
            self.min_offset, self._first_live = entry.base_offset, self._end - 1
        self.max_physical_offset, self.max_offset = entry.physical_offset, entry.end_offset
        return True

    def find(self, queue_offset: int) -> BatchEntry | None:
        """The entry whose batch holds this message, if it is alive."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        entry = self._read(self._number_of(queue_offset))
        return entry if entry is not None and entry.base_offset <= queue_offset < entry.end_offset else None

    def locate(self, queue_offset: int) -> Located | None:
        batch = self.find(queue_offset)
        return None if batch is None else Located(batch.physical_offset, batch.size, batch.store_ms)

    def listed(self, first: int, count: int) -> list[Entry]:
        return [
            (batch.physical_offset, batch.size, batch.tags_code)
            for batch in self.entries(first, count)
            if batch.base_offset < first + count
        ]

    def first_address(self) -> int | None:
        """Batches have no extension."""
        return None

    last_address = first_address

    def entries(self, queue_offset: int, limit: int) -> list[BatchEntry]:
        """Entries from the one that holds this message on, or from the next one after it."""
        number = self._number_of(max(queue_offset, self.min_offset))
        found: list[BatchEntry] = []
        for at in range(max(number, self._first_live), self._end):
            if len(found) == limit:
                break
            entry = self._read(at)
            if entry is not None and entry.end_offset > queue_offset:
                found.append(entry)
        return found

    def recover(self, trusted_end: int = 0) -> None:
        """Find the end again: the first entry that cannot be ends the queue, and all behind it goes.

        Entries of records below `trusted_end` are said to be whole. Raises CorruptStore if they are
        not, or an older file is not what it must be: then all is to be made anew.
        """
        files = self._files.files
        self._check_old(files[:-_RECOVER_FILES])
        last: BatchEntry | None = None
        for file in files[-_RECOVER_FILES:]:
            last, end = _last_valid(file, last)
            if end < file.size:
                goes_on = file is not files[-1] or any(file.view[end : end + BATCH_ENTRY_SIZE])
                if goes_on and (last.physical_offset if last is not None else 0) < trusted_end:
                    raise CorruptStore(f"{file.path}: the entry at byte {end} points nowhere")
                self._cut(file, end)
                break
        self._settle(self._read(self._end - 1))
        self._first_live = self._files.begin // BATCH_ENTRY_SIZE
        first = self._read(self._first_live)
        self.min_offset = first.base_offset if first is not None else self.max_offset

    def _check_old(self, files: Sequence[MappedFile]) -> None:
        """The ends of files that were full long ago: a look at two entries of each costs little."""
        before = -1
        for file in files:
            for number in (file.offset // BATCH_ENTRY_SIZE, file.end // BATCH_ENTRY_SIZE - 1):
                entry = self._read(number)
                if entry is None or not entry.valid or entry.physical_offset < before:
                    raise CorruptStore(f"{file.path}: entries that point nowhere")
                before = entry.physical_offset

    def truncate_to(self, physical_offset: int) -> None:
        """The log was cut at `physical_offset`: forget entries of what is gone."""
        number = self._first_where(lambda entry: entry.physical_offset >= physical_offset)
        cut = self._read(number)
        if cut is None:
            return
        before = self._read(number - 1)
        file = self._files.find(number * BATCH_ENTRY_SIZE)
        assert file is not None
        self._cut(file, number * BATCH_ENTRY_SIZE - file.offset)
        self._settle(before)
        if before is None:  # The next message gets the offset of the first one that was cut.
            self.max_offset = cut.base_offset
        self.min_offset = min(self.min_offset, self.max_offset)
        self._first_live = min(self._first_live, number)

    def correct_min(self, min_physical_offset: int) -> None:
        """The log begins at `min_physical_offset` now: entries of what lies before it are dead."""
        number = self._first_where(lambda entry: entry.physical_offset >= min_physical_offset)
        entry = self._read(number)
        self._first_live = number
        self.min_offset = entry.base_offset if entry is not None else self.max_offset

    def delete_before(self, min_physical_offset: int) -> int:
        """Delete leading files all of whose entries are dead, never the last one; how many."""
        deleted = 0
        while len(self._files.files) > 1:
            file = self._files.files[0]
            last = self._read(file.end // BATCH_ENTRY_SIZE - 1)
            if last is None or last.physical_offset >= min_physical_offset:
                break
            file.delete()  # First: if the disk says no, the file is still ours, and is deleted later.
            self._files.drop_first(file)
            deleted += 1
        if deleted:
            self.correct_min(min_physical_offset)
        return deleted

    def offset_by_time(self, timestamp_ms: int, boundary: Boundary, log_min: int, time_of: TimeOf) -> int:  # noqa: ARG002
        """Batches know their store times, so no record is read."""
        number = find_batch(self._first_live, self._end, timestamp_ms, boundary, self._store_ms)
        entry = self._read(number) if number >= 0 else None
        found = entry.base_offset if entry is not None else -1
        return max(self.min_offset, min(self.max_offset, found))

    def flush(self, least_pages: int = 0) -> None:
        """Sync files with at least this many pages begun since their last sync; 0 means any byte."""
        for file in self._files.files:
            if file.flushed < file.committed and file.dirty_pages() >= least_pages:
                file.flush()

    def close(self) -> None:
        self._files.close()

    def destroy(self) -> None:
        self._files.destroy()
        self._first_live = self.min_offset = self.max_offset = 0
        self.max_physical_offset = -1

    @property
    def _end(self) -> int:
        """Number of the entry that comes next."""
        files = self._files.files
        return (files[-1].offset + files[-1].wrote) // BATCH_ENTRY_SIZE if files else 0

    def _read(self, number: int) -> BatchEntry | None:
        file = self._files.find(number * BATCH_ENTRY_SIZE)
        at = number * BATCH_ENTRY_SIZE - file.offset if file is not None else 0
        if file is None or at + BATCH_ENTRY_SIZE > file.committed:
            return None
        try:
            return BatchEntry(*_ENTRY.unpack_from(file.view, at)[:6])
        except CorruptStore:  # Deleted between finding and opening: its records have left the log.
            return None

    def _store_ms(self, number: int) -> int:
        entry = self._read(number)
        return entry.store_ms if entry is not None else -1

    def _number_of(self, queue_offset: int) -> int:
        """The last entry that does not begin behind this message."""
        return self._first_where(lambda entry: entry.base_offset > queue_offset) - 1

    def _first_where(self, reached: Callable[[BatchEntry], bool]) -> int:
        """Number of the first entry for which it holds, or of the next to come."""
        low, end = self._files.begin // BATCH_ENTRY_SIZE, self._end
        while low < end:
            middle = (low + end) // 2
            entry = self._read(middle)
            if entry is not None and reached(entry):
                end = middle
            else:  # Deleted meanwhile counts as smaller than all that is there.
                low = middle + 1
        return low

    def _settle(self, last: BatchEntry | None) -> None:
        self.max_offset = last.end_offset if last is not None else 0
        self.max_physical_offset = last.physical_offset if last is not None else -1

    def _cut(self, file: MappedFile, at: int) -> None:
        """Keep `at` bytes of this file and nothing behind them. It stays, even if empty: numbers go on."""
        self._files.truncate(file.offset + max(at, 1))
        if file.wrote > at:
            file.cut(at)


def _last_valid(file: MappedFile, before: BatchEntry | None) -> tuple[BatchEntry | None, int]:
    """The last entry of a file that can follow `before` and its predecessors, and where it ends."""
    view, at = file.view, 0
    while at < file.size:
        entry = BatchEntry(*_ENTRY.unpack_from(view, at)[:6])
        if not entry.valid:
            break
        if before is not None and (
            entry.physical_offset <= before.physical_offset or entry.base_offset < before.end_offset
        ):
            break  # Left over from before a truncation (B1).
        before, at = entry, at + BATCH_ENTRY_SIZE
    return before, at
