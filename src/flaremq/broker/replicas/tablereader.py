"""What the tables of a Raft group's leader have become, read from the group's log (see tablewriter).

Every member reads the records of TABLES_TOPIC in their order, and keeps beside its tables how far it has
read, written after them: what is read twice changes nothing in the end. A member that becomes the leader
reads all that the group has decided before it serves. Its own records it need not read.

A member that was away for longer than the log goes back copies whole tables first, as slaves do (metasync).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Owned
from flaremq.base.logs import fields, logger
from flaremq.broker.features import Feature
from flaremq.broker.offload import Offload
from flaremq.broker.role import Role
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.configfile import Saving, lines
from flaremq.broker.tables.offsets import key_of
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tasks import Task
from flaremq.model.message import StoredMessage
from flaremq.model.names import TABLES_TOPIC
from flaremq.model.record import decode_many
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies.raft import TableNews
from flaremq.store.api import GetStatus
from flaremq.store.store import MessageStore
from flaremq.store.timer.timercheck import Progress

log = logger("broker.tablereader")

_TOPIC: Final = TABLES_TOPIC.encode()
_MANY: Final = 32
_SAVED_S: Final = 10.0
_READ: Final = "read"
_FILE: Final = "groupTables.json"


class FollowingTimers(Protocol):
    def follow(self, told: Progress) -> None:
        """Go as far as the leader is."""

    def adopt(self, told: Progress) -> None:
        """Another leader has delivered this far."""


class TableReader(Feature):
    """Started when tables and timers are open, and before anything is delivered or served."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        stats: Stats,
        timers: FollowingTimers,
        offload: Offload,
        *,
        role: Role,
    ) -> None:
        self._store = store
        self._tables = tables
        self._stats = stats
        self._timers = timers
        self._offload = offload
        self._role = role
        self._saving = Saving(tables.file(_FILE), offload, self._take)
        self._next = 0
        """Queue offset of the next record to read."""
        self._kept = 0
        """The one up to which everything is in the files of the tables."""
        self._is_whole = True
        """Whether no record was missed. If one was, the versions that are told are not ours, so that the
        tables are copied whole."""
        self._loop = asyncio.get_running_loop()
        self._running = Owned()
        self._reads = self._is_late = self._has_stopped = False

    # Life.

    async def start(self) -> None:
        await self._offload.run(self._load)
        await self._read()
        if self._role.is_slave:
            self._tables.offsets.may_go_back = False
            self._store.listen(self)
            self._read_soon()  # What came in between.

    async def stop(self) -> None:
        self._has_stopped = True
        await self._running.aclose(timeout_s=5)
        await self.save()

    def tasks(self) -> Iterable[Task]:
        yield Task("save-tables-read", _SAVED_S, _SAVED_S, self.save)

    async def save(self) -> None:
        """The tables first: a place ahead of them would lose what is in between."""
        if not self._role.is_slave:
            # All that we wrote ourselves and the group has decided.
            self._reached(max(self._next, self._store.max_offset(_TOPIC, 0)))
        # Offsets are not saved any more once a sync of the log has failed.
        if self._saving.dirty and self._store.flags.failure is None:
            place = self._next  # What is read while the tables are saved may not be in them.
            await self._tables.save()
            await self._tables.delays.save()
            self._kept = place
            await self._saving.save()
            if place != self._next:
                self._saving.changes += 1

    def _load(self) -> None:
        def read(text: bytes) -> int:
            found = fastjson.load_object(text).get(_READ)
            return found if isinstance(found, int) and found > 0 else 0

        # A log that was cut may be shorter than what was read of it.
        kept = self._saving.file.load_as(read) or 0
        self._next = self._kept = min(kept, self._store.max_offset(_TOPIC, 0))

    def _take(self) -> Callable[[], bytes]:
        read = self._kept
        return lambda: lines([(_READ, read)])

    def _reached(self, place: int) -> None:
        if place != self._next:
            self._next = place
            self._saving.changes += 1

    # Reading.

    def arrived(self, topic: bytes, _queue_id: int, _max_offset: int) -> None:
        """Records have become visible. Called in any thread."""
        if topic == _TOPIC:
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._read_soon)

    def _read_soon(self) -> None:
        self._is_late = True
        if not self._reads and not self._has_stopped:
            self._reads = True
            self._running.spawn("read-tables", self._read_late())

    async def _read_late(self) -> None:
        try:
            while self._is_late:
                self._is_late = False
                await self._read()
        finally:
            self._reads = False

    async def _read(self) -> None:
        """Read all that there is."""
        while True:
            found = self._store.get(_TOPIC, 0, self._next, _MANY)
            for record in decode_many(found.gathered()):
                await self._apply(record)
                self._reached(record.queue_offset + 1)
            if found.status is not GetStatus.FOUND:
                if found.next_offset > self._next and found.status is GetStatus.OFFSET_TOO_SMALL:
                    self._is_whole = False
                    self._reached(found.next_offset)
                    continue
                return

    async def _apply(self, record: StoredMessage) -> None:
        try:
            await self._take_over(beans.decode(TableNews, record.body))
        except FlareError as error:
            log.error("a change of tables could not be taken over", extra=fields(why=error))

    async def _take_over(self, news: TableNews) -> None:
        tables = self._tables
        if news.topics is not None:
            await self._take_topics(news)
        if news.groups is not None:
            for name in news.groups_gone:
                self._stats.group_deleted(name)
            version = self._version(news.groups.data_version, tables.subscriptions.version)
            tables.subscriptions.adopt(replace(news.groups, data_version=version), news.groups_gone)
        if news.offsets is not None:
            tables.offsets.forget(key_of(name) for name in news.offsets_gone)
            offsets = {key_of(name): queues for name, queues in news.offsets.offset_table.items()}
            tables.offsets.adopt(offsets, news.offsets.data_version or DataVersion())
        if news.delays is not None:
            tables.delays.replace(news.delays.offset_table, news.delays.data_version or DataVersion())
        if news.timers:
            take = self._timers.follow if self._role.is_slave else self._timers.adopt
            take(Progress(*news.timers))

    def _version(self, told: DataVersion, ours: DataVersion) -> DataVersion:
        return told if self._is_whole else ours

    async def _take_topics(self, news: TableNews) -> None:
        assert news.topics is not None
        tables, gone = self._tables, news.topics_gone
        for name, end in gone.items():
            tables.deleted.add(name, end)
        if gone:
            await tables.deleted.save()  # Before the queues go: a crash must not bring them back.
        version = self._version(news.topics.data_version, tables.topics.version)
        tables.topics.adopt(news.topics.topic_config_table, list(gone), version)
        for name in gone:
            tables.offsets.remove_topic(name)
            self._stats.topic_deleted(name)
            await self._remove_queues(name.encode("utf-8", "replace"))

    async def _remove_queues(self, topic: bytes) -> None:
        await self._offload.run(lambda: self._store.dispatcher.remove_topic(topic))
