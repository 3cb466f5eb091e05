"""How the log of this broker reaches others, or comes from them: what the rest of a broker asks of it.

replication    a master and its slaves
raftside       a Raft group
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from flaremq.base.clock import Clock
from flaremq.broker.features import Feature, Figure
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.rivals import Rivals
from flaremq.broker.replicas.tablereader import FollowingTimers
from flaremq.broker.replicas.tablewriter import LeadingTimers
from flaremq.broker.send.acks import Mark
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import HARuntimeInfo
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.router import Peer


class GroupTimers(FollowingTimers, LeadingTimers, Protocol):
    """The timers of this broker."""


class LogSide(Feature):
    """Started when the store is open, stopped when all answers are sent."""

    rivals: Rivals | None = None
    """What is known of other masters of our name."""
    shown: Callable[[], None]
    """Called in the event loop when the part of the log that consumers may see has grown by itself."""
    was_cut: Callable[[], None]
    """The same when a part of the log was given up, before anything is appended."""

    @abstractmethod
    def marks(self) -> Iterable[Mark]:
        """What the answer to a producer waits for."""

    @property
    @abstractmethod
    def has_slaves(self) -> bool: ...
    @abstractmethod
    def is_followed_by(self, host: str) -> bool: ...
    @abstractmethod
    def is_following(self) -> bool: ...
    @abstractmethod
    def figures(self) -> Mapping[str, str]:
        """For the runtime information."""

    @abstractmethod
    def metrics(self) -> Iterable[Figure]:
        """For /metrics."""

    @abstractmethod
    def ha_info(self) -> HARuntimeInfo:
        """For tools, which know masters and slaves."""

    async def get_ha_status(self, _peer: Peer, request: Command) -> Command:
        return response_to(request, body=beans.encode(self.ha_info()))

    def tables(
        self,
        tables: Tables,  # noqa: ARG002 - Slaves copy them in their own way (metasync).
        stats: Stats,  # noqa: ARG002
        timers: GroupTimers,  # noqa: ARG002
        offload: Offload,  # noqa: ARG002
        clock: Clock,  # noqa: ARG002
    ) -> list[Feature]:
        """What keeps tables equal in all members, where they travel with the log."""
        return []

    def master_is(self, address: str, ha_address: str) -> None:
        """NameServers know this master. Empty: none at the moment."""

    def withdraw(self) -> None:
        """Serve no slaves any more: another master does."""
