"""Rewrites: rules that may change a message on its way into the log, or keep it out.

    request > checked > [rewrites, in order] > append

A rewrite gets the message, its properties and the request that brought it, and returns the message to store:
the same, or one for another topic or queue. It may change the properties in place, and raises to refuse.
Only messages of the plain lane come here: the fast lane leaves every message that a rewrite could affect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from flaremq.base.errors import FlareError, GroupNotFound, MessageIllegal
from flaremq.broker.tables.tables import Tables
from flaremq.model import names, properties, timers
from flaremq.model.delays import SCHEDULE_TOPIC
from flaremq.model.topic import TopicConfig
from flaremq.protocol.headers.send import SendMessageRequestHeader
from flaremq.store.drafts import NewMessage
from flaremq.store.store import MessageStore

_MAX_RECONSUME_FROM: Final = 121  # V3_4_9: clients from this version on send their maximum of retries.
_DLQ_QUEUES: Final = 1
_LIGHT_QUEUE: Final = re.compile(r"%LMQ%[^/,\0\s]{1,122}")
_HALF_TOPIC: Final = names.TRANS_HALF_TOPIC.encode()


@dataclass(frozen=True, slots=True)
class Arrival:
    """The request that brought a message."""

    header: SendMessageRequestHeader
    version: int
    """Of the client."""
    config: TopicConfig
    """Of the topic that the request names."""


Rewrite: TypeAlias = Callable[[NewMessage, dict[str, str], Arrival], NewMessage]


def unmarked(message: NewMessage, known: dict[str, str], _arrival: Arrival) -> NewMessage:
    """Remove what only brokers may note. A client that sends copies of what it received sends that too."""
    is_copy = properties.REAL_TOPIC in known
    for name in properties.MARKS & known.keys():
        del known[name]
    if is_copy and not message.topic.startswith(b"%"):
        known.pop(properties.PRODUCER_SEQ, None)  # The number is that of the message it was copied from.
    return message


class LightQueues:
    """Refuses names of light queues that are none: Java's brokers would stop dispatching at such a record."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def __call__(self, message: NewMessage, known: dict[str, str], _arrival: Arrival) -> NewMessage:
        text = known.get(properties.INNER_MULTI_DISPATCH)
        if text is None or not self._store.settings.lmq_enabled:
            return message
        queues = text.split(",")
        wrong = [name for name in queues if not _LIGHT_QUEUE.fullmatch(name)]
        if wrong or len(set(queues)) < len(queues):
            raise MessageIllegal(
                f"INNER_MULTI_DISPATCH={text[:80]!r}: expected different names of light queues, separated by "
                "commas, each %LMQ% and then letters, digits and signs other than a slash, 127 in all"
            )
        return message


class DeadLetters:
    """Moves retries to the dead-letter topic: those beyond the maximum, and those of orderly consumers."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def __call__(self, message: NewMessage, known: dict[str, str], arrival: Arrival) -> NewMessage:
        header = arrival.header
        if not names.is_retry(header.topic):
            return message
        group = header.topic.removeprefix(names.RETRY_PREFIX)
        config = self._tables.subscriptions.get(group)
        if config is None:
            raise GroupNotFound(f"subscription group not exist, {group}: create it first")
        times_max = config.retry_max_times
        if arrival.version >= _MAX_RECONSUME_FROM and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if message.reconsume_times <= times_max and not self._tables.locks.is_any_alive(group):
            return message
        known[properties.DELAY] = "-1"
        for name in timers.ASKED:  # It has waited for its moment already.
            known.pop(name, None)
        topic = names.dlq_topic(group)
        self._tables.topics.ensure(topic, _DLQ_QUEUES)
        return replace(message, topic=topic.encode(), queue_id=0)


class Delays:
    """Sends a message with a delay level to the topic in which it waits."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def __call__(self, message: NewMessage, known: dict[str, str], _arrival: Arrival) -> NewMessage:
        if message.topic == _HALF_TOPIC:  # Its delay begins when the transaction is committed.
            self.later(message, dict(known))  # What would be refused then is refused now.
            return message
        return self.later(message, known)

    def later(self, message: NewMessage, known: dict[str, str]) -> NewMessage:
        return delayed(message, known, len(self._store.settings.delay_levels_ms))


def delayed(message: NewMessage, known: dict[str, str], levels: int) -> NewMessage:
    """The message as it waits, if its properties have a delay level. They are changed in place."""
    text = known.get(properties.DELAY)
    if text is None:
        return message
    try:
        level = min(int(text), levels)
    except ValueError:
        raise FlareError(f"DELAY={text!r}: expected a delay level from 1 to {levels}") from None
    if level <= 0:
        return message
    for name in timers.ASKED:  # The level wins.
        known.pop(name, None)
    known[properties.DELAY] = str(level)
    known[properties.REAL_TOPIC] = message.topic.decode()
    known[properties.REAL_QUEUE_ID] = str(message.queue_id)
    return replace(message, topic=SCHEDULE_TOPIC, queue_id=level - 1)


def need_key(message: NewMessage, known: dict[str, str], arrival: Arrival) -> NewMessage:
    """Refuse a message without a key in a compacted topic, which keeps the newest message of each key."""
    if arrival.config.is_compacted and not known.get(properties.KEYS, "").strip():
        topic = message.topic.decode()
        raise MessageIllegal(f"topic {topic} is compacted: expected a message with a key")
    return message
