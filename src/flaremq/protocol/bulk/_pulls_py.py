"""Pulls, many at once: the reference twin. _pulls_c.pyx agrees with it on any rows.

`parse_pulls` takes pulls whose texts can be used as they are in the buffer. One with an escape in its
subscription, or from a proxy, is left to the plain lane.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

from flaremq.model.columns import Bytes
from flaremq.protocol.bulk._burst_py import check_tables, fields_of, is_text, number_of
from flaremq.protocol.bulk.columns import Chunk, Frame, Plain, Pull
from flaremq.protocol.codes import RESPONSE, RequestCode

NAMES: Final[Mapping[bytes, int]] = {
    b"consumerGroup": Pull.GROUP_AT,
    b"topic": Pull.TOPIC_AT,
    b"queueId": Pull.QUEUE_ID,
    b"queueOffset": Pull.QUEUE_OFFSET,
    b"maxMsgNums": Pull.MAX_MSG_NUMS,
    b"sysFlag": Pull.SYS_FLAG,
    b"commitOffset": Pull.COMMIT_OFFSET,
    b"suspendTimeoutMillis": Pull.SUSPEND_TIMEOUT_MILLIS,
    b"subscription": Pull.SUBSCRIPTION_AT,
    b"subVersion": Pull.SUB_VERSION,
    b"expressionType": Pull.EXPRESSION_TYPE_AT,
    b"maxMsgBytes": Pull.MAX_MSG_BYTES,
    b"bname": Pull.WIDTH,  # Known, but not used here; so is the mark of a stream.
    b"ReqT": Pull.WIDTH + 1,
}
_TEXTS: Final = (Pull.GROUP_AT, Pull.TOPIC_AT, Pull.SUBSCRIPTION_AT, Pull.EXPRESSION_TYPE_AT)
_NEEDED_TEXTS: Final = (Pull.GROUP_AT, Pull.TOPIC_AT)
_INTS: Final = (Pull.QUEUE_ID, Pull.MAX_MSG_NUMS, Pull.SYS_FLAG, Pull.MAX_MSG_BYTES)
_LONGS: Final = (
    *(Pull.QUEUE_OFFSET, Pull.COMMIT_OFFSET),
    *(Pull.SUSPEND_TIMEOUT_MILLIS, Pull.SUB_VERSION),
)
_CODES: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


def parse_pulls(data: Bytes, chunks: array[int], frames: array[int], pairs: array[int]) -> array[int]:
    """Rows of Pull for all ordinary pulls among the frames; the others are marked (Plain.FIELDS)."""
    check_tables(len(data), len(chunks) // Chunk.WIDTH, frames, pairs)
    data = bytes(data)
    pulls: array[int] = array("q")
    for row in range(len(frames) // Frame.WIDTH):
        f = row * Frame.WIDTH
        if frames[f + Frame.CODE] not in _CODES or frames[f + Frame.PLAIN]:
            continue
        if frames[f + Frame.FLAG] & RESPONSE:
            continue
        found = fields_of(data, frames, pairs, f, NAMES)
        pull = None if found is None else _pull(data, found)
        if pull is None:
            frames[f + Frame.PLAIN] = Plain.FIELDS
            continue
        pull[Pull.FRAME], pull[Pull.CHUNK] = row, frames[f + Frame.CHUNK]
        pull[Pull.SERIALIZE], pull[Pull.OPAQUE] = frames[f + Frame.SERIALIZE], frames[f + Frame.OPAQUE]
        pulls.extend(pull)
    return pulls


def _pull(data: bytes, found: dict[int, tuple[int, int, int]]) -> list[int] | None:
    row = [0] * Pull.WIDTH
    row[Pull.MAX_MSG_BYTES] = -1
    for column in _TEXTS:
        place = found.get(column)
        if place is None or not place[1]:
            if column in _NEEDED_TEXTS:
                return None
        elif is_text(data, place):
            row[column], row[column + 1] = place[:2]
        else:
            return None
    for column in (*_INTS, *_LONGS):
        if column in found:
            number = number_of(data, found[column], 64 if column in _LONGS else 32)
            if number is None:
                return None
            row[column] = number
        elif column != Pull.MAX_MSG_BYTES:
            return None
    return row
