"""A store of the other kind: plain commit log files into a ledger of DLedger, or back.

    records of the source > [relocate] > log of the target > queues, index > proof

The problem
-----------
A ledger wraps each record in an entry of 48 bytes more. So every record lies elsewhere afterwards, and
everything that says where a record lies must follow: the record itself, queues, index, the timer log, and
committed messages, which name the prepared message that they came from.

How it works
------------
Records are copied in their order; each copy says where it lies now. All that a consumer sees of a message
(its ids, keys, properties, times, queue offset) stays the same; only the id that is made of its physical
offset cannot. Queues and index are made from the new log, as recovery makes them. What others hold on to by
offset is noted on the way (`carry.Relocations`): prepared messages and waiting timers, and nothing else.

The source is only read, and locked meanwhile. Each file of the target is on the disk before the note says so
(`conversion.json`): a conversion that was interrupted goes on at the last file. The note goes last, when
every record has been compared with its copy and found in its queue (`proof`).

An example
----------
Records of 159 and 200 bytes, in a commit log and in a ledger:

    commit log   0 record          159 record              359
    ledger       0 entry, 48 record, 207 entry, 255 record, 455
"""

from __future__ import annotations

import shutil
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final

from flaremq.base.errors import CorruptStore, DiskFull, InvalidParameter, RecordTooLarge
from flaremq.base.text import size
from flaremq.dledger.carry import Relocations, carry
from flaremq.dledger.ledger.checkpoint import ledger_folder
from flaremq.dledger.ledgerfiles import LedgerWriter
from flaremq.dledger.logwriter import LogWriter
from flaremq.dledger.note import ConversionNote, ConversionProgress
from flaremq.dledger.proof import Proof
from flaremq.dledger.rebuild import rebuild_queues
from flaremq.dledger.relocate import linked_rows
from flaremq.model import layout
from flaremq.model._record_py import crc_tail
from flaremq.model.columns import Fact
from flaremq.model.names import TRANS_HALF_TOPIC
from flaremq.model.timers import WHEEL_TOPIC
from flaremq.protocol.configfiles import deleted_topics
from flaremq.store.files.disk import Disk
from flaremq.store.files.lock import StoreLock
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.offline.scan import LogFile, Walked, ledger_data, plain_files
from flaremq.store.settings import StoreSettings

_LINKED: Final = (TRANS_HALF_TOPIC.encode(), WHEEL_TOPIC)
_ROWS: Final = 4096
_LONG: Final = struct.Struct(">q")
_PREPARED_BEFORE_BODY: Final = 12
_SPARE: Final = 1.1
"""A target needs so much more than the log, for queues and index."""


class StoreKind(Enum):
    PLAIN = "plain"
    DLEDGER = "dledger"


@dataclass(slots=True)
class Converted:
    """What a conversion did."""

    target: Path
    kind: StoreKind
    records: int = 0
    bytes: int = 0
    """Of the records, without what is around them."""
    notes: list[str] = field(default_factory=list)


def converted_document(done: Converted, took_s: float) -> dict[str, object]:
    """The result as JSON."""
    return {
        "target": str(done.target),
        "kind": done.kind.value,
        "records": done.records,
        "bytes": done.bytes,
        "took_s": round(took_s, 3),
        "notes": done.notes,
    }


def kind_of(root: Path) -> StoreKind:
    """The kind in which its log ends; before that, a divided store has files of the other kind."""
    return StoreKind.DLEDGER if ledger_data(root) else StoreKind.PLAIN


def is_divided(root: Path) -> bool:
    """Whether RocketMQ has begun a ledger behind the plain files that were there."""
    return bool(ledger_data(root)) and bool(plain_files(Disk(), [root / "commitlog"]))


class Conversion:
    """One store into another folder. Safe to be done again after it was interrupted, at any point."""

    def __init__(
        self,
        source: Path,
        target: Path,
        kind: StoreKind,
        settings: StoreSettings,
        *,
        self_id: str = "n0",
        progress: Callable[[str, int], None] = lambda _what, _bytes: None,
    ) -> None:
        """`settings`: those of the source's broker, as far as they say how queues are made. `progress`
        hears of each part of the work, and of the bytes of the log that it has dealt with."""
        self._disk = Disk()
        self._source = OfflineStore(source)
        self._target = target
        self._kind = kind
        self._settings = settings
        self._self_id = self_id
        self._tell = progress
        self._links = Relocations()
        self._moved = array("q", bytes(8 * _ROWS))
        self._result = Converted(target, kind)
        self._last_index = -1
        """Of the source's entries, if it is a ledger."""
        self._deleted: dict[str, int] = {}
        self._pending = sorted((end, topic) for topic, end in deleted_topics(source).items())

    def run(self) -> Converted:
        """Raises before anything is written if the conversion cannot be done; otherwise the target holds
        what the source holds, and that was checked."""
        self._check_source()
        lock = StoreLock(self._source.root, self._disk)
        lock.acquire()
        try:
            note = ConversionNote(self._target, self._identity())
            self._convert(note)
            Proof(self._source, self._target, self._tell).run()
            note.finish()
        finally:
            lock.release()
        return self._result

    # Whether it can be done.

    def _check_source(self) -> None:
        root = self._source.root
        if self._source.is_live:
            raise InvalidParameter(
                f"{root} is open: stop its broker first, a conversion reads what stands still"
            )
        ledgers = ledger_data(root)
        if len(ledgers) > 1:
            names = ", ".join(path.parent.name for path in ledgers)
            raise InvalidParameter(
                f"{root} has the ledgers of several members ({names}): move away all but one"
            )
        if kind_of(root) is self._kind and not is_divided(root):
            raise InvalidParameter(f"{root} is a store of this kind already: {self._kind.value}")
        files = self._source.scan.log_files()
        if not files:
            raise InvalidParameter(f"{root} has no log files: there is nothing to convert")
        self._file_size = files[0].size
        self._check_target(sum(file.size for file in files))

    def _check_target(self, needed: int) -> None:
        target, root = self._target.resolve(), self._source.root.resolve()
        if target == root or root in target.parents:
            raise InvalidParameter(f"{self._target} lies in the store itself: name a folder elsewhere")
        if ConversionNote.is_there(self._target):
            return  # A part of it is there already.
        if self._target.exists() and any(self._target.iterdir()):
            raise InvalidParameter(f"{self._target} is not empty: name a new folder")
        folder = next(path for path in (self._target, *self._target.absolute().parents) if path.exists())
        free = shutil.disk_usage(folder).free
        if free < needed * _SPARE:
            raise DiskFull(
                f"{folder} has {size(free)} free, and a copy of this store needs about "
                f"{size(int(needed * _SPARE))}: free some space, or name a folder on another disk"
            )

    def _identity(self) -> dict[str, object]:
        """What must be the same for a conversion to go on."""
        files = self._source.scan.log_files()
        return {
            "source": str(self._source.root.resolve()),
            "sourceBegin": files[0].offset,
            "sourceSize": sum(file.size for file in files),
            "to": self._kind.value,
            "selfId": self._self_id if self._kind is StoreKind.DLEDGER else "",
            "fileSize": self._file_size,
        }

    # The log.

    def _convert(self, note: ConversionNote) -> None:
        at = note.progress
        self._links.take(note.links())
        self._deleted = dict(at.deleted)
        self._pending = [each for each in self._pending if each[1] not in self._deleted]
        self._result.records, self._result.bytes = at.records, at.bytes
        writer = self._writer(at)
        try:
            end = self._copy(writer, note, at.read_to)
            self._check_end(end)
            writer.synced()
            if isinstance(writer, LedgerWriter):
                writer.finish()
        finally:
            writer.close()
        self._deleted |= {topic: writer.end for _, topic in self._pending}
        left = carry(self._source.root, self._target, self._links, self._deleted)
        if left:
            self._result.notes.append(f"left behind: {', '.join(left)}")
        self._tell("making queues and index", 0)
        settings = replace(
            self._settings,
            root=self._target,
            commitlog_paths=(),
            commitlog_file_size=self._file_size,
            message_size_max=min(
                self._settings.message_size_max, self._file_size // 2
            ),  # Nothing is sent here.
        )
        rebuild_queues(self._disk, settings, self._self_id if self._kind is StoreKind.DLEDGER else None)

    def _writer(self, at: ConversionProgress) -> LogWriter:
        if self._kind is StoreKind.PLAIN:
            return LogWriter(self._disk, self._target / "commitlog", self._file_size, at.end)
        folder = ledger_folder(self._target, self._self_id)
        return LedgerWriter(self._disk, folder, self._file_size, at.end, at.records)

    def _copy(self, writer: LogWriter, note: ConversionNote, begin: int) -> int:
        """Copy all records from `begin` on; where the source ends."""
        first_byte, end = self._source.scan.log_files()[0].offset, begin
        for walked in self._source.scan.records(begin, rows=_ROWS):
            row = 0
            while row < walked.count:
                done = writer.put(walked.view, walked.facts, row, walked.count, self._moved)
                self._link(writer, walked, row, done)
                self._count(walked, row, done)
                if done < walked.count:
                    self._roll(writer, note, walked, done)
                row = done
            last = (walked.count - 1) * Fact.WIDTH
            if walked.head:
                self._last_index = walked.entry(walked.count - 1)[0]
            end = walked.facts[last + Fact.OFFSET] + walked.facts[last + Fact.SIZE]
            self._tell("copying", end - first_byte)
        return end

    def _roll(self, writer: LogWriter, note: ConversionNote, walked: Walked, row: int) -> None:
        offset, length = (walked.facts[row * Fact.WIDTH + column] for column in (Fact.OFFSET, Fact.SIZE))
        if length > writer.record_size_max:
            raise RecordTooLarge(length, writer.record_size_max)
        writer.roll()
        done = self._result
        progress = ConversionProgress(
            offset - walked.head, writer.base, done.records, done.bytes, self._deleted
        )
        note.save(progress, self._links)

    def _count(self, walked: Walked, first: int, done: int) -> None:
        facts, width = walked.facts, Fact.WIDTH
        self._result.records += done - first
        self._result.bytes += sum(facts[first * width + Fact.SIZE : done * width : width])
        while self._pending and done > first:
            offsets = facts[first * width : done * width : width]
            row = bisect_left(offsets, self._pending[0][0])
            if row == len(offsets):
                return
            self._deleted[self._pending.pop(0)[1]] = self._moved[first + row]

    def _link(self, writer: LogWriter, walked: Walked, first: int, done: int) -> None:
        """Note where linked records went, and let the copies name each other as the records did."""
        facts = walked.facts
        for row in linked_rows(walked.view, facts, walked.count, _LINKED):
            if not first <= row < done:
                continue
            f = row * Fact.WIDTH
            topic_at = facts[f + Fact.TOPIC_AT]
            if walked.view[topic_at : topic_at + facts[f + Fact.TOPIC_SIZE]] in _LINKED:
                self._links.add(facts[f + Fact.OFFSET], self._moved[row])
            place = facts[f + Fact.BODY_AT] - _PREPARED_BEFORE_BODY
            (prepared,) = _LONG.unpack_from(walked.view, place)
            if prepared:
                record = walked.record(row)
                begin = facts[f + Fact.PROPERTIES_AT] + facts[f + Fact.PROPERTIES_SIZE] - len(record)
                at = self._moved[row] - writer.base
                _name(writer.view[at : at + len(record)], place - begin, self._links.find(prepared) or 0)

    def _committed(self) -> int:
        """The last index of which the source's member knows that it is committed."""
        found = self._source.committed_index()
        if found is None:
            raise CorruptStore(
                f"{self._source.root}: its ledger's checkpoint names no committedIndex: restore it"
            )
        return found

    def _check_end(self, end: int) -> None:
        """The source must end where its records end: what follows is nothing, or half a record of a crash."""
        scan, ledgers = self._source.scan, ledger_data(self._source.root)
        files = [file for file in scan.log_files() if file.offset + file.size > end]
        for number, file in enumerate(files):
            at = max(0, end - file.offset)
            view = self._disk.look(file.path)
            if scan.ends(file, at) or not any(view[at : at + layout.BLANK_SIZE]):
                continue
            if file.path.parent in ledgers and self._last_index >= self._committed():
                self._result.notes.append(f"bytes behind {end} follow no entry: the group has given them up")
                return
            if self._source.has_abort and not self._has_more(file, at + 1, files[number + 1 :]):
                self._result.notes.append(f"half a record at {end}, as after a crash, was left out")
                return
            raise CorruptStore(
                f"{file.path}: no sound record at offset {file.offset + at}, but there is more behind it: "
                f"`flaremq store verify {self._source.root}` shows the damage; restore the file, or convert "
                "the store of another member"
            )

    def _has_more(self, file: LogFile, at: int, later: list[LogFile]) -> bool:
        """Whether a record lies behind this place."""
        places = [(file, at), *((each, 0) for each in later)]
        return any(self._source.scan.next_record(*place) is not None for place in places)


def _name(record: memoryview, at: int, prepared: int) -> None:
    """Let a copy name its prepared message, and make its CRC property anew if it has one."""
    _LONG.pack_into(record, at, prepared)
    tail = len(record) - layout.CRC_TAIL_SIZE
    if bytes(record[tail:]).startswith(layout.CRC_PROPERTY + b"\x01"):
        record[tail:] = crc_tail(bytes(record[:tail]))
