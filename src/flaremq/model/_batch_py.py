"""Several messages in one body: the reference twin. _batch_c.pyx writes the same bytes and rows."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from flaremq.base.errors import Malformed, MessageIllegal, PropertiesTooLong
from flaremq.model import properties as names
from flaremq.model.columns import Draft
from flaremq.model.layout import PROPERTIES_SIZE_MAX
from flaremq.model.properties import find_property

_HEAD: Final = struct.Struct(">iiiii")  # Size, magic, CRC, flag, body size.
_PROPERTIES_SIZE: Final = struct.Struct(">h")
FIXED_SIZE: Final = _HEAD.size + _PROPERTIES_SIZE.size
"""Bytes of an element besides its body and its properties."""
_WAITING: Final = tuple(
    name.encode()
    for name in (names.DELAY, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
)
_PREPARED: Final = names.TRANSACTION_PREPARED.encode()


class BatchPart(NamedTuple):
    flag: int
    body: bytes
    raw_properties: bytes

    @property
    def size(self) -> int:
        """In bytes, within the batch."""
        return FIXED_SIZE + len(self.body) + len(self.raw_properties)


def join_batch(bodies: Sequence[bytes], texts: Sequence[str | bytes], flags: Sequence[int] = ()) -> bytes:
    """A batch from columns: bodies, properties as they go into a record, and flags if any message has one.

    Raises PropertiesTooLong, UnicodeEncodeError for half a surrogate pair, and ValueError for columns of
    different lengths.
    """
    chunks: list[bytes] = []
    for body, text, flag in zip(bodies, texts, flags or [0] * len(bodies), strict=True):
        raw = text.encode() if isinstance(text, str) else text
        if len(raw) > PROPERTIES_SIZE_MAX:
            raise PropertiesTooLong(len(raw), PROPERTIES_SIZE_MAX)
        size = FIXED_SIZE + len(body) + len(raw)
        chunks += (_HEAD.pack(size, 0, 0, flag, len(body)), body, _PROPERTIES_SIZE.pack(len(raw)), raw)
    return b"".join(chunks)


def split_batch(body: bytes) -> list[BatchPart]:
    """The messages of a batch, in order. Raises Malformed with the place of the error.

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


def batch_rows(buffer: bytes, lead: int, base: Sequence[int]) -> array[int]:
    """Draft rows for the elements of a batch in `buffer`, after `lead` bytes.

    `base` is the row that all of them share, except for body, properties and flag. Raises Malformed, and
    MessageIllegal for an element that would have to wait somewhere else.
    """
    rows: array[int] = array("q")
    at = lead
    for part in split_batch(buffer[lead:]):
        check_stays(part.raw_properties)
        row = array("q", base)
        row[Draft.BODY_AT], row[Draft.BODY_SIZE] = at + _HEAD.size, len(part.body)
        at += part.size
        row[Draft.PROPERTIES_AT] = at - len(part.raw_properties)
        row[Draft.PROPERTIES_SIZE] = len(part.raw_properties)
        row[Draft.FLAG] = part.flag
        rows += row
    if rows:
        rows[Draft.TOGETHER] = len(rows) // Draft.WIDTH
    return rows


def check_stays(raw_properties: bytes) -> None:
    """Raise MessageIllegal for what asks to wait for a moment or a transaction: it would be stored, and
    delivered, at once with the rest of its batch."""
    if any(find_property(raw_properties, name) is not None for name in _WAITING):
        raise MessageIllegal("a batch cannot contain a delayed message: send it alone")
    if (find_property(raw_properties, _PREPARED) or b"").lower() == b"true":
        raise MessageIllegal("a batch cannot contain a transactional message: send it alone")


def _part_at(body: bytes, at: int) -> BatchPart:
    left = len(body) - at
    if left < FIXED_SIZE:
        raise Malformed(f"batch element at byte {at}: {left} bytes left, expected at least {FIXED_SIZE}", at)
    size, _, _, flag, body_size = _HEAD.unpack_from(body, at)
    if not FIXED_SIZE <= size <= left:
        raise Malformed(f"batch element at byte {at}: size {size}, expected {FIXED_SIZE} to {left}", at)
    if not 0 <= body_size <= size - FIXED_SIZE:
        room = size - FIXED_SIZE
        raise Malformed(
            f"batch element at byte {at}: body of {body_size} bytes, expected at most {room}", at + 16
        )
    body_at = at + _HEAD.size
    properties_at = body_at + body_size + _PROPERTIES_SIZE.size
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(body, body_at + body_size)
    if properties_at + properties_size != at + size:
        room = at + size - properties_at
        raise Malformed(
            f"batch element at byte {at}: properties of {properties_size} bytes, expected {room}",
            body_at + body_size,
        )
    return BatchPart(flag, body[body_at : body_at + body_size], body[properties_at : at + size])
