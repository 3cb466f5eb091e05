"""Redelivers a dead letter to its group: a copy goes into the group's retry topic.

So only this group gets it, as soon as it is online, with all its attempts again. If it were sent to its
original topic, every other group would get it a second time.
"""

from __future__ import annotations

import random
from typing import Final

from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.messages import FoundMessage, Resent
from flaremq.base.errors import InvalidParameter, NoRoute
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
_KEPT_FLAGS: Final = sysflag.COMPRESSED | sysflag.MULTI_TAGS | sysflag.COMPRESSION_MASK


async def resend(servers: ServerCalls, letter: FoundMessage) -> Resent:
    if not is_dlq(letter.topic):
        raise InvalidParameter(
            f"message {letter.message_id} is in {letter.topic!r}: expected a dead letter, in a topic "
            f"{DLQ_PREFIX}GROUP"
        )
    topic = retry_topic(letter.topic.removeprefix(DLQ_PREFIX))
    server, queue = await _target(servers, topic, letter.broker)
    request = _request(letter, queue)
    answer = await servers.api.caller.call(server.address, request, servers.api.timeout_s)
    if answer.code not in STORED:
        raise error_for(server.address, request.code, answer)
    said = header_of(SendMessageResponseHeader, answer)
    return Resent(
        MessageQueue(topic, server.name, said.queue_id),
        said.queue_offset,
        said.msg_id,
    )


async def _target(servers: ServerCalls, topic: str, preferred: str) -> tuple[ServerAddress, MessageQueue]:
    route = await servers.api.route(topic)
    if route is None:
        raise servers.topic_not_found(topic)
    counts = {each.broker_name: each.write_queue_nums for each in route.queue_datas if each.perm & PERM_WRITE}
    masters = [each for each in await servers.of_topic(topic) if not each.id and counts.get(each.name)]
    if not masters:
        raise NoRoute(f"topic {topic!r} has no writable queue: check its masters and its permission")
    server = next((each for each in masters if each.name == preferred), masters[0])
    return server, MessageQueue(topic, server.name, random.randrange(counts[server.name]))


def _request(letter: FoundMessage, queue: MessageQueue) -> Command:
    known = {name: value for name, value in letter.properties.items() if name not in _SPENT}
    origin = known.get(properties.DLQ_ORIGIN_TOPIC)
    if origin:
        known.setdefault(properties.RETRY_TOPIC, origin)
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
