"""Entries and their index as they lie on the disk, and whether they are sound.

An entry is sound if its head is that of its place (magic, index, position, size, a term that does not fall,
the channel and the unused field as this version and Java write them), and its record has the CRC that its
head says. Java writes no CRC there: then the record must be whole and have the CRC of its body. What such a
record says besides its body (topic, properties) has no CRC at all, unless it brings one along.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from flaremq.dledger.ledger.entries import examine
from flaremq.dledger.ledger.entryindex import EntryUnit
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.dledger.ledger.records import CHANNEL
from flaremq.dledger.types import Index, Term
from flaremq.model import layout
from flaremq.model.columns import Check, Fact, Stop, facts_table
from flaremq.model.names import RAFT_TOPIC
from flaremq.model.record import walk_entries
from flaremq.store.files.coldfile import ColdBytes, ColdFile
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import MappedFile

HEAD_SIZE: Final = layout.DLEDGER_HEADER_SIZE
UNIT_SIZE: Final = layout.DLEDGER_UNIT_SIZE
ROWS: Final = 8192
_TRIED_MAX: Final = 64
_HEAD: Final = struct.Struct(layout.DLEDGER_HEADER_FORMAT)
_UNIT: Final = struct.Struct(layout.DLEDGER_UNIT_FORMAT)
_UNUSED: Final = slice(36, 40)  # The chain CRC, which nobody has ever computed.
_CRC: Final = slice(40, 44)
_NONE: Final = bytes(4)
_TOPIC: Final = RAFT_TOPIC.encode()


class Head(NamedTuple):
    """Of an entry, as far as it says where it belongs."""

    number: Index
    term: Term
    position: int
    size: int

    @classmethod
    def parse(cls, view: memoryview) -> Head | None:
        """None if it is none."""
        if len(view) < HEAD_SIZE:
            return None
        magic, size, index, term, position, _, _, _, body = _HEAD.unpack_from(view)
        is_head = magic == layout.DLEDGER_MAGIC and size == HEAD_SIZE + body and body > 0
        return cls(index, term, position, size) if is_head and index >= 0 and term >= 0 else None


class Examined(NamedTuple):
    """Sound entries that lie one behind the other."""

    entries: int
    size: int
    stop: int
    """Why there are no more: see `Stop`."""
    units: memoryview
    last_term: Term


class Examiner:
    """Of one thread: it keeps the tables."""

    def __init__(self) -> None:
        self._units = memoryview(bytearray(ROWS * UNIT_SIZE))
        self._facts = facts_table(ROWS)

    def examine(
        self, data: memoryview, position: int, index: Index, term: Term, rows: int = ROWS
    ) -> Examined:
        """Entries from this one on, of no lower term than this."""
        spans, marked = array("q"), array("q")
        units = self._units[: min(rows, ROWS) * UNIT_SIZE]
        count, size, stop = examine(data, 0, len(data), position, index, max(0, term), units, spans, marked)
        sound = self._sound_count(data, position, count, size, marked)
        if sound < count:
            size, stop = _UNIT.unpack_from(units, sound * UNIT_SIZE)[1] - position, Stop.INVALID
        last_term = _UNIT.unpack_from(units, (sound - 1) * UNIT_SIZE)[4] if sound else term
        return Examined(sound, size, stop, units[: sound * UNIT_SIZE], last_term)

    def _sound_count(self, data: memoryview, position: int, count: int, size: int, marked: array[int]) -> int:
        """How many of these heads, which fit, have records and fields that fit too."""
        places = [unit[1] - position for unit in _UNIT.iter_unpack(self._units[: count * UNIT_SIZE])]
        sound = count
        for number, at in enumerate(places):
            if data[at + _UNUSED.start : at + _UNUSED.stop] != _NONE:
                sound = number
                break
        return min(sound, self._records(data, position, places, size, marked))

    def _records(
        self, data: memoryview, position: int, places: list[int], size: int, marked: array[int]
    ) -> int:
        said = set(marked[1::2])
        wrong = [bisect_left(places, at - HEAD_SIZE) for at in said if not _is_said(data, at)]
        unsaid = _TOPIC in bytes(data[:size])
        done = 0
        while done < len(places):
            at = places[done]
            count, _, _ = walk_entries(data, at, size, position, self._facts, Check.BODY_CRC | Check.OFFSET)
            if unsaid:
                wrong += self._unmarked(data, done, places, count, said)
            done += count
            if done < len(places) and not self._has_crc(data, places[done]):
                wrong.append(done)
                break
            done += done < len(places)  # Its CRC holds: it is what its leader wrote, whatever that is.
        return min(wrong, default=len(places))

    def _unmarked(
        self, data: memoryview, first: int, places: list[int], count: int, said: set[int]
    ) -> list[int]:
        """Records of the group's own whose heads do not say that they are."""
        facts, found = self._facts, []
        for row in range(count):
            f = row * Fact.WIDTH
            at, size = facts[f + Fact.TOPIC_AT], facts[f + Fact.TOPIC_SIZE]
            is_own = size == len(_TOPIC) and data[at : at + size] == _TOPIC
            if is_own and places[first + row] + HEAD_SIZE not in said:
                found.append(first + row)
        return found

    @staticmethod
    def _has_crc(data: memoryview, at: int) -> bool:
        return data[at + _CRC.start : at + _CRC.stop] != _NONE


def _is_said(data: memoryview, record_at: int) -> bool:
    """Whether this entry has the channel, and its record the topic, of what the group itself says."""
    channel = _HEAD.unpack_from(data, record_at - HEAD_SIZE)[5]
    facts = facts_table(1)
    count, _, _ = walk_entries(data, record_at - HEAD_SIZE, len(data), 0, facts, Check.NOTHING)
    at, size = facts[Fact.TOPIC_AT], facts[Fact.TOPIC_SIZE]
    return channel == CHANNEL and (not count or data[at : at + size] == _TOPIC)


class ColdLedger:
    """The files of a member's ledger. Of one thread; what it gives is valid until the same is asked again."""

    def __init__(self, log: RaftLog, disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self._open: dict[str, ColdFile] = {}
        self._examiner = Examiner()
        self._probe = Examiner()
        self.read_bytes = 0
        """Of all files, since it was made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """It may be used again."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def data(self, position: int, size: int) -> ColdBytes:
        """Bytes of one file of entries."""
        return self._read("data", self._log.files, position, size)

    def units(self, first: Index, count: int) -> list[EntryUnit | None]:
        """What the index says of these entries, or the first of them; None for what is no unit of its entry.
        Empty where the index cannot be read at all."""
        raw = self.raw_units(first, count)
        return [_unit(each, first + number) for number, each in enumerate(_UNIT.iter_unpack(raw))]

    def raw_units(self, first: Index, count: int) -> memoryview:
        """As they lie there: those of one file, as far as they can be read."""
        files = self._log.index.files
        place = first * UNIT_SIZE
        size = min(count * UNIT_SIZE, files.file_size - place % files.file_size)
        try:
            found = self._read("index", files, place, size)
        except FileNotFoundError:
            return memoryview(b"")
        return found.view[: found.readable // UNIT_SIZE * UNIT_SIZE]

    def _read(self, kind: str, files: FileQueue, place: int, size: int) -> ColdBytes:
        """Raises FileNotFoundError if the file is gone from the disk."""
        file = files.find(place)
        if file is None:
            return ColdBytes(memoryview(b""), 0)
        found = self._cold(kind, file).read(place - file.offset, size)
        self.read_bytes += size
        return found

    def _cold(self, kind: str, file: MappedFile) -> ColdFile:
        known = self._open.get(kind)
        if known is None or known.path != file.path:
            if known is not None:
                known.close()
            known = self._open[kind] = self._disk.cold(file.path)
        return known

    # What lies there, and whether it is sound.

    def examine(
        self, data: memoryview, position: int, index: Index, term: Term, rows: int = ROWS
    ) -> Examined:
        return self._examiner.examine(data, position, index, term, rows)

    def is_sound(self, unit: EntryUnit) -> bool:
        """Whether the entry that this unit tells of lies where it says."""
        found = self.data(unit.position, unit.size)
        if not found.is_whole() or len(found.view) < unit.size:
            return False
        examined = self._probe.examine(found.view, unit.position, unit.index, 0, 1)
        return examined.entries == 1 and bytes(examined.units) == _UNIT.pack(*unit)

    def head(self, position: int) -> Head | None:
        """The head of the entry that begins there; None if none does."""
        found = self.data(position, HEAD_SIZE)
        head = Head.parse(found.view) if found.is_whole() else None
        return head if head is not None and head.position == position else None

    def plausible(self, first: Index, last: Index, begin: int, end: int) -> Iterator[EntryUnit]:
        """Units of entries that would lie between these two places: the next ones one by one, then ever
        farther away, so that not all of a large file need be tried."""
        step, index = 1, first
        while index <= last:
            found = self.units(index, 1)
            unit = found[0] if found else None
            if unit is not None and begin <= unit.position and unit.end <= end:
                yield unit
            if unit is not None and unit.position >= end:
                return
            step = step if index - first < _TRIED_MAX else 2 * step
            index += step


def _unit(fields: tuple[int, ...], index: Index) -> EntryUnit | None:
    unit = EntryUnit._make(fields)
    is_one = unit.index == index and unit.magic == layout.DLEDGER_MAGIC and unit.size > HEAD_SIZE
    return unit if is_one and unit.position >= 0 and unit.term >= 0 else None
