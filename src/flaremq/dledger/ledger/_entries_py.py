"""Heads of entries, written and examined: the reference twin. _entries_c.pyx agrees with it on any bytes.

A head says where its entry lies, its place in the log (index), who led when it was appended (term), and a
CRC of its record. Java writes no CRC: 0 is none.
"""

from __future__ import annotations

import struct
from array import array

from flaremq.model import layout
from flaremq.model._record_py import crc31
from flaremq.model.columns import Bytes, Draft, Stop

_HEAD = struct.Struct(layout.DLEDGER_HEADER_FORMAT)
_UNIT = struct.Struct(layout.DLEDGER_UNIT_FORMAT)
_INT = struct.Struct(">i")


def seal(
    out: Bytes,
    rows: array[int],
    first: int,
    count: int,
    base: int,
    index: int,
    term: int,
    channel: int,
    units: Bytes,
) -> None:
    """Make entries of the records that these rows of drafts tell of: write the head that each has room for,
    and their units. `base` is the physical offset of out[0], `index` that of the first entry."""
    view = memoryview(out)
    if not 0 <= first <= first + count <= len(rows) // Draft.WIDTH or len(units) < count * _UNIT.size:
        raise IndexError(f"rows {first}+{count}")
    for number in range(count):
        r = (first + number) * Draft.WIDTH
        begin, size = rows[r + Draft.PHYSICAL_OFFSET] - base, rows[r + Draft.SIZE]
        at = begin - _HEAD.size
        if at < 0 or size < 0 or begin + size > len(view):
            raise IndexError(f"row {first + number}: bytes {begin}+{size} of {len(view)}")
        crc, entry = crc31(view[begin : begin + size]), _HEAD.size + size
        head = _HEAD.pack(
            *(layout.DLEDGER_MAGIC, entry, index + number, term, base + at, channel, 0, crc, size)
        )
        # The magic last: whoever maps the file sees an entry only when it is whole.
        view[at + 4 : begin] = head[4:]
        view[at : at + 4] = head[:4]
        unit = (layout.DLEDGER_MAGIC, base + at, entry, index + number, term)
        _UNIT.pack_into(units, number * _UNIT.size, *unit)


def examine(
    data: Bytes,
    at: int,
    end: int,
    base: int,
    index: int,
    term: int,
    units: Bytes,
    spans: array[int],
    marked: array[int],
) -> tuple[int, int, int]:
    """Walk the entries in data[at:end] as long as they are sound, the first being `index`, of no lower term
    than `term`, and as many as `units` has room for: their units are written there.

    `spans` grows by a pair for each term (term, how many entries), `marked` by a pair for each entry that is
    not of channel 0 (index, place of its record). Returns the number of entries, the place behind the last
    one, and why the walk stopped there (Stop).
    """
    if not 0 <= at <= end <= len(data):
        raise ValueError(f"range {at}..{end} of {len(data)} bytes")
    view, rows = memoryview(data), len(units) // _UNIT.size
    for count in range(rows):
        if at == end:
            return count, at, Stop.LIMIT
        if end - at >= layout.BLANK_SIZE and _INT.unpack_from(view, at)[0] == layout.DLEDGER_BLANK_MAGIC:
            return count, at, Stop.BLANK
        if end - at < _HEAD.size:
            return count, at, Stop.INVALID
        magic, size, own, own_term, position, channel, _, crc, body = _HEAD.unpack_from(view, at)
        if (magic, own, position) != (layout.DLEDGER_MAGIC, index + count, base + at) or own_term < term:
            return count, at, Stop.INVALID
        if body < 0 or size != _HEAD.size + body or size > end - at:
            return count, at, Stop.INVALID
        if crc and crc != crc31(view[at + _HEAD.size : at + size]):
            return count, at, Stop.INVALID
        if not count or own_term != term:
            spans.extend((own_term, 0))
        spans[-1] += 1
        if channel:
            marked.extend((own, at + _HEAD.size))
        unit = (layout.DLEDGER_MAGIC, position, size, own, own_term)
        _UNIT.pack_into(units, count * _UNIT.size, *unit)
        at, term = at + size, own_term
    return rows, at, Stop.LIMIT
