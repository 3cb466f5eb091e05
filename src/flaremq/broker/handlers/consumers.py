"""Requests of administrators to consumers: reset offsets, status, running info, consume one message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from flaremq.base.errors import (
    CallTimeout,
    ConsumerOffline,
    FlareError,
    GroupNotFound,
    InvalidParameter,
    TopicNotFound,
    Unreachable,
    UsageError,
)
from flaremq.base.live import Live
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker import clientcalls
from flaremq.broker.offload import Offload
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tables.producers import ClientMember
from flaremq.broker.tables.tables import Tables
from flaremq.model.message import MessageQueue
from flaremq.model.msgid import decode_offset_id
from flaremq.model.topic import TopicConfig, check_group
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import GetConsumerStatusBody, ResetOffsetBody
from flaremq.protocol.codes import LanguageCode, RequestCode, ResponseCode, Version
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers import group as headers
from flaremq.remoting.router import Handler, Peer
from flaremq.store.store import MessageStore

log = logger("broker.consumer")


class ConsumerHandlers:
    def __init__(
        self, settings: Live[BrokerSettings], tables: Tables, store: MessageStore, offload: Offload
    ) -> None:
        self._live = settings
        self._topics = tables.topics
        self._subscriptions = tables.subscriptions
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._store = store
        self._offload = offload

    def table(self) -> dict[int, Handler]:
        code = RequestCode
        return {
            code.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            code.CLONE_GROUP_OFFSET: self.clone_offset,
            code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            code.GET_CONSUMER_RUNNING_INFO: self.running_info,
            code.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    # Offsets.

    async def reset_offset(self, peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.ResetOffsetRequestHeader, request.fields)
        log.info(
            "request to reset offsets",
            extra=logged(group=header.group, topic=header.topic, to=header.timestamp, by=peer.address),
        )
        config = self._topics.get(header.topic)
        if config is None:
            raise TopicNotFound(f"Topic {header.topic} does not exist")
        if self._live.now.server_side_reset:
            table = await self._reset_here(header, config)
        else:
            table = await self._reset_there(header, config, request.language is LanguageCode.CPP)
        return response_to(request, body=beans.encode(ResetOffsetBody(offset_table=table)))

    async def _reset_here(
        self, header: headers.ResetOffsetRequestHeader, config: TopicConfig
    ) -> Mapping[MessageQueue, int]:
        """Reset in the broker: the next pull of each queue is answered with the new offset."""
        if not self._live.now.is_master:
            raise UsageError("offsets cannot be reset on a slave: reset them on its master")
        if not self._subscriptions.contains(header.group):
            raise GroupNotFound(f"Group {header.group} does not exist")
        if header.queue_id < 0:
            targets = await self._searched(config, range(config.read_queue_nums), header.timestamp)
        elif header.queue_id >= config.read_queue_nums:
            raise InvalidParameter(
                f"queueId is {header.queue_id}, but topic {header.topic} has {config.read_queue_nums} queues"
            )
        elif header.offset is None or header.offset == -1:
            targets = await self._searched(config, [header.queue_id], header.timestamp)
        else:
            targets = {header.queue_id: self._checked(header.topic, header.queue_id, header.offset)}
        if not targets:
            raise UsageError(f"topic {header.topic} has no queues to reset")
        for queue_id, offset in targets.items():
            self._offsets.reset(header.group, header.topic, queue_id, offset)
        await self._offsets.settle()
        return self._named(header.topic, targets)

    async def _reset_there(
        self, header: headers.ResetOffsetRequestHeader, config: TopicConfig, for_c: bool
    ) -> Mapping[MessageQueue, int]:
        """Reset in the connected consumers, as brokers did before they could reset offsets themselves."""
        online = self._groups.get(header.group)
        if online is None:
            raise ConsumerOffline(
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
        targets = dict(await self._searched(config, range(config.write_queue_nums), header.timestamp))
        for queue_id, offset in targets.items():
            consumed = self._offsets.get(header.group, header.topic, queue_id)
            if consumed < 0:
                raise UsageError(f"group {header.group} has no offset for {header.topic}-{queue_id} to reset")
            targets[queue_id] = offset if header.is_force else min(offset, consumed)
        for member in online.members.values():
            _check_version(member, Version.V3_0_7_SNAPSHOT)
        table = self._named(header.topic, targets)
        forwarded = headers.ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=header.is_force
        )
        clientcalls.reset_offset(list(online.members), forwarded, table, for_c=for_c)
        return table

    async def _searched(
        self, config: TopicConfig, queue_ids: range | list[int], timestamp_ms: int
    ) -> dict[int, int]:
        """The first offsets at or after a time, or the ends of the queues if it is negative."""
        name, store = config.topic_name.encode(), self._store
        await self._offload.run(store.show)
        if timestamp_ms < 0:
            return {queue_id: store.max_offset(name, queue_id) for queue_id in queue_ids}
        return await self._offload.run(
            lambda: {
                queue_id: max(0, store.offset_by_time(name, queue_id, timestamp_ms)) for queue_id in queue_ids
            }
        )

    def _checked(self, topic: str, queue_id: int, offset: int) -> int:
        name = topic.encode()
        low, high = self._store.min_offset(name, queue_id), self._store.max_offset(name, queue_id)
        if not low <= offset <= high:
            raise UsageError(f"Target offset {offset} not in consume queue range [{low}-{high}]")
        return offset

    def _named(self, topic: str, targets: Mapping[int, int]) -> dict[MessageQueue, int]:
        broker = self._live.now.broker_name
        return {MessageQueue(topic, broker, queue_id): offset for queue_id, offset in targets.items()}

    async def clone_offset(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.CloneGroupOffsetRequestHeader, request.fields)
        check_group(header.dest_group)
        topics = {header.topic} if header.topic else self._offsets.topics_of_group(header.src_group)
        online = self._groups.get(header.src_group)
        wanted = None if online is None or header.offline else online.subscriptions
        for topic in topics:
            if self._topics.get(topic) is not None and (not wanted or topic in wanted):
                self._offsets.clone(header.src_group, header.dest_group, topic)
        await self._offsets.settle()
        return response_to(request)

    # Requests passed on to consumers.

    async def consumer_status(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetConsumerStatusRequestHeader, request.fields)
        online = self._groups.get(header.group)
        if online is None:
            raise ConsumerOffline(f"No Any Consumer online in the consumer group: [{header.group}]")
        asked = [
            member
            for member in online.members.values()
            if not header.client_addr or member.client_id == header.client_addr
        ]
        for member in asked:
            _check_version(member, Version.V3_0_7_SNAPSHOT)
        answers = await asyncio.gather(*(_status_of(each, header.topic, header.group) for each in asked))
        pairs = zip(asked, answers, strict=True)
        table = {member.client_id: answer for member, answer in pairs if answer is not None}
        return response_to(request, body=beans.encode(GetConsumerStatusBody(consumer_table=table)))

    async def running_info(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.GetConsumerRunningInfoRequestHeader, request.fields)
        member = self._member(header.consumer_group, header.client_id)
        try:
            return _passed_on(request, await clientcalls.running_info(member.peer, request.fields))
        except Unreachable as error:
            return _failed(request, member, error)

    async def consume_directly(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(headers.ConsumeMessageDirectlyResultRequestHeader, request.fields)
        member = self._member(header.consumer_group, header.client_id)
        if not header.msg_id:
            raise InvalidParameter("msgId is missing: name the message by its offset id")
        place = decode_offset_id(header.msg_id).physical_offset
        record = await self._offload.run(lambda: _copied(self._store.record(place)))
        if record is None:
            raise UsageError(f"no message at offset {place}, where {header.msg_id} points: it may be deleted")
        ext_fields = {**request.fields, "brokerName": self._live.now.broker_name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            ext_fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._subscriptions.get(header.consumer_group)
        if group is not None:
            ext_fields["groupSysFlag"] = str(group.group_sys_flag)
        try:
            return _passed_on(request, await clientcalls.consume_directly(member.peer, ext_fields, record))
        except Unreachable as error:
            return _failed(request, member, error)

    def _member(self, group: str, client_id: str | None) -> ClientMember:
        online = self._groups.get(group)
        member = None if online is None else online.member(client_id or "")
        if member is None:
            raise UsageError(f"The Consumer <{group}> <{client_id}> not online")
        _check_version(member, Version.V3_1_8_SNAPSHOT)
        return member


async def _status_of(member: ClientMember, topic: str, group: str) -> Mapping[MessageQueue, int] | None:
    """None if a consumer fails to answer, so that the answers of the others still count."""
    try:
        return await clientcalls.consumer_status(member.peer, topic, group)
    except FlareError as error:
        log.warning("a consumer did not report its offsets", extra=logged(client=member.client_id, why=error))
        return None


def _check_version(member: ClientMember, needed: Version) -> None:
    if member.version < needed:
        raise UsageError(
            f"the client <{member.client_id}> is of version {member.version} and does not support this; "
            f"expected {int(needed)} ({needed.name}) or newer"
        )


def _copied(record: memoryview | None) -> bytes | None:
    return None if record is None else bytes(record)


def _passed_on(request: Command, answer: Command) -> Command:
    return response_to(request, answer.code, answer.remark, ext_fields=answer.ext_fields, body=answer.body)


def _failed(request: Command, member: ClientMember, error: Unreachable) -> Command:
    late = isinstance(error, CallTimeout)
    code = ResponseCode.CONSUME_MSG_TIMEOUT if late else ResponseCode.SYSTEM_ERROR
    return response_to(request, code, f"consumer <{member.client_id}>: {error}")
