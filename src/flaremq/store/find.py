"""Finding messages otherwise than by queue offset: by key, by unique id, by time."""

from __future__ import annotations

from flaremq.model.columns import Check, Fact, facts_table
from flaremq.model.record import walk
from flaremq.store.api import Boundary, Log, Queue
from flaremq.store.index.index import Index
from flaremq.store.queue.queues import Queues
from flaremq.store.reader import Reader


class Finder:
    """Index and queues only point; every answer is checked against the record itself."""

    def __init__(self, log: Log, queues: Queues, index: Index | None, reader: Reader) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._reader = reader

    def by_key(
        self, topic: bytes, key: bytes, count_max: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        """Two keys may share a hash, so a record counts only if it has this very key."""
        if self._index is None:
            return []
        found: list[memoryview] = []
        names = topic.decode("utf-8", "replace"), key.decode("utf-8", "replace")
        for offset in sorted(self._index.query(*names, count_max, begin_ms, end_ms)):
            record = self._reader.record(offset)
            if record is not None and has_key(record, topic, key):
                found.append(record)
        return found

    def by_time(self, topic: bytes, queue_id: int, timestamp_ms: int, boundary: Boundary) -> int:
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(timestamp_ms, boundary, self._log.begin, self._log.store_time)

    def time_of(self, topic: bytes, queue_id: int, queue_offset: int) -> int:
        """When the message at this queue offset was stored; -1 if it is not there. Reads a file or two."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return -1
        return stored_at(self._log, queue, queue_offset)


def stored_at(log: Log, queue: Queue, queue_offset: int) -> int:
    """Store time of the message at this offset of a queue; -1 if it has no entry, or no record."""
    found = queue.locate(queue_offset)
    if found is None:
        return -1
    return found.store_ms if found.store_ms is not None else log.store_time(found.physical_offset, found.size)


def has_key(record: memoryview, topic: bytes, key: bytes) -> bool:
    facts = facts_table(1)
    count, _, _ = walk(record, 0, len(record), 0, facts, Check.NOTHING)
    if not count or _piece(record, facts[Fact.TOPIC_AT], facts[Fact.TOPIC_SIZE]) != topic:
        return False
    keys = _piece(record, facts[Fact.KEYS_AT], facts[Fact.KEYS_SIZE]).split(b" ")
    return key in keys or key == _piece(record, facts[Fact.UNIQUE_KEY_AT], facts[Fact.UNIQUE_KEY_SIZE])


def _piece(record: memoryview, at: int, size: int) -> bytes:
    return bytes(record[at : at + size])
