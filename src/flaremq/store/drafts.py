"""From messages to rows of drafts: the plain lane, for one message and for batches.

A broker's fast lane fills the rows itself, straight from the socket's buffer. Here is the readable
way, with the rewriting that unusual messages need at the moment of their append.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from flaremq.base.errors import BodyTooLarge, InvalidName, MessageIllegal
from flaremq.model import layout, sysflag
from flaremq.model.batch import FIXED_SIZE, batch_rows
from flaremq.model.columns import Draft, Drafts
from flaremq.model.message import StoredMessage
from flaremq.model.properties import decode_properties, encode_properties
from flaremq.store.api import BatchResult, PutResult, PutStatus
from flaremq.store.queue.nextoffsets import QueueOffsets

_RETRY_PREFIX = b"%RETRY%"
_TOPIC_SIZE_MAX, _RETRY_TOPIC_SIZE_MAX = 127, 255
_LMQ_PREFIX = "%LMQ%"
_NO_LMQ_TOPICS = (b"%RETRY%", b"rmq_sys_", b"SCHEDULE_TOPIC_XXXX")
_LOCAL_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message on its way into the log. Properties are the raw string of the protocol."""

    topic: bytes
    body: bytes
    queue_id: int = 0
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: bytes = _LOCAL_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def copy_of(stored: StoredMessage) -> NewMessage:
    """A stored message, to be stored once more."""
    return NewMessage(
        topic=stored.topic.encode(),
        body=stored.body,
        queue_id=stored.queue_id,
        properties=stored.raw_properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host.encode(),
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )


class Drafting:
    """Turns messages into drafts, for one store with its own rules."""

    def __init__(self, offsets: QueueOffsets, *, append_crc: bool, lmq: bool, auto_v2: bool) -> None:
        self._offsets = offsets
        self._append_crc = append_crc
        self._lmq = lmq
        self._auto_v2 = auto_v2
        self._light: list[int] = []  # Places of light queues that the last draft takes an offset of.

    def one(self, message: NewMessage) -> Drafts:
        self._light = []
        properties, step = message.properties, 1
        if b"__CRC32#\x01" in properties and self._append_crc:
            properties = _without(properties, layout.CRC_PROPERTY.decode())
        if message.sys_flag & sysflag.INNER_BATCH:
            properties, step = self._inner_batch(message, properties)
        if self._lmq and b"INNER_MULTI_DISPATCH\x01" in properties:
            properties = self._light_queues(message, properties)
        row = self._row(message, len(properties), step, 0, 0)
        return Drafts(array("q", row), message.topic + properties + message.born_host, message.body)

    def group(self, messages: Sequence[NewMessage]) -> Drafts:
        """Messages of any topics, one behind the other: in one file, all or none."""
        self._light = []
        rows, heads, bodies = array("q"), bytearray(), bytearray()
        for message in messages:
            row = self._row(message, len(message.properties), 1, len(heads), len(bodies))
            rows.extend(row)
            heads += message.topic + message.properties + message.born_host
            bodies += message.body
        rows[Draft.TOGETHER] = len(messages)
        return Drafts(rows, bytes(heads), bytes(bodies))

    def together(self, batch: NewMessage, size_max: int) -> Drafts:
        """Its body is a batch: consecutive offsets, one file, all or none."""
        self._light = []
        if sysflag.transaction_type(batch.sys_flag):
            raise MessageIllegal("a batch may hold no transactional message: send it alone")
        topic, host = batch.topic, batch.born_host
        lead = len(topic) + len(host)
        base = self._row(batch, 0, 1, 0, 0)
        buffer = topic + host + batch.body
        drafts = Drafts(batch_rows(buffer, lead, base), buffer, buffer)
        if not drafts:
            raise MessageIllegal("a batch without a message: put at least one into it")
        size = len(batch.body) - FIXED_SIZE * len(drafts)
        if size > size_max:
            raise BodyTooLarge(size, size_max)
        return drafts

    def stored(self) -> None:
        """The last draft is in the log: light queues move on with it."""
        for place in self._light:
            self._offsets.next[place] += 1
        self._light = []

    def _row(
        self, message: NewMessage, properties_size: int, step: int, topic_at: int, body_at: int
    ) -> tuple[int, ...]:
        """Columns of Draft, in their order; topic, properties and host lie one behind the other."""
        topic = message.topic
        self._check_topic(topic)
        properties_at = topic_at + len(topic)
        kind = sysflag.transaction_type(message.sys_flag)
        queued = kind in (sysflag.TRANSACTION_NONE, sysflag.TRANSACTION_COMMIT)
        number = self._offsets.number(topic, message.queue_id) if queued else -1
        return (
            topic_at, len(topic), properties_at, properties_size, body_at, len(message.body),
            properties_at + properties_size, len(message.born_host), message.queue_id, number, step, 1,
            message.flag, message.sys_flag, message.born_timestamp_ms, message.reconsume_times,
            message.prepared_transaction_offset, 0, 0, 0,
        )  # fmt: skip

    def _check_topic(self, topic: bytes) -> None:
        limit = (
            _RETRY_TOPIC_SIZE_MAX if topic.startswith(_RETRY_PREFIX) and self._auto_v2 else _TOPIC_SIZE_MAX
        )
        if not 0 < len(topic) <= limit:
            raise InvalidName(f"topic {topic[:40]!r} of {len(topic)} bytes: 1 to {limit} are allowed")
        if b"/" in topic or b"\0" in topic or topic in (b".", b".."):
            raise InvalidName(f"topic {topic!r}: it cannot be the name of a folder, and so of no queue")

    def _inner_batch(self, message: NewMessage, properties: bytes) -> tuple[bytes, int]:
        """One record for many messages: it tells where they begin and how many they are."""
        known = decode_properties(properties)
        count = known.get("INNER_NUM", "")
        if not count.isdigit() or not 0 < int(count) <= 0x7FFF:
            raise MessageIllegal(f"inner batch with INNER_NUM {count!r}: expected a number from 1 to 32767")
        known["INNER_BASE"] = str(self._offsets.get(message.topic, message.queue_id))
        return encode_properties(known), int(count)

    def _light_queues(self, message: NewMessage, properties: bytes) -> bytes:
        if not allows_light_queues(message.topic):
            return properties
        known = decode_properties(properties)
        offsets: list[str] = []
        for name in known.get("INNER_MULTI_DISPATCH", "").split(","):
            if not name.startswith(_LMQ_PREFIX):
                offsets.append("")
                continue
            place = self._offsets.number(name.encode(), 0)
            offsets.append(str(self._offsets.next[place]))
            self._light.append(place)
        known["INNER_MULTI_QUEUE_OFFSET"] = ",".join(offsets)
        known.pop("WAIT", None)
        return encode_properties({name: value for name, value in known.items() if value})


def allows_light_queues(topic: bytes) -> bool:
    """Whether messages of a topic may lie in light queues too: retries, waiting and inner ones do not."""
    return not topic.startswith(_NO_LMQ_TOPICS)


def _without(properties: bytes, name: str) -> bytes:
    known = decode_properties(properties)
    known.pop(name, None)
    return encode_properties(known)


def result_of(drafts: Drafts, row: int, status: PutStatus, store_ms: int) -> PutResult:
    """Where a row has landed."""
    r, rows = row * Draft.WIDTH, drafts.rows
    return PutResult(
        status, rows[r + Draft.PHYSICAL_OFFSET], rows[r + Draft.SIZE], rows[r + Draft.QUEUE_OFFSET], store_ms
    )


def batch_result_of(drafts: Drafts, status: PutStatus, store_ms: int) -> BatchResult:
    """Where the rows of a batch have landed."""
    rows = drafts.rows
    offsets, last = rows[Draft.PHYSICAL_OFFSET :: Draft.WIDTH], len(rows) - Draft.WIDTH
    end = offsets[-1] + rows[last + Draft.SIZE]
    return BatchResult(status, offsets, end, rows[Draft.QUEUE_OFFSET], store_ms)
