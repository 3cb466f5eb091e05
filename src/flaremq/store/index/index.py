"""The folder index/: which records have a key, over all files, newest last.

A file is named by the local time of its making. It fills up, a follow-up begins with the end values
of its predecessor, and the full one is synced in the background; only then the checkpoint's index
time moves. After a crash whatever is newer than that time is thrown away and made again from the log.
"""

from __future__ import annotations

import struct
import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

from flaremq.base.clock import Clock
from flaremq.base.logs import fields, logger
from flaremq.model.columns import Bytes, Fact
from flaremq.model.layout import INDEX_HEADER_SIZE, PROPERTIES_SIZE_MAX
from flaremq.store.files.disk import Disk
from flaremq.store.files.mappedfile import MappedFile, OpenFiles
from flaremq.store.index import indexfile
from flaremq.store.index.indexfile import IndexHeader, KeyQuery, entry_at, key_hash

log = logger("store.index")

Task: TypeAlias = Callable[[], None]

_INT: Final = struct.Struct(">i")
_NAME_DIGITS: Final = 17
_NAME_FORMAT: Final = "%Y%m%d%H%M%S%f"  # Cut to its first digits: %f has six, the name three of them.
_KEYS_OF_ROW_MAX: Final = PROPERTIES_SIZE_MAX // 2 + 1  # Single letters with blanks between them, and an id.
_OPEN_MAX: Final = 16  # Maps of old files; a query maps what it needs.


@dataclass(frozen=True, slots=True)
class IndexShape:
    """maxHashSlotNum and maxIndexNum: they fix where everything lies in a file."""

    slots: int
    entries_max: int

    @property
    def file_size(self) -> int:
        return indexfile.file_size(self.slots, self.entries_max)


class Index:
    """One writer; queries, flushes and deletions from any thread.

    Invariants:
      I1  records below `next_offset` are indexed, or gone for good: they are never put again.
      I2  only the newest file is not full.
      I3  `sealed` hears an end time only after the sync of the file that it ends.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        folder: Path,
        shape: IndexShape,
        *,
        sealed: Callable[[int], None],
        later: Callable[[Task], None] = lambda task: task(),
    ) -> None:
        """`later` runs a task in the background: a full file takes long to sync."""
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._shape = shape
        self._sealed = sealed
        self._later = later
        self._files: tuple[MappedFile, ...] = ()
        self._old_files = OpenFiles(_OPEN_MAX)
        self._lock = threading.Lock()  # Of the tuple and of taking views of its members.
        self._disk_lock = threading.Lock()  # Of syncing, replacing and deleting files.
        self._next_offset = self._next_key = 0

    def load(self, *, clean: bool) -> list[str]:
        """Find the files; names of those that were removed, as damaged or newer than a damaged one.

        After a clean stop the last record is indexed with all its keys, after any other perhaps not.
        """
        names = [name for name in self._disk.names(self._folder) if self._is_ours(name)]
        files = [self._old_file(self._folder / name) for name in names]
        good = next((i for i, file in enumerate(files) if not self._is_sound(file)), len(files))
        self._remove(files[good:], "damaged, or newer than a damaged one")
        # Names go back in the night that summer time ends; what the files cover does not.
        files = sorted(files[:good], key=lambda file: _header(file).end_offset)
        if files:
            files[-1] = MappedFile(self._disk, files[-1].path, 0, self._shape.file_size)
        for file in files:
            _note_written(file, self._shape)
        self._files = tuple(files)
        self._begin_at(
            self.end_offset + (1 if clean and any(_header(f).next_entry > 1 for f in files) else 0)
        )
        return names[good:]

    @property
    def file_count(self) -> int:
        return len(self._files)

    @property
    def end_offset(self) -> int:
        """Where the newest indexed record begins; 0 without any."""
        with self._lock:
            # A follow-up file has it too, but a crash may have come before its header was written.
            return max((_header(file).end_offset for file in self._files[-2:]), default=0)

    @property
    def newest(self) -> tuple[int, int]:
        """Store time and place of the newest indexed record; zeros without any."""
        with self._lock:
            headers = [_header(file) for file in self._files[-2:]]  # Two, for the same reason.
        return max(((h.end_ms, h.end_offset) for h in headers), default=(0, 0), key=lambda pair: pair[1])

    @property
    def full_until_ms(self) -> int:
        """Store time at which the newest full file ends; 0 without any."""
        with self._lock:
            headers = [_header(file) for file in reversed(self._files)]
        return next((h.end_ms for h in headers if h.next_entry >= self._shape.entries_max), 0)

    @property
    def next_offset(self) -> int:
        """Records below it need not come again."""
        return self._next_offset

    def cut(self, physical_offset: int) -> bool:
        """The log was truncated: records from `offset` on are other ones than before.

        In the file that is being filled, the entries of the lost ones are taken back. A full file that has
        any is removed, and so are all after it: what was synced is not written to again. True: what they
        held is to be put again, from `next_offset` on.
        """
        with self._lock:
            files = self._files
            ends = [(h.end_offset, h.next_entry) for h in map(_header, files)]
            full = (end >= physical_offset and number >= self._shape.entries_max for end, number in ends)
            keep = next((i for i, gone in enumerate(full) if gone), len(files))
            self._files = files[:keep]
        self._remove(files[keep:], "the log was cut")
        if keep < len(files):
            self._begin_at(self.end_offset)
        if physical_offset < self._next_offset:
            self._begin_at(physical_offset)
        self._take_back(physical_offset)
        return keep < len(files)

    def _take_back(self, physical_offset: int) -> None:
        """From the newest file, which may be half full."""
        with self._lock:
            newest = self._files[-1] if self._files else None
            if newest is None or _header(newest).end_offset < physical_offset:
                return
            left = indexfile.cut(newest.view, self._shape.slots, physical_offset)
            if left:
                newest.cut(entry_at(self._shape.slots, left + 1))
                return
            self._files = self._files[:-1]
        self._remove([newest], "the log was cut")

    def discard_unsafe(self, index_time_ms: int) -> list[str]:
        """After a crash: remove files that were not synced since they became full, and all newer ones."""
        with self._lock:
            files = self._files
            safe = 0
            while safe < len(files) and self._is_safe(files[safe], index_time_ms):
                safe += 1
                if _header(files[safe - 1]).end_ms == index_time_ms:
                    break  # The one that the time speaks of; others may have filled up in the same instant.
            self._files = files[:safe]
        self._remove(files[safe:], "newer than the checkpoint")
        self._begin_at(self.end_offset)
        return [file.path.name for file in files[safe:]]

    def _is_safe(self, file: MappedFile, index_time_ms: int) -> bool:
        """Only a full file is ever sealed. One that is not full may be torn, header and all."""
        header = _header(file)
        # A header may be torn, too: then its first times are those of a file that was just made.
        full = header.next_entry >= self._shape.entries_max and header.begin_ms > 0
        return full and 0 < header.end_ms <= index_time_ms

    def put_many(self, facts: array[int], count: int, log_view: Bytes, first: int = 0) -> None:
        """Put the keys of rows [first, count). Rows come in the order of the log.

        DiskFull comes before a byte is written, or between two files; the same rows may then be
        put again, and go on where they stopped.
        """
        if first == count:
            return
        keys_max = _keys_max(facts, first, count)
        begin = (self._resume_row(facts, first, count), self._next_key) if keys_max else (count, 0)
        while begin[0] < count:
            file = self._files[-1] if self._files else self._add()
            entry, slots = _next_entry(file), self._shape.slots
            file.reserve(entry_at(slots, min(entry + keys_max, self._shape.entries_max)))
            begin = indexfile.put_many(file.view, slots, facts, count, begin, log_view, self._next_offset)
            _note_written(file, self._shape)
            if begin[0] < count:
                self._next_offset, self._next_key = facts[begin[0] * Fact.WIDTH + Fact.OFFSET], begin[1]
                self._roll(file)
        last_offset = facts[(count - 1) * Fact.WIDTH + Fact.OFFSET]
        self._begin_at(max(self._next_offset, last_offset + 1))

    def has_room(self, facts: array[int], count: int) -> bool:
        """Whether the keys of this many rows fit without making a file."""
        free = self._shape.entries_max - _next_entry(self._files[-1]) if self._files else 0
        return count * _KEYS_OF_ROW_MAX <= free or _keys_max(facts, 0, count) <= free

    def query(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> list[int]:
        """Offsets of records that may have the key, newest first, each once."""
        hashed = key_hash(topic.encode("utf-8", "replace"), key.encode("utf-8", "replace"))
        wanted, found = KeyQuery(hashed, limit, begin_ms, end_ms), dict[int, None]()
        for path in [file.path for file in reversed(self._files)]:
            view = self._view(path)
            if view is None:
                break  # Deleted meanwhile, and so are all older ones.
            header = IndexHeader.read(view)
            if wanted.covers(header):
                found |= dict.fromkeys(indexfile.query(view, self._shape.slots, wanted))
            if header.begin_ms < begin_ms or len(found) >= limit:
                break
        return list(found)[:limit]

    def delete_before(self, min_physical_offset: int) -> int:
        """Delete leading files whose records are all gone from the log, never the newest; how many."""
        with self._lock:
            files, count = self._files, 0
            while count < len(files) - 1 and _header(files[count]).end_offset < min_physical_offset:
                count += 1
            self._files = files[count:]
        self._remove(files[:count], "its records have left the log")
        return count

    def flush(self) -> None:
        """Sync what was written. The index time stays: it speaks of full files only."""
        with self._disk_lock:
            for file in self._files:
                file.flush()

    def close(self) -> None:
        with self._disk_lock, self._lock:
            files, self._files = self._files, ()
            for file in files:
                file.close()

    def destroy(self) -> None:
        with self._lock:
            files, self._files = self._files, ()
        self._remove(files, "the index is destroyed")
        self._disk.delete_folder(self._folder)
        self._begin_at(0)

    def _begin_at(self, physical_offset: int) -> None:
        self._next_offset, self._next_key = physical_offset, 0

    def _resume_row(self, facts: array[int], first: int, count: int) -> int:
        """The row to begin with: after a DiskFull the one whose keys were put in part."""
        if not self._next_key:
            return first
        offsets = facts[Fact.OFFSET + first * Fact.WIDTH : count * Fact.WIDTH : Fact.WIDTH]
        if self._next_offset in offsets:
            return first + offsets.index(self._next_offset)
        self._next_key = 0
        return first

    def _view(self, path: Path) -> memoryview | None:
        """A view that outlives a deletion, or None if that came first."""
        with self._lock:
            return next((file.view for file in self._files if file.path == path), None)

    def _add(self) -> MappedFile:
        """Add a file. Its space is reserved, because slots are written in random order."""
        path = self._new_path()
        self._disk.create(path, self._shape.file_size)
        file = MappedFile(self._disk, path, 0, self._shape.file_size)
        try:
            file.reserve(entry_at(self._shape.slots, 1))
        except BaseException:
            file.delete()
            raise
        with self._lock:
            self._files = (*self._files, file)
        return file

    def _roll(self, full: MappedFile) -> None:
        end = _header(full)
        file = self._add()
        IndexHeader(end.end_ms, end.end_ms, end.end_offset, end.end_offset).write(file.view)
        self._later(lambda: self._seal(full))

    def _seal(self, full: MappedFile) -> None:
        """Sync a full file, say so, and keep it without a descriptor from now on."""
        with self._disk_lock:
            with self._lock:
                if full not in self._files:
                    return
            full.flush()
            self._sealed(_header(full).end_ms)
            resting = self._old_file(full.path)
            resting.set_positions(full.committed)
            with self._lock:
                self._files = tuple(resting if file is full else file for file in self._files)
                full.close()

    def _remove(self, files: list[MappedFile] | tuple[MappedFile, ...], why: str) -> None:
        with self._disk_lock:
            for file in files:
                log.info("an index file is deleted", extra=fields(file=file.path, why=why))
                with self._lock:
                    file.close()
                self._disk.delete(file.path)

    def _old_file(self, path: Path) -> MappedFile:
        return MappedFile(self._disk, path, 0, self._shape.file_size, self._old_files)

    def _is_ours(self, name: str) -> bool:
        if _made(name) is None:
            log.warning("not an index file, left alone", extra=fields(file=self._folder / name))
            return False
        return True

    def _is_sound(self, file: MappedFile) -> bool:
        if self._disk.size(file.path) != self._shape.file_size:
            return False
        return _header(file).sane(self._shape.slots, self._shape.entries_max)

    def _new_path(self) -> Path:
        """Named by now; by the next millisecond if that name is taken or would come before another."""
        made = datetime.fromtimestamp(self._clock.now_ms() // 1000) + timedelta(
            milliseconds=self._clock.now_ms() % 1000
        )
        names = (file.path.name for file in self._files)
        last = max((made for made in map(_made, names) if made is not None), default=None)
        if last is not None and made <= last:
            made = last + timedelta(milliseconds=1)
        while self._disk.exists(path := self._folder / made.strftime(_NAME_FORMAT)[:_NAME_DIGITS]):
            made += timedelta(milliseconds=1)
        return path


def _made(name: str) -> datetime | None:
    if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    parts = [int(name[at:end]) for at, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14))]
    try:
        return datetime(*parts) + timedelta(milliseconds=int(name[14:]))  # type: ignore[arg-type]
    except ValueError:
        return None


def _header(file: MappedFile) -> IndexHeader:
    return IndexHeader.read(file.view)


def _next_entry(file: MappedFile) -> int:
    """The same as in the header, which takes longer to read whole; asked for every batch."""
    (number,) = _INT.unpack_from(file.view, INDEX_HEADER_SIZE - 4)
    return max(1, int(number))


def _note_written(file: MappedFile, shape: IndexShape) -> None:
    """For `flush` to know: slots change only when an entry is added, so the end of the entries tells both."""
    file.wrote = file.committed = entry_at(shape.slots, _next_entry(file))


def _keys_max(facts: array[int], first: int, count: int) -> int:
    """More keys than this the rows do not have: two of KEYS have a blank between them."""
    begin, end, step = first * Fact.WIDTH, count * Fact.WIDTH, Fact.WIDTH
    keys_bytes = sum(facts[begin + Fact.KEYS_SIZE : end : step])
    unique_bytes = sum(facts[begin + Fact.UNIQUE_KEY_SIZE : end : step])
    if keys_bytes <= 0 and unique_bytes <= 0:
        return 0
    rows = count - first
    return rows + (max(0, keys_bytes) + rows) // 2
