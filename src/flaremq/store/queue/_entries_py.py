"""Queue entries, many a call: the reference twin. _entries_c.pyx agrees with it.

`group` turns walked records into runs of entries, one run per queue; `valid` says how far the
entries of a file make sense; `choose` picks the entries that answer a pull; `gather` copies their
records out of the log. Pure: bytes and int64 columns in, bytes and columns out.
"""

from __future__ import annotations

import struct
from array import array

from flaremq.model import layout
from flaremq.model.columns import Bytes, Fact

_ENTRY = struct.Struct(layout.ENTRY_FORMAT)
_LONG_MAX = (1 << 63) - 1
_NO_QUEUE = (0x4, 0xC)  # Transaction types prepared and rollback: such a record enters no queue.


class Run:
    """Columns of one queue's share of a group."""

    FIRST = 0  # Place of its first row in the order; its entries begin at 20 times that.
    COUNT = 1
    QUEUE_OFFSET = 2  # Of the first.
    DENSE = 3  # 1 when each queue offset follows the one before.
    OFFSET = 4  # Physical, of the first.
    END = 5  # Behind the last record.
    STORE_TIMESTAMP = 6  # Of the last.

    WIDTH = 7


class Limit:
    """Columns of the limits of one pull: one row."""

    COUNT_MAX = 0
    BYTES_MAX = 1
    SCAN_MAX = 2  # Entries looked at, matching or not.
    LOG_MIN = 3
    LOG_END = 4
    NEAR = 5  # Records so close to the end of the log count as in memory.
    NEAR_BYTES = 6
    NEAR_COUNT = 7
    FAR_BYTES = 8
    FAR_COUNT = 9
    FILE_SIZE = 10  # Of the log.

    WIDTH = 11


Key = tuple[bytes, int]


def group(facts: array[int], count: int, log: Bytes) -> tuple[list[Key], bytearray, array[int], array[int]]:
    """Entries of `count` records by queue: (queues, entries, runs, order of the rows)."""
    if count * Fact.WIDTH > len(facts):
        raise ValueError(f"{count} rows of a table of {len(facts) // Fact.WIDTH}")
    rows_of: dict[Key, list[int]] = {}
    for row in range(count):
        f = row * Fact.WIDTH
        at, size = facts[f + Fact.TOPIC_AT], facts[f + Fact.TOPIC_SIZE]
        if at < 0 or size < 0 or at + size > len(log):
            raise ValueError(f"row {row}: topic at {at}+{size} of {len(log)} bytes")
        if facts[f + Fact.SYS_FLAG] & 0xC in _NO_QUEUE:
            continue
        key = bytes(log[at : at + size]), facts[f + Fact.QUEUE_ID]
        rows_of.setdefault(key, []).append(row)
    entries, runs, order = bytearray(), array("q"), array("q")
    for rows in rows_of.values():
        runs.extend(_run(facts, rows, len(order)))
        order.extend(rows)
        for row in rows:
            f = row * Fact.WIDTH
            entries += _ENTRY.pack(facts[f + Fact.OFFSET], facts[f + Fact.SIZE], facts[f + Fact.TAGS_CODE])
    return list(rows_of), entries, runs, order


def _run(facts: array[int], rows: list[int], first: int) -> tuple[int, ...]:
    queue_offsets = [facts[row * Fact.WIDTH + Fact.QUEUE_OFFSET] for row in rows]
    dense = queue_offsets == list(range(queue_offsets[0], queue_offsets[0] + len(rows)))
    begin, last = rows[0] * Fact.WIDTH, rows[-1] * Fact.WIDTH
    return (
        first,
        len(rows),
        queue_offsets[0],
        int(dense),
        facts[begin + Fact.OFFSET],
        facts[last + Fact.OFFSET] + facts[last + Fact.SIZE],
        facts[last + Fact.STORE_TIMESTAMP],
    )


def valid(entries: Bytes, count: int, below: int, begin: int = 0) -> tuple[int, int]:
    """How many of the leading entries are sound, and where the last real record of them ends.

    Sound is an offset below `below` that is not before `begin` nor before the end of the last record,
    and a size above 0; a filler counts as sound but names no record. 0 when none of them is real.
    """
    if count * layout.ENTRY_SIZE > len(entries):
        raise ValueError(f"{count} entries in {len(entries)} bytes")
    end = 0
    for i in range(count):
        offset, size, _ = _ENTRY.unpack_from(entries, i * layout.ENTRY_SIZE)
        if offset < 0 or size <= 0 or offset >= below:
            return i, end
        if size != layout.FILLER_SIZE:
            if offset < begin or offset + size > _LONG_MAX:
                return i, end
            begin = end = offset + size
    return count, end


def choose(
    entries: Bytes, limits: array[int], codes: array[int] | None, chosen: array[int]
) -> tuple[int, int, int, int, int]:
    """Pick the entries that answer a pull, in the order of DefaultMessageStore.getMessage.

    Of an entry that holds the address of an extension unit nothing is known here, so it matches any
    codes. Fills `chosen` with pairs of offset and size. Gives how many were taken, how many were looked
    at, the bytes taken, the offset of the last one looked at, and how many records were gone.
    """
    taken = scanned = size_sum = last = gone = skip_below = 0
    for i in range(min(len(entries) // layout.ENTRY_SIZE, limits[Limit.SCAN_MAX])):
        offset, size, tags_code = _ENTRY.unpack_from(entries, i * layout.ENTRY_SIZE)
        if taken == len(chosen) // 2 or size_sum >= limits[Limit.BYTES_MAX]:
            break
        if taken and _full(limits, taken, size_sum + size, offset):
            break
        scanned, last = i + 1, offset
        if size <= 0 or size == layout.FILLER_SIZE or offset < skip_below:
            continue
        if codes is not None and tags_code > layout.EXT_ADDRESS_MAX and _as_int(tags_code) not in codes:
            continue
        if offset < limits[Limit.LOG_MIN]:
            file_size = limits[Limit.FILE_SIZE]
            skip_below = offset - offset % file_size + file_size
            gone += 1
            continue
        chosen[2 * taken], chosen[2 * taken + 1] = offset, size
        taken += 1
        size_sum += size
    return taken, scanned, size_sum, last, gone


def _full(limits: array[int], taken: int, size_sum: int, physical_offset: int) -> bool:
    """Whether one more record is one too many. The first is always taken, whatever its size."""
    if taken + 1 > limits[Limit.COUNT_MAX] or size_sum > limits[Limit.BYTES_MAX]:
        return True
    if limits[Limit.LOG_END] - physical_offset <= limits[Limit.NEAR]:
        return size_sum > limits[Limit.NEAR_BYTES] or taken > limits[Limit.NEAR_COUNT] - 1
    return size_sum > limits[Limit.FAR_BYTES] or taken > limits[Limit.FAR_COUNT] - 1


def gather(log: Bytes, base: int, chosen: array[int], first: int, last: int) -> bytes:
    """The records chosen[first:last], which all lie in this file of the log, back to back."""
    pieces = []
    for i in range(first, last):
        at, size = chosen[2 * i] - base, chosen[2 * i + 1]
        if at < 0 or size < 0 or at + size > len(log):
            raise ValueError(f"record at {at}+{size} of {len(log)} bytes")
        pieces.append(log[at : at + size])
    return b"".join(pieces)


def take(
    entries: Bytes, limits: array[int], codes: array[int] | None, log: Bytes, base: int, size_max: int
) -> tuple[int, int, int, int, int, bytes | None]:
    """`choose` and `gather` in one step, for the ordinary read: a few small records of one file.

    `log` is what can be read of the file that begins at `base`. Gives what `choose` gives, and the records;
    None for them if none were taken, they are `size_max` bytes or more, or not all of them lie there.
    """
    chosen: array[int] = array("q", bytes(16 * max(0, limits[Limit.COUNT_MAX])))
    answer = choose(entries, limits, codes, chosen)
    taken, size = answer[0], answer[2]
    inside = all(
        base <= chosen[2 * i] and chosen[2 * i] + chosen[2 * i + 1] <= base + len(log) for i in range(taken)
    )
    data = gather(log, base, chosen, 0, taken) if taken and size < size_max and inside else None
    return *answer, data


def _as_int(code: int) -> int:
    """Tags are compared as Java's int, whatever stands in the long."""
    return ((code & 0xFFFF_FFFF) ^ 0x8000_0000) - 0x8000_0000
