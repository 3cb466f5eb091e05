"""Putting keys into an index file, many records a call: the reference twin. _indexfile_c.pyx agrees with it.

An index file is a hash table whose chains live in one growing list: a slot holds the number of its
newest entry, each entry that of the one before it. Byte map: model.layout. What a file may hold is
decided by nothing but its bytes, so every number that is read from it is checked before it is used.
"""

from __future__ import annotations

import struct
from array import array

from flaremq.model.columns import Bytes, Fact
from flaremq.model.layout import (
    INDEX_ENTRY_FORMAT,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_FORMAT,
    INDEX_HEADER_SIZE,
    INDEX_SLOT_SIZE,
)
from flaremq.model.tags import java_hash

_HEADER = struct.Struct(INDEX_HEADER_FORMAT)
_ENTRY = struct.Struct(INDEX_ENTRY_FORMAT)
_INT = struct.Struct(">i")
_INT_MAX = (1 << 31) - 1
_TRANSACTION, _ROLLBACK = 0xC, 0xC  # Bits of the sys flag.
_PLACES = (Fact.TOPIC_AT, Fact.KEYS_AT, Fact.UNIQUE_KEY_AT)


def key_hash(topic: Bytes, key: Bytes) -> int:
    """What stands for TOPIC#KEY in an entry: the absolute value of Java's hash, never negative."""
    text = bytes(topic).decode("utf-8", "replace") + "#" + bytes(key).decode("utf-8", "replace")
    h = abs(java_hash(text))
    return h if h <= _INT_MAX else 0  # Java's abs(-2^31) stays negative, and IndexFile takes 0 then.


def put_many(
    data: bytearray | memoryview,
    slots: int,
    facts: array[int],
    count: int,
    begin: tuple[int, int],
    log: Bytes,
    from_offset: int,
) -> tuple[int, int]:
    """Put the keys of the rows below `count`, from row and key number `begin` on, into a whole index file.

    The keys of a record are its UNIQ_KEY and then each piece of its KEYS. Records below `from_offset`
    and rollbacks have none. Gives (count, 0), or where to go on in the next file when this one is full.
    """
    view, (row, number) = memoryview(data), begin
    entries_max = _entries_max(len(view), slots)
    _check_rows(facts, count, row, number, len(log))
    for at in range(row, count):
        f = at * Fact.WIDTH
        if facts[f + Fact.OFFSET] >= from_offset and facts[f + Fact.SYS_FLAG] & _TRANSACTION != _ROLLBACK:
            topic = _piece(log, facts, f + Fact.TOPIC_AT)
            for i, key in enumerate(_keys(log, facts, f)):
                if i < number:
                    continue
                place = (facts[f + Fact.OFFSET], facts[f + Fact.STORE_TIMESTAMP])
                if not _put(view, slots, entries_max, key_hash(topic, key), place):
                    return at, i
        number = 0
    return count, 0


def count_keys(facts: array[int], count: int, log: Bytes) -> tuple[int, int]:
    """How many entries `put_many` makes of these rows, and the last row that has any (-1 without)."""
    _check_rows(facts, count, 0, 0, len(log))
    keys, last = 0, -1
    for row in range(count):
        f = row * Fact.WIDTH
        if facts[f + Fact.SYS_FLAG] & _TRANSACTION != _ROLLBACK and (found := len(_keys(log, facts, f))):
            keys, last = keys + found, row
    return keys, last


def wrong_links(data: Bytes, slots: int, most: int) -> tuple[int, list[tuple[bool, int, int, int]]]:
    """How many links of a whole file are wrong, and the first of them, entries before slots.

    Each is (whether it is a slot, its number, where it points to, where it should). An entry must point to
    the one before it in its slot, a slot to its newest, and 0 stands for none.
    """
    view = memoryview(data)
    count = min(_HEADER.unpack_from(view)[5], _entries_max(len(view), slots))
    newest = array("i", bytes(4 * slots))
    found: list[tuple[bool, int, int, int]] = []
    total = 0
    for number in range(1, count):
        entry_at = INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + number * INDEX_ENTRY_SIZE
        key, _, _, previous = _ENTRY.unpack_from(view, entry_at)
        if previous != newest[key % slots]:
            total += 1
            found += [(False, number, previous, newest[key % slots])] if total <= most else []
        newest[key % slots] = number
    for slot in range(slots):
        (number,) = _INT.unpack_from(view, INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE)
        if number != newest[slot]:
            total += 1
            found += [(True, slot, number, newest[slot])] if total <= most else []
    return total, found


def _put(view: memoryview, slots: int, entries_max: int, key: int, place: tuple[int, int]) -> bool:
    """Write one entry and count it in the header at once: a killed process leaves a file that holds."""
    begin_ms, _, begin_offset, _, used, entry = _HEADER.unpack_from(view)
    entry = max(entry, 1)
    if entry >= entries_max:
        return False
    offset, store_ms = place
    slot_at = INDEX_HEADER_SIZE + key % slots * INDEX_SLOT_SIZE
    (previous,) = _INT.unpack_from(view, slot_at)
    if not 0 < previous <= entry:
        previous = 0
    # Of a follow-up file `begin_ms` is the end of the file before it until the first entry is in, so
    # that entry tells the gap between the two. It makes no sense, but Java's files have it.
    seconds = min((store_ms - begin_ms) // 1000, _INT_MAX) if 0 < begin_ms <= store_ms else 0
    entry_at = INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + entry * INDEX_ENTRY_SIZE
    if entry <= 1:
        begin_ms, begin_offset = store_ms, offset
    if not previous:
        used = used + 1 if used < _INT_MAX else -_INT_MAX - 1
    # The slot comes last: a process killed before it has lost an entry that recovery puts again,
    # while a slot that points to an unwritten entry would lose all older ones of its chain.
    _ENTRY.pack_into(view, entry_at, key, offset, seconds, previous)
    _HEADER.pack_into(view, 0, begin_ms, store_ms, begin_offset, offset, used, entry + 1)
    _INT.pack_into(view, slot_at, entry)
    return True


def _keys(log: Bytes, facts: array[int], f: int) -> list[bytes]:
    unique = _piece(log, facts, f + Fact.UNIQUE_KEY_AT)
    keys = _piece(log, facts, f + Fact.KEYS_AT)
    return [key for key in (unique, *keys.split(b" ")) if key]


def _piece(log: Bytes, facts: array[int], column: int) -> bytes:
    at, size = facts[column], facts[column + 1]
    return bytes(log[at : at + size])


def _entries_max(size: int, slots: int) -> int:
    room = size - INDEX_HEADER_SIZE - slots * INDEX_SLOT_SIZE
    if slots < 1 or room < 0 or room % INDEX_ENTRY_SIZE:
        raise ValueError(f"{size} bytes are no index file with {slots} slots")
    return min(room // INDEX_ENTRY_SIZE, _INT_MAX)


def _check_rows(facts: array[int], count: int, first: int, number: int, log_size: int) -> None:
    """Rows that point outside the log are a bug of the caller, found before a byte is written."""
    if not 0 <= first <= count <= len(facts) // Fact.WIDTH:
        raise ValueError(f"rows {first} to {count} of {len(facts) // Fact.WIDTH}")
    if number < 0:
        raise ValueError(f"key number {number}")
    for row in range(first, count):
        for column in _PLACES:
            at, size = facts[row * Fact.WIDTH + column], facts[row * Fact.WIDTH + column + 1]
            if at < 0 or size < 0 or size > log_size or at > log_size - size:
                raise ValueError(f"row {row}: bytes {at}+{size} of a buffer of {log_size}")
