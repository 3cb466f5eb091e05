"""Copies of dead letters, sent again.

A copy in the group's retry topic goes to this group alone, as soon as it is online, with all its attempts
again. One in the topic that the letter came from goes to every group of that topic.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Final, TypeAlias

from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.deadletters import DeadLetter
from flaremq.admin.values.messages import FoundMessage, Resent
from flaremq.base.errors import FlareError, InvalidParameter, NoRoute
from flaremq.client.api import header_of
from flaremq.client.errors import error_for
from flaremq.model import properties, sysflag
from flaremq.model.message import MessageQueue
from flaremq.model.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, is_dlq, retry_topic
from flaremq.model.properties import decode_text, encode_properties
from flaremq.model.topic import PERM_WRITE
from flaremq.protocol import fields
from flaremq.protocol.codes import STORED, RequestCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers.send import SendMessageRequestHeader, SendMessageResponseHeader

_SENDER: Final = "CLIENT_INNER_PRODUCER"
"""The producer group that Java's consumers use for their own retries."""
_SPENT: Final = frozenset(
    {
        *(properties.DELAY, properties.RECONSUME_TIME, properties.MAX_RECONSUME_TIMES, properties.WAIT),
        *(properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.CONSUME_START_TIME),
        *(properties.MIN_OFFSET, properties.MAX_OFFSET, properties.POP_CK, properties.FIRST_POP_TIME),
        *(properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS),
        *(properties.TIMER_OUT_MS, properties.TIMER_ENQUEUE_MS, properties.TIMER_DEQUEUE_MS),
        *(properties.TIMER_ROLL_TIMES, properties.TIMER_DELAY_LEVEL, properties.TIMER_DEL_UNIQKEY),
    }
)
"""Properties of the original that would delay the copy, or make it a dead letter, again."""
_HISTORY: Final = frozenset(
    {
        *(properties.RETRY_TOPIC, properties.ORIGIN_MESSAGE_ID, properties.FAILURE_REASON),
        *(properties.FAILURE_TIME, properties.DLQ_ORIGIN_TOPIC, properties.DLQ_ORIGIN_MESSAGE_ID),
        *(properties.TRANSACTION_PREPARED, properties.PRODUCER_GROUP, properties.TRANSACTION_ID),
        *(properties.TRANSACTION_CHECK_TIMES, properties.TRANSACTION_PREPARED_QUEUE_OFFSET),
        *(properties.CHECK_IMMUNITY_TIME_IN_SECONDS, properties.INNER_NUM, properties.INNER_BASE),
        *(properties.CLUSTER, properties.MSG_REGION, properties.TRACE_ON, properties.CRC32),
        *(properties.RESENT_FROM, properties.POP_CK_OFFSET, properties.INNER_MULTI_QUEUE_OFFSET),
    }
)
"""Properties that tell what became of the original, or that brokers set for each message."""
_KEPT_FLAGS: Final = sysflag.COMPRESSED | sysflag.MULTI_TAGS | sysflag.COMPRESSION_MASK


async def resend(servers: ServerCalls, letter: FoundMessage) -> Resent:
    """Send it to its group."""
    if not is_dlq(letter.topic):
        raise InvalidParameter(
            f"message {letter.message_id} is in {letter.topic!r}: expected a dead letter, in a topic "
            f"{DLQ_PREFIX}GROUP"
        )
    topic = retry_topic(letter.topic.removeprefix(DLQ_PREFIX))
    server, queue = _target(await _queues(servers, topic), topic, letter.broker)
    return await _sent(servers, server, _request(letter, queue, _for_group(letter)))


class Resender:
    """Sends many dead letters again, looking up each topic once."""

    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers
        self._queues: dict[str, _Queues | FlareError] = {}

    async def send(self, letter: DeadLetter, to: str | None, *, to_group: bool) -> Resent:
        """To its group, to this topic, or to the one that it came from. Raises if that is not possible."""
        topic = retry_topic(letter.group) if to_group else to or letter.origin_topic
        if topic is None:
            raise InvalidParameter(
                f"dead letter {letter.message.message_id} does not say which topic it came from: "
                "expected a topic to send it to"
            )
        if topic not in self._queues:
            try:
                self._queues[topic] = await _queues(self._servers, topic)
            except FlareError as error:
                self._queues[topic] = error
        queues = self._queues[topic]
        if isinstance(queues, FlareError):
            raise queues
        server, queue = _target(queues, topic, letter.message.broker)
        known = _for_group(letter.message) if to_group else _anew(letter.message)
        return await _sent(self._servers, server, _request(letter.message, queue, known))


async def send_to(servers: ServerCalls, server: ServerAddress, queue: MessageQueue, body: bytes) -> Resent:
    """Send a plain message to one queue."""
    header = SendMessageRequestHeader(
        producer_group=_SENDER,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=1,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties="",
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    request = Command(code=RequestCode.SEND_MESSAGE, ext_fields=fields.encode(header), body=body)
    return await _sent(servers, server, request)


async def _sent(servers: ServerCalls, server: ServerAddress, request: Command) -> Resent:
    answer = await servers.api.caller.call(server.address, request, servers.api.timeout_s)
    if answer.code not in STORED:
        raise error_for(server.address, request.code, answer)
    said = header_of(SendMessageResponseHeader, answer)
    topic = request.fields["topic"]
    return Resent(MessageQueue(topic, server.name, said.queue_id), said.queue_offset, said.msg_id)


_Queues: TypeAlias = Mapping[ServerAddress, int]
"""The masters that can be written to, and how many queues each has."""


async def _queues(servers: ServerCalls, topic: str) -> _Queues:
    route = await servers.api.route(topic)
    if route is None:
        raise servers.topic_not_found(topic)
    counts = {each.broker_name: each.write_queue_nums for each in route.queue_datas if each.perm & PERM_WRITE}
    masters = (each for each in await servers.of_topic(topic) if not each.id and counts.get(each.name))
    found = {each: counts[each.name] for each in masters}
    if not found:
        raise NoRoute(f"topic {topic!r} has no writable queue: check its masters and its permission")
    return found


def _target(queues: _Queues, topic: str, preferred: str) -> tuple[ServerAddress, MessageQueue]:
    server = next((each for each in queues if each.name == preferred), next(iter(queues)))
    return server, MessageQueue(topic, server.name, random.randrange(queues[server]))


def _for_group(letter: FoundMessage) -> dict[str, str]:
    """The properties of a copy in the retry topic of its group."""
    known = {name: value for name, value in letter.properties.items() if name not in _SPENT}
    origin = known.get(properties.DLQ_ORIGIN_TOPIC)
    if origin:
        known.setdefault(properties.RETRY_TOPIC, origin)
    return known


def _anew(letter: FoundMessage) -> dict[str, str]:
    """The properties of a copy that is like the message when it was sent for the first time."""
    left = _SPENT | _HISTORY
    known = {name: value for name, value in letter.properties.items() if name not in left}
    return {**known, properties.RESENT_FROM: letter.offset_id}


def _request(letter: FoundMessage, queue: MessageQueue, known: dict[str, str]) -> Command:
    header = SendMessageRequestHeader(
        producer_group=_SENDER,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=1,
        queue_id=queue.queue_id,
        sys_flag=letter.stored.sys_flag & _KEPT_FLAGS,
        born_timestamp=letter.born_ms,
        flag=letter.stored.flag,
        properties=decode_text(encode_properties(known)),
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    return Command(
        code=RequestCode.SEND_MESSAGE, ext_fields=fields.encode(header), body=letter.stored.body or None
    )
