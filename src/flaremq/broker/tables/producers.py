"""The connected producers by group: for transactions, replies and administrators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker.settings import BrokerSettings
from flaremq.protocol.codes import LanguageCode
from flaremq.remoting.router import Peer

log = logger("broker.producers")


@dataclass(slots=True, kw_only=True)
class ClientMember:
    """A producer or consumer of a group. It is identified by its connection, not by its id."""

    peer: Peer
    client_id: str
    language: LanguageCode | None = None
    version: int = 0
    last_seen_ms: int = 0

    @property
    def address(self) -> str:
        host, port = self.peer.address
        return f"{host}:{port}"


@dataclass(slots=True)
class _Seen:
    """What one connection is registered for."""

    groups: set[str] = field(default_factory=set)
    client_ids: set[str] = field(default_factory=set)


class Producers:
    """All groups with at least one producer."""

    def __init__(self, settings: Live[BrokerSettings]) -> None:
        self._live = settings
        self._groups: dict[str, dict[Peer, ClientMember]] = {}
        self._by_client: dict[str, Peer] = {}
        self._seen: dict[Peer, _Seen] = {}

    def register(self, group: str, member: ClientMember) -> None:
        """Take the heartbeat of a new or known member."""
        members = self._groups.get(group, {})
        known = members.get(member.peer)
        if known is None and self._live.now.reject_transactions and not self._live.now.register_producers:
            return
        if known is None:
            log.info("a producer has joined", extra=fields(group=group, client=member.client_id))
            self._groups.setdefault(group, members)
        members[member.peer] = member
        self._by_client[member.client_id] = member.peer
        seen = self._seen.setdefault(member.peer, _Seen())
        seen.groups.add(group)
        seen.client_ids.add(member.client_id)

    def unregister(self, group: str, peer: Peer) -> None:
        """A producer leaves one group."""
        seen = self._seen.get(peer)
        if seen is not None and group in seen.groups:
            self._left(group, peer)
            seen.groups.discard(group)
            if not seen.groups:
                self._forget(peer)

    def closed(self, peer: Peer) -> None:
        """A connection is gone: remove its member from every group."""
        seen = self._seen.get(peer)
        if seen is None:
            return
        for group in seen.groups:
            self._left(group, peer)
        self._forget(peer)

    def expire(self, now_ms: int) -> None:
        """Remove producers that have been silent for too long, and close their connections."""
        limit_ms = now_ms - self._live.now.channel_expired_ms
        silent = {
            member.peer
            for members in self._groups.values()
            for member in members.values()
            if member.last_seen_ms < limit_ms
        }
        for peer in silent:
            log.warning("a silent producer is removed", extra=fields(address=peer.address))
            self.closed(peer)
            peer.close()

    def members(self, group: str) -> Sequence[ClientMember]:
        return list(self._groups.get(group, {}).values())

    def by_client_id(self, client_id: str) -> Peer | None:
        return self._by_client.get(client_id)

    def all(self) -> Mapping[str, Sequence[ClientMember]]:
        return {group: list(members.values()) for group, members in self._groups.items()}

    def _left(self, group: str, peer: Peer) -> None:
        members = self._groups[group]
        member = members.pop(peer)
        log.info("a producer has left", extra=fields(group=group, client=member.client_id))
        if not members:
            del self._groups[group]

    def _forget(self, peer: Peer) -> None:
        for client_id in self._seen.pop(peer).client_ids:
            # The client may have reconnected before the loss of this connection was noticed.
            if self._by_client.get(client_id) is peer:
                del self._by_client[client_id]
