"""Single looks into queues: how large messages are, where a time is to the message, whether there is more.

They are made in the name of the tools, whose group every broker has, so that looking makes no group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flaremq.base.errors import NoRoute
from flaremq.client.api import Pulled
from flaremq.client.client import Client
from flaremq.client.message import received
from flaremq.model.message import MessageQueue
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.pull import SUBSCRIPTION, SUSPEND
from flaremq.spark.read.fetch import TOOLS_GROUP, pull_header
from flaremq.spark.read.options import NO_FILTER
from flaremq.spark.read.partitions import QueueRange

_ANSWER_S: Final = 5.0
"""Beyond the time for which a look may be held."""
_BACK: Final = 16
_LOOKS_MAX: Final = 256


async def peek(client: Client, queue: MessageQueue, offset: int) -> Pulled:
    """As many messages from an offset on as the broker gives at a time."""
    return await _pull(client, queue, offset, 32, 0.0)


async def await_more(client: Client, queue: MessageQueue, offset: int, hold_s: float) -> bool:
    """Whether there is something at an offset, for which the broker may wait a while."""
    pulled = await _pull(client, queue, offset, 1, hold_s)
    return pulled.max_offset > offset or len(pulled.body) > 0


async def _pull(client: Client, queue: MessageQueue, offset: int, count: int, hold_s: float) -> Pulled:
    address = client.routes.address(queue.broker_name)
    if address is None:
        raise NoRoute(f"no broker named {queue.broker_name!r} is known now: see that it runs")
    of = QueueRange(queue.topic, queue.broker_name, queue.queue_id, offset, offset + 1)
    header = replace(
        pull_header(of, TOOLS_GROUP, NO_FILTER),
        max_msg_nums=count,
        sys_flag=SUBSCRIPTION | SUSPEND if hold_s else SUBSCRIPTION,
        suspend_timeout_millis=round(hold_s * 1000),
    )
    return await client.api.pull(address, RequestCode.PULL_MESSAGE, header, hold_s + _ANSWER_S)


async def first_at(client: Client, queue: MessageQueue, time_ms: int, near: int) -> int:
    """The offset of the first message that is not older, which is `near` what the broker said.

    Brokers before version 5 name the message that is nearest in time, or any of several with the same
    time. Beginning or ending there would leave out messages that are wanted.
    """
    at = max(0, near - _BACK)
    for _ in range(_LOOKS_MAX):
        pulled = await peek(client, queue, at)
        messages = received(pulled.body, queue)
        if not messages:
            if pulled.min_offset <= at:
                return near  # Nothing is there to look at.
            at = pulled.min_offset
            continue
        later = next((each.queue_offset for each in messages if each.store_timestamp_ms >= time_ms), None)
        if later is None:
            at = pulled.next_offset
            if at >= pulled.max_offset:
                return at
        elif later > messages[0].queue_offset or at <= pulled.min_offset:
            return later
        else:
            at = max(pulled.min_offset, at - _BACK)
    return near
