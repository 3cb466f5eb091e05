"""The connected consumers by group, and each group's subscriptions.

Members of a group share its queues among themselves, so each must soon be notified of every change: a member
that joins or leaves, a topic that is added or removed. Changes of one turn of the loop are sent together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flaremq.base.clock import Clock
from flaremq.base.live import Live
from flaremq.base.logs import fields, logger
from flaremq.broker import clientcalls
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.producers import ClientMember
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    MessageModel,
    SubscriptionData,
)
from flaremq.remoting.router import Peer

log = logger("broker.groups")


@dataclass(slots=True)
class ConsumerGroup:
    """The connected members of a group. The last heartbeat decides for all of them."""

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    members: dict[Peer, ClientMember] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    subscription_changed_ms: int = 0
    fingerprint: int | None = None
    """That of the heartbeat that brought the subscriptions; 0 if it had none, None before the first."""
    notify: bool = True
    _ids_body: bytes | None = None

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    def member(self, client_id: str) -> ClientMember | None:
        """The newest connection of a client: the loss of an older one may not have been noticed yet."""
        mine = (each for each in reversed(self.members.values()) if each.client_id == client_id)
        return next(mine, None)

    def client_of(self, connection: object) -> str:
        """The client id of a connection; empty if it is not a member of this group."""
        return next((each.client_id for peer, each in self.members.items() if peer is connection), "")

    def ids_body(self) -> bytes:
        """The encoded list of members. All members ask for it after every change, so it is made once."""
        if self._ids_body is None:
            ids = tuple(dict.fromkeys(member.client_id for member in self.members.values()))
            self._ids_body = beans.encode(GetConsumerListByGroupResponseBody(consumer_id_list=ids))
        return self._ids_body

    def take(self, member: ClientMember, said: ConsumerData) -> bool:
        """Take a member's heartbeat, and return whether the member is new."""
        self.consume_type = said.consume_type
        self.message_model = said.message_model
        self.consume_from_where = said.consume_from_where
        known = self.members.get(member.peer)
        if known is not None and known.client_id != member.client_id:
            log.error(
                "a connection has changed its client id",
                extra=fields(group=self.name, before=known.client_id, now=member.client_id),
            )
        self.members[member.peer] = member
        if known is None or known.client_id != member.client_id:
            self._ids_body = None
        return known is None

    def drop(self, peer: Peer) -> ClientMember | None:
        self._ids_body = None
        return self.members.pop(peer, None)

    def subscribe(self, wanted: Iterable[SubscriptionData], now_ms: int) -> tuple[set[str], set[str]]:
        """Take a member's subscriptions for the whole group; return the topics added and those removed.

        A known one is replaced only by a newer version: old and new members may send heartbeats in turns.
        """
        topics = {each.topic: each for each in wanted}
        added, gone = topics.keys() - self.subscriptions.keys(), self.subscriptions.keys() - topics.keys()
        for topic, new in topics.items():
            known = self.subscriptions.get(topic)
            if known is None or new.sub_version > known.sub_version:
                self.subscriptions[topic] = new
                self.subscription_changed_ms = now_ms
        for topic in gone:
            del self.subscriptions[topic]
            self.subscription_changed_ms = now_ms
        return added, gone


@dataclass(frozen=True, slots=True)
class GroupHooks:
    """Callbacks for parts that keep something per group."""

    registered: Callable[[str, Iterable[SubscriptionData]], None] = lambda _group, _wanted: None
    """Called after a heartbeat with subscriptions."""
    gone: Callable[[str], None] = lambda _group: None
    """Called after the last member has left."""


class Consumers:
    """All groups with at least one member. The cost of a change grows only with its group's members."""

    def __init__(self, settings: Live[BrokerSettings], clock: Clock, hooks: GroupHooks | None = None) -> None:
        self._live = settings
        self._clock = clock
        self._hooks = hooks or GroupHooks()
        self._groups: dict[str, ConsumerGroup] = {}
        self._by_topic: dict[str, set[str]] = {}
        self._of_peer: dict[Peer, set[str]] = {}
        self._untold: dict[str, None] = {}
        self._telling = False

    def get(self, group: str) -> ConsumerGroup | None:
        return self._groups.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self._groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Connected groups that subscribe to this topic."""
        return set(self._by_topic.get(topic, ()))

    def all_groups(self) -> Mapping[str, ConsumerGroup]:
        return dict(self._groups)

    # Joining.

    def heartbeat(
        self, member: ClientMember, said: ConsumerData, *, notify: bool = True, without_sub: bool = False
    ) -> bool:
        """Take a heartbeat, with subscriptions unless `without_sub`; return whether anything changed.

        `notify` is the group's setting: whether its members are notified of changes.
        """
        name = said.group_name
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = ConsumerGroup(name)
        group.notify = notify
        changed = group.take(member, said)
        if changed:
            self._of_peer.setdefault(member.peer, set()).add(name)
            log.info(
                "a consumer has joined",
                extra=fields(group=name, client=member.client_id, model=said.message_model.name),
            )
        if not without_sub:
            changed |= self._subscribe(group, said.subscription_data_set)
        if changed:
            self._changed(group)
        return changed

    def _subscribe(self, group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
        added, gone = group.subscribe(wanted, self._clock.now_ms())
        for topic in added:
            self._by_topic.setdefault(topic, set()).add(group.name)
        for topic in gone:
            self._unsubscribe(topic, group.name)
        if added or gone:
            log.info(
                "a group's subscriptions have changed",
                extra=fields(group=group.name, added=sorted(added), gone=sorted(gone)),
            )
        self._hooks.registered(group.name, group.subscriptions.values())
        return bool(added or gone)

    def _unsubscribe(self, topic: str, group: str) -> None:
        groups = self._by_topic[topic]
        groups.discard(group)
        if not groups:
            del self._by_topic[topic]

    # Leaving.

    def unregister(self, group: str, peer: Peer) -> None:
        """A consumer leaves one group."""
        groups = self._of_peer.get(peer)
        if groups is not None and group in groups:
            groups.discard(group)
            if not groups:
                del self._of_peer[peer]
            self._left(group, peer)

    def closed(self, peer: Peer) -> None:
        """A connection is gone: remove its member from every group."""
        for group in sorted(self._of_peer.pop(peer, ())):
            self._left(group, peer)

    def expire(self, now_ms: int) -> None:
        """Remove consumers that have been silent for too long, and close their connections."""
        limit_ms = now_ms - self._live.now.channel_expired_ms
        silent = {
            member.peer
            for group in self._groups.values()
            for member in group.members.values()
            if member.last_seen_ms < limit_ms
        }
        for peer in silent:
            log.warning("a silent consumer is removed", extra=fields(address=peer.address))
            self.closed(peer)
            peer.close()

    def _left(self, name: str, peer: Peer) -> None:
        group = self._groups[name]
        member = group.drop(peer)
        log.info("a consumer has left", extra=fields(group=name, client=member.client_id if member else ""))
        if group.members:
            self._changed(group)
            return
        del self._groups[name]
        for topic in group.subscriptions:
            self._unsubscribe(topic, name)
        self._hooks.gone(name)

    # Notifying the members.

    def _changed(self, group: ConsumerGroup) -> None:
        if not (group.notify and self._live.now.notify_ids_changed) or group.is_broadcasting:
            return
        self._untold[group.name] = None
        if self._live.now.notify_at_once and not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self.tell)

    def tell(self) -> None:
        """Notify the members of all groups that changed.

        Without realTimeNotifyConsumerChange, only the periodic task calls it.
        """
        self._telling = False
        untold, self._untold = self._untold, {}
        for name in untold:
            group = self._groups.get(name)
            if group is not None:
                clientcalls.notify_ids_changed(list(group.members), name)
