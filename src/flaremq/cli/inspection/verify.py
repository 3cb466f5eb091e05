"""Whether a store is what it says: every record of the log, every queue entry, every index file.

The log is walked once, from its first byte to its last, with the CRC of every body. Where it is
damaged the walk says so and goes on at the next whole record. Each record is looked up in its queue on
the way; then come the queue entries that no record has claimed, and the index. Nothing is held in
memory but counters, so a store may be of any size.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from flaremq.base.errors import CorruptStore
from flaremq.cli.inspection.facts import StoreFolder, index_slots
from flaremq.cli.inspection.queues import Entry, QueueFiles
from flaremq.model import layout
from flaremq.model.columns import Check, Fact, Odd, Stop, facts_table
from flaremq.model.names import SCHEDULE_TOPIC
from flaremq.model.record import walk
from flaremq.model.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flaremq.store import indexfile
from flaremq.store.scan import LogFile, Walked, agrees

_CHECK: Final = Check.BODY_CRC | Check.OFFSET
_ROWS: Final = 1024
_CHUNK: Final = 1 << 20
_MAGICS: Final = (struct.pack(">i", layout.MAGIC_V1), struct.pack(">i", layout.MAGIC_V2))
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_PROBLEMS_MAX: Final = 1000
_HEAD: Final = struct.Struct(">ii")


@dataclass(slots=True)
class Report:
    """What was found."""

    records: int = 0
    bytes: int = 0
    entries: int = 0
    index_entries: int = 0
    problems: list[str] = field(default_factory=list)
    """What is wrong, and where; the first thousand."""
    problems_count: int = 0
    notes: list[str] = field(default_factory=list)
    """What is odd but may be so."""

    def wrong(self, sentence: str) -> None:
        self.problems_count += 1
        if len(self.problems) < _PROBLEMS_MAX:
            self.problems.append(sentence)

    @property
    def is_sound(self) -> bool:
        return self.problems_count == 0


@dataclass(slots=True)
class _Tally:
    """What the log has said of one queue."""

    claimed: int = 0
    missing: int = 0
    missing_first: int = 0
    """Physical offset of the first record without an entry, as long as none behind it has one."""
    replaced: int = 0


class Verifier:
    def __init__(self, folder: StoreFolder, progress: Callable[[int], None] = lambda _bytes: None) -> None:
        self._folder = folder
        self._progress = progress
        self._tallies: dict[tuple[str, int], _Tally] = {}
        self._without_queue: Counter[str] = Counter()
        self._log_files: list[LogFile] = folder.scan.log_files()
        self._log_begin = self._log_end = self._log_files[0].offset if self._log_files else 0
        self.report = Report()

    def run(self, *, with_index: bool = True) -> Report:
        # Asked before: what a broker appends meanwhile is not ours to judge.
        live, clean = self._folder.is_live, not self._folder.has_abort
        self._files()
        if live:
            self.report.notes.append("a broker is writing here: what it adds meanwhile is not looked at")
        self._judge_missing(must_be_there=clean and not live)
        for topic, queue_id in self._folder.queues.names():
            self._queue(topic, queue_id)
        if with_index:
            self._index()
        self._folder.checkpoint(self.report.notes)
        return self.report

    # The log.

    def _files(self) -> None:
        files, expected = self._log_files, self._log_begin
        for n, file in enumerate(files):
            if file.offset != expected:
                self.report.wrong(
                    f"{file.path}: begins at {file.offset}, but the file before it ends at {expected}"
                )
            if file.size != files[0].size:
                self.report.wrong(f"{file.path}: {file.size} bytes long, but the first has {files[0].size}")
            expected = file.offset + file.size
            self._file(file, is_last=self._is_last(n))
            self._progress(expected - self._log_begin)

    def _is_last(self, n: int) -> bool:
        """Whether nothing was written behind this file: what follows is a spare one at most."""
        later = self._log_files[n + 1 : n + 2]
        return all(next(self._folder.scan.file_records(file), None) is None for file in later)

    def _file(self, file: LogFile, *, is_last: bool) -> None:
        try:
            view = self._folder.disk.look(file.path)
        except CorruptStore:
            self.report.notes.append(f"{file.path}: gone meanwhile")
            return
        scan, at = self._folder.scan, 0
        while at < len(view):
            for walked in scan.file_records(file, at):
                self._records(walked)
                row = (walked.count - 1) * Fact.WIDTH
                self._log_end = walked.facts[row + Fact.OFFSET] + walked.facts[row + Fact.SIZE]
                at = self._log_end - file.offset
                self._progress(self._log_end - self._log_begin)
            if self._is_end(view, at, is_last):
                return
            reason, next_at = _why(view, at, file.offset), _next_record(view, at + 1, file.offset)
            if next_at is None and self._may_be_growing(is_last):
                return
            end = len(view) if next_at is None else next_at
            self.report.wrong(
                f"{file.path}: byte {at} (offset {file.offset + at}): {reason}; "
                f"{end - at} bytes cannot be read, up to "
                + ("the end of the file" if next_at is None else f"offset {file.offset + end}")
            )
            if next_at is None:
                return
            at = next_at

    def _is_end(self, view: memoryview, at: int, is_last: bool) -> bool:
        """Whether the file rightly ends here: full, with a blank record, or not written to any further."""
        if len(view) - at < layout.BLANK_SIZE:
            return True
        size, magic = _HEAD.unpack_from(view, at)
        if magic == layout.BLANK_MAGIC or size == layout.DLEDGER_BLANK_MAGIC:
            return True
        return is_last and size == 0 and magic == 0 and not any(view[at : at + _CHUNK])

    def _may_be_growing(self, is_last: bool) -> bool:
        """At the end of a live log there may be half a record, or after a crash: recovery cuts it off."""
        if not is_last:
            return False
        if self._folder.is_live:
            return True
        if self._folder.has_abort:
            self.report.notes.append(
                f"the log ends in half a record at offset {self._log_end}: the next start cuts it off"
            )
            return True
        return False

    def _records(self, walked: Walked) -> None:
        self.report.records += walked.count
        for row in range(walked.count):
            f = row * Fact.WIDTH
            facts = walked.facts
            self.report.bytes += facts[f + Fact.SIZE]
            self._own_crc(walked, row)
            kind = facts[f + Fact.SYS_FLAG] & TRANSACTION_MASK
            if kind in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK) or facts[f + Fact.ODD] & Odd.INNER_BATCH:
                continue  # Of these there are no plain entries.
            self._look_up(walked, f)

    def _own_crc(self, walked: Walked, row: int) -> None:
        """The CRC of the whole record, where it has one."""
        record = walked.record(row)
        size = walked.facts[row * Fact.WIDTH + Fact.PROPERTIES_SIZE]
        tail = bytes(record[-layout.CRC_TAIL_SIZE :])
        if size < layout.CRC_TAIL_SIZE or not tail.startswith(layout.CRC_PROPERTY + b"\x01"):
            return
        count, _, _ = walk(record, 0, len(record), 0, facts_table(1), Check.RECORD_CRC)
        if not count:
            offset = walked.facts[row * Fact.WIDTH + Fact.OFFSET]
            self.report.wrong(f"the record at offset {offset}: its {layout.CRC_PROPERTY.decode()} is wrong")

    def _look_up(self, walked: Walked, f: int) -> None:
        facts = walked.facts
        at = facts[f + Fact.TOPIC_AT]
        raw_topic = bytes(walked.view[at : at + facts[f + Fact.TOPIC_SIZE]])
        topic, queue_id = raw_topic.decode("utf-8", "surrogateescape"), facts[f + Fact.QUEUE_ID]
        queue = self._folder.queues.get(topic, queue_id)
        if queue is None:
            self._without_queue[topic] += 1
            return
        tally = self._tallies.setdefault((topic, queue_id), _Tally())
        entry = queue.entry(facts[f + Fact.QUEUE_OFFSET])
        offset = facts[f + Fact.OFFSET]
        if entry is None:
            tally.missing_first = offset if not tally.missing else tally.missing_first
            tally.missing += 1
            return
        if entry.is_filler or entry.physical_offset > offset:
            tally.replaced += 1  # The topic was deleted and made anew, or its entries were lost once.
            return
        self._compare(entry, facts[f + Fact.SIZE], offset, (topic, queue_id, facts[f + Fact.QUEUE_OFFSET]))
        if entry.physical_offset == offset:
            tally.claimed += 1
            self._tags(entry, facts[f + Fact.TAGS_CODE], raw_topic, (topic, queue_id, offset))
            if tally.missing:
                self._hole(topic, queue_id, tally)

    def _compare(self, entry: Entry, size: int, offset: int, place: tuple[str, int, int]) -> None:
        if entry.physical_offset != offset or entry.size != size:
            topic, queue_id, queue_offset = place
            self.report.wrong(
                f"queue {topic}-{queue_id}, entry {queue_offset}: says {entry.size} bytes at "
                f"{entry.physical_offset}, but its record has {size} bytes at {offset}"
            )

    def _tags(self, entry: Entry, code: int, topic: bytes, place: tuple[str, int, int]) -> None:
        # A delayed message has its time there; an address below all hashes leads to the extension.
        if topic == _SCHEDULE_TOPIC or entry.tags_code <= layout.EXT_ADDRESS_MAX or entry.tags_code == code:
            return
        self.report.wrong(
            f"queue {place[0]}-{place[1]}: the entry of the record at {place[2]} has tags code "
            f"{entry.tags_code}, but the record's is {code}: filters miss it"
        )

    def _hole(self, topic: str, queue_id: int, tally: _Tally) -> None:
        self.report.wrong(
            f"queue {topic}-{queue_id}: {tally.missing} records from offset {tally.missing_first} on have no "
            "entry, but later ones have"
        )
        tally.missing = 0

    def _judge_missing(self, *, must_be_there: bool) -> None:
        for (topic, queue_id), tally in sorted(self._tallies.items()):
            if tally.missing:
                sentence = (
                    f"queue {topic}-{queue_id}: the last {tally.missing} records, from offset "
                    f"{tally.missing_first} on, have no entry"
                )
                if must_be_there:
                    self.report.wrong(sentence)
                else:
                    self.report.notes.append(f"{sentence} yet: the broker makes them")
            if tally.replaced:
                self.report.notes.append(
                    f"queue {topic}-{queue_id}: {tally.replaced} records are older than the queue, which was "
                    "made anew"
                )
        for topic, count in sorted(self._without_queue.items()):
            self.report.notes.append(f"topic {topic}: {count} records, but no queue; was it deleted?")

    # Queues and index.

    def _queue(self, topic: str, queue_id: int) -> None:
        queue = self._folder.queues.get(topic, queue_id)
        if queue is None:
            return
        before: int | None = None
        for file in queue.files:
            if before is not None and file.first != before:
                self.report.wrong(f"{file.path}: begins with entry {file.first}, but {before} is next")
            before = file.end
        begin = queue.first_of(self._log_begin)
        claimed = self._tallies.get((topic, queue_id), _Tally()).claimed
        self.report.entries += queue.end - begin
        if queue.end - begin != claimed:
            for sentence in self._strangers(topic, queue_id, queue, begin):
                self.report.wrong(sentence)

    def _strangers(self, topic: str, queue_id: int, queue: QueueFiles, begin: int) -> Iterator[str]:
        """Entries that lead to no record of this queue."""
        for offset, entry in queue.entries(begin, queue.end):
            where = f"queue {topic}-{queue_id}, entry {offset}"
            if entry is None:
                yield f"{where}: empty, but others follow it"
            elif entry.is_filler:
                continue
            elif entry.physical_offset >= self._log_end:
                if not self._folder.is_live:
                    yield f"{where}: leads to {entry.physical_offset}, but the log ends at {self._log_end}"
            elif not self._is_record(entry, (topic, queue_id, offset)):
                yield f"{where}: at {entry.physical_offset} begins no record of {entry.size} bytes for it"

    def _is_record(self, entry: Entry, place: tuple[str, int, int]) -> bool:
        """Whether it leads to a record that says the same of itself."""
        topic, queue_id, queue_offset = place
        end = entry.physical_offset + entry.size
        for file in self._log_files:
            if file.offset <= entry.physical_offset < file.offset + file.size:
                for walked in self._folder.scan.file_records(file, entry.physical_offset - file.offset, end):
                    same_size = walked.facts[Fact.SIZE] == entry.size
                    key = os.fsencode(topic), queue_id
                    return same_size and agrees(walked.view, walked.facts, key, queue_offset)
        return False

    def _index(self) -> None:
        folder = self._folder.root / "index"
        for name in self._folder.disk.names(folder):
            try:
                view = self._folder.disk.look(folder / name)
            except CorruptStore:
                self.report.wrong(f"{folder / name}: empty")
                continue
            slots = index_slots(len(view))
            if slots is None:
                self.report.notes.append(
                    f"{folder / name}: of {len(view)} bytes it cannot be told how many are slots; skipped"
                )
                continue
            for sentence in indexfile.check(view, slots, 4 * slots):
                if self._folder.is_live:
                    break  # It changes while we look.
                self.report.wrong(f"{folder / name}: {sentence}")
            self.report.index_entries += indexfile.Header.read(view).next_entry - 1


def _why(view: memoryview, at: int, base: int) -> str:
    """What is wrong with what should be a record here."""
    facts = facts_table(1)
    size, magic = _HEAD.unpack_from(view, at)
    if size == 0 and magic == 0:
        return "zeros, but the log goes on behind them"
    if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
        return f"magic {magic & 0xFFFF_FFFF:#010x} is of no record"
    if size < layout.FIXED_SIZE or size > len(view) - at:
        return f"a record of {size} bytes cannot be"
    count, _, stop = walk(view, at, len(view), base, facts, Check.NOTHING)
    if not count or stop == Stop.HALF:
        return "the lengths within the record do not add up to its size"
    count, _, _ = walk(view, at, len(view), base, facts, Check.OFFSET)
    if not count:
        (stored,) = struct.unpack_from(">q", view, at + layout.PHYSICAL_OFFSET_AT)
        return f"the record says that it lies at {stored}"
    return "the CRC of the body is wrong"


def _next_record(view: memoryview, at: int, base: int) -> int | None:
    """Where the next whole record begins: its magic is looked for, and its own offset must agree."""
    facts = facts_table(1)
    overlap = layout.BLANK_SIZE
    for chunk_at in range(at, len(view), _CHUNK):
        chunk = bytes(view[chunk_at : chunk_at + _CHUNK + overlap])
        found = sorted(place for magic in _MAGICS for place in _places(chunk, magic))
        for place in found:
            candidate = chunk_at + place - layout.MAGIC_AT
            if candidate < at:
                continue
            if walk(view, candidate, len(view), base, facts, _CHECK)[0]:
                return candidate
    return None


def _places(chunk: bytes, word: bytes) -> Iterator[int]:
    place = chunk.find(word)
    while place >= 0:
        yield place
        place = chunk.find(word, place + 1)
