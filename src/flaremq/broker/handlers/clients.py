"""Requests about connected clients: heartbeats, unregistration, membership."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flaremq.base.clock import Clock
from flaremq.base.errors import ConsumerOffline, InvalidParameter, UsageError
from flaremq.base.live import Live
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker.role import Role
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.consumers import ConsumerGroup
from flaremq.broker.tables.producers import ClientMember
from flaremq.broker.tables.tables import Tables
from flaremq.model.topic import GroupConfig, retry_topic
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import CheckClientRequestBody, ConsumerData, ConsumeType, HeartbeatData
from flaremq.protocol.bodies.running import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerTableEntry,
    ProducerTableInfo,
)
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import group as headers
from flaremq.remoting.router import Handler, Peer

log = logger("broker.group")

_UNIT_SUB = 0x2  # Bit of a topic's sys flag: consumers in several units subscribe to it.


class ClientHandlers:
    def __init__(self, settings: Live[BrokerSettings], tables: Tables, clock: Clock, role: Role) -> None:
        self._live = settings
        self._role = role
        self._topics = tables.topics
        self._subscriptions = tables.subscriptions
        self._groups = tables.groups
        self._producers = tables.producers
        self._filters = tables.filters
        self._clock = clock

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.HEART_BEAT: self.heartbeat,
            code.UNREGISTER_CLIENT: self.unregister,
            code.CHECK_CLIENT_CONFIG: self.check_client,
            code.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_ids,
            code.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connections,
            code.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connections,
            code.GET_ALL_PRODUCER_INFO: self.get_all_producers,
        }

    # Joining and leaving.

    async def heartbeat(self, peer: Peer, request: Command) -> Command:
        """Register a client. New groups and retry topics are saved after the answer (`configfile.Autosave`):
        while a heartbeat is unanswered, a Java client announces no new subscription, and its pulls are
        refused.
        """
        said = beans.decode(HeartbeatData, request.body)
        if not said.client_id:
            raise InvalidParameter("clientID is empty: expected an id that is unique to the client")
        if not peer.is_open:
            return response_to(request)  # It is gone already, so its leaving would never be noticed.
        # Everything is checked before anything is taken: a heartbeat counts as a whole.
        consumers = [_with_codes(each) for each in said.consumer_data_set]
        member = ClientMember(
            peer=peer,
            client_id=said.client_id,
            language=request.language,
            version=int(request.version),
            last_seen_ms=self._clock.now_ms(),
        )
        changed = not said.heartbeat_fingerprint
        for consumer in consumers:
            changed |= self._take(member, consumer, said)
        for producer in said.producer_data_set:
            self._producers.register(producer.group_name, member)
        answer = headers.HeartbeatResponseHeader(is_sub_change=changed)
        return response_to(request, ext_fields=fields.encode(answer))

    def _take(self, member: ClientMember, said: ConsumerData, heartbeat: HeartbeatData) -> bool:
        """Take one group of a heartbeat; return whether the client must go on sending subscriptions.

        A group that does not exist, and may not be created, is skipped: the client's other groups count.
        """
        if self._live.now.reject_pull_consumers and said.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return False
        config = self._subscriptions.get(said.group_name)
        if config is None:
            return False
        if not self._role.is_slave:  # A slave has the topics that its master tells, and no others.
            self._make_retry_topic(config, said, heartbeat)
        known = self._groups.get(said.group_name)
        before = None if known is None else known.fingerprint
        self._groups.heartbeat(
            member,
            said,
            notify=config.notify_consumer_ids_changed_enable,
            without_sub=heartbeat.without_sub,
        )
        group = self._groups.get(said.group_name)
        assert group is not None  # It has a member now.
        now = heartbeat.heartbeat_fingerprint
        if heartbeat.without_sub and before != now:
            return True  # The subscriptions it left out are not those we know: it must send them again.
        group.fingerprint = now
        return before is not None and before != now

    def _make_retry_topic(self, config: GroupConfig, said: ConsumerData, heartbeat: HeartbeatData) -> None:
        try:
            self._topics.ensure(
                retry_topic(said.group_name),
                config.retry_queue_nums,
                sys_flag=_UNIT_SUB if said.unit_mode else 0,
                order=None if heartbeat.without_sub else self._wants_order(said),
            )
        except UsageError as error:
            log.warning("a group gets no retry topic", extra=logged(group=said.group_name, why=error))

    def _wants_order(self, said: ConsumerData) -> bool:
        configs = (self._topics.get(each.topic) for each in said.subscription_data_set)
        return any(config is not None and config.order for config in configs)

    async def unregister(self, peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.UnregisterClientRequestHeader, request.fields)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, peer)
        if header.consumer_group is not None:
            self._groups.unregister(header.consumer_group, peer)
        return response_to(request)

    async def check_client(self, _peer: Peer, request: Command) -> Command:
        """Check a consumer's subscription; requested before the consumer starts."""
        said = beans.decode(CheckClientRequestBody, request.body)
        self._filters.check(said.subscription_data)
        return response_to(request)

    # Queries.

    async def get_consumer_ids(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetConsumerListByGroupRequestHeader, request.fields)
        group = self._groups.get(header.consumer_group)
        if group is None:
            raise UsageError(f"no consumer for this group, {header.consumer_group}")
        return response_to(request, body=group.ids_body())

    async def get_consumer_connections(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetConsumerConnectionListRequestHeader, request.fields)
        group = self._groups.get(header.consumer_group)
        if group is None:
            raise ConsumerOffline(f"the consumer group[{header.consumer_group}] not online")
        return response_to(request, body=beans.encode(_shown(group)))

    async def get_producer_connections(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetProducerConnectionListRequestHeader, request.fields)
        members = self._producers.members(header.producer_group)
        if not members:
            raise UsageError(f"the producer group[{header.producer_group}] not exist")
        return response_to(
            request, body=beans.encode(ProducerConnection(connection_set=_connections(members)))
        )

    async def get_all_producers(self, _peer: Peer, request: Command) -> Command:
        table = {
            group: tuple(map(_producer_info, members)) for group, members in self._producers.all().items()
        }
        return response_to(request, body=beans.encode(ProducerTableInfo(data=table)))


def _with_codes(said: ConsumerData) -> ConsumerData:
    """Compute the tag hashes as Java does: some clients hash other bytes."""
    wanted = tuple(each.with_codes() for each in said.subscription_data_set)
    return replace(said, subscription_data_set=wanted)


def _shown(group: ConsumerGroup) -> ConsumerConnection:
    return ConsumerConnection(
        connection_set=_connections(group.members.values()),
        subscription_table=group.subscriptions,
        consume_type=group.consume_type,
        message_model=group.message_model,
        consume_from_where=group.consume_from_where,
    )


def _connections(members: Iterable[ClientMember]) -> tuple[ClientConnection, ...]:
    return tuple(
        ClientConnection(
            client_id=each.client_id, client_addr=each.address, language=each.language, version=each.version
        )
        for each in members
    )


def _producer_info(member: ClientMember) -> ProducerTableEntry:
    return ProducerTableEntry(
        client_id=member.client_id,
        remote_ip="/" + member.address,  # As Java shows an address.
        language=member.language,
        version=member.version,
        last_update_timestamp=member.last_seen_ms,
    )
