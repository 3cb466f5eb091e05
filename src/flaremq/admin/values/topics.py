"""Values about topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag
from types import MappingProxyType
from typing import Final

from flaremq.admin.values.outcome import Failed
from flaremq.base.errors import InvalidParameter
from flaremq.model.message import MessageQueue
from flaremq.model.topic import TopicConfig

QUEUES_MAX: Final = 65_535


class TopicKind(Enum):
    NORMAL = "normal"
    RETRY = "retry"
    """Messages of a group that wait for redelivery."""
    DLQ = "dlq"
    """Dead letters of a group."""
    SYSTEM = "system"


class Perm(IntFlag):
    """The permissions of a topic or a broker."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    READ_WRITE = 6


class MessageType(Enum):
    """The kind of messages that a topic is for (attribute message.type). Brokers before 5.0 have none."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    kind: TopicKind
    clusters: tuple[str, ...] = ()
    """The clusters that have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic on one broker, current or requested."""

    read_queues: int = 8
    write_queues: int = 8
    perm: Perm = Perm.READ_WRITE
    order: bool = False
    """Also stored on the NameServers, so that producers keep to its queues while a broker is away."""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """For example message.type; see MessageType."""
    sys_flag: int = 0
    """Bit 0: a topic of units. Bit 1: consumers of several units subscribe to it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))
        _check_queues("read_queues", self.read_queues)
        _check_queues("write_queues", self.write_queues)

    @property
    def message_type(self) -> MessageType | None:
        """None if it is not set or unknown."""
        said = self.attributes.get("message.type")
        return MessageType(said) if said in MessageType.__members__ else None

    @classmethod
    def of(cls, config: TopicConfig) -> TopicSettings:
        return cls(
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            perm=Perm(config.perm),
            order=config.order,
            attributes=config.attributes,
            sys_flag=config.topic_sys_flag,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """Settings to change; None leaves a setting as it is."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: Perm | None = None
    order: bool | None = None
    attributes: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    """A value of None removes the attribute; others stay."""

    def __post_init__(self) -> None:
        for name in ("read_queues", "write_queues"):
            count = getattr(self, name)
            if count is not None:
                _check_queues(name, count)


def _check_queues(name: str, count: int) -> None:
    if not 0 <= count <= QUEUES_MAX:
        raise InvalidParameter(f"{name}={count}: expected 0 to {QUEUES_MAX}")


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic on all its brokers."""

    name: str
    kind: TopicKind
    brokers: Mapping[str, TopicSettings] = field(hash=False)
    """Settings by broker name."""
    order_conf: str | None = None
    """The order configuration, which NameServers send to producers if orderMessageEnable is set there:
    `broker-a:4;broker-b:4`."""
    failed: Failed = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RouteQueues:
    """The queues of a topic on one broker, as a NameServer reports them."""

    broker: str
    read_queues: int
    write_queues: int
    perm: Perm
    sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class RouteBroker:
    name: str
    cluster: str
    addresses: Mapping[int, str] = field(hash=False)
    """Addresses by broker id; 0 is the master."""


@dataclass(frozen=True, slots=True)
class TopicRoute:
    topic: str
    queues: tuple[RouteQueues, ...]
    brokers: tuple[RouteBroker, ...]
    order_conf: str | None = None


@dataclass(frozen=True, slots=True)
class QueueStats:
    queue: MessageQueue
    min_offset: int
    max_offset: int
    """The offset that the next message will get."""
    last_update_ms: int | None
    """When the newest message was stored; None if there is none."""

    @property
    def count(self) -> int:
        return max(0, self.max_offset - self.min_offset)


@dataclass(frozen=True, slots=True)
class TopicStats:
    topic: str
    queues: tuple[QueueStats, ...]
    put_tps: float | None = None
    """Brokers before 5.2 do not report it."""
    failed: Failed = field(default_factory=dict, hash=False)

    @property
    def count(self) -> int:
        """Messages of all queues."""
        return sum(each.count for each in self.queues)


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client that is connected: a producer, or a member of a consumer group."""

    client_id: str
    address: str
    language: str
    version: int
    version_name: str
    brokers: tuple[str, ...] = ()
    """The brokers that know it."""


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Traffic of a topic and one of its groups over the last 24 hours; None if unknown."""

    topic: str
    group: str | None
    lag: int | None
    in_tps: float
    in_today: int | None
    """Also None if a broker has no figure yet: Apache's first count a day after an hour."""
    out_tps: float | None = None
    out_today: int | None = None

    @property
    def is_active(self) -> bool:
        return self.in_today is None or bool(self.in_today or self.out_today)
