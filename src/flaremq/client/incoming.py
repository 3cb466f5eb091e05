"""Requests that brokers send to clients, over the clients' own connections."""

from __future__ import annotations

import logging
from typing import Final

from flaremq.base.errors import GroupNotFound
from flaremq.client.members import ConsumerMember, Members
from flaremq.client.message import Reply
from flaremq.model import properties, sysflag
from flaremq.model.columns import Check
from flaremq.model.compression import BODY_SIZE_MAX, decompress
from flaremq.model.properties import decode_properties
from flaremq.model.record import decode
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import GetConsumerStatusBody, ResetOffsetBody
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.headers.group import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from flaremq.protocol.headers.send import ReplyMessageRequestHeader
from flaremq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from flaremq.remoting.router import Family, Peer, Router

log = logging.getLogger(__name__)

_AT_ONCE_MAX: Final = 1000


class Incoming:
    def __init__(self, members: Members) -> None:
        self._members = members

    def router(self) -> Router:
        router = Router()
        router.serve(
            Family("broker's request", _AT_ONCE_MAX),
            {
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.ids_changed,
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset_offset,
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.status,
                RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
                RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
                RequestCode.CHECK_TRANSACTION_STATE: self.check_transaction,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.take_reply,
            },
        )
        return router

    async def ids_changed(self, _peer: Peer, request: Command) -> Command | None:
        header = fields.decode(NotifyConsumerIdsChangedRequestHeader, request.fields)
        consumer = self._members.consumers.get(header.consumer_group)
        if consumer is not None:  # It may have stopped just now.
            consumer.rebalance_soon()
        return None

    async def reset_offset(self, _peer: Peer, request: Command) -> Command | None:
        header = fields.decode(ResetOffsetRequestHeader, request.fields)
        body = beans.decode(ResetOffsetBody, request.body)
        await self._consumer(header.group).reset_offsets(header.topic, body.offset_table)
        return None

    async def status(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(GetConsumerStatusRequestHeader, request.fields)
        found = self._consumer(header.group).positions(header.topic)
        return response_to(request, body=beans.encode(GetConsumerStatusBody(message_queue_table=found)))

    async def running_info(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(GetConsumerRunningInfoRequestHeader, request.fields)
        info = self._consumer(header.consumer_group).running_info(stacks=header.jstack_enable)
        return response_to(request, body=beans.encode(info))

    async def consume_directly(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(ConsumeMessageDirectlyResultRequestHeader, request.fields)
        consumer = self._consumer(header.consumer_group)
        result = await consumer.consume_directly(bytes(request.body or b""), header.broker_name or "")
        return response_to(request, body=beans.encode(result))

    async def check_transaction(self, peer: Peer, request: Command) -> Command | None:
        header = fields.decode(CheckTransactionStateRequestHeader, request.fields)
        record = bytes(request.body or b"")
        group = decode(record, check=Check.NOTHING).properties.get(properties.PRODUCER_GROUP, "")
        producer = self._members.checkers.get(group)
        if producer is not None:  # It may have stopped just now: the broker will ask another one.
            await producer.check(peer, header, record)
        return None

    async def take_reply(self, _peer: Peer, request: Command) -> Command:
        header = fields.decode(ReplyMessageRequestHeader, request.fields)
        known = decode_properties((header.properties or "").encode("utf-8", "replace"))
        correlation_id = known.get(properties.CORRELATION_ID, "")
        waiting = self._members.requests.get(correlation_id)
        body = bytes(request.body or b"")
        if header.sys_flag & sysflag.COMPRESSED:
            body = decompress(body, header.sys_flag, BODY_SIZE_MAX)
        if waiting is not None and not waiting.done():
            waiting.set_result(Reply(body, known, header.born_host))
        elif (topic := self._members.late_for(correlation_id)) is not None:
            log.warning("the reply from %s to a message for %r came too late", header.born_host, topic)
        else:
            log.warning("a reply from %s was not asked for, or is a second one", header.born_host)
        return response_to(request)

    def _consumer(self, group: str) -> ConsumerMember:
        found = self._members.consumers.get(group)
        if found is None:
            raise GroupNotFound(f"group {group!r} has no consumer in this client: ask another member")
        return found
