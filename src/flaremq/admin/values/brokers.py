"""Values about brokers, clusters and NameServers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flaremq.model.message import MessageQueue


@dataclass(frozen=True, slots=True)
class ClusterBrokers:
    name: str
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerRuntime:
    """The runtime information of a broker. Figures that its version does not report are None."""

    version: str | None
    active: bool | None
    boot_ms: int | None
    put_tps: float | None
    """Incoming messages per second, over the last 10 s."""
    get_tps: float | None
    """Outgoing messages per second."""
    put_today: int | None
    get_today: int | None
    put_yesterday: int | None
    get_yesterday: int | None
    disk_ratio: float | None
    """How full the disk of the log is, 0 to 1."""
    earliest_ms: int | None
    """When the oldest message was stored."""
    log_min_offset: int | None
    log_max_offset: int | None
    dispatch_behind: int | None
    """Bytes that are stored but not yet in queues."""
    send_waiting: int | None
    pull_waiting: int | None
    table: Mapping[str, str] = field(hash=False, repr=False)
    """The whole answer, by RocketMQ's names."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker that the NameServers know. `runtime` is None if it did not answer or was not asked."""

    cluster: str
    name: str
    id: int
    """0: a master."""
    address: str
    runtime: BrokerRuntime | None = None

    @property
    def is_master(self) -> bool:
        return self.id == 0

    @property
    def title(self) -> str:
        """The name of a master, `name:id` of a slave."""
        return self.name if self.is_master else f"{self.name}:{self.id}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one server, by RocketMQ's names."""

    server: str
    """Name of a broker, or address of a NameServer."""
    address: str
    values: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The progress of a group with a queue of one broker."""

    group: str
    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed_ms: int | None

    @property
    def lag(self) -> int:
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class BrokerConsumeStats:
    broker: str
    queues: tuple[GroupLag, ...]
    lag: int
    inflight: int


@dataclass(frozen=True, slots=True)
class RateSample:
    sum: int
    tps: float
    average: float
    """Per call: messages, bytes or milliseconds, depending on the figure."""


@dataclass(frozen=True, slots=True)
class BrokerRates:
    """A figure of one broker over the last minute, hour and day."""

    broker: str
    minute: RateSample
    hour: RateSample
    day: RateSample


@dataclass(frozen=True, slots=True)
class ConnectedProducer:
    group: str
    client_id: str
    address: str
    language: str
    version_name: str
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class SlaveState:
    """One slave, as its master sees it."""

    address: str
    ack_offset: int
    behind: int
    """In bytes."""
    in_sync: bool
    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class HaStatus:
    """The replication of one broker."""

    broker: str
    id: int
    address: str
    is_master: bool
    log_max_offset: int
    slaves: tuple[SlaveState, ...] = ()
    """Of a master."""
    master_address: str | None = None
    """The HA address of its master, if this is a slave."""
    is_following: bool = False
    """Whether this slave is connected to its master."""
    state: str = ""
    """What it is doing, or what it refused; only FlareMQ says."""
    cut_bytes: int = 0
    """How much of its log a slave has given up since its start, because its master did not have it."""
    displaced: str = ""
    """Why a master serves no clients: another one of its name does."""
    rival: str = ""
    """Another master of its name, which has to yield to this one."""
