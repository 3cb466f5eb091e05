"""Replies: passed on to the client that waits for one, over its own connection.

request > consumer > [reply] > this broker > the requester's connection, if it is here
                                           > and the reply topic, as a record of it
"""

from __future__ import annotations

from collections.abc import Callable

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, MessageIllegal
from flaremq.base.live import Live
from flaremq.base.logs import fields as logged
from flaremq.base.logs import logger
from flaremq.broker import clientcalls
from flaremq.broker.send.plain import PlainSends
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.producers import Producers
from flaremq.model import properties
from flaremq.model.properties import decode_properties, encode_properties
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.fields import encode
from flaremq.protocol.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    decode_send,
)
from flaremq.remoting.ports import host_bytes
from flaremq.remoting.router import Handler, Peer
from flaremq.store.store import MessageStore

log = logger("broker.reply")


class ReplyHandlers:
    def __init__(
        self,
        settings: Live[BrokerSettings],
        store: MessageStore,
        plain: PlainSends,
        producers: Producers,
        stats: Stats,
        clock: Clock,
        address: Callable[[], str],
    ) -> None:
        """`address` is the one that clients connect to."""
        self._live = settings
        self._store = store
        self._plain = plain
        self._producers = producers
        self._stats = stats
        self._clock = clock
        self._address = address

    def table(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply(self, peer: Peer, request: Command) -> Command:
        """Pass a reply on. An error tells the replier to try another broker, where the requester may be."""
        header = decode_send(request.code, request.fields)
        if request.body is None:
            raise MessageIllegal("the reply has no body: expected at least one byte")
        self._plain.checked(header)
        why_not = await self._push(peer, request, header)
        told = {**self._stored(peer, request, header), **self._plain.fields}
        if why_not is not None:
            return response_to(request, ResponseCode.SYSTEM_ERROR, why_not, ext_fields=told)
        return response_to(request, ext_fields=told)

    async def _push(self, peer: Peer, request: Command, header: SendMessageRequestHeader) -> str | None:
        """Why the reply did not get there; None if it did."""
        known = decode_properties((header.properties or "").encode("utf-8", "replace"))
        client_id = known.get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null: expected a client id"
        requester = self._producers.by_client_id(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._clock.now_ms()
        known[properties.PUSH_REPLY_TIME] = str(now_ms)
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties(known).decode("utf-8", "replace"),
            reconsume_times=header.reconsume_times or 0,
            unit_mode=bool(header.unit_mode),
            born_host="{}:{}".format(*peer.address),
            store_host=self._address(),
            store_timestamp=now_ms,
        )
        try:
            answer = await clientcalls.push_reply(requester, pushed, bytes(request.body or b""))
        except FlareError as error:
            return f"push reply message to <{client_id}>fail. {error}"
        return None if answer.code == ResponseCode.SUCCESS else f"push reply message to <{client_id}>fail."

    def _stored(self, peer: Peer, request: Command, header: SendMessageRequestHeader) -> dict[str, str]:
        """Keep the reply. Returns the fields that say where."""
        told = SendMessageResponseHeader(msg_id="0", queue_id=header.queue_id, queue_offset=0)
        if not self._live.now.store_replies:
            return encode(told)
        try:
            taken = self._plain.take(host_bytes(*peer.address), request)
        except FlareError as error:
            # The requester has it: an error would make the replier send it once more.
            log.warning("a reply could not be kept", extra=logged(topic=header.topic, why=error))
            return encode(told)
        self._store.show(wait=False)
        self._stats.put(taken.topic, taken.count, taken.size)
        return {name: taken.answer.fields[name] for name in encode(told)}
