"""Values about consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flaremq.admin.values.outcome import Failed
from flaremq.admin.values.topics import ConnectedClient
from flaremq.base.errors import InvalidParameter
from flaremq.model.message import MessageQueue
from flaremq.model.names import is_dlq, is_retry
from flaremq.model.retrypolicy import RetryPolicy
from flaremq.model.topic import GroupConfig
from flaremq.protocol.bodies.group import ConsumeFromWhere, ConsumeType, MessageModel


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    is_system: bool
    brokers: tuple[str, ...] = ()
    """The brokers that have its settings."""


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group on all brokers that know it."""

    name: str
    brokers: Mapping[str, GroupConfig] = field(hash=False)
    failed: Failed = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """Settings to change; None leaves a setting as it is."""

    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    group_retry_policy: RetryPolicy | None = None
    """How long failed messages wait; `RetryPolicy()` is the default, the delay levels."""
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed_enable: bool | None = None
    consume_timeout_minute: int | None = None

    def applied(self, config: GroupConfig) -> GroupConfig:
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return replace(config, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of a group to a topic."""

    topic: str
    expression: str
    kind: str = "TAG"
    """TAG or SQL92."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The connected consumers of a group, and their subscriptions."""

    group: str
    members: tuple[ConnectedClient, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    failed: Failed = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of a group with one queue."""

    queue: MessageQueue
    broker_offset: int
    """The offset that the next message will get."""
    consumer_offset: int
    """The offset of the next message that the group has to consume."""
    pull_offset: int
    """The offset that it has fetched up to."""
    last_consumed_ms: int | None
    """When the last consumed message was stored; None if none was consumed."""
    owner: str | None = None
    """The client id of the member that has the queue, if members were asked and one has it."""

    @property
    def lag(self) -> int:
        """Messages that are not consumed yet."""
        return max(0, self.broker_offset - self.consumer_offset)

    @property
    def inflight(self) -> int:
        """Messages that are fetched and not consumed yet."""
        return max(0, self.pull_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    group: str
    queues: tuple[QueueProgress, ...]
    """Queues of all topics, including the retry topic, sorted."""
    tps: float
    members: int
    """How many members are connected."""
    dead_letters: int
    """Messages in the dead-letter topic."""
    failed: Failed = field(default_factory=dict, hash=False)

    @property
    def lag(self) -> int:
        """The lag of all topics."""
        return sum(each.lag for each in self.queues)

    @property
    def inflight(self) -> int:
        return sum(each.inflight for each in self.queues)

    @property
    def retry_lag(self) -> int:
        """Messages that failed and wait for redelivery."""
        return sum(each.lag for each in self.queues if is_retry(each.queue.topic))

    @property
    def topics(self) -> Mapping[str, int]:
        """The lag of each topic."""
        found: dict[str, int] = {}
        for each in self.queues:
            found[each.queue.topic] = found.get(each.queue.topic, 0) + each.lag
        return found


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in one line."""

    name: str
    members: int
    version_name: str | None
    """The version of the oldest member."""
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    tps: float
    lag: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group continues: `Position.begin()`, `.end()`, `.time(ms)` or `.offsets({queue: offset})`."""

    kind: str
    timestamp_ms: int = -1
    explicit: Mapping[MessageQueue, int] = field(default_factory=dict, hash=False)

    @classmethod
    def begin(cls) -> Position:
        """The oldest message that still exists."""
        return cls("begin", 0)

    @classmethod
    def end(cls) -> Position:
        """After the newest message: waiting ones are skipped."""
        return cls("end", -1)

    @classmethod
    def time(cls, timestamp_ms: int) -> Position:
        """The first message stored at this time or later; brokers before 5 take the one nearest in time."""
        if timestamp_ms < 0:
            raise InvalidParameter(f"timestamp {timestamp_ms}: expected milliseconds since 1970")
        return cls("time", timestamp_ms)

    @classmethod
    def offsets(cls, offsets: Mapping[MessageQueue, int]) -> Position:
        """These queues to these offsets; other queues stay."""
        if not offsets:
            raise InvalidParameter("no offsets given: expected at least one queue")
        for queue, offset in offsets.items():
            if offset < 0:
                raise InvalidParameter(f"offset {offset} of {queue}: expected 0 or more")
        return cls("offsets", explicit=dict(offsets))


@dataclass(frozen=True, slots=True)
class OffsetMove:
    queue: MessageQueue
    old: int | None
    """None if the group had no offset there."""
    new: int


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The offsets that were changed, or would be."""

    group: str
    topic: str
    moves: tuple[OffsetMove, ...]
    applied: bool
    """False after a dry run."""


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """Store times of one queue; None if there is no such message."""

    queue: MessageQueue
    first_ms: int | None
    """When its oldest message was stored."""
    last_ms: int | None
    """When its newest message was stored."""
    consumed_ms: int | None
    """When the last message that the group consumed was stored."""
    delay_ms: int
    """The age of the next message to be consumed."""


@dataclass(frozen=True, slots=True)
class MemberOffsets:
    """The offsets that a member reports."""

    client_id: str
    offsets: Mapping[MessageQueue, int] = field(hash=False)


def is_own(topic: str) -> bool:
    """Whether a topic is the retry or dead-letter topic of a group."""
    return is_retry(topic) or is_dlq(topic)
