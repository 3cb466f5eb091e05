"""Values about single messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from flaremq.admin.values.outcome import Answers
from flaremq.base.errors import InvalidParameter
from flaremq.model import sysflag
from flaremq.model.batch import unwrap
from flaremq.model.columns import Bytes
from flaremq.model.compression import BODY_SIZE_MAX, decompress
from flaremq.model.message import MessageQueue, StoredMessage
from flaremq.model.record import decode_many
from flaremq.protocol.bodies.group import ALL, CMResult

TIME_MAX_MS: Final = (1 << 63) - 1
FOUND_MAX: Final = 64
"""Default maximum of messages found by one key."""


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message as a broker stores it."""

    broker: str
    """Name of the broker; its address if no NameServer knows it."""
    stored: StoredMessage
    """The record. Its body may be compressed; `body` is not."""

    @property
    def topic(self) -> str:
        return self.stored.topic

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.stored.topic, self.broker, self.stored.queue_id)

    @property
    def queue_offset(self) -> int:
        return self.stored.queue_offset

    @property
    def message_id(self) -> str:
        """The id that its sender gave it, or else its offset id."""
        return self.stored.unique_key or self.offset_id

    @property
    def offset_id(self) -> str:
        return self.stored.message_id

    @property
    def tags(self) -> str | None:
        return self.stored.tags

    @property
    def keys(self) -> tuple[str, ...]:
        return self.stored.keys

    @property
    def properties(self) -> Mapping[str, str]:
        return self.stored.properties

    def get(self, name: str) -> str | None:
        """One property."""
        return self.stored.get(name)

    @property
    def body(self) -> bytes:
        """Decompressed at each call. Raises Malformed if it does not match its flags."""
        return decompress(self.stored.body, self.stored.sys_flag, BODY_SIZE_MAX)

    @property
    def born_ms(self) -> int:
        return self.stored.born_timestamp_ms

    @property
    def stored_ms(self) -> int:
        return self.stored.store_timestamp_ms

    @property
    def reconsume_times(self) -> int:
        return self.stored.reconsume_times


def found_in(records: Bytes, broker: str) -> Iterator[FoundMessage]:
    """All messages of an answer, including several in one record. Raises Malformed for anything else."""
    for stored in decode_many(records):
        if not sysflag.is_inner_batch(stored.sys_flag):
            yield FoundMessage(broker, stored)
            continue
        body = decompress(stored.body, stored.sys_flag, BODY_SIZE_MAX)
        plain = replace(stored, body=body, sys_flag=stored.sys_flag & ~sysflag.COMPRESSED)
        for inner in unwrap(plain):
            yield FoundMessage(broker, inner)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of store times; both ends are included."""

    begin_ms: int = 0
    end_ms: int = TIME_MAX_MS

    def __post_init__(self) -> None:
        if not 0 <= self.begin_ms <= self.end_ms:
            raise InvalidParameter(
                f"a time from {self.begin_ms} to {self.end_ms} ms: expected the earlier time first"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The messages of a topic to read."""

    topic: str
    within: TimeRange = TimeRange()
    broker: str | None = None
    """Only queues of this broker."""
    queue_id: int | None = None
    """Only queues with this id."""
    begin_offset: int | None = None
    """The first offset in each queue."""
    end_offset: int | None = None
    """The end offset in each queue (exclusive)."""
    tags: str = ALL
    """`TagA || TagB`: the broker filters."""
    count_max: int = 1000
    """Stop after this number of messages."""

    def __post_init__(self) -> None:
        if self.count_max < 1:
            raise InvalidParameter(f"count_max={self.count_max}: expected at least 1")


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that is stored, but not delivered yet."""

    topic: str
    """The topic that it is for."""
    due_ms: int
    why: str
    """What it waits for: `timer`, `level 3`, `retry 2`."""
    message: FoundMessage
    """As it lies in the topic in which it waits."""
    recall_handle: str | None = None
    """What cancels it; None if it cannot be cancelled."""


@dataclass(frozen=True, slots=True)
class WaitingMessages(Answers[WaitingMessage]):
    """Messages that wait, by the time at which they are due."""

    partial: Mapping[str, str] = field(default_factory=dict, hash=False)
    """For brokers of which not all is there, how much was read: more messages may wait."""


class TrackState(Enum):
    """The state of a message in one group."""

    CONSUMED = "consumed"
    FILTERED = "filtered"
    """The group is past it, but does not subscribe to its tag."""
    NOT_YET = "not yet consumed"
    PULLS = "pulls"
    """The group pulls, and keeps its own offsets."""
    BROADCASTS = "broadcasts"
    """Each member gets all messages and keeps its own offsets."""
    OFFLINE = "offline"
    """No member is connected, and the group has no offset here."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Track:
    group: str
    state: TrackState
    online: bool
    why: str | None = None
    """The reason for UNKNOWN."""


@dataclass(frozen=True, slots=True)
class DirectResult:
    """The result of a message consumed directly."""

    group: str
    client_id: str
    result: CMResult | None
    order: bool
    auto_commit: bool
    remark: str | None
    spent_ms: int


@dataclass(frozen=True, slots=True)
class Resent:
    """Where the copy of a dead letter is stored."""

    queue: MessageQueue
    queue_offset: int
    offset_id: str
