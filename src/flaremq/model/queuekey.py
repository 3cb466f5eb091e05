"""Queues as text: `topic@broker:queueId`, as in offsets, options and messages."""

from __future__ import annotations

from functools import cache

from flaremq.base.errors import UsageError
from flaremq.model.message import MessageQueue


def key_of(queue: MessageQueue) -> str:
    return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}"


@cache
def queue_of(key: str) -> MessageQueue:
    """The queue of a key. Raises UsageError. Unambiguous for any broker name, as topics contain no @."""
    topic, at, rest = key.partition("@")
    broker, colon, number = rest.rpartition(":")
    is_number = number.isdecimal() and number.isascii() and int(number) < 1 << 31
    if not (topic and at and broker and colon and is_number):
        raise UsageError(
            f"{key!r} is not a queue; expected topic@broker:queueId, for example Orders@broker-a:0"
        )
    return MessageQueue(topic, broker, int(number))
