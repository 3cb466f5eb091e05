"""Copies of stored records as rows of drafts: the reference twin. _copyrows_c.pyx gives the same rows.

    seen = glance(record)
    rows = CopyRows(store.offsets)
    rows.add(seen, b"Orders", 3, seen.properties)
    store.put_many(rows.drafts())

A glance finds where the parts of a record lie; `model.record.decode` gives all of it as a value.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final, NamedTuple

from flaremq.model import layout, sysflag
from flaremq.model.columns import Draft, Drafts
from flaremq.model.properties import find_property
from flaremq.store.drafts import NewMessage
from flaremq.store.queue.nextoffsets import QueueOffsets

_HEAD: Final = struct.Struct(">iiiiiqqiq")  # As far as the born timestamp.
_MIDDLE: Final = struct.Struct(">iqi")  # Reconsume times, prepared offset, body size.
_SIZE: Final = struct.Struct(">h")


class Glance(NamedTuple):
    record: memoryview
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    reconsume_times: int
    prepared_offset: int
    body_at: int
    body_size: int
    topic: bytes
    properties: bytes

    @property
    def body(self) -> memoryview:
        return self.record[self.body_at : self.body_at + self.body_size]

    def property(self, name: bytes) -> bytes | None:
        """The value of a property, None without."""
        return find_property(self.properties, name)


def glance(record: memoryview) -> Glance | None:
    """None if the lengths in it do not add up to its size."""
    if len(record) < layout.FIXED_SIZE:
        return None
    size, magic, crc, queue_id, flag, queue_offset, offset, sys_flag, born_ms = _HEAD.unpack_from(record)
    born_size = layout.HOST_SIZE_V6 if sys_flag & sysflag.BORN_HOST_V6 else layout.HOST_SIZE_V4
    store_size = layout.HOST_SIZE_V6 if sys_flag & sysflag.STORE_HOST_V6 else layout.HOST_SIZE_V4
    middle = layout.BORN_HOST_AT + born_size + 8 + store_size
    if size != len(record) or magic not in (layout.MAGIC_V1, layout.MAGIC_V2) or middle + 16 > size:
        return None
    times, prepared, body_size = _MIDDLE.unpack_from(record, middle)
    body_at = middle + _MIDDLE.size
    at, wide = body_at + body_size, magic == layout.MAGIC_V2
    if body_size < 0 or at + 1 + wide > size:
        return None
    topic_size = _SIZE.unpack_from(record, at)[0] if wide else record[at]
    topic_at = at + 1 + wide
    properties_at = topic_at + topic_size + 2
    if topic_size < 0 or properties_at > size:
        return None
    if properties_at + _SIZE.unpack_from(record, properties_at - 2)[0] != size:
        return None
    born = layout.BORN_HOST_AT
    return Glance(
        record, crc, queue_id, flag, queue_offset, offset, sys_flag, born_ms,
        bytes(record[born : born + born_size]), times, prepared, body_at, body_size,
        bytes(record[topic_at : topic_at + topic_size]), bytes(record[properties_at:]),
    )  # fmt: skip


class CopyRows:
    """Rows in the order in which they are added. Only messages for a queue: none that is merely prepared."""

    def __init__(self, offsets: QueueOffsets) -> None:
        self._offsets = offsets
        self.rows: array[int] = array("q")
        self._heads = bytearray()
        self._bodies = bytearray()

    def __len__(self) -> int:
        return len(self.rows) // Draft.WIDTH

    def add(
        self,
        seen: Glance,
        topic: bytes,
        queue_id: int,
        properties: bytes,
        *,
        sys_flag: int | None = None,
        prepared_offset: int | None = None,
        together: int = 1,
    ) -> None:
        """A copy for another queue. `together` rows from here on must be in one file, all or none."""
        flags = seen.flag, seen.sys_flag if sys_flag is None else sys_flag
        prepared = seen.prepared_offset if prepared_offset is None else prepared_offset
        times = seen.born_timestamp_ms, seen.reconsume_times, prepared
        self._add(topic, queue_id, properties, seen.born_host, seen.body, together, (*flags, *times))

    def add_new(self, message: NewMessage, body: bytes | None = None) -> None:
        """A message, perhaps with another body: many that differ in nothing else need only one message."""
        flags = message.flag, message.sys_flag
        times = message.born_timestamp_ms, message.reconsume_times, message.prepared_transaction_offset
        heads = message.properties, message.born_host
        body = message.body if body is None else body
        self._add(message.topic, message.queue_id, *heads, body, 1, (*flags, *times))

    def _add(
        self,
        topic: bytes,
        queue_id: int,
        properties: bytes,
        host: bytes,
        body: bytes | memoryview,
        together: int,
        rest: tuple[int, ...],
    ) -> None:
        at, properties_at = len(self._heads), len(self._heads) + len(topic)
        host_at, body_at = properties_at + len(properties), len(self._bodies)
        self._heads += topic + properties + host
        self._bodies += body
        self.rows.extend((
            at, len(topic), properties_at, len(properties), body_at, len(body), host_at, len(host),
            queue_id, self._offsets.number(topic, queue_id), 1, together, *rest, 0, 0, 0,
        ))  # fmt: skip

    def drafts(self) -> Drafts:
        return Drafts(self.rows, self._heads, self._bodies)

    def place(self, row: int) -> tuple[int, int, int]:
        """Where a row has landed: physical offset, size and queue offset."""
        at = row * Draft.WIDTH
        physical, size, queue_offset = self.rows[at + Draft.PHYSICAL_OFFSET : at + Draft.WIDTH]
        return physical, size, queue_offset
