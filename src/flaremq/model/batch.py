"""Several messages in one body: what SEND_BATCH_MESSAGE carries and what an inner batch stores.

    size 4 · magic 4 · CRC 4 · flag 4 · body size 4 · body · properties size 2 · properties

again and again. Size counts itself; magic and CRC are 0 and nobody reads them.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from flaremq.base.errors import Malformed, PropertiesTooLong
from flaremq.model import sysflag
from flaremq.model.layout import PROPERTIES_SIZE_MAX
from flaremq.model.message import StoredMessage

_HEAD: Final = struct.Struct(">iiiii")  # Size, magic, CRC, flag, body size.
_PROPERTIES_SIZE: Final = struct.Struct(">h")
_FIXED_SIZE: Final = _HEAD.size + _PROPERTIES_SIZE.size


class BatchPart(NamedTuple):
    flag: int
    body: bytes
    raw_properties: bytes

    @property
    def size(self) -> int:
        """In bytes, within the batch."""
        return _FIXED_SIZE + len(self.body) + len(self.raw_properties)


def join_batch(parts: Iterable[BatchPart]) -> bytes:
    chunks: list[bytes] = []
    for part in parts:
        if len(part.raw_properties) > PROPERTIES_SIZE_MAX:
            raise PropertiesTooLong(len(part.raw_properties), PROPERTIES_SIZE_MAX)
        chunks += (
            _HEAD.pack(part.size, 0, 0, part.flag, len(part.body)),
            part.body,
            _PROPERTIES_SIZE.pack(len(part.raw_properties)),
            part.raw_properties,
        )
    return b"".join(chunks)


def split_batch(body: bytes) -> list[BatchPart]:
    """The messages of a batch, in order; none of an empty one. Malformed says where it breaks.

    Stricter than Java, which never compares the size of an element with its contents:
    INNER_NUM is counted by these sizes, so a wrong one would lose or invent messages.
    """
    parts = []
    at = 0
    while at < len(body):
        part = _part_at(body, at)
        parts.append(part)
        at += part.size
    return parts


def unwrap(message: StoredMessage) -> list[StoredMessage]:
    """The messages within an inner batch; any other message alone.

    Element k lies at queue_offset + k; flag, body and properties are its own, all else it
    has from the batch. It is no batch any more, and its sys_flag says so.
    """
    if not sysflag.is_inner_batch(message.sys_flag):
        return [message]
    if sysflag.is_compressed(message.sys_flag):
        raise Malformed("an inner batch that is still compressed: decompress its body before unwrapping it")
    sys_flag = message.sys_flag & ~(sysflag.NEED_UNWRAP | sysflag.INNER_BATCH)
    return [
        replace(
            message,
            queue_offset=message.queue_offset + k,
            sys_flag=sys_flag,
            flag=part.flag,
            body=part.body,
            raw_properties=part.raw_properties,
            body_crc=zlib.crc32(part.body) & 0x7FFF_FFFF,
            size=part.size,
        )
        for k, part in enumerate(split_batch(message.body))
    ]


def _part_at(body: bytes, at: int) -> BatchPart:
    left = len(body) - at
    if left < _FIXED_SIZE:
        raise Malformed(f"batch element at byte {at}: {left} bytes left, {_FIXED_SIZE} are the least", at)
    size, _, _, flag, body_size = _HEAD.unpack_from(body, at)
    if not _FIXED_SIZE <= size <= left:
        raise Malformed(f"batch element at byte {at}: size {size}, {_FIXED_SIZE} to {left} can be", at)
    if not 0 <= body_size <= size - _FIXED_SIZE:
        room = size - _FIXED_SIZE
        raise Malformed(f"batch element at byte {at}: body of {body_size} bytes where {room} fit", at + 16)
    body_at = at + _HEAD.size
    properties_at = body_at + body_size + _PROPERTIES_SIZE.size
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(body, body_at + body_size)
    if properties_at + properties_size != at + size:
        room = at + size - properties_at
        raise Malformed(
            f"batch element at byte {at}: properties of {properties_size} bytes where {room} are left",
            body_at + body_size,
        )
    return BatchPart(flag, body[body_at : body_at + body_size], body[properties_at : at + size])
