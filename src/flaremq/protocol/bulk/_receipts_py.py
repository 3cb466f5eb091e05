"""Answers to sends, many at once: the reference twin. _receipts_c.pyx agrees with it on any rows.

`parse_receipts` takes the answers that only say where a message was stored. All others, above all refusals,
are left as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

from flaremq.model.columns import Bytes
from flaremq.protocol.bulk._burst_py import check_tables, fields_of, is_text, number_of
from flaremq.protocol.bulk.columns import Chunk, Frame, Stored
from flaremq.protocol.codes import RESPONSE, ResponseCode

NAMES: Final[Mapping[bytes, int]] = {
    b"msgId": Stored.ID_AT,
    b"queueId": Stored.QUEUE_ID,
    b"queueOffset": Stored.QUEUE_OFFSET,
    b"MSG_REGION": Stored.REGION_AT,
    b"transactionId": Stored.WIDTH,  # Known, but not used here.
    b"TRACE_ON": Stored.WIDTH + 1,
}
_NEEDED: Final = (Stored.ID_AT, Stored.QUEUE_ID, Stored.QUEUE_OFFSET)


def parse_receipts(data: Bytes, chunks: array[int], frames: array[int], pairs: array[int]) -> array[int]:
    """Rows of Stored for all ordinary answers to sends among the frames."""
    check_tables(len(data), len(chunks) // Chunk.WIDTH, frames, pairs)
    data = bytes(data)
    rows: array[int] = array("q")
    for row in range(len(frames) // Frame.WIDTH):
        f = row * Frame.WIDTH
        if frames[f + Frame.PLAIN] or frames[f + Frame.CODE] != ResponseCode.SUCCESS:
            continue
        if not frames[f + Frame.FLAG] & RESPONSE or frames[f + Frame.BODY_SIZE]:
            continue
        found = fields_of(data, frames, pairs, f, NAMES)
        stored = None if found is None else _stored(data, found)
        if stored is not None:
            rows.extend((row, frames[f + Frame.CHUNK], frames[f + Frame.OPAQUE], *stored))
    return rows


def _stored(data: bytes, found: dict[int, tuple[int, int, int]]) -> tuple[int, ...] | None:
    if any(column not in found for column in _NEEDED):
        return None
    place = found[Stored.ID_AT]
    queue_id = number_of(data, found[Stored.QUEUE_ID], 32)
    queue_offset = number_of(data, found[Stored.QUEUE_OFFSET], 64)
    if queue_id is None or queue_offset is None or not place[1] or not is_text(data, place):
        return None
    region = _region(data, found)
    return None if region is None else (queue_id, queue_offset, place[0], place[1], *region)


def _region(data: bytes, found: dict[int, tuple[int, int, int]]) -> tuple[int, int] | None:
    """Where the region is; nowhere if messages are not to be traced."""
    place = found.get(Stored.REGION_AT)
    if place is None:
        return 0, 0
    if not is_text(data, place):
        return None
    trace_on = found.get(Stored.WIDTH + 1)
    if trace_on is not None and data[trace_on[0] : trace_on[0] + trace_on[1]] == b"false":
        return 0, 0
    return (place[0], place[1]) if place[1] else (0, 0)
