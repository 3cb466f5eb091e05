"""Whether a store is what it says: every record of the log, every queue entry, every index file.

The log is walked once, from its first byte to its last, with the CRC of every body. Where it is
damaged the walk says so and goes on at the next whole record. Each record is looked up in its queue on
the way; then come the queue entries that no record has claimed, and the index. Nothing is held in
memory but counters, so a store may be of any size. Beside a broker one moment of the store is judged
(`store.moment`); what is written later is not looked at.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from flaremq.base.errors import CorruptStore
from flaremq.base.text import count
from flaremq.model import layout
from flaremq.model.columns import Check, Fact, Odd, facts_table
from flaremq.model.layout import index_slots
from flaremq.model.names import SCHEDULE_TOPIC
from flaremq.model.record import walk
from flaremq.model.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flaremq.store.index import indexfile
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.offline.moment import moment_of, wrong_links_now
from flaremq.store.offline.queuefiles import Entry, QueueFiles
from flaremq.store.offline.report import VerifyReport, why
from flaremq.store.offline.scan import LogFile, Walked, agrees

_CHECK: Final = Check.BODY_CRC | Check.OFFSET
_CHUNK: Final = 1 << 20
_ALL: Final = 1 << 62
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_HEAD: Final = struct.Struct(">ii")


@dataclass(slots=True)
class _Tally:
    """What the log has said of one queue."""

    claimed: int = 0
    missing: int = 0
    missing_first: int = 0
    """Physical offset of the first record without an entry, as long as none behind it has one."""
    replaced: int = 0


class Verifier:
    def __init__(
        self,
        folder: OfflineStore,
        progress: Callable[[int], None] = lambda _bytes: None,
        *,
        deleted: Mapping[str, int] | None = None,
    ) -> None:
        """`deleted`: topics whose records below an offset belong to no queue (deletedTopics.json)."""
        self._folder = folder
        self._progress = progress
        self._tallies: dict[tuple[str, int], _Tally] = {}
        self._without_queue: Counter[str] = Counter()
        self._deleted = deleted or {}
        self._deleted_count = 0
        # In this order: every entry that is counted here has its record below the end of the moment.
        self._ends = _queue_ends(folder) if folder.is_live else {}
        self._moment = moment_of(folder.scan)
        committed = folder.committed_index()
        self._committed = _ALL if committed is None else committed
        self._log_files: list[LogFile] = folder.scan.log_files()
        self._log_begin = self._log_end = self._log_files[0].offset if self._log_files else 0
        self.report = VerifyReport()

    def run(self, *, with_index: bool = True) -> VerifyReport:
        if self._moment is not None:
            self.report.notes.append(
                "a broker has this store open: judged is what it had finished when this check began, up to "
                f"offset {self._moment.log_end}"
            )
        must_be_there = self._moment is not None or not self._folder.has_abort
        self._files()
        self._judge_missing(must_be_there=must_be_there)
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
            if self._moment is not None and file.offset >= self._moment.log_end:
                return
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
        bound = None if self._moment is None else self._moment.log_end
        limit = len(view) if bound is None else min(len(view), bound - file.offset)
        scan, at = self._folder.scan, 0
        while at < limit:
            for walked in scan.file_records(file, at, bound):
                self._skipped(file, at, walked.begin - file.offset)
                self._records(walked)
                row = (walked.count - 1) * Fact.WIDTH
                self._log_end = walked.facts[row + Fact.OFFSET] + walked.facts[row + Fact.SIZE]
                at = self._log_end - file.offset
                self._progress(self._log_end - self._log_begin)
            if at >= limit or self._is_end(view, at, is_last):
                return
            if self._is_whole_now(view, at, file.offset):
                continue
            reason, next_at = why(view, at, file.offset), scan.next_record(file, at + 1)
            if next_at is None and self._may_be_growing(is_last):
                return
            end = limit if next_at is None else next_at
            self.report.wrong(
                f"{file.path}: byte {at} (offset {file.offset + at}): {reason}; "
                f"{end - at} bytes cannot be read, up to "
                + ("the end of the file" if end == len(view) else f"offset {file.offset + end}")
            )
            if next_at is None:
                return
            at = next_at

    def _skipped(self, file: LogFile, at: int, next_at: int) -> None:
        """An entry of a ledger may be whole around a damaged record: the walk goes on behind it."""
        if next_at > at:
            self.report.wrong(
                f"{file.path}: byte {at} (offset {file.offset + at}): the entry there holds no sound record; "
                f"{next_at - at} bytes cannot be read"
            )

    def _is_whole_now(self, view: memoryview, at: int, base: int) -> bool:
        """Whether a broker has only now finished the record that begins here."""

        def look() -> bool:
            return bool(walk(view, at, len(view), base, facts_table(1), _CHECK)[0])

        return self._moment is not None and self._moment.settled(look, bool)

    def _is_end(self, view: memoryview, at: int, is_last: bool) -> bool:
        """Whether the file rightly ends here: full, with a blank record, or not written to any further."""
        if len(view) - at < layout.BLANK_SIZE:
            return True
        size, magic = _HEAD.unpack_from(view, at)
        if magic == layout.BLANK_MAGIC or size == layout.DLEDGER_BLANK_MAGIC:
            return True
        return is_last and size == 0 and magic == 0 and not any(view[at : at + _CHUNK])

    def _may_be_growing(self, is_last: bool) -> bool:
        """After a crash there may be half a record at the end of the log: recovery cuts it off."""
        if is_last and self._moment is None and self._folder.has_abort:
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
            self._look_up(walked, row)

    def _own_crc(self, walked: Walked, row: int) -> None:
        """The CRC of the whole record, where it has one."""
        record = walked.record(row)
        size = walked.facts[row * Fact.WIDTH + Fact.PROPERTIES_SIZE]
        tail = bytes(record[-layout.CRC_TAIL_SIZE :])
        if size < layout.CRC_TAIL_SIZE or not tail.startswith(layout.CRC_PROPERTY + b"\x01"):
            return
        found, _, _ = walk(record, 0, len(record), 0, facts_table(1), Check.RECORD_CRC)
        if not found:
            offset = walked.facts[row * Fact.WIDTH + Fact.OFFSET]
            self.report.wrong(f"the record at offset {offset}: its {layout.CRC_PROPERTY.decode()} is wrong")

    def _look_up(self, walked: Walked, row: int) -> None:
        facts, f = walked.facts, row * Fact.WIDTH
        at = facts[f + Fact.TOPIC_AT]
        raw_topic = bytes(walked.view[at : at + facts[f + Fact.TOPIC_SIZE]])
        topic, queue_id = raw_topic.decode("utf-8", "surrogateescape"), facts[f + Fact.QUEUE_ID]
        offset, queue_offset = facts[f + Fact.OFFSET], facts[f + Fact.QUEUE_OFFSET]
        if offset < self._deleted.get(topic, 0):
            self._deleted_count += 1
            return
        entry = self._entry((topic, queue_id, queue_offset), offset, facts[f + Fact.SIZE])
        if entry is None and walked.head and walked.entry(row)[0] > self._committed:
            return  # The group may still give it up.
        if self._folder.queues.get(topic, queue_id) is None:
            self._without_queue[topic] += 1
            return
        tally = self._tallies.setdefault((topic, queue_id), _Tally())
        if entry is None:
            if self._is_gone(offset):
                return
            tally.missing_first = offset if not tally.missing else tally.missing_first
            tally.missing += 1
            return
        if entry.is_filler or entry.physical_offset > offset:
            tally.replaced += 1  # The topic was deleted and made anew, or its entries were lost once.
            return
        self._compare(entry, facts[f + Fact.SIZE], offset, (topic, queue_id, queue_offset))
        if entry.physical_offset == offset:
            tally.claimed += self._moment is None or queue_offset < self._ends.get((topic, queue_id), 0)
            self._tags(entry, facts[f + Fact.TAGS_CODE], raw_topic, (topic, queue_id, offset))
            if tally.missing:
                self._hole(topic, queue_id, tally)

    def _entry(self, place: tuple[str, int, int], physical_offset: int, size: int) -> Entry | None:
        """The entry of a record. If a broker runs, waits a little: it may be writing the entry just now."""
        topic, queue_id, queue_offset = place

        def look() -> Entry | None:
            queue = self._folder.queues.get(topic, queue_id)
            found = None if queue is None else queue.entry(queue_offset)
            if found is None and self._moment is not None:
                self._folder.queues.forget(topic, queue_id)
            return found

        def is_fine(found: Entry | None) -> bool:
            return found is not None and (found.physical_offset, found.size) == (physical_offset, size)

        return look() if self._moment is None else self._moment.settled(look, is_fine)

    def _is_gone(self, physical_offset: int) -> bool:
        """Whether the broker has deleted this part of the log meanwhile, and then its entries."""
        files = self._folder.scan.log_files() if self._moment is not None else []
        return bool(files) and physical_offset < files[0].offset

    def _compare(self, entry: Entry, size: int, physical_offset: int, place: tuple[str, int, int]) -> None:
        if entry.physical_offset != physical_offset or entry.size != size:
            topic, queue_id, queue_offset = place
            self.report.wrong(
                f"queue {topic}-{queue_id}, entry {queue_offset}: says {entry.size} bytes at "
                f"{entry.physical_offset}, but its record has {size} bytes at {physical_offset}"
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
            f"queue {topic}-{queue_id}: no entry for {count(tally.missing, 'record')} from offset "
            f"{tally.missing_first} on, but for later ones"
        )
        tally.missing = 0

    def _judge_missing(self, *, must_be_there: bool) -> None:
        for (topic, queue_id), tally in sorted(self._tallies.items()):
            if tally.missing:
                sentence = (
                    f"queue {topic}-{queue_id}: no entry for the newest {count(tally.missing, 'record')}, "
                    f"from offset {tally.missing_first} on"
                )
                if must_be_there:
                    self.report.wrong(sentence)
                else:
                    self.report.notes.append(f"{sentence}: the broker has not made it yet")
            if tally.replaced:
                self.report.notes.append(
                    f"queue {topic}-{queue_id}: {count(tally.replaced, 'record')} older than the queue, "
                    "which was made anew"
                )
        if self._deleted_count:
            self.report.notes.append(
                f"{count(self._deleted_count, 'record')} of deleted topics, without an entry"
            )
        for topic, number in sorted(self._without_queue.items()):
            self.report.notes.append(
                f"topic {topic}: {count(number, 'record')}, but no queue; was it deleted?"
            )

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
        end = queue.end if self._moment is None else self._ends.get((topic, queue_id), begin)
        claimed = self._tallies.get((topic, queue_id), _Tally()).claimed
        self.report.entries += max(0, end - begin)
        if end - begin != claimed:
            for sentence in self._strangers(topic, queue_id, queue, range(begin, end)):
                self.report.wrong(sentence)

    def _strangers(self, topic: str, queue_id: int, queue: QueueFiles, offsets: range) -> Iterator[str]:
        """Entries that lead to no record of this queue."""
        for offset, entry in queue.entries(offsets.start, offsets.stop):
            where = f"queue {topic}-{queue_id}, entry {offset}"
            if entry is None:
                yield f"{where}: empty, but others follow it"
            elif entry.is_filler:
                continue
            elif entry.physical_offset >= self._log_end:
                yield f"{where}: leads to {entry.physical_offset}, but the log ends at {self._log_end}"
            elif not self._is_record(entry, (topic, queue_id, offset)) and not self._is_gone(
                entry.physical_offset
            ):
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
                    f"{folder / name}: skipped: {len(view)} bytes do not tell how many slots it has"
                )
                continue
            for sentence in self._index_faults(view, slots):
                self.report.wrong(f"{folder / name}: {sentence}")
            self.report.index_entries += indexfile.IndexHeader.read(view).next_entry - 1

    def _index_faults(self, view: memoryview, slots: int) -> list[str]:
        if self._moment is None:
            return indexfile.check(view, slots, 4 * slots)
        links = self._moment.settled(lambda: wrong_links_now(view, slots), lambda found: not found)
        return [
            f"{'slot' if link.is_slot else 'entry'} {link.number} leads to entry {link.there}, but the one "
            f"before it in its chain is {link.expected}"
            for link in links
        ]


def _queue_ends(folder: OfflineStore) -> dict[tuple[str, int], int]:
    found = {}
    for topic, queue_id in folder.queues.names():
        queue = folder.queues.get(topic, queue_id)
        if queue is not None:
            found[topic, queue_id] = queue.end
            folder.queues.forget(topic, queue_id)  # It grows meanwhile.
    return found
