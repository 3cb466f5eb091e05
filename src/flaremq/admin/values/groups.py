"""Values about groups of consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flaremq.admin.values.outcome import Failed
from flaremq.admin.values.topics import ConnectedClient
from flaremq.base.errors import InvalidParameter
from flaremq.model.message import MessageQueue
from flaremq.model.names import is_dlq, is_retry
from flaremq.model.topic import GroupConfig
from flaremq.protocol.bodies.group import ConsumeFromWhere, ConsumeType, MessageModel


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    is_system: bool
    brokers: tuple[str, ...] = ()
    """Where it has settings."""


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group on all brokers that know it."""

    name: str
    brokers: Mapping[str, GroupConfig] = field(hash=False)
    failed: Failed = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """What is to become different; None leaves things as they are."""

    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed_enable: bool | None = None
    consume_timeout_minute: int | None = None

    def applied(self, config: GroupConfig) -> GroupConfig:
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return replace(config, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group wants of a topic."""

    topic: str
    expression: str
    kind: str = "TAG"
    """TAG or SQL92."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The consumers of a group that are connected, and what they want."""

    group: str
    members: tuple[ConnectedClient, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    failed: Failed = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is with one queue."""

    queue: MessageQueue
    broker_offset: int
    """Of the message that will come next."""
    consumer_offset: int
    """Of the message that the group will have consumed next."""
    pull_offset: int
    """How far it has fetched."""
    last_consumed_ms: int | None
    """When the last consumed message was stored; None if none was consumed."""
    owner: str | None = None
    """The client id of the member that has the queue, where members were asked and one has it."""

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
    """Of all topics, the retry topic too, in order."""
    tps: float
    members: int
    """How many are connected."""
    dead_letters: int
    """Messages in the dead letter topic."""
    failed: Failed = field(default_factory=dict, hash=False)

    @property
    def lag(self) -> int:
        """Of all topics."""
        return sum(each.lag for each in self.queues)

    @property
    def inflight(self) -> int:
        return sum(each.inflight for each in self.queues)

    @property
    def retry_lag(self) -> int:
        """Messages that failed and wait for another try."""
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
    """Of the oldest member."""
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    tps: float
    lag: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group is to go on: `Position.begin()`, `.end()`, `.time(ms)` or `.offsets({queue: offset})`."""

    kind: str
    timestamp_ms: int = -1
    explicit: Mapping[MessageQueue, int] = field(default_factory=dict, hash=False)

    @classmethod
    def begin(cls) -> Position:
        """The oldest message that is still there."""
        return cls("begin", 0)

    @classmethod
    def end(cls) -> Position:
        """Behind the newest: what waits is skipped."""
        return cls("end", -1)

    @classmethod
    def time(cls, timestamp_ms: int) -> Position:
        """The first message that was not stored earlier; brokers before 5 take the one nearest in time."""
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
    """None: the group had none there."""
    new: int


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Which offsets are others now, or would be."""

    group: str
    topic: str
    moves: tuple[OffsetMove, ...]
    applied: bool
    """False of a dry run."""


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """One queue in time. None: there is no such message."""

    queue: MessageQueue
    first_ms: int | None
    """When its oldest message was stored."""
    last_ms: int | None
    """When its newest was."""
    consumed_ms: int | None
    """When the last one that the group consumed was."""
    delay_ms: int
    """How old the next one to be consumed is."""


@dataclass(frozen=True, slots=True)
class MemberOffsets:
    """How far a member says it is."""

    client_id: str
    offsets: Mapping[MessageQueue, int] = field(hash=False)


def is_own(topic: str) -> bool:
    """Whether a topic is a group's own: what it tries again, what it gave up."""
    return is_retry(topic) or is_dlq(topic)
