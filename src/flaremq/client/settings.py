"""What a program may say about its clients. Every default is RocketMQ's, unless the comment says why not."""

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
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.remoting.tls import client_tls

ENVIRONMENT: Final = ("FLAREMQ_NAMESRV", "NAMESRV_ADDR")
"""Where the NameServers are looked for if a program does not name them."""

_COMPRESSIONS: Final = {
    "zlib": sysflag.COMPRESSION_ZLIB,
    "lz4": sysflag.COMPRESSION_LZ4,
    "zstd": sysflag.COMPRESSION_ZSTD,
}


USUAL_NAMESRV: Final = "127.0.0.1:9876"


def named_by_environment() -> str:
    return next((os.environ[name] for name in ENVIRONMENT if os.environ.get(name)), "")


def namesrv_or_usual() -> str:
    """The NameServers that the environment names, or the one that is at hand on a laptop."""
    return named_by_environment() or USUAL_NAMESRV


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What all producers and consumers of one client share."""

    namesrv: str = field(default_factory=named_by_environment)
    """host:port, several with semicolons between. Empty: the environment says it."""
    timeout_s: float = 3.0
    """Of any call that has no limit of its own."""
    connect_timeout_s: float = 3.0
    refresh_s: float = 30.0
    """How often routes are asked for anew; an error does it at once."""
    heartbeat_s: float = 30.0
    """How often brokers hear that we are alive. They forget us after 120 s."""
    instance_name: str = ""
    """Part of the client id. Empty: made of process and time, so that no two clients have the same; DEFAULT
    for a broadcasting consumer, whose offsets lie in a folder by this name."""
    unit_name: str = ""
    tls: ssl.SSLContext | None = field(default_factory=client_tls)
    """Talk TLS to NameServers and brokers: `TlsClientSettings(trusted="ca.pem").context()` makes one. Not
    given: the environment says it, as in FLAREMQ_TLS_ENABLE=true."""

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ConfigError(
                "no NameServer is named: give namesrv='host:port', or set "
                f"{' or '.join(ENVIRONMENT)} in the environment"
            )
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ConfigError(f"NameServer {address!r}: wanted is host:port, as in 127.0.0.1:9876")
        _positive(self, "timeout_s", "connect_timeout_s", "refresh_s", "heartbeat_s")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of the NameServers."""
        return tuple(part.strip() for part in self.namesrv.replace(",", ";").split(";") if part.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    timeout_s: float = 3.0
    """Of one send, with all its attempts."""
    attempts: int = 3
    """How often a send is tried at most, each time at another broker where there is one."""
    retry_not_stored: bool = False
    """Send again where a flush or a replica was late (retryAnotherBrokerWhenNotStoreOK)."""
    avoid_slow: bool = True
    """Keep away for a while from brokers that failed or were slow. Java's default is not to."""
    compress_over: int = 4096
    """Bodies of so many bytes and more are compressed."""
    compression: Literal["zlib", "lz4", "zstd"] = "zlib"
    """Consumers older than RocketMQ 5 read zlib only."""
    compress_level: int = 5
    message_size_max: int = 4 * MiB
    topic_queues: int = 4
    """Of a topic that a first send creates, where brokers allow that."""
    window: int = 1024
    """How many messages of `send_many` may wait for their answers at a time, at each broker."""
    wait_at_stop_s: float = 5.0
    """How long a stop waits for sends under way."""

    def __post_init__(self) -> None:
        _positive(self, "timeout_s", "attempts", "message_size_max", "topic_queues", "window")
        if self.compression not in _COMPRESSIONS:
            raise ConfigError(f"compression={self.compression!r}: use one of {', '.join(_COMPRESSIONS)}")

    @property
    def compression_type(self) -> int:
        """Bits of the sysFlag."""
        return _COMPRESSIONS[self.compression]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Of push consumers; those of lite pull consumers that have a meaning there too."""

    broadcasting: bool = False
    """Every consumer of the group gets every message."""
    orderly: bool = False
    """One message of a queue at a time, in order; a failed one is tried again in its place."""
    start_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group begins that has no offset yet."""
    start_timestamp_ms: int = 0
    """With CONSUME_FROM_TIMESTAMP; 0 is half an hour before the start."""
    strategy: Strategy = field(default_factory=Average)
    """How queues are shared out. All members of a group must use the same."""
    concurrency: int = 20
    """How many messages are handled at a time: threads for plain functions, tasks for async ones."""
    batch_max: int = 1
    """How many messages a handler gets in one call; above 1 it is given a list."""
    pull_batch: int = 32
    pull_interval_s: float = 0.0
    poll_s: float = 15.0
    """How long a broker may hold a pull while there is nothing new."""
    pull_timeout_s: float = 30.0
    """When a pull that the broker holds is given up; more than `poll_s`."""
    queue_count_max: int = 1000
    """Messages of a queue that may wait here, fetched and not yet consumed."""
    queue_size_max: int = 100 * MiB
    span_max: int = 2000
    """How far apart the first and the last of them may be; not for orderly consumers."""
    attempts_max: int = -1
    """After so many deliveries in vain a message goes to the dead letters. -1: 17, which is RocketMQ's 16
    retries, and no limit for orderly ones."""
    suspend_s: float = 1.0
    """How long an orderly consumer rests before it tries a message again."""
    consume_timeout_s: float = 900.0
    """A message that a handler has had for so long is given back to the broker."""
    auto_commit: bool = True
    """Store offsets as messages are consumed. Without, `commit` does it; for lite pull consumers only."""
    commit_s: float = 5.0
    """How often offsets are stored."""
    rebalance_s: float = 20.0
    error_delay_s: float = 1.0
    """How long a queue rests after a failed pull."""
    wait_at_stop_s: float = 10.0
    """How long a stop waits for handlers under way."""
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")
    """Where a broadcasting consumer keeps its offsets."""

    def __post_init__(self) -> None:
        _positive(self, "concurrency", "batch_max", "pull_batch", "poll_s", "queue_count_max")
        _positive(self, "queue_size_max", "span_max", "commit_s", "rebalance_s", "consume_timeout_s")
        if self.attempts_max < 1 and self.attempts_max != -1:
            raise ConfigError(f"attempts_max={self.attempts_max}: wanted is 1 or more, or -1 for the usual")
        if self.pull_timeout_s <= self.poll_s:
            raise ConfigError(
                f"pull_timeout_s={self.pull_timeout_s:g} must be above poll_s={self.poll_s:g}: "
                "or every quiet queue looks like a broken connection"
            )
        if self.pull_batch > 1024:
            raise ConfigError(f"pull_batch={self.pull_batch}, limit is 1024: lower it")


def _positive(section: object, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if not value > 0:
            raise ConfigError(f"{name}={value}: wanted is more than 0")
