"""Messages that are answered.

    request > topic > consumer > reply > the broker that has the requester's connection > the requester

The requester waits in this process. Its client is known to brokers by heartbeats, so one goes out before the
first request. A reply finds it through the broker that has its connection; repliers first try that of the
request.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

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

    def injected(self, message: Message) -> Message: ...
    async def queues(self, topic: str) -> tuple[MessageQueue, ...]: ...
    async def send_parcel(
        self, parcel: Parcel, timeout_s: float | None = None, to: MessageQueue | None = None
    ) -> Receipt: ...


async def request(producer: Requester, message: Message, timeout_s: float) -> Reply:
    client = producer.client
    if message.waits:
        raise UsageError(
            "a request cannot wait for its moment: send it without delay_s, deliver_at, delay_level"
        )
    if message.sequence is not None:
        raise UsageError("a request cannot have a sequence of its own: each request waits for its own reply")
    message = producer.injected(message)
    correlation_id = f"{client.rng.getrandbits(128):032x}"
    known = {
        **message.property_map(),
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
            parcel = Parcel(message.topic, message.body, known, message.flag, made_of=(message,))
            await producer.send_parcel(parcel, timeout_s)
            return await answered
    except TimeoutError:
        raise NoReply(
            f"no reply to message for {message.topic!r} within {timeout_s:g} s: "
            "see whether a consumer of the topic replies, or allow more time"
        ) from None
    finally:
        del client.members.requests[correlation_id]


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
