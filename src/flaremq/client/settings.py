"""Settings of clients. Defaults are RocketMQ's unless noted."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from flaremq.base.errors import ConfigError
from flaremq.base.units import MiB
from flaremq.model import sysflag
from flaremq.model.allocate import Average, Strategy
from flaremq.model.names import TRACE_TOPIC, check_topic
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.remoting.tls import client_tls

ENVIRONMENT: Final = ("FLAREMQ_NAMESRV", "NAMESRV_ADDR")
"""Environment variables that name the NameServers if the program does not."""

_COMPRESSIONS: Final = {
    "zlib": sysflag.COMPRESSION_ZLIB,
    "lz4": sysflag.COMPRESSION_LZ4,
    "zstd": sysflag.COMPRESSION_ZSTD,
}


USUAL_NAMESRV: Final = "127.0.0.1:9876"


def named_by_environment() -> str:
    return next((os.environ[name] for name in ENVIRONMENT if os.environ.get(name)), "")


def namesrv_or_usual() -> str:
    """The NameServers named by the environment, or the usual local address."""
    return named_by_environment() or USUAL_NAMESRV


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings that all producers and consumers of one client share."""

    namesrv: str = field(default_factory=named_by_environment)
    """host:port, several separated by semicolons. Default: $FLAREMQ_NAMESRV, then $NAMESRV_ADDR."""
    timeout_s: float = 3.0
    """Time limit of calls that have no other limit."""
    connect_timeout_s: float = 3.0
    refresh_s: float = 30.0
    """How often routes are refreshed; an error refreshes them at once."""
    heartbeat_s: float = 30.0
    """How often heartbeats are sent. Brokers drop a silent client after 120 s."""
    instance_name: str = ""
    """Part of the client id. Default: made of process and time, different for each client; DEFAULT for a
    broadcasting consumer, whose offsets are in a folder of this name."""
    unit_name: str = ""
    tls: ssl.SSLContext | None = field(default_factory=client_tls)
    """Connect to NameServers and brokers by TLS; `TlsClientSettings(trusted="ca.pem").context()` makes a
    context. Default: from the environment, for example FLAREMQ_TLS_ENABLE=true."""

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ConfigError(
                "no NameServer address: give namesrv='host:port', or set "
                f"{' or '.join(ENVIRONMENT)} in the environment"
            )
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ConfigError(
                    f"{address!r} is not a NameServer address; expected host:port, for example 127.0.0.1:9876"
                )
        _positive(self, "timeout_s", "connect_timeout_s", "refresh_s", "heartbeat_s")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the NameServers."""
        return tuple(part.strip() for part in self.namesrv.replace(",", ";").split(";") if part.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    timeout_s: float = 3.0
    """Time limit of one send, including all its attempts."""
    attempts: int = 3
    """Maximum attempts of a send, each at another broker if there is one."""
    retry_not_stored: bool = False
    """Send again if a flush or a replica was late (retryAnotherBrokerWhenNotStoreOK)."""
    avoid_slow: bool = True
    """Avoid a broker for a while after it failed or was slow. Off by default in Java."""
    compress_over: int = 4096
    """Bodies of at least this many bytes are compressed."""
    compression: Literal["zlib", "lz4", "zstd"] = "zlib"
    """Consumers older than RocketMQ 5 can read zlib only."""
    compress_level: int = 5
    message_size_max: int = 4 * MiB
    topic_queues: int = 4
    """Queues of a topic that a first send creates, if brokers allow that."""
    window: int = 1024
    """How many messages of `send_many` may be in flight at a time."""
    wait_at_stop_s: float = 5.0
    """How long a stop waits for sends in progress."""

    def __post_init__(self) -> None:
        _positive(self, "timeout_s", "attempts", "message_size_max", "topic_queues", "window")
        if self.compression not in _COMPRESSIONS:
            raise ConfigError(f"compression={self.compression!r}: use one of {', '.join(_COMPRESSIONS)}")

    @property
    def compression_type(self) -> int:
        """Bits of the sysFlag."""
        return _COMPRESSIONS[self.compression]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """How a producer or consumer traces its messages: `Producer(..., trace=Trace(topic="MyTrace"))`."""

    topic: str = TRACE_TOPIC
    """Where records are sent. Messages of topics whose name begins with this one are not traced."""
    batch: int = 10
    """Records are sent as soon as there are so many ..."""
    interval_s: float = 5.0
    """... or so long after the last were sent."""
    queue_max: int = 10_000
    """Records that may wait; more are dropped and counted. Java's clients drop from 2048 on."""
    wait_at_stop_s: float = 5.0
    """How long a stop waits for records that are not sent yet."""

    def __post_init__(self) -> None:
        check_topic(self.topic)
        _positive(self, "batch", "interval_s", "queue_max", "wait_at_stop_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Settings of push consumers and, as far as they apply, of lite pull consumers."""

    broadcasting: bool = False
    """Every consumer of the group gets every message."""
    orderly: bool = False
    """One message of a queue at a time, in order; a failed one is retried before the next."""
    start_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group without an offset begins."""
    start_timestamp_ms: int = 0
    """For CONSUME_FROM_TIMESTAMP; 0 is half an hour before the start."""
    strategy: Strategy = field(default_factory=Average)
    """How queues are assigned. All members of a group must use the same strategy."""
    concurrency: int = 20
    """How many messages are handled at a time: threads for plain functions, tasks for async ones."""
    batch_max: int = 1
    """How many messages a handler gets in one call; above 1 it gets a list."""
    pull_batch: int = 32
    pull_interval_s: float = 0.0
    poll_s: float = 15.0
    """How long a broker may hold a pull while there are no new messages."""
    pull_timeout_s: float = 30.0
    """When an unanswered pull is given up; must be above `poll_s`."""
    queue_count_max: int = 1000
    """Maximum messages of a queue that are pulled and not yet consumed."""
    queue_size_max: int = 100 * MiB
    span_max: int = 2000
    """Maximum offset span of these messages; not for orderly consumers."""
    attempts_max: int = -1
    """Deliveries of a message before it goes to the dead-letter queue. -1: 17, which is RocketMQ's 16
    retries, and no limit for orderly consumers."""
    suspend_s: float = 1.0
    """How long an orderly consumer waits before it retries a message."""
    consume_timeout_s: float = 900.0
    """A message that a handler holds for longer is sent back to the broker."""
    auto_commit: bool = True
    """Store offsets as messages are consumed. If False, call `commit`; for lite pull consumers only."""
    commit_s: float = 5.0
    """How often offsets are stored."""
    rebalance_s: float = 20.0
    error_delay_s: float = 1.0
    """How long a queue pauses after a failed pull."""
    wait_at_stop_s: float = 10.0
    """How long a stop waits for running handlers."""
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")
    """Where a broadcasting consumer keeps its offsets."""

    def __post_init__(self) -> None:
        _positive(self, "concurrency", "batch_max", "pull_batch", "poll_s", "queue_count_max")
        _positive(self, "queue_size_max", "span_max", "commit_s", "rebalance_s", "consume_timeout_s")
        if self.attempts_max < 1 and self.attempts_max != -1:
            raise ConfigError(f"attempts_max={self.attempts_max}: expected at least 1, or -1 for the default")
        if self.broadcasting and self.attempts_max > 1:
            raise ConfigError(
                f"attempts_max={self.attempts_max} with broadcasting=True: every consumer of the group has "
                "its own copy, so none is sent back; try again in the handler, or give each consumer a group"
            )
        if self.pull_timeout_s <= self.poll_s:
            raise ConfigError(
                f"pull_timeout_s={self.pull_timeout_s:g}: expected more than poll_s={self.poll_s:g}, or "
                "every quiet queue looks like a broken connection"
            )
        if self.pull_batch > 1024:
            raise ConfigError(f"pull_batch={self.pull_batch}: expected at most 1024")


def _positive(section: object, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if not value > 0:
            raise ConfigError(f"{name}={value}: expected more than 0")
