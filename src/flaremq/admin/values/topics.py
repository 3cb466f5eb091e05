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
    """Messages that a group will try again."""
    DLQ = "dlq"
    """Dead letters of a group."""
    SYSTEM = "system"


class Perm(IntFlag):
    """What may be done with a topic, or with a broker."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    READ_WRITE = 6


class MessageType(Enum):
    """What kind of messages a topic is for (attribute message.type). Brokers before 5.0 have none."""

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
    """Where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """A topic on one broker: as it is, or as it is to be."""

    read_queues: int = 8
    write_queues: int = 8
    perm: Perm = Perm.READ_WRITE
    order: bool = False
    """Also written into the NameServers, so that producers keep to its queues while a broker is away."""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Such as message.type; see MessageType."""
    sys_flag: int = 0
    """Bit 0: a topic of units. Bit 1: consumers of several units want it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))
        _check_queues("read_queues", self.read_queues)
        _check_queues("write_queues", self.write_queues)

    @property
    def message_type(self) -> MessageType | None:
        """None where none is said, or one that is not known here."""
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
    """What is to become different; None leaves things as they are."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: Perm | None = None
    order: bool | None = None
    attributes: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    """A value of None removes the attribute; one that is not named stays."""

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
    """By the broker's name."""
    order_conf: str | None = None
    """What the NameServers keep of an ordered topic, and tell producers if orderMessageEnable is set there:
    `broker-a:4;broker-b:4`."""
    failed: Failed = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RouteQueues:
    """The queues of a topic on one broker, as a NameServer tells them."""

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
    """By broker id; 0 is the master."""


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
    """Of the message that will come next."""
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
    """Brokers before 5.2 do not tell it."""
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
    """Those that know it."""


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Traffic of a topic and one of its groups over the last 24 hours; None where it is not known."""

    topic: str
    group: str | None
    lag: int | None
    in_tps: float
    in_today: int | None
    """None also where a broker has not counted yet: Apache's count a day for the first time after an hour."""
    out_tps: float | None = None
    out_today: int | None = None

    @property
    def is_active(self) -> bool:
        return self.in_today is None or bool(self.in_today or self.out_today)
