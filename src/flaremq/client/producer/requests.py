"""Messages that are answered.

    request > topic > consumer > reply > the broker that has the requester's connection > the requester

The requester waits in this process. Its client is known to brokers by heartbeats, so one goes out before the
first request. A reply finds it through the broker that has its connection; repliers first try that of the
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Protocol, TypeAlias

from flaremq.base.errors import FlareError, NoReply, NoRequester, Refused, SendFailed, UsageError
from flaremq.client.client import Client
from flaremq.client.message import Receipt, ReceivedMessage, Reply
from flaremq.client.producer.packing import Parcel
from flaremq.model import properties as names
from flaremq.model.message import Message, MessageQueue
from flaremq.model.names import reply_topic

_REPLY = "reply"  # MSG_TYPE of a reply.


class Requester(Protocol):
    """A producer, as far as it is needed here."""

    client: Client

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]: ...
    async def send_parcel(
        self, parcel: Parcel, timeout_s: float | None = None, to: MessageQueue | None = None
    ) -> Receipt: ...


Sending: TypeAlias = Callable[[Mapping[str, str]], Awaitable[bool]]
"""Sends the request with these properties. Returns whether consumers will see it."""


async def request(producer: Requester, message: Message, timeout_s: float, send: Sending) -> Reply | None:
    """The reply; None if no consumer will see the request."""
    client = producer.client
    _check(message, timeout_s, client.clock.now_ms() / 1000)
    correlation_id = f"{client.rng.getrandbits(128):032x}"
    known = {
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: client.client_id,
        names.TTL: str(round(timeout_s * 1000)),
    }
    answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    client.members.requests[correlation_id] = answered
    try:
        async with asyncio.timeout(timeout_s):
            await producer.queues(message.topic)
            await client.be_known()
            return await answered if await send(known) else None
    except TimeoutError:
        client.members.give_up(correlation_id, message.topic)
        raise NoReply(
            f"no reply to message for {message.topic!r} within {timeout_s:g} s: "
            "see whether a consumer of the topic replies, or allow more time"
        ) from None
    finally:
        del client.members.requests[correlation_id]


def _check(message: Message, timeout_s: float, now_s: float) -> None:
    if not isinstance(message, Message):
        raise UsageError(
            f"a request is one message, and got {type(message).__name__}: ask with each of them, "
            "several at a time if you like"
        )
    if message.sequence is not None:
        raise UsageError("a request cannot have a sequence of its own: each request waits for its own reply")
    at = message.deliver_at
    if at is not None:
        waits_s = (at.timestamp() if isinstance(at, datetime) else at) - now_s
    else:
        waits_s = message.delay_s or 0
    if waits_s >= timeout_s:
        raise UsageError(
            f"the request is delivered in {waits_s:g} s, but its reply is awaited for {timeout_s:g} s: "
            "allow more time"
        )


async def reply(producer: Requester, message: ReceivedMessage, body: bytes, timeout_s: float | None) -> None:
    known = {name: message.get(name) for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)}
    cluster = message.get(names.CLUSTER)
    copied = {name: value for name, value in known.items() if value is not None}
    if names.REPLY_TO_CLIENT not in copied or cluster is None:
        raise UsageError(f"{message} does not ask for a reply: it was not sent with request()")
    copied[names.MSG_TYPE] = _REPLY
    parcel = Parcel(reply_topic(cluster), body, copied, is_reply=True)
    try:
        # The requester is most likely connected to the broker to which it sent the request.
        to = MessageQueue(parcel.topic, message.broker_name, 0)
        await producer.send_parcel(parcel, timeout_s, to)
    except FlareError:
        try:
            await producer.send_parcel(parcel, timeout_s)
        except (Refused, SendFailed) as error:
            attempts = error.attempts if isinstance(error, SendFailed) else (error,)
            refusals = [each for each in attempts if isinstance(each, Refused)]
            if not refusals:
                raise
            raise NoRequester(
                f"the client {copied[names.REPLY_TO_CLIENT]} that asked for a reply to {message.message_id} "
                f"is gone: {refusals[-1]}"
            ) from error
