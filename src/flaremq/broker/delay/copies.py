"""Delivering a message that has waited: a copy is appended to the topic that it is for.

A copy that the store refuses for now, for example because the disk is full, raises, and is tried again by the
caller. One that can never be stored in its own topic is put aside, in the topic rmq_sys_undelivered: it must
neither be lost nor stop those behind it.
"""

from __future__ import annotations

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
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.model import names, properties, sysflag
from flaremq.model.columns import Check
from flaremq.model.message import StoredMessage
from flaremq.model.properties import encode_properties
from flaremq.model.record import crc31, decode
from flaremq.store.copyrows import CopyRows, Glance, glance
from flaremq.store.drafts import NewMessage, copy_of
from flaremq.store.store import MessageStore

log = logger("broker.delay")

_INNER, _CRC = b"INNER_", b"__CRC32#"
"""Parts of names of properties for which the store does more than to copy a message."""


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

    def run(self) -> CopyRun:
        """To deliver several in one append."""
        return CopyRun(self._store, self._tables, self._stats)

    def deliver(self, stored: StoredMessage, added: Mapping[str, str] | None = None) -> None:
        """Store the copy, with some properties `added` if there is room. Raises if it cannot now."""
        known = stored.properties
        queue = known.get(properties.REAL_QUEUE_ID, "")
        message = replace(
            with_properties(stored, added) if added else copy_of(stored),
            topic=known.get(properties.REAL_TOPIC, "").encode(),
            queue_id=int(queue) if queue.isascii() and queue.isdigit() else 0,
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
        if self._tables.topics.get(topic) is None or topic in names.NO_SEND_TOPICS:
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
    """Messages that are delivered by one append: ordinary ones, as many as are ready one behind the other."""

    def __init__(self, store: MessageStore, tables: Tables, stats: Stats) -> None:
        self._store = store
        self._tables = tables
        self._stats = stats
        self._rows = CopyRows(store.offsets)
        self._topics: list[str] = []

    def see(self, physical_offset: int, size: int) -> Glance | None:
        """The waiting message; None if its record is not sound: then `Copies` says why."""
        record = self._store.record(physical_offset)
        seen = glance(record) if record is not None and len(record) == size else None
        return seen if seen is not None and crc31(seen.body) == seen.body_crc else None

    def add(self, seen: Glance, added: bytes = b"") -> bool:
        """Take a message, with some properties `added`. False if it is not ordinary, and must go alone."""
        topic, queue_id = seen.property(b"REAL_TOPIC") or b"", seen.property(b"REAL_QID") or b""
        name, known = topic.decode("utf-8", "replace"), seen.properties
        if self._tables.topics.get(name) is None or name in names.NO_SEND_TOPICS or not queue_id.isdigit():
            return False
        if seen.sys_flag & sysflag.INNER_BATCH or _INNER in known or _CRC in known:
            return False
        if added:
            known = known + added if known.endswith(b"\x02") else known + b"\x02" + added
        self._rows.add(seen, topic, int(queue_id), known)
        self._topics.append(name)
        return True

    def __len__(self) -> int:
        return len(self._topics)

    def put(self) -> int:
        """How many were stored, the first of them; 0: the first must go alone. Raises if none can be now."""
        if not self._topics:
            return 0
        try:
            stored = self._store.put_many(self._rows.drafts())
        except MessageIllegal:
            return 0
        sizes: dict[str, list[int]] = {}
        for row, topic in enumerate(self._topics[:stored]):
            sizes.setdefault(topic, []).append(self._rows.place(row)[1])
        for topic, each in sizes.items():
            self._stats.put(topic, len(each), sum(each))
        return stored


def with_properties(stored: StoredMessage, added: Mapping[str, str]) -> NewMessage:
    """A copy whose properties have these too; they replace those of the same name."""
    return replace(copy_of(stored), properties=encode_properties({**stored.properties, **added}))
