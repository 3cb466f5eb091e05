"""The options of replication, with RocketMQ's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flaremq.base.errors import ConfigError
from flaremq.base.settings import check, option
from flaremq.base.units import KiB, MiB
from flaremq.ha.wire import CHUNK_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class HaSettings:
    """What masters and slaves do, and how long they wait."""

    PROTECTS: ClassVar = frozenset({"replication"})

    listen_port: int = option("haListenPort", 0, minimum=0, maximum=65535)
    """0: the broker's port plus one."""
    master_address: str = option("haMasterAddress", "")
    """host:port. Empty: the NameServers know it."""
    heartbeat_ms: int = option("haSendHeartbeatInterval", 5_000, minimum=1, unit="span_ms")
    silence_ms: int = option("haHousekeepingInterval", 20_000, minimum=1, unit="span_ms")
    """A connection on which nothing came for so long is closed."""
    chunk_size: int = option("haTransferBatchSize", 256 * KiB, minimum=1, maximum=CHUNK_MAX, unit="size")
    gap_max: int = option(
        "haMaxGapNotInSync", 256 * MiB, also=("haSlaveFallbehindMax",), minimum=1, unit="size"
    )
    """A slave that lacks this many bytes does not count as one that could acknowledge in time."""
    flow_control: bool = option("haFlowControlEnable", False)
    bytes_per_s_max: int = option("maxHaTransferByteInSecond", 100 * MiB, minimum=1, unit="size")
    """For each slave, under flow control."""
    slave_timeout_ms: int = option("slaveTimeout", 3_000, minimum=1, unit="span_ms")
    """How long the answer to a producer waits for slaves (SYNC_MASTER)."""
    in_sync_replicas: int = option("inSyncReplicas", 0, minimum=0)
    """How many brokers must have a message, the master among them. 0, if it is not set: the master and a
    slave, and without any slave near enough, producers hear so at once."""

    def __post_init__(self) -> None:
        check(self)
        if self.silence_ms <= self.heartbeat_ms:
            raise ConfigError(
                f"haHousekeepingInterval={self.silence_ms} is not above haSendHeartbeatInterval="
                f"{self.heartbeat_ms}: connections would be closed between two heartbeats; raise the first"
            )

    @property
    def slaves_needed(self) -> int:
        """How many slaves an answer waits for under SYNC_MASTER."""
        return 1 if self.in_sync_replicas == 0 else self.in_sync_replicas - 1

    @property
    def answers_at_once_without_slave(self) -> bool:
        """Whether a producer hears at once that no slave is near: as RocketMQ 4 does."""
        return self.in_sync_replicas == 0
