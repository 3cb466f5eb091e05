"""Reading records, many a call: the reference twin. _record_c.pyx agrees with it on any bytes.

`walk` goes over stored records and collects what dispatch, recovery and readers need.
"""

from __future__ import annotations

import struct
import zlib
from array import array

from flaremq.model import layout
from flaremq.model._tags_py import java_hash
from flaremq.model.columns import Bytes, Check, Fact, Odd, Stop

_BORN_V6, _STORE_V6 = 0x10, 0x20  # Bits of the sys flag.
_HEAD = struct.Struct(">iiIiiqqiq")  # Total size to born timestamp.
_ENTRY_HEAD = struct.Struct(layout.DLEDGER_HEADER_FORMAT)
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")


def crc31(data: Bytes) -> int:
    """CRC-32 with the sign bit cleared, as Java's UtilAll.crc32."""
    return zlib.crc32(data) & 0x7FFF_FFFF


def walk(data: Bytes, at: int, end: int, base: int, facts: array[int], check: int) -> tuple[int, int, int]:
    """Fill `facts` with the records in data[at:end], as many as it has rows for.

    `base` is the physical offset of data[0]. Returns the number of records, the place after the last one, and
    why the walk stopped there (Stop). Nothing after an invalid record is read: only sizes lead from one
    record to the next, so stale bytes are never taken for records.
    """
    if not 0 <= at <= end <= len(data):
        raise ValueError(f"range {at}..{end} of {len(data)} bytes")
    view, rows = memoryview(data), len(facts) // Fact.WIDTH
    for count in range(rows):
        if at == end:
            return count, at, Stop.LIMIT
        stop, size = _note(view, at, end, base, facts, count * Fact.WIDTH, check)
        if stop != Stop.LIMIT:
            return count, at, stop
        at += size
    return rows, at, Stop.LIMIT


def leap(data: Bytes, at: int, end: int, base: int, size: int) -> int:
    """Where the first record begins that is at least `size` bytes after data[at]; -1 if there is none.

    Follows sizes from one record to the next, and checks only magic, size and stored offset: for dividing a
    file among readers that will walk it and check each record fully.
    """
    if not 0 <= at <= end <= len(data):
        raise ValueError(f"range {at}..{end} of {len(data)} bytes")
    view, goal = memoryview(data), at + size
    while end - at >= layout.FIXED_SIZE:
        length, magic = struct.unpack_from(">ii", view, at)
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2) or not layout.FIXED_SIZE <= length <= end - at:
            return -1
        if _LONG.unpack_from(view, at + layout.PHYSICAL_OFFSET_AT)[0] != base + at:
            return -1
        if at >= goal:
            return at
        at += length
    return -1


def walk_entries(
    data: Bytes, at: int, end: int, base: int, facts: array[int], check: int
) -> tuple[int, int, int]:
    """The same for DLedger entries, each of which wraps one record: the facts are those of the records, and
    the place after the last entry is returned.

    An entry that does not follow the one before it (index, term) ends the walk: a group that gives up entries
    leaves their bytes behind. With BODY_CRC the CRC of the entry is verified too, if it has one: Java writes
    none.
    """
    if not 0 <= at <= end <= len(data):
        raise ValueError(f"range {at}..{end} of {len(data)} bytes")
    view, rows, before = memoryview(data), len(facts) // Fact.WIDTH, (0, 0)
    for count in range(rows):
        if at == end:
            return count, at, Stop.LIMIT
        if end - at < layout.BLANK_SIZE:
            return count, at, Stop.INVALID
        if _INT.unpack_from(view, at)[0] == layout.DLEDGER_BLANK_MAGIC:
            return count, at, Stop.BLANK
        if end - at < layout.DLEDGER_HEADER_SIZE:
            return count, at, Stop.INVALID
        magic, size, index, term, position, _, _, crc, body_size = _ENTRY_HEAD.unpack_from(view, at)
        if magic != layout.DLEDGER_MAGIC or size != layout.DLEDGER_HEADER_SIZE + body_size:
            return count, at, Stop.INVALID
        if position != base + at or body_size < 0 or size > end - at:
            return count, at, Stop.INVALID
        if count and (index != before[0] + 1 or term < before[1]):
            return count, at, Stop.INVALID
        record_at = at + layout.DLEDGER_HEADER_SIZE
        if check & Check.BODY_CRC and crc and crc != crc31(view[record_at : at + size]):
            return count, at, Stop.HALF
        stop, noted = _note(view, record_at, at + size, base, facts, count * Fact.WIDTH, check)
        if stop != Stop.LIMIT or noted != body_size:
            return count, at, Stop.HALF
        at, before = at + size, (index, term)
    return rows, at, Stop.LIMIT


def _note(
    view: memoryview, at: int, end: int, base: int, facts: array[int], f: int, check: int
) -> tuple[int, int]:
    """Verify one record and fill in its row; returns Stop.LIMIT and its size, or why it is invalid."""
    if end - at < layout.BLANK_SIZE:
        return Stop.INVALID, 0
    size, magic = struct.unpack_from(">ii", view, at)
    if magic == layout.BLANK_MAGIC:
        return Stop.BLANK, 0
    if magic not in (layout.MAGIC_V1, layout.MAGIC_V2) or not layout.FIXED_SIZE <= size <= end - at:
        return Stop.INVALID, 0
    _, _, crc, queue_id, _, queue_offset, stored_at, flag, _ = _HEAD.unpack_from(view, at)
    if check & Check.OFFSET and stored_at != base + at:
        return Stop.INVALID, 0
    born = layout.HOST_SIZE_V6 if flag & _BORN_V6 else layout.HOST_SIZE_V4
    store = layout.HOST_SIZE_V6 if flag & _STORE_V6 else layout.HOST_SIZE_V4
    record_end = at + size
    body_at = at + layout.BODY_AT_LEAST + born + store - 2 * layout.HOST_SIZE_V4
    topic_width = 2 if magic == layout.MAGIC_V2 else 1
    if body_at + topic_width + 2 > record_end:
        return Stop.HALF, size
    (body_size,) = _INT.unpack_from(view, body_at - 4)
    if body_size < 0 or body_at + body_size + topic_width + 2 > record_end:
        return Stop.HALF, size
    topic_at = body_at + body_size + topic_width
    (topic_size,) = struct.unpack_from(">h" if topic_width == 2 else ">b", view, topic_at - topic_width)
    if topic_size < 0 or topic_at + topic_size + 2 > record_end:
        return Stop.HALF, size
    properties_at = topic_at + topic_size + 2
    (properties_size,) = struct.unpack_from(">h", view, properties_at - 2)
    if properties_size < 0 or properties_at + properties_size != record_end:
        return Stop.HALF, size
    if check & Check.BODY_CRC and crc31(view[body_at : body_at + body_size]) != crc:
        return Stop.INVALID, 0
    if check & Check.RECORD_CRC and not _has_own_crc(view[at:record_end], properties_size):
        return Stop.INVALID, 0
    (stored_ms,) = _LONG.unpack_from(view, at + layout.BORN_HOST_AT + born)
    facts[f + Fact.OFFSET] = base + at
    facts[f + Fact.SIZE] = size
    facts[f + Fact.QUEUE_ID] = queue_id
    facts[f + Fact.QUEUE_OFFSET] = queue_offset
    facts[f + Fact.SYS_FLAG] = flag
    facts[f + Fact.STORE_TIMESTAMP] = stored_ms
    facts[f + Fact.TOPIC_AT], facts[f + Fact.TOPIC_SIZE] = topic_at, topic_size
    facts[f + Fact.PROPERTIES_AT], facts[f + Fact.PROPERTIES_SIZE] = properties_at, properties_size
    facts[f + Fact.BODY_AT], facts[f + Fact.BODY_SIZE] = body_at, body_size
    _note_properties(view, properties_at, record_end, facts, f)
    return Stop.LIMIT, size


def _note_properties(view: memoryview, at: int, end: int, facts: array[int], f: int) -> None:
    """Find the properties that dispatch needs. A pair with an empty side does not count, and of two pairs
    with one name the later counts (MessageDecoder.string2messageProperties)."""
    tags = b""
    facts[f + Fact.KEYS_AT] = facts[f + Fact.KEYS_SIZE] = 0
    facts[f + Fact.TAGS_AT] = facts[f + Fact.TAGS_SIZE] = 0
    facts[f + Fact.UNIQUE_KEY_AT] = facts[f + Fact.UNIQUE_KEY_SIZE] = 0
    odd, inner = 0, set()
    for pair in bytes(view[at:end]).split(b"\x02"):
        name, separator, value = pair.partition(b"\x01")
        value_at = at + len(name) + 1
        at += len(pair) + 1
        if not (separator and name and value):
            continue
        if name == b"TAGS":
            tags = value
            facts[f + Fact.TAGS_AT], facts[f + Fact.TAGS_SIZE] = value_at, len(value)
        elif name == b"KEYS":
            facts[f + Fact.KEYS_AT], facts[f + Fact.KEYS_SIZE] = value_at, len(value)
        elif name == b"UNIQ_KEY":
            facts[f + Fact.UNIQUE_KEY_AT], facts[f + Fact.UNIQUE_KEY_SIZE] = value_at, len(value)
        elif name == b"DELAY":
            odd |= Odd.DELAY
        elif name == b"INNER_MULTI_DISPATCH":
            odd |= Odd.MULTI_DISPATCH
        elif name in (b"INNER_NUM", b"INNER_BASE"):
            inner.add(name)
    if len(inner) == 2:
        odd |= Odd.INNER_BATCH
    facts[f + Fact.ODD] = odd
    facts[f + Fact.TAGS_CODE] = java_hash(tags.decode("utf-8", "replace"))


def crc_tail(record: bytes) -> bytes:
    """The CRC property of a record that is complete except for it."""
    digits = f"{crc31(record):0{layout.CRC_DIGITS}d}"[::-1].encode()
    return layout.CRC_PROPERTY + b"\x01" + digits + b"\x02"


def _has_own_crc(record: memoryview, properties_size: int) -> bool:
    if properties_size < layout.CRC_TAIL_SIZE:
        return False
    body_end = len(record) - layout.CRC_TAIL_SIZE
    return bytes(record[body_end:]) == crc_tail(bytes(record[:body_end]))
