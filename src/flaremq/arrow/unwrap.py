"""Records that are not plain: compressed bodies, and several messages in one record. One message at a time.

A record that is not what its flags say stays as it is: one such message must not keep a whole table from
being read, and its flags still show it.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import replace
from typing import Final

from flaremq.base.errors import BodyTooLarge, Malformed
from flaremq.model import layout, sysflag
from flaremq.model.batch import unwrap
from flaremq.model.columns import Bytes, Fact
from flaremq.model.compression import BODY_SIZE_MAX, decompress
from flaremq.model.message import StoredMessage
from flaremq.model.record import stored_message

_HEAD: Final = struct.Struct(">iiiiiqqiq")  # Total size to born timestamp.


def open_bodies(data: Bytes, facts: array[int], count: int) -> bytes:
    """The decompressed bodies, back to back. In the table, a position below zero says where each lies."""
    view, out = memoryview(data), bytearray()
    for f in range(0, count * Fact.WIDTH, Fact.WIDTH):
        flag = facts[f + Fact.SYS_FLAG]
        if sysflag.is_compressed(flag):
            at = facts[f + Fact.BODY_AT]
            try:
                body = decompress(bytes(view[at : at + facts[f + Fact.BODY_SIZE]]), flag, BODY_SIZE_MAX)
            except (Malformed, BodyTooLarge):
                continue
            facts[f + Fact.BODY_AT], facts[f + Fact.BODY_SIZE] = -len(out) - 1, len(body)
            out += body
    return bytes(out)


def unwrapped(data: Bytes, facts: array[int], count: int) -> bytes | None:
    """All these records, rewritten with one message in each; None if they have one each already."""
    flags = facts[Fact.SYS_FLAG : count * Fact.WIDTH : Fact.WIDTH]
    parts = {row: _parts(data, facts, row) for row, flag in enumerate(flags) if sysflag.is_inner_batch(flag)}
    if not any(parts.values()):
        return None
    view, out = memoryview(data), bytearray()
    for row in range(count):
        f = row * Fact.WIDTH
        end = facts[f + Fact.PROPERTIES_AT] + facts[f + Fact.PROPERTIES_SIZE]
        out += parts.get(row) or view[end - facts[f + Fact.SIZE] : end]
    return bytes(out)


def _parts(data: Bytes, facts: array[int], row: int) -> bytes:
    """The messages inside one record, as records; empty if it cannot be unwrapped."""
    try:
        return b"".join(_encoded(message) for message in unwrap(_plain(stored_message(data, facts, row))))
    except (Malformed, BodyTooLarge):
        return b""


def _plain(message: StoredMessage) -> StoredMessage:
    if not sysflag.is_compressed(message.sys_flag):
        return message
    body = decompress(message.body, message.sys_flag, BODY_SIZE_MAX)
    return replace(message, body=body, sys_flag=sysflag.without_compression(message.sys_flag))


def _encoded(message: StoredMessage) -> bytes:
    """A record of version 2, whose topic may be longer than 127 bytes."""
    topic = message.topic.encode()
    tail = struct.pack(">h", len(topic)) + topic
    tail += struct.pack(">h", len(message.raw_properties)) + message.raw_properties
    middle = message.born_host.encode() + struct.pack(">q", message.store_timestamp_ms)
    middle += message.store_host.encode()
    middle += struct.pack(
        ">iqi", message.reconsume_times, message.prepared_transaction_offset, len(message.body)
    )
    head = _HEAD.pack(
        _HEAD.size + len(middle) + len(message.body) + len(tail),
        layout.MAGIC_V2,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        message.sys_flag,
        message.born_timestamp_ms,
    )
    return head + middle + message.body + tail
