"""Copies of records in another log: the reference twin. _relocate_c.pyx writes the same bytes.

A record says where it lies, and its CRC property, if it has one, covers that. So a copy elsewhere gets its
new offset and a new CRC; everything else stays as it is. In a ledger each record is wrapped in an entry, and
the index of the ledger has a unit for each entry.

Records are given as rows of Fact columns, and the buffer that these point into.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from flaremq.model import layout
from flaremq.model._record_py import crc_tail
from flaremq.model.columns import Bytes, Fact

_HEAD = struct.Struct(layout.DLEDGER_HEADER_FORMAT)
_UNIT = struct.Struct(layout.DLEDGER_UNIT_FORMAT)
_LONG = struct.Struct(">q")
_PREPARED_BEFORE_BODY = 12  # The offset of a prepared message, and then the length of the body.
_CRC_NAME = layout.CRC_PROPERTY + b"\x01"


def relocate(
    source: Bytes,
    facts: array[int],
    first: int,
    count: int,
    target: Bytes,
    at: int,
    base: int,
    moved: array[int],
    units: Bytes | None = None,
    index: int = 0,
    term: int = 0,
) -> tuple[int, int]:
    """Copy the records of facts[first:count] to target[at:], as many as leave room for a blank record.

    `base` is the offset of target[0] in its log. Each copy's offset is noted in `moved`, by row. With
    `units`, the copies are entries of a ledger, from `index` on, and their units go there. Returns the
    row and the place at which to go on.
    """
    view = memoryview(source)
    head = 0 if units is None else layout.DLEDGER_HEADER_SIZE
    for row in range(first, count):
        size = facts[row * Fact.WIDTH + Fact.SIZE]
        if at + head + size + layout.BLANK_SIZE > len(target):
            return row, at
        begin = _begin(facts, row)
        if units is not None:
            entry = (layout.DLEDGER_MAGIC, head + size, index, term, base + at, 0, 0, 0, size)
            _HEAD.pack_into(target, at, *entry)
            unit = (layout.DLEDGER_MAGIC, base + at, head + size, index, term)
            _UNIT.pack_into(units, (row - first) * _UNIT.size, *unit)
            index += 1
        at += head
        record = bytearray(view[begin : begin + size])
        _LONG.pack_into(record, layout.PHYSICAL_OFFSET_AT, base + at)
        if _has_crc(record):
            record[-layout.CRC_TAIL_SIZE :] = crc_tail(bytes(record[: -layout.CRC_TAIL_SIZE]))
        target[at : at + size] = record  # type: ignore[index]
        moved[row] = base + at
        at += size
    return count, at


def linked_rows(source: Bytes, facts: array[int], count: int, topics: Sequence[bytes]) -> array[int]:
    """Rows whose records name the offset of another, or whose own offset may be named, by their topic."""
    view, found = memoryview(source), array("q")
    for row in range(count):
        f = row * Fact.WIDTH
        at = facts[f + Fact.TOPIC_AT]
        topic = bytes(view[at : at + facts[f + Fact.TOPIC_SIZE]])
        if topic in topics or _LONG.unpack_from(view, facts[f + Fact.BODY_AT] - _PREPARED_BEFORE_BODY)[0]:
            found.append(row)
    return found


def differing_row(source: Bytes, facts: array[int], other: Bytes, others: array[int], count: int) -> int:
    """The first row whose two records are not the same but for the offsets in them and their CRC; `count` if
    there is none."""
    ours, theirs = memoryview(source), memoryview(other)
    for row in range(count):
        if _without_offsets(ours, facts, row) != _without_offsets(theirs, others, row):
            return row
    return count


def _begin(facts: array[int], row: int) -> int:
    f = row * Fact.WIDTH
    return facts[f + Fact.PROPERTIES_AT] + facts[f + Fact.PROPERTIES_SIZE] - facts[f + Fact.SIZE]


def _has_crc(record: Bytes) -> bool:
    tail = len(record) - layout.CRC_TAIL_SIZE
    return bytes(record[tail : tail + len(_CRC_NAME)]) == _CRC_NAME and record[-1] == layout.PROPERTY_END


def _without_offsets(view: memoryview, facts: array[int], row: int) -> tuple[int, bytes]:
    f, begin = row * Fact.WIDTH, _begin(facts, row)
    bare, body_at = bytearray(view[begin : begin + facts[f + Fact.SIZE]]), facts[f + Fact.BODY_AT] - begin
    _LONG.pack_into(bare, layout.PHYSICAL_OFFSET_AT, 0)
    _LONG.pack_into(bare, body_at - _PREPARED_BEFORE_BODY, 0)
    if _has_crc(bare):
        del bare[-layout.CRC_TAIL_SIZE :]
    return body_at, bytes(bare)
