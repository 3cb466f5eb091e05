"""Reading records: walking many, and decoding them into messages.

Takes the compiled twin where it is built; FLAREMQ_PURE=1 forces the Python one.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flaremq.base.errors import Malformed
from flaremq.model import layout
from flaremq.model.columns import Bytes, Check, Fact, Stop, facts_table
from flaremq.model.message import Host, StoredMessage

if TYPE_CHECKING or os.environ.get("FLAREMQ_PURE"):
    from flaremq.model._record_py import crc31, leap, walk, walk_entries
else:
    try:
        from flaremq.model._record_c import crc31, leap, walk, walk_entries
    except ImportError:
        from flaremq.model._record_py import crc31, leap, walk, walk_entries

__all__ = ["crc31", "decode", "decode_many", "leap", "stored_message", "walk", "walk_entries"]

_ROWS = 256  # Per step of decode_many.
_STOPS = {
    Stop.BLANK: "a blank record, which ends a log file and means nothing elsewhere",
    Stop.INVALID: "no record: wrong magic, wrong size or wrong CRC",
    Stop.HALF: "a record whose lengths do not add up to its size",
}


def decode(data: Bytes, at: int = 0, check: int = Check.BODY_CRC) -> StoredMessage:
    """The record at data[at]. Raises Malformed if there is no valid one."""
    facts = facts_table(1)
    count, at, stop = walk(data, at, len(data), 0, facts, check)
    if not count:
        raise Malformed(f"at byte {at}: {_STOPS.get(stop, 'nothing')}", at)
    return stored_message(data, facts, 0)


def decode_many(data: Bytes, check: int = Check.BODY_CRC) -> Iterator[StoredMessage]:
    """All records in `data`, back to back as in the body of a pull answer."""
    facts, at = facts_table(_ROWS), 0
    while at < len(data):
        count, at, stop = walk(data, at, len(data), 0, facts, check)
        for row in range(count):
            yield stored_message(data, facts, row)
        if stop != Stop.LIMIT:
            raise Malformed(f"at byte {at}: {_STOPS[stop]}", at)


def readdressed(record: Bytes, topic: bytes, queue_id: int) -> bytes:
    """The same record for another topic and queue. The CRC that a record may have as its last property is not
    made anew."""
    facts = facts_table(1)
    walk(record, 0, len(record), 0, facts, Check.NOTHING)
    at, end = facts[Fact.TOPIC_AT], facts[Fact.TOPIC_AT] + facts[Fact.TOPIC_SIZE]
    is_v2 = struct.unpack_from(">i", record, layout.MAGIC_AT)[0] == layout.MAGIC_V2
    length = struct.pack(">h" if is_v2 else ">b", len(topic))
    made = bytearray(record)
    made[at - len(length) : end] = length + topic
    struct.pack_into(">i", made, 0, len(made))
    struct.pack_into(">i", made, layout.QUEUE_ID_AT, queue_id)
    return bytes(made)


def stored_message(data: Bytes, facts: array[int], row: int) -> StoredMessage:
    """A walked record as an object, with the offset stored in it, wherever its bytes are now."""
    f = row * Fact.WIDTH
    body_at, body_size = facts[f + Fact.BODY_AT], facts[f + Fact.BODY_SIZE]
    topic_at, topic_size = facts[f + Fact.TOPIC_AT], facts[f + Fact.TOPIC_SIZE]
    properties_at = facts[f + Fact.PROPERTIES_AT]
    at = properties_at + facts[f + Fact.PROPERTIES_SIZE] - facts[f + Fact.SIZE]
    crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms = struct.unpack_from(
        ">iiiqqiq", data, at + layout.BODY_CRC_AT
    )
    born_end = at + layout.BORN_HOST_AT + (layout.HOST_SIZE_V6 if sys_flag & 0x10 else layout.HOST_SIZE_V4)
    (store_ms,) = struct.unpack_from(">q", data, born_end)
    times, prepared_offset = struct.unpack_from(">iq", data, body_at - 16)
    return StoredMessage(
        topic=bytes(data[topic_at : topic_at + topic_size]).decode("utf-8", "replace"),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host=Host.decode(bytes(data[at + layout.BORN_HOST_AT : born_end])),
        store_timestamp_ms=store_ms,
        store_host=Host.decode(bytes(data[born_end + 8 : body_at - 16])),
        reconsume_times=times,
        prepared_transaction_offset=prepared_offset,
        body=bytes(data[body_at : body_at + body_size]),
        raw_properties=bytes(data[properties_at : properties_at + facts[f + Fact.PROPERTIES_SIZE]]),
        body_crc=crc,
        size=facts[f + Fact.SIZE],
    )
