"""One index file: which records have a key. Pure: it works on any buffer that is a whole file.

`put_many` takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one. Queries
and checks are rare, and are in Python only. Entries hold a hash and no key, so a query finds records that
*may* have the key, and the caller compares.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from flaremq.base.units import SECOND_MS
from flaremq.model.columns import Bytes
from flaremq.model.layout import (
    INDEX_ENTRY_FORMAT,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_FORMAT,
    INDEX_HEADER_SIZE,
    INDEX_SLOT_SIZE,
)

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.store.index._indexfile_py import count_keys, key_hash, put_many, wrong_links
else:
    try:
        from flaremq.store.index._indexfile_c import count_keys, key_hash, put_many, wrong_links
    except ImportError:
        from flaremq.store.index._indexfile_py import count_keys, key_hash, put_many, wrong_links

__all__ = [
    "IndexHeader",
    "KeyQuery",
    "check",
    "count_keys",
    "cut",
    "entry_at",
    "file_size",
    "key_hash",
    "put_many",
    "query",
    "wrong_links",
]

_HEADER: Final = struct.Struct(INDEX_HEADER_FORMAT)
_ENTRY: Final = struct.Struct(INDEX_ENTRY_FORMAT)
_INT: Final = struct.Struct(">i")
_DEVIATIONS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The first bytes of a file: what it covers, and how full it is."""

    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    next_entry: int = 1
    """Number of the entry that comes next. Entry 0 is never used, so 1 means empty."""

    @classmethod
    def read(cls, data: Bytes) -> IndexHeader:
        begin_ms, end_ms, begin_offset, end_offset, used_slots, next_entry = _HEADER.unpack_from(data)
        # A fresh file is all zeros.
        return cls(begin_ms, end_ms, begin_offset, end_offset, used_slots, max(1, next_entry))

    def write(self, data: bytearray | memoryview) -> None:
        _HEADER.pack_into(
            data,
            0,
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.next_entry,
        )

    def sane(self, slots: int, entries_max: int) -> bool:
        """Whether a file of this shape can have such a header, a put cut short by a kill included."""
        return (
            self.next_entry <= entries_max
            and 0 <= self.used_slots <= min(slots, self.next_entry)
            and min(self.begin_ms, self.end_ms, self.begin_offset, self.end_offset) >= 0
            # The first put sets the beginning first, and the end last.
            and (self.begin_offset <= self.end_offset or self.next_entry <= 2)
        )


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Which hash, stored when, and how many of them."""

    key_hash: int
    limit: int
    begin_ms: int
    end_ms: int

    def covers(self, header: IndexHeader) -> bool:
        """Whether a file with this header can hold a hit."""
        return header.begin_ms <= self.end_ms and header.end_ms >= self.begin_ms


def file_size(slots: int, entries_max: int) -> int:
    return entry_at(slots, entries_max)


def entry_at(slots: int, number: int) -> int:
    """Where an entry lies in its file."""
    return INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + number * INDEX_ENTRY_SIZE


def query(data: Bytes, slots: int, wanted: KeyQuery) -> list[int]:
    """Offsets of records that may have the key, newest first, each once, at most `wanted.limit`."""
    header = IndexHeader.read(data)
    if header.next_entry <= 1:
        return []
    found: list[int] = []
    for key, offset, seconds in _chain(data, slots, wanted.key_hash % slots, header.next_entry):
        if len(found) >= wanted.limit or seconds < 0:
            break
        stored_ms = header.begin_ms + seconds * 1000
        in_time = wanted.begin_ms <= stored_ms <= wanted.end_ms
        if key == wanted.key_hash and in_time and offset not in found:
            found.append(offset)
        if stored_ms < wanted.begin_ms:
            break
    return found


def cut(data: memoryview | bytearray, slots: int, physical_offset: int) -> int:
    """Take back the newest entries, as far as they are of records from there on. How many are left.

    The time at which the file ends is known to the second only from then on: it is set to the end of that.
    """
    header = IndexHeader.read(data)
    number, used, end = header.next_entry - 1, header.used_slots, header.end_offset
    while number > 0:
        key, end, seconds, previous = _ENTRY.unpack_from(data, entry_at(slots, number))
        if end < physical_offset:
            break
        _INT.pack_into(data, INDEX_HEADER_SIZE + key % slots * INDEX_SLOT_SIZE, previous)
        used -= previous == 0
        number -= 1
    if 0 < number < header.next_entry - 1:
        last_ms = header.begin_ms + (seconds * SECOND_MS + SECOND_MS - 1 if number > 1 else 0)
        end_ms = min(header.end_ms, last_ms)
        replace(header, end_ms=end_ms, end_offset=end, used_slots=used, next_entry=number + 1).write(data)
    return number


def _chain(data: Bytes, slots: int, slot: int, next_entry: int) -> Iterator[tuple[int, int, int]]:
    """Hash, offset and seconds of a slot's entries, newest first, whatever the bytes say."""
    (number,) = _INT.unpack_from(data, INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE)
    if number > next_entry:
        return
    while number > 0 and entry_at(slots, number + 1) <= len(data):
        key, offset, seconds, previous = _ENTRY.unpack_from(data, entry_at(slots, number))
        # The first entry was stored when its file begins, whatever it says: in a follow-up file its
        # seconds are the gap to the file before.
        yield key, offset, seconds if number > 1 else 0
        # Entries point to older ones only. Any other is damage, and could lead in a circle.
        number = previous if previous < number else 0


def check(data: Bytes, slots: int, entries_max: int) -> list[str]:
    """The first hundred problems of a file, as sentences; none if it is sound.

    An entry may be of an older record than the one before it: RocketMQ leaves the entries of what it has cut
    from the log, and adds those of what came instead.
    """
    if len(data) != file_size(slots, entries_max):
        return [f"{len(data)} bytes long, not {file_size(slots, entries_max)}"]
    header = IndexHeader.read(data)
    if not header.sane(slots, entries_max):
        return [f"the header cannot be: {header}"]
    found: list[str] = []
    for deviation in _deviations(data, slots, header):
        found.append(deviation)
        if len(found) == _DEVIATIONS_MAX:
            break
    return found


def _deviations(data: Bytes, slots: int, header: IndexHeader) -> Iterator[str]:
    """Entries in the order they were put: each must point to the last one of its slot before it."""
    newest = array("i", bytes(4 * slots))
    end_offset = newest_offset = header.begin_offset
    for number in range(1, header.next_entry):
        key, offset, seconds, previous = _ENTRY.unpack_from(data, entry_at(slots, number))
        if key < 0:
            yield f"entry {number} has the negative hash {key}"
            continue
        slot = key % slots
        if previous != newest[slot]:
            yield f"entry {number} follows {previous}, but the one before it in slot {slot} is {newest[slot]}"
        if seconds < 0:
            yield f"entry {number} was stored {-seconds} s before its file began"
        newest[slot], end_offset, newest_offset = number, offset, max(newest_offset, offset)
    if header.end_offset not in (end_offset, newest_offset):
        yield f"the last record is at {end_offset}, but the header says {header.end_offset}"
    used = 0
    for slot in range(slots):
        (number,) = _INT.unpack_from(data, INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE)
        used += number != 0
        if number != newest[slot]:
            yield f"slot {slot} begins with entry {number}, but its newest is {newest[slot]}"
    if used != header.used_slots:
        yield f"{used} slots are in use, but the header says {header.used_slots}"
