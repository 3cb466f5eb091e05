"""Receipts, which producers get, and received messages, which consumers get.

A consumer receives records by the thousand, so a received message is its record and little more: a field
is decoded when it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from flaremq.base.errors import Malformed
from flaremq.model import layout, sysflag
from flaremq.model import properties as names
from flaremq.model.batch import unwrap
from flaremq.model.columns import Bytes, Check, Fact, facts_table
from flaremq.model.compression import BODY_SIZE_MAX, decompress
from flaremq.model.host import Host
from flaremq.model.message import MessageQueue, StoredMessage
from flaremq.model.msgid import encode_offset_id
from flaremq.model.names import is_dlq, is_retry
from flaremq.model.properties import Failure, decode_properties, decode_text, failure_in, find_property
from flaremq.model.record import decode, walk
from flaremq.protocol.codes import ResponseCode

_ROWS: Final = 1024  # Of one walk: no pull returns more.
_TIMES: Final = struct.Struct(">iq")  # Reconsume times and prepared offset, just before the body's length.


class SendStatus(Enum):
    """How safely a message is stored. It is stored in every case."""

    OK = ResponseCode.SUCCESS
    FLUSH_LATE = ResponseCode.FLUSH_DISK_TIMEOUT
    """Java's FLUSH_DISK_TIMEOUT: not yet on the disk."""
    NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
    SLAVE_LATE = ResponseCode.FLUSH_SLAVE_TIMEOUT


class Recall(Enum):
    """What became of an attempt to cancel a message."""

    CANCELLED = "cancelled"
    """It will not be delivered."""
    TOO_LATE = "too late"
    """Its moment has come: it was delivered, or is about to be."""
    UNKNOWN = "unknown"
    """The broker has never seen it."""


class Decision(Enum):
    """How a transaction has ended."""

    COMMIT = sysflag.TRANSACTION_COMMIT
    ROLLBACK = sysflag.TRANSACTION_ROLLBACK
    UNKNOWN = sysflag.TRANSACTION_NONE
    """Not known yet: the broker asks again later."""


class Receipt(NamedTuple):
    """Confirms that a message is stored, and says where."""

    message_id: str
    """The id that the sender gave it (UNIQ_KEY); for a batch all ids, separated by commas."""
    queue: MessageQueue
    queue_offset: int
    offset_id: str
    """The id that encodes where it is stored; for a batch all ids, separated by commas."""
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None
    """What cancels a message that waits for its moment (`producer.recall`); None for others."""
    is_repeated: bool = False
    """Whether an earlier send had stored it, by its number (`producer_id`): this is the first receipt."""
    region: str | None = None
    """The broker's region if messages of this broker are traced; None otherwise."""


class Reply(NamedTuple):
    """The answer to a request."""

    body: bytes
    properties: Mapping[str, str]
    born_host: str
    """Address of the client that replied."""


class ReceivedMessage:
    """A message as a consumer gets it. Read-only."""

    __slots__ = ("_body_at", "_body_size", "_properties_at", "_record", "_sys_flag", "queue", "queue_offset")

    def __init__(self, record: bytes, queue: MessageQueue, facts: Sequence[int]) -> None:
        """`facts` are the columns of the record (model.columns.Fact), as a walk over it alone gives them."""
        self._record = record
        self.queue = queue
        """The queue that it was pulled from."""
        self.queue_offset: int = facts[Fact.QUEUE_OFFSET]
        self._sys_flag: int = facts[Fact.SYS_FLAG]
        self._body_at: int = facts[Fact.BODY_AT]
        self._body_size: int = facts[Fact.BODY_SIZE]
        self._properties_at: int = facts[Fact.PROPERTIES_AT]

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also for a redelivered message."""
        topic = self.queue.topic
        return (self.get(names.RETRY_TOPIC) or topic) if is_retry(topic) else topic

    @property
    def body(self) -> bytes:
        body = self._record[self._body_at : self._body_at + self._body_size]
        return decompress(body, self._sys_flag, BODY_SIZE_MAX) if self._sys_flag & 1 else body

    @property
    def size(self) -> int:
        """The size of the whole record, in bytes."""
        return len(self._record)

    # Set by the sender.

    @property
    def tags(self) -> str | None:
        return self.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple((self.get(names.KEYS) or "").split())

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, including the system's. Decoded at each call; use `get` for a single one."""
        return decode_properties(self._record[self._properties_at :])

    def get(self, name: str) -> str | None:
        found = find_property(self._record[self._properties_at :], name.encode())
        return None if found is None else decode_text(found)

    @property
    def message_id(self) -> str:
        """The id that the sender gave it, or else `offset_id`."""
        return self.get(names.UNIQ_KEY) or self.offset_id

    @property
    def sharding_key(self) -> str | None:
        return self.get(names.SHARDING_KEY)

    # Set by the broker.

    @property
    def stored(self) -> StoredMessage:
        """The whole record, decoded."""
        return decode(self._record, check=Check.NOTHING)

    @property
    def offset_id(self) -> str:
        return encode_offset_id(self.store_host, self.physical_offset)

    @property
    def physical_offset(self) -> int:
        at = layout.PHYSICAL_OFFSET_AT
        return int.from_bytes(self._record[at : at + 8], "big", signed=True)

    @property
    def flag(self) -> int:
        return self.stored.flag

    @property
    def born_timestamp_ms(self) -> int:
        return self.stored.born_timestamp_ms

    @property
    def born_host(self) -> Host:
        return self.stored.born_host

    @property
    def store_timestamp_ms(self) -> int:
        return self.stored.store_timestamp_ms

    @property
    def store_host(self) -> Host:
        return self.stored.store_host

    @property
    def deliver_at_ms(self) -> int | None:
        """The moment that its sender asked for, in ms since 1970; None if it asked for none."""
        text = self.get(names.TIMER_DELIVER_MS)
        if text is None and (text := self.get(names.TIMER_OUT_MS)) is None:
            return None
        return int(text)

    @property
    def reconsume_times(self) -> int:
        """How many earlier deliveries have failed."""
        times: int = _TIMES.unpack_from(self._record, self._body_at - 16)[0]
        return times

    def tried_again(self) -> None:
        """Count a failed delivery that no broker knows of: an orderly consumer retries a message itself."""
        at = self._body_at - 16
        times = (self.reconsume_times + 1).to_bytes(4, "big")
        self._record = self._record[:at] + times + self._record[at + 4 :]

    @property
    def failure(self) -> Failure | None:
        """Why the last delivery failed: of a retry or a dead letter, if the consumer then was FlareMQ's."""
        topic = self.queue.topic
        return failure_in(self.get) if is_retry(topic) or is_dlq(topic) else None

    @property
    def broker_name(self) -> str:
        return self.queue.broker_name

    def __repr__(self) -> str:
        return (
            f"<{self.topic} {self.message_id} at {self.queue.broker_name}:{self.queue.queue_id}"
            f"/{self.queue_offset}, {self._body_size} bytes>"
        )


class InnerMessage(ReceivedMessage):
    """One of several messages in a single record (an inner batch)."""

    __slots__ = ("_inner",)

    def __init__(
        self, record: bytes, queue: MessageQueue, facts: Sequence[int], inner: StoredMessage
    ) -> None:
        super().__init__(record, queue, facts)
        self._inner = inner
        self.queue_offset = inner.queue_offset

    @property
    def body(self) -> bytes:
        return self._inner.body

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def properties(self) -> Mapping[str, str]:
        return self._inner.properties

    def get(self, name: str) -> str | None:
        return self._inner.get(name)

    @property
    def stored(self) -> StoredMessage:
        return self._inner


def received(body: Bytes, queue: MessageQueue) -> list[ReceivedMessage]:
    """All messages of a pull's answer, in order. Raises Malformed if the bytes are not records."""
    data = bytes(body)
    found: list[ReceivedMessage] = []
    rows = min(_ROWS, len(data) // layout.FIXED_SIZE + 1)  # No record is smaller than that.
    at, width, table = 0, Fact.WIDTH, facts_table(rows)
    while at < len(data):
        count, end, stop = walk(data, at, len(data), 0, table, Check.NOTHING)
        if not count:
            raise Malformed(f"{queue}: expected a record at byte {end} of {len(data)} ({stop})", end)
        for row in range(count):
            facts = table[row * width : row * width + width]
            begin, size = facts[Fact.OFFSET], facts[Fact.SIZE]
            facts[Fact.BODY_AT] -= begin
            facts[Fact.PROPERTIES_AT] -= begin
            record = data[begin : begin + size]
            if sysflag.is_inner_batch(facts[Fact.SYS_FLAG]):
                found += [InnerMessage(record, queue, facts, each) for each in _inner(record)]
            else:
                found.append(ReceivedMessage(record, queue, facts))
        at = end
    return found


def _inner(record: bytes) -> list[StoredMessage]:
    whole = decode(record, check=Check.NOTHING)
    if sysflag.is_compressed(whole.sys_flag):
        body = decompress(whole.body, whole.sys_flag, BODY_SIZE_MAX)
        whole = replace(whole, body=body, sys_flag=whole.sys_flag & ~sysflag.COMPRESSED)
    return unwrap(whole)
