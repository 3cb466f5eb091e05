"""Requests from the broker to its clients, over the connections that the clients opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flaremq.model.message import MessageQueue
from flaremq.protocol import beans, fields
from flaremq.protocol.bodies.group import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from flaremq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from flaremq.protocol.command import Command, oneway
from flaremq.protocol.headers.group import (
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ResetOffsetRequestHeader,
)
from flaremq.protocol.headers.send import ReplyMessageRequestHeader
from flaremq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from flaremq.remoting.router import Peer

STATUS_TIMEOUT_S: Final = 5.0
FORWARD_TIMEOUT_S: Final = 10.0


def notify_ids_changed(peers: Iterable[Peer], group: str) -> None:
    """Tell members that others have come or gone, so that they rebalance. One-way: no answer."""
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
    request = _request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, is_oneway=True)
    for peer in peers:
        peer.send(request)


def reset_offset(
    peers: Iterable[Peer], header: ResetOffsetRequestHeader, table: Mapping[MessageQueue, int], *, for_c: bool
) -> None:
    """Tell consumers where to go on. `for_c`: the request came from a C++ client, so they are C++ as well."""
    if for_c:
        rows = (
            MessageQueueForC(
                topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
            )
            for queue, offset in table.items()
        )
        body = beans.encode(ResetOffsetBodyForC(offset_table=tuple(rows)))
    else:
        body = beans.encode(ResetOffsetBody(offset_table=table))
    request = _request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body, is_oneway=True)
    for peer in peers:
        peer.send(request)


def check_transaction(peer: Peer, header: CheckTransactionStateRequestHeader, record: bytes) -> None:
    """Ask a producer how a transaction has ended. One-way: it answers with a request of its own."""
    peer.send(_request(RequestCode.CHECK_TRANSACTION_STATE, header, record, is_oneway=True))


async def push_reply(peer: Peer, header: ReplyMessageRequestHeader, body: bytes) -> Command:
    """Pass a reply to the client that waits for it."""
    request = _request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body)
    return await peer.call(request, FORWARD_TIMEOUT_S)


async def consumer_status(peer: Peer, topic: str, group: str) -> Mapping[MessageQueue, int] | None:
    """The offsets that a consumer holds in memory; None if it does not answer with them."""
    header = GetConsumerStatusRequestHeader(topic=topic, group=group)
    answer = await peer.call(_request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header), STATUS_TIMEOUT_S)
    if answer.code != ResponseCode.SUCCESS or answer.body is None:
        return None
    return beans.decode(GetConsumerStatusBody, answer.body).message_queue_table


async def running_info(peer: Peer, ext_fields: Mapping[str, str]) -> Command:
    """A consumer's running info, as the consumer reports it."""
    return await _forward(peer, RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields)


async def consume_directly(peer: Peer, ext_fields: Mapping[str, str], record: bytes) -> Command:
    """Make a consumer consume one message now, and return its result."""
    return await _forward(peer, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext_fields, record)


async def _forward(
    peer: Peer, code: RequestCode, ext_fields: Mapping[str, str], body: bytes | None = None
) -> Command:
    request = Command(code=code, ext_fields=dict(ext_fields), body=body, language=LanguageCode.JAVA)
    return await peer.call(request, FORWARD_TIMEOUT_S)


def _request(
    code: RequestCode, header: fields.Header, body: bytes | None = None, *, is_oneway: bool = False
) -> Command:
    """A request as a Java broker sends it, with its language code."""
    request = Command(code=code, ext_fields=fields.encode(header), body=body, language=LanguageCode.JAVA)
    return oneway(request) if is_oneway else request
