"""A read-only walk of a store folder: no lock, no writing, nothing deleted, safe while a broker runs.

For Spark and for tools. Where a live store's log ends is not written anywhere, so a walk believes a
record only if it is whole, and ends at the first that is not; a queue entry only if the record it
points at says the same of itself. `offline.moment` explains how far that can be
trusted while a broker writes. Folders of a DLedger group are known by the magic of their entries; a store
that RocketMQ has divided has plain files first, and the ledger goes on where they end.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flaremq.base.errors import CorruptStore
from flaremq.model import layout
from flaremq.model.columns import Check, Fact, Odd, Stop, facts_table
from flaremq.model.properties import find_property
from flaremq.model.record import leap, walk, walk_entries
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import NAME_DIGITS
from flaremq.store.files.lock import holder
from flaremq.store.queue.entries import Key, gather, valid

_ENTRY = struct.Struct(layout.ENTRY_FORMAT)
_BODY_SIZE_AT = layout.DLEDGER_HEADER_SIZE - 4
_MAGIC = struct.pack(">i", layout.MAGIC_V1)[:3]  # The two kinds of records differ in the fourth byte.
_ROWS = 1024
_CUT_ROWS = 8192
_SEARCHED = 1 << 20
_LONG_MAX = (1 << 63) - 1
_CHECK = Check.BODY_CRC | Check.OFFSET


class LogFile(NamedTuple):
    """A file of the log: its first byte's offset in the log, and its length."""

    offset: int
    size: int
    path: Path


@dataclass(frozen=True, slots=True)
class Walked:
    """Some records of one file: rows of Fact columns, and the map that their places refer to."""

    view: memoryview
    facts: array[int]
    count: int
    head: int = 0
    """Bytes before each record that belong to it: the head of its entry in a ledger."""

    @property
    def begin(self) -> int:
        """Offset at which the first of them begins, with its head."""
        return self.facts[Fact.OFFSET] - self.head

    def entry(self, row: int) -> tuple[int, int]:
        """Index and term of the entry around a record; zeros in a plain log."""
        if not self.head:
            return 0, 0
        f = row * Fact.WIDTH
        end = self.facts[f + Fact.PROPERTIES_AT] + self.facts[f + Fact.PROPERTIES_SIZE]
        at = end - self.facts[f + Fact.SIZE] - self.head
        index, term = struct.unpack_from(">qq", self.view, at + 8)
        return index, term

    def record(self, row: int) -> memoryview:
        f = row * Fact.WIDTH
        end = self.facts[f + Fact.PROPERTIES_AT] + self.facts[f + Fact.PROPERTIES_SIZE]
        return self.view[end - self.facts[f + Fact.SIZE] : end]


class QueueEntry(NamedTuple):
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


def ledger_data(root: Path) -> list[Path]:
    """Folders of entries in a store of DLedger, one for each member that has kept its log here."""
    return sorted(path for path in root.glob("dledger-*/data") if path.is_dir())


def plain_files(disk: Disk, folders: Sequence[Path]) -> list[Path]:
    """Files of plain logs in these folders, but not those that were only made ahead."""
    return [
        path
        for folder in folders
        for path in _numbered(disk, folder)
        if disk.size(path) and _is_plain(disk.look(path))
    ]


class StoreScan:
    """The files of a store folder, and the records in them. Log folders elsewhere are given by name."""

    def __init__(self, root: Path, log_folders: Sequence[Path] = (), disk: Disk | None = None) -> None:
        self._root = root
        self.disk = self._disk = disk or Disk()
        self._log_folders = tuple(log_folders) or (root / "commitlog", *ledger_data(root))

    @property
    def is_live(self) -> bool:
        """Whether a process has the store open, a broker of ours or of Java's."""
        return holder(self._root) is not None

    def log_files(self) -> list[LogFile]:
        """Files of the log, the oldest first. Each can be walked alone: no record leaves its file."""
        files = [
            LogFile(int(path.name), self._disk.size(path), path)
            for folder in self._log_folders
            for path in _numbered(self._disk, folder)
        ]
        return sorted(file for file in files if file.size)

    def records(self, begin: int = 0, end: int | None = None, rows: int = _ROWS) -> Iterator[Walked]:
        """Whole records that begin in [begin, end), at most `rows` at a time; `begin` must be where a record
        begins."""
        files = self.log_files()
        at, before = max(begin, files[0].offset) if files else 0, (-1, -1)
        for file in files:
            if file.offset + file.size <= at:
                continue
            if file.offset > at or (end is not None and file.offset >= end):
                return  # A gap, or the end: nothing behind it can be trusted to follow.
            for walked in self.file_records(file, at - file.offset, end, rows):
                if walked.head:  # Plain records before a divide say nothing about what follows.
                    first, last = walked.entry(0), walked.entry(walked.count - 1)
                    if first[0] <= before[0] or first[1] < before[1]:
                        return  # Entries that a group has given up: their bytes stay.
                    before = last
                yield walked
                at = _end_of(walked)
            if not self._is_blank(file, at - file.offset):
                return
            at = file.offset + file.size

    def file_records(
        self, file: LogFile, at: int = 0, end: int | None = None, rows: int | Callable[[], int] = _ROWS
    ) -> Iterator[Walked]:
        """Whole records of one file from position `at` on, as far as they begin before offset `end`,
        at most `rows` at a time, which may change on the way. Each result is valid until the next."""
        try:
            view = self._disk.look(file.path)
        except CorruptStore:
            return  # Deleted by the broker meanwhile.
        if _is_dledger(view):
            yield from _dledger_records(view, file, at, end, rows if isinstance(rows, int) else rows())
            return
        limit = len(view) if end is None else max(at, min(len(view), end - file.offset))
        facts, stop, count, most = facts_table(0), int(Stop.LIMIT), 0, 0
        while stop == Stop.LIMIT and count == most:
            most = rows if isinstance(rows, int) else rows()
            facts = facts if len(facts) == most * Fact.WIDTH else facts_table(most)
            count, at, stop = walk(view, at, limit, file.offset, facts, _CHECK)
            if count:
                yield Walked(view, facts, count)
        if at < limit < len(view):  # The last record may reach beyond the end.
            facts = facts_table(1)
            if walk(view, at, len(view), file.offset, facts, _CHECK)[0]:
                yield Walked(view, facts, 1)

    def next_record(self, file: LogFile, at: int) -> int | None:
        """Position of the first record, or of its entry, that lies at `at` or behind it; None if none does.

        Searched byte by byte, for a place that no other record leads to: behind damage. Only a record that
        says of itself that it lies just there is taken for one.
        """
        view = self._disk.look(file.path)
        while at + layout.FIXED_SIZE <= len(view):
            data_at = self._disk.data_from(file.path, at)
            place = None if data_at is None else _find(view, _MAGIC, max(at + layout.MAGIC_AT, data_at))
            if place is None:
                return None
            at = place - layout.MAGIC_AT
            if walk(view, at, len(view), file.offset, facts_table(1), _CHECK)[0]:
                return at - (layout.DLEDGER_HEADER_SIZE if _is_dledger(view) else 0)
            at += 1
        return None

    def ends(self, file: LogFile, at: int) -> bool:
        """Whether the file says at this position that it is full."""
        return self._is_blank(file, at)

    def bytes_at(self, begin: int, end: int) -> bytes:
        """The bytes of the log from `begin` to `end`, both in one file; fewer if it does not reach so far."""
        for file in self.log_files():
            if file.offset <= begin < file.offset + file.size:
                return bytes(self._disk.look(file.path)[begin - file.offset : end - file.offset])
        return b""

    def cuts(self, file: LogFile, size: int) -> list[int]:
        """Offsets at which records (or their entries) begin, about `size` bytes apart, the first one
        at the start of the file: between two of them a file can be walked alone."""
        view = self._disk.look(file.path)
        if _is_dledger(view):
            return self._dledger_cuts(file, size)
        found = [file.offset]
        last, at = len(view) - size // 2, leap(view, 0, len(view), file.offset, size)
        while 0 <= at < last:
            found.append(file.offset + at)
            at = leap(view, at, len(view), file.offset, size)
        return found

    def _dledger_cuts(self, file: LogFile, size: int) -> list[int]:
        found = [file.offset]
        for walked in self.file_records(file, rows=_CUT_ROWS, end=file.offset + file.size - size // 2):
            for f in range(0, walked.count * Fact.WIDTH, Fact.WIDTH):
                if walked.facts[f + Fact.OFFSET] >= found[-1] + size:
                    found.append(walked.facts[f + Fact.OFFSET] - layout.DLEDGER_HEADER_SIZE)
        return found

    def _is_blank(self, file: LogFile, at: int) -> bool:
        """Whether the file says here that the log goes on in the next one."""
        try:
            view = self._disk.look(file.path)
        except CorruptStore:
            return True
        if at + layout.BLANK_SIZE > len(view):
            return at >= len(view)
        magics = struct.unpack_from(">ii", view, at)
        return bool(magics[1] == layout.BLANK_MAGIC or magics[0] == layout.DLEDGER_BLANK_MAGIC)

    def queues(self) -> list[tuple[str, int]]:
        """Topics and queue numbers that have a queue on disk."""
        root = self._root / "consumequeue"
        return [
            (topic, int(name))
            for topic in self._disk.folders(root)
            for name in self._disk.folders(root / topic)
            if name.isascii() and name.isdigit()
        ]

    def queue_entries(self, topic: str, queue_id: int, begin: int = 0) -> Iterator[QueueEntry]:
        """Entries of a queue from a queue offset on, unchecked; fillers are left out."""
        for first, view in self._entry_views(topic, queue_id, begin):
            for i in range(max(0, begin - first), len(view) // layout.ENTRY_SIZE):
                offset, size, code = _ENTRY.unpack_from(view, i * layout.ENTRY_SIZE)
                if size != layout.FILLER_SIZE:
                    yield QueueEntry(first + i, offset, size, code)

    def entries_backwards(self, topic: str, queue_id: int) -> Iterator[QueueEntry]:
        """Entries of a queue, the last one first, unchecked; fillers are left out."""
        for file in reversed(self._queue_files(topic, queue_id)):
            first, view = next(self._entry_views(topic, queue_id, file.offset // layout.ENTRY_SIZE), (0, b""))
            for i in reversed(range(len(view) // layout.ENTRY_SIZE)):
                offset, size, code = _ENTRY.unpack_from(view, i * layout.ENTRY_SIZE)
                if size != layout.FILLER_SIZE:
                    yield QueueEntry(first + i, offset, size, code)

    def leads_to_record(self, entry: QueueEntry, topic: str, queue_id: int, files: list[LogFile]) -> bool:
        """Whether an entry leads to a whole record that says the same of itself."""
        found = self._view_of(entry.physical_offset, {}, files)
        if found is None:
            return False
        file, view = found
        at, facts = entry.physical_offset - file.offset, facts_table(1)
        count, end, _ = walk(view, at, min(at + entry.size, len(view)), file.offset, facts, _CHECK)
        is_whole = count == 1 and end == at + entry.size
        return is_whole and agrees(view, facts, (os.fsencode(topic), queue_id), entry.queue_offset)

    def index_paths(self) -> list[Path]:
        """The files of the index, the oldest first."""
        folder = self._root / "index"
        return [folder / name for name in self._disk.names(folder) if name.isascii() and name.isdigit()]

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first queue offset that has an entry, and the one behind the last."""
        end = max(
            (first + len(view) // layout.ENTRY_SIZE for first, view in self._entry_views(topic, queue_id)),
            default=0,
        )
        entry = next(self.queue_entries(topic, queue_id), None)
        return (end if entry is None else entry.queue_offset), end

    def _queue_files(self, topic: str, queue_id: int) -> list[LogFile]:
        """Files of a queue. Their offsets count bytes of the queue, as their names do."""
        folder = self._root / "consumequeue" / topic / str(queue_id)
        names = [name for name in self._disk.names(folder) if name.isascii() and name.isdigit()]
        return [LogFile(int(name), self._disk.size(folder / name), folder / name) for name in names]

    def _entry_views(self, topic: str, queue_id: int, begin: int = 0) -> Iterator[tuple[int, memoryview]]:
        """The sound entries of each file, with the queue offset of the first, from the file of `begin` on."""
        for file in self._queue_files(topic, queue_id):
            if file.offset + file.size <= begin * layout.ENTRY_SIZE:
                continue
            try:
                view = self._disk.look(file.path)
            except CorruptStore:
                continue
            count, _ = valid(view, len(view) // layout.ENTRY_SIZE, _LONG_MAX)
            yield file.offset // layout.ENTRY_SIZE, view[: count * layout.ENTRY_SIZE]
            if count * layout.ENTRY_SIZE < len(view):
                return

    def queue_pieces(self, topic: str, queue_id: int, begin: int, end: int, rows: int) -> Iterator[bytes]:
        """Records of a queue's entries [begin, end), back to back, at most `rows` in a piece, unchecked.

        Those whose part of the log is gone are left out.
        """
        files = self.log_files()
        views: dict[int, tuple[LogFile, memoryview]] = {}
        for first, view in self._entry_views(topic, queue_id, begin):
            at, stop = max(0, begin - first), min(end - first, len(view) // layout.ENTRY_SIZE)
            while at < stop:
                upto = min(at + rows, stop)
                yield from self._pieces(view[at * layout.ENTRY_SIZE : upto * layout.ENTRY_SIZE], files, views)
                at = upto

    def _pieces(
        self, entries: memoryview, files: list[LogFile], views: dict[int, tuple[LogFile, memoryview]]
    ) -> Iterator[bytes]:
        """The records of some entries, a piece for each file of the log."""
        chosen = array("q")
        for offset, size, _ in _ENTRY.iter_unpack(entries):
            if size != layout.FILLER_SIZE:
                chosen.extend((offset, size))
        first, count = 0, len(chosen) // 2
        while first < count:
            found = self._view_of(chosen[2 * first], views, files)
            if found is None:
                first += 1
                continue
            file, view = found
            last = first
            while last < count and chosen[2 * last] + chosen[2 * last + 1] <= file.offset + len(view):
                last += 1
            if last > first:
                yield gather(view, file.offset, chosen, first, last)
            first = max(last, first + 1)

    def queue_records(self, topic: str, queue_id: int, begin: int = 0) -> Iterator[memoryview]:
        """Records of a queue, as far as entry and record agree with each other."""
        views: dict[int, tuple[LogFile, memoryview]] = {}
        facts = facts_table(1)
        files = self.log_files()
        for entry in self.queue_entries(topic, queue_id, begin):
            found = self._view_of(entry.physical_offset, views, files)
            if found is None:
                continue  # Its part of the log is gone.
            file, view = found
            at = entry.physical_offset - file.offset
            end = min(at + entry.size, len(view))
            count, _, _ = walk(view, at, end, file.offset, facts, _CHECK)
            if not count or not agrees(view, facts, (os.fsencode(topic), queue_id), entry.queue_offset):
                return
            yield view[at:end]

    def _view_of(
        self, physical_offset: int, views: dict[int, tuple[LogFile, memoryview]], files: list[LogFile]
    ) -> tuple[LogFile, memoryview] | None:
        for file, view in views.values():
            if file.offset <= physical_offset < file.offset + file.size:
                return file, view
        for file in (
            files if not files or physical_offset < files[-1].offset + files[-1].size else self.log_files()
        ):
            if file.offset <= physical_offset < file.offset + file.size:
                views.clear()  # Queues move forward: one file at a time is enough.
                try:
                    views[file.offset] = file, self._disk.look(file.path)
                except CorruptStore:
                    return None  # Deleted by the broker meanwhile.
                return views[file.offset]
        return None


def agrees(view: memoryview, facts: array[int], key: Key, queue_offset: int) -> bool:
    """Whether a record says that it lies at this place of this queue, or that it lies in this light queue."""
    at = facts[Fact.TOPIC_AT]
    if view[at : at + facts[Fact.TOPIC_SIZE]] == key[0]:
        return facts[Fact.QUEUE_ID] == key[1] and facts[Fact.QUEUE_OFFSET] == queue_offset
    if not facts[Fact.ODD] & Odd.MULTI_DISPATCH:
        return False
    at = facts[Fact.PROPERTIES_AT]
    names = find_property(bytes(view[at : at + facts[Fact.PROPERTIES_SIZE]]), b"INNER_MULTI_DISPATCH")
    return names is not None and key[0] in names.split(b",")


def _numbered(disk: Disk, folder: Path) -> list[Path]:
    """Files in a folder that have the name of a log file."""
    names = disk.names(folder)
    return [folder / name for name in names if len(name) == NAME_DIGITS and name.isascii() and name.isdigit()]


def _find(view: memoryview, needle: bytes, at: int) -> int | None:
    """Searched in copies, and for its first byte first: a file that was made ahead is mostly zeros, and no
    other search passes over them at the speed of memory."""
    while at < len(view):
        chunk = bytes(view[at : at + _SEARCHED])
        if needle[:1] in chunk and (found := chunk.find(needle)) >= 0:
            return at + found
        at += _SEARCHED - len(needle) + 1
    return None


def _end_of(walked: Walked) -> int:
    last = (walked.count - 1) * Fact.WIDTH
    return walked.facts[last + Fact.OFFSET] + walked.facts[last + Fact.SIZE]


def _is_dledger(view: memoryview) -> bool:
    if len(view) < layout.DLEDGER_HEADER_SIZE:
        return False
    magic, second = struct.unpack_from(">ii", view, 0)
    # An old record of 1 byte cannot be: so a leading 1 is an entry, unless a message magic follows it.
    return magic == layout.DLEDGER_MAGIC and second not in (
        layout.MAGIC_V1,
        layout.MAGIC_V2,
        layout.BLANK_MAGIC,
    )


def _is_plain(view: memoryview) -> bool:
    """Whether a file was written to, and not with entries."""
    return any(view[: layout.BLANK_SIZE]) and not _is_dledger(view)


def _dledger_records(
    view: memoryview, file: LogFile, at: int, end: int | None, rows: int
) -> Iterator[Walked]:
    """Records in entries; offsets point at the record. An entry whose record is damaged is passed over."""
    limit = len(view) if end is None else max(at, min(len(view), end - file.offset))
    facts, stop, count = facts_table(rows), int(Stop.LIMIT), rows
    while stop == Stop.HALF or (stop == Stop.LIMIT and count == len(facts) // Fact.WIDTH):
        if stop == Stop.HALF:
            at += layout.DLEDGER_HEADER_SIZE + struct.unpack_from(">i", view, at + _BODY_SIZE_AT)[0]
        count, at, stop = walk_entries(view, at, max(at, limit), file.offset, facts, _CHECK)
        if count:
            yield Walked(view, facts, count, layout.DLEDGER_HEADER_SIZE)
    if at + layout.DLEDGER_HEADER_SIZE < limit < len(view):  # The last entry may reach beyond the end.
        facts = facts_table(1)
        if walk_entries(view, at, len(view), file.offset, facts, _CHECK)[0]:
            yield Walked(view, facts, 1, layout.DLEDGER_HEADER_SIZE)
