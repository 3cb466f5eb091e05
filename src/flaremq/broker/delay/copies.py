"""Delivering a message that has waited: a copy is appended to the topic that it is for.

A copy that the store refuses for now, for example because the disk is full, raises, and is tried again by the
caller. One that can never be stored in its own topic is put aside, in the topic rmq_sys_undelivered: it must
neither be lost nor stop those behind it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace

from flaremq.base.errors import (
    FlareError,
    InvalidName,
    InvalidParameter,
    Malformed,
    MessageIllegal,
    PropertiesTooLong,
)
from flaremq.base.logs import fields, logger
from flaremq.broker.delay.waiting import Due, Tally, tally, to_deliver
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.model import names, properties
from flaremq.model.columns import Check, Drafts
from flaremq.model.message import StoredMessage
from flaremq.model.properties import encode_properties
from flaremq.model.record import decode
from flaremq.store.drafts import NewMessage, copy_of
from flaremq.store.store import MessageStore
from flaremq.store.timer.units import Waiting

log = logger("broker.delay")

_QUEUE_DIGITS_MAX = 9


class Copies:
    def __init__(self, store: MessageStore, tables: Tables, stats: Stats) -> None:
        self._store = store
        self._tables = tables
        self._stats = stats

    def read(self, physical_offset: int, size: int) -> StoredMessage | None:
        """The waiting message; None, and logged, if its record is gone or damaged."""
        record = self._store.record(physical_offset)
        if record is None or len(record) != size:
            log.error("a delayed message is no longer in the log", extra=fields(offset=physical_offset))
            return None
        try:
            return decode(record, check=Check.BODY_CRC)
        except Malformed as error:
            log.error(
                "a delayed message is damaged and cannot be delivered",
                extra=fields(offset=physical_offset, why=error),
            )
            return None

    def put_some(self, waiting: array[int], due: Due) -> dict[str, int]:
        """Deliver the first ordinary ones of these messages, rows of Waiting, in one append.

        How many are done with, by topic; none if the first must go alone. Raises if none can be stored now.
        """
        return CopyRun(self._store, self._tables, self._stats, waiting, due).put()

    def deliver(self, stored: StoredMessage, added: Mapping[str, str] | None = None) -> None:
        """Store the copy, with some properties `added` if there is room. Raises if it cannot now."""
        known = stored.properties
        queue = known.get(properties.REAL_QUEUE_ID, "")
        message = replace(
            with_properties(stored, added) if added else copy_of(stored),
            topic=known.get(properties.REAL_TOPIC, "").encode(),
            queue_id=int(queue) if is_number(queue, _QUEUE_DIGITS_MAX) else 0,
        )
        try:
            try:
                self._put(message)
            except PropertiesTooLong:
                self._put(replace(message, properties=stored.raw_properties))
        except (InvalidName, InvalidParameter, MessageIllegal) as error:
            self._put_aside(message, stored.physical_offset, error)

    def _put(self, message: NewMessage) -> None:
        topic = message.topic.decode()
        if topic in names.NO_SEND_TOPICS or self._tables.awaited(topic, message.queue_id) is None:
            raise InvalidParameter(f"topic {topic!r} does not exist")
        result = self._store.put(message, wait=False)
        self._stats.put(topic, 1, result.size)

    def _put_aside(self, message: NewMessage, physical_offset: int, why: FlareError) -> None:
        aside = names.UNDELIVERED_TOPIC
        self._tables.topics.ensure(aside, 1)
        told = fields(topic=message.topic.decode(errors="replace"), offset=physical_offset, why=why)
        try:
            self._put(replace(message, topic=aside.encode(), queue_id=0))
        except MessageIllegal:  # For example, maxMessageSize is smaller than when it was sent.
            log.error("a delayed message cannot be delivered: it stays where it is in the log", extra=told)
            return
        log.error(f"a delayed message cannot be delivered and is now in topic {aside}", extra=told)


class CopyRun:
    """Waiting messages that are delivered by one append: the first ordinary ones."""

    def __init__(
        self, store: MessageStore, tables: Tables, stats: Stats, waiting: array[int], due: Due
    ) -> None:
        self._store = store
        self._tables = tables
        self._stats = stats
        self._topics: list[str] = []
        self._numbers: dict[bytes, int] = {}
        window = store.log.window(waiting[Waiting.OFFSET]) if waiting else None
        self._bodies, base = window or (memoryview(b""), 0)
        self._rows, self._heads, self._fates = to_deliver(
            self._bodies, base, waiting, store.offsets, self, due
        )

    def number(self, topic: bytes) -> int:
        """Of a topic; -1 if no message may be delivered there."""
        known = self._numbers.get(topic)
        if known is None:
            name = topic.decode("utf-8", "replace")
            may = self._tables.topics.get(name) is not None and name not in names.NO_SEND_TOPICS
            known = self._numbers[topic] = len(self._topics) if may else -1
            if may:
                self._topics.append(name)
        return known

    def put(self) -> dict[str, int]:
        """How many are done with, by topic: those that were stored, and cancelled ones before and between
        them. None if the first must go alone. Raises if none can be stored now."""
        stored, drafts = 0, Drafts(self._rows, self._heads, self._bodies)
        if len(drafts):
            try:
                stored = self._store.put_many(drafts)
            except MessageIllegal:
                return {}
        return self._done(stored)

    def _done(self, stored: int) -> dict[str, int]:
        tallies = tally(self._rows, self._fates, stored, len(self._topics))
        done = {}
        for number, topic in enumerate(self._topics):
            t = number * Tally.WIDTH
            if tallies[t + Tally.STORED]:
                self._stats.put(topic, tallies[t + Tally.STORED], tallies[t + Tally.SIZE])
            if tallies[t + Tally.DONE]:
                done[topic] = tallies[t + Tally.DONE]
        return done


def with_properties(stored: StoredMessage, added: Mapping[str, str]) -> NewMessage:
    """A copy whose properties have these too; they replace those of the same name."""
    return replace(copy_of(stored), properties=encode_properties({**stored.properties, **added}))


def is_number(text: str, digits_max: int = 18) -> bool:
    """Whether a property is a whole number, and no longer than one of ours: it may be damaged."""
    return len(text) <= digits_max and text.isascii() and text.isdigit()
