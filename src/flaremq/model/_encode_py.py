"""Writing records, many a call: the reference twin. _encode_c.pyx gives the same bytes and columns.

`Encoder.encode_many` turns rows of drafts into records, straight into a log file.
"""

from __future__ import annotations

import struct
from array import array

from flaremq.model import layout
from flaremq.model._record_py import crc31, crc_tail
from flaremq.model.columns import Bytes, Draft, Drafts

_BORN_V6, _STORE_V6 = 0x10, 0x20  # Bits of the sys flag.
_HEAD = struct.Struct(">iiIiiqqiq")  # Total size to born timestamp.
_TAIL = struct.Struct(">iqi")  # Reconsume times to body length.
_LONG = struct.Struct(">q")
_INT_COLUMNS = (Draft.QUEUE_ID, Draft.FLAG, Draft.SYS_FLAG, Draft.RECONSUME_TIMES)


class Encoder:
    """Makes records for one store, with its host and limits, and a CRC in each record if enabled."""

    def __init__(
        self,
        store_host: bytes,
        append_crc: bool = False,
        body_max: int = 1 << 31,
        record_max: int = 1 << 31,
        gap: int = 0,
    ) -> None:
        """`gap`: so many bytes are left free before each record."""
        if len(store_host) not in (layout.HOST_SIZE_V4, layout.HOST_SIZE_V6):
            raise ValueError(f"store host of {len(store_host)} bytes: expected 8 or 20")
        self._store_host = bytes(store_host)
        self._append_crc = bool(append_crc)
        self._body_max = body_max
        self._record_max = record_max
        self._gap = gap

    def _record_size(self, drafts: Drafts, row: int) -> int:
        """The size of this row's record in the log; the row must be checked."""
        rows, r = drafts.rows, row * Draft.WIDTH
        topic_size = rows[r + Draft.TOPIC_SIZE]
        return (
            layout.FIXED_SIZE
            + (topic_size > layout.TOPIC_SIZE_MAX_V1)
            + (rows[r + Draft.BORN_HOST_SIZE] - layout.HOST_SIZE_V4)
            + (len(self._store_host) - layout.HOST_SIZE_V4)
            + topic_size
            + rows[r + Draft.BODY_SIZE]
            + self._properties_size(drafts, r)
        )

    def _is_illegal(self, drafts: Drafts, row: int) -> bool:
        """Whether one of its sizes exceeds its limit."""
        r, rows = row * Draft.WIDTH, drafts.rows
        return (
            rows[r + Draft.BODY_SIZE] > self._body_max
            or not 0 < rows[r + Draft.TOPIC_SIZE] <= layout.TOPIC_SIZE_MAX_V2
            or self._properties_size(drafts, r) > layout.PROPERTIES_SIZE_MAX
            or self._record_size(drafts, row) > self._record_max
        )

    def encode_many(
        self,
        drafts: Drafts,
        first: int,
        out: bytearray | memoryview,
        at: int,
        base: int,
        next_offsets: array[int],
        now_ms: int,
    ) -> int:
        """Write rows from `first` on to out[at:], and return how many fitted.

        `base` is the physical offset of out[0]. Each row takes its queue offset from `next_offsets` and
        advances it; its last three columns are filled in. After every record there is still room for a blank
        one. Rows that belong together are written all or none. If a row exceeds a size limit, nothing is
        written at all, and -1 - row is returned.
        """
        check_rows(drafts, first, len(next_offsets))
        if not 0 <= at <= len(out):
            raise ValueError(f"place {at} of {len(out)}")
        for row in range(first, len(drafts)):
            if self._is_illegal(drafts, row):
                return -1 - row
        rows, written = drafts.rows, 0
        for row in range(first, len(drafts)):
            r = row * Draft.WIDTH
            needed = sum(
                self._gap + self._record_size(drafts, row + i) for i in range(rows[r + Draft.TOGETHER])
            )
            if at + needed + layout.BLANK_SIZE > len(out):
                break
            size = self._record_size(drafts, row)
            queue, queue_offset = rows[r + Draft.QUEUE], 0
            if queue >= 0:
                queue_offset = next_offsets[queue]
                next_offsets[queue] += rows[r + Draft.STEP]
            at += self._gap
            rows[r + Draft.PHYSICAL_OFFSET] = base + at
            rows[r + Draft.SIZE] = size
            rows[r + Draft.QUEUE_OFFSET] = queue_offset
            record = self._record(drafts, r, now_ms)
            # Size and magic last: readers of the map see no magic before the record is complete.
            out[at + layout.BLANK_SIZE : at + size] = record[layout.BLANK_SIZE :]
            out[at : at + layout.BLANK_SIZE] = record[: layout.BLANK_SIZE]
            at += size
            written += 1
        return written

    def _record(self, drafts: Drafts, r: int, now_ms: int) -> bytes:
        rows = drafts.rows
        topic = _piece(drafts.heads, rows[r + Draft.TOPIC_AT], rows[r + Draft.TOPIC_SIZE])
        born_host = _piece(drafts.heads, rows[r + Draft.BORN_HOST_AT], rows[r + Draft.BORN_HOST_SIZE])
        body = _piece(drafts.bodies, rows[r + Draft.BODY_AT], rows[r + Draft.BODY_SIZE])
        v2 = len(topic) > layout.TOPIC_SIZE_MAX_V1
        # The host bits give the widths, so they are set from the hosts, never from the sender.
        flag = rows[r + Draft.SYS_FLAG] & ~(_BORN_V6 | _STORE_V6)
        flag |= _BORN_V6 * (len(born_host) == layout.HOST_SIZE_V6)
        flag |= _STORE_V6 * (len(self._store_host) == layout.HOST_SIZE_V6)
        properties = _piece(drafts.heads, rows[r + Draft.PROPERTIES_AT], rows[r + Draft.PROPERTIES_SIZE])
        if self._append_crc and properties and properties[-1] != layout.PROPERTY_END:
            properties += bytes([layout.PROPERTY_END])
        record = b"".join(
            (
                _HEAD.pack(
                    rows[r + Draft.SIZE],
                    layout.MAGIC_V2 if v2 else layout.MAGIC_V1,
                    crc31(body),
                    rows[r + Draft.QUEUE_ID],
                    rows[r + Draft.FLAG],
                    rows[r + Draft.QUEUE_OFFSET],
                    rows[r + Draft.PHYSICAL_OFFSET],
                    flag,
                    rows[r + Draft.BORN_TIMESTAMP],
                ),
                born_host,
                _LONG.pack(now_ms),
                self._store_host,
                _TAIL.pack(rows[r + Draft.RECONSUME_TIMES], rows[r + Draft.PREPARED_OFFSET], len(body)),
                body,
                struct.pack(">h" if v2 else ">b", len(topic)),
                topic,
                struct.pack(">h", self._properties_size(drafts, r)),
                properties,
            )
        )
        return record + crc_tail(record) if self._append_crc else record

    def _properties_size(self, drafts: Drafts, r: int) -> int:
        size = drafts.rows[r + Draft.PROPERTIES_SIZE]
        if self._append_crc:
            last = drafts.rows[r + Draft.PROPERTIES_AT] + size - 1
            if size and drafts.heads[last] != layout.PROPERTY_END:
                size += 1
            size += layout.CRC_TAIL_SIZE
        return size


def _piece(buffer: Bytes, at: int, size: int) -> bytes:
    return bytes(buffer[at : at + size])


def check_rows(drafts: Drafts, first: int, queues: int) -> None:
    """Raises for rows that point outside their buffers, a bug of the caller, before a byte is written."""
    rows, count = drafts.rows, len(drafts)
    if not 0 <= first <= count:
        raise ValueError(f"row {first} of {count}")
    for row in range(first, count):
        r = row * Draft.WIDTH
        places = (
            (Draft.TOPIC_AT, len(drafts.heads)),
            (Draft.PROPERTIES_AT, len(drafts.heads)),
            (Draft.BODY_AT, len(drafts.bodies)),
            (Draft.BORN_HOST_AT, len(drafts.heads)),
        )
        for column, limit in places:
            piece_at, size = rows[r + column], rows[r + column + 1]
            if piece_at < 0 or size < 0 or size > limit or piece_at > limit - size:
                raise ValueError(f"row {row}: bytes {piece_at}+{size} of a buffer of {limit}")
        if rows[r + Draft.BORN_HOST_SIZE] not in (layout.HOST_SIZE_V4, layout.HOST_SIZE_V6):
            raise ValueError(f"row {row}: born host of {rows[r + Draft.BORN_HOST_SIZE]} bytes")
        if rows[r + Draft.QUEUE] >= queues:
            raise ValueError(f"row {row}: queue {rows[r + Draft.QUEUE]} of {queues}")
        if not 1 <= rows[r + Draft.TOGETHER] <= count - row:
            raise ValueError(f"row {row}: {rows[r + Draft.TOGETHER]} rows together, {count - row} left")
        for column in _INT_COLUMNS:
            if not -(1 << 31) <= rows[r + column] < 1 << 31:
                raise ValueError(f"row {row}: {rows[r + column]} needs more than 32 bits")
