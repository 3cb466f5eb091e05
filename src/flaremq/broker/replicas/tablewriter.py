"""What changes in the tables of a Raft group's leader, as records of the group's log.

    a topic, a group, offsets > [TableWriter] > records of TABLES_TOPIC > the log of every member

So they survive the leader as messages do. A topic is written when it is created, before the message that
created it: whoever has the message has the topic. Requests that change topics or groups, or reset offsets,
are answered when the group has committed the change. Offsets and the progress of deliveries are written once
a second, if they have changed: what a leader dies with is a second of them, and those messages come again.

Progress needs no other care: a delivery lies in the log before the record that says that it was made.

What a leader changed and the group did not decide on may be in its tables, and in those that copied them
whole (metasync). So each leader writes its tables whole when its term begins, and the versions of tables name
the term: those of another one are different, whatever was counted since, and are copied whole once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, NotShared
from flaremq.base.logs import Seldom, fields, logger
from flaremq.base.watermark import Watermark
from flaremq.broker.features import Feature
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tables.timercounts import TimerCounts
from flaremq.broker.tasks import Task
from flaremq.model.names import TABLES_TOPIC
from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import ConsumerOffsetSerializeWrapper, SubscriptionGroupWrapper
from flaremq.protocol.bodies.raft import TableNews
from flaremq.protocol.bodies.route import TopicConfigSerializeWrapper
from flaremq.store.drafts import NewMessage
from flaremq.store.store import MessageStore
from flaremq.store.timer.timercheck import Progress

log = logger("broker.tablewriter")

_PERIOD_S: Final = 1.0
_ENTRIES_MAX: Final = 500  # Of a table in one record, so that a record stays small.
_TOLD_S: Final = 60.0
_QUIET_MS: Final = 60_000


class LeadingTimers(Protocol):
    counts: TimerCounts

    @property
    def progress(self) -> Progress: ...


class TableWriter(Feature):
    """Of one period in which this member leads."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        timers: LeadingTimers,
        committed: Watermark,
        clock: Clock,
        *,
        term: int,
        shown: Callable[[], None],
        timeout_s: float,
    ) -> None:
        """`term` is the one in which this member leads; `committed` is how far the group has the log; `shown`
        lets what is committed be seen; `timeout_s` is how long a change may take."""
        self._store = store
        self._tables = tables
        self._timers = timers
        self._committed = committed
        self._clock = clock
        self._term = term
        self._shown = shown
        self._timeout_s = timeout_s
        self._topics: dict[str, TopicConfig] = {}
        self._groups: dict[str, GroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._delays: Mapping[int, int] = {}
        self._progress, self._waited = Progress(), 0
        """What was told of the timers, and how many messages waited then."""
        self._end = 0
        """Of the newest record."""
        self._told = Seldom(_TOLD_S)

    async def start(self) -> None:
        """Write the names before any message of this term, and the offsets with the first round: all of them,
        as this member may have led before, and have changed what the group never decided on."""
        tables = self._tables
        self._delays = tables.delays.wrapper().offset_table
        self._progress, self._waited = self._timers.progress, self._timers.counts.total
        tables.topics.listeners.append(self._topics_changed)
        tables.subscriptions.listeners.append(self._groups_changed)
        tables.topics.share(self.settled, self._term)
        tables.subscriptions.share(self.settled, self._term)
        tables.offsets.share(self._offsets_settled, self._term)
        self._try(self._name_news())

    def tasks(self) -> Iterable[Task]:
        yield Task("write-tables", _PERIOD_S, _PERIOD_S, self.write)

    def write(self) -> None:
        """Write all that has changed."""
        self._try(self._all_news())
        self._shown()

    async def settled(self) -> None:
        """Return when the group has all changes of topics and groups. Raises a FlareError if it has not in
        time."""
        for news in self._name_news():
            self._put(news)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._committed.wait(self._end, None)
        except TimeoutError:
            raise NotShared(
                f"this change is made here, but a majority of the group has not confirmed it within "
                f"{self._timeout_s:g} s: see `flaremq cluster group`, and try again"
            ) from None
        self._shown()

    async def _offsets_settled(self) -> None:
        for news in self._offset_news():
            self._put(news)
        await self.settled()

    # What has changed.

    def _topics_changed(self, changed: Sequence[TopicConfig]) -> None:
        self._try(self._topic_news(changed) if changed else self._name_news())

    def _groups_changed(self) -> None:
        self._try(self._name_news())

    def _all_news(self) -> Iterator[TableNews]:
        yield from self._name_news()
        yield from self._offset_news()
        delays = self._tables.delays.wrapper()
        if delays.offset_table != self._delays:
            yield TableNews(delays=delays)
            self._delays = delays.offset_table
        progress = self._timers.progress
        if self._has_come_on(progress):
            yield TableNews(timers=tuple(progress))
            self._progress, self._waited = progress, self._timers.counts.total

    def _has_come_on(self, progress: Progress) -> bool:
        """Time alone passes all the time: while nothing waits, a record a minute tells enough of it."""
        before = self._progress
        if progress.read_ms - before.read_ms >= _QUIET_MS or progress.queue_offset != before.queue_offset:
            return True
        return progress != before and (self._waited > 0 or self._timers.counts.total > 0)

    def _name_news(self) -> Iterator[TableNews]:
        """Of topics and groups. What was yielded counts as written once the next is asked for."""
        tables = self._tables
        yield from self._topic_news(
            [config for name, config in tables.topics.all().items() if self._topics.get(name) is not config]
        )
        gone = [name for name in self._topics if tables.topics.get(name) is None]
        if gone:
            deleted, end = tables.deleted.all(), self._store.log.end
            wrapper = TopicConfigSerializeWrapper(data_version=tables.topics.version)
            yield TableNews(topics=wrapper, topics_gone={name: deleted.get(name, end) for name in gone})
            for name in gone:
                self._topics.pop(name, None)
        yield from self._group_news()

    def _topic_news(self, changed: Sequence[TopicConfig]) -> Iterator[TableNews]:
        version = self._tables.topics.version
        for at in range(0, len(changed), _ENTRIES_MAX):
            some = {config.topic_name: config for config in changed[at : at + _ENTRIES_MAX]}
            yield TableNews(topics=TopicConfigSerializeWrapper(topic_config_table=some, data_version=version))
            self._topics.update(some)

    def _group_news(self) -> Iterator[TableNews]:
        groups = self._tables.subscriptions
        forbidden = {group: dict(topics) for group, topics in groups.forbidden().items()}
        changed = {name: each for name, each in groups.all().items() if self._groups.get(name) is not each}
        gone = tuple(name for name in self._groups if not groups.contains(name))
        is_same = not changed and not gone and forbidden == self._forbidden
        left = iter(changed.items())
        while not is_same:
            some = dict(islice(left, _ENTRIES_MAX))
            wrapper = SubscriptionGroupWrapper(
                subscription_group_table=some, forbidden_table=forbidden, data_version=groups.version
            )
            yield TableNews(groups=wrapper, groups_gone=gone)
            self._groups.update(some)
            is_same = len(some) < _ENTRIES_MAX
        for name in gone:
            self._groups.pop(name, None)
        self._forbidden = forbidden

    def _offset_news(self) -> Iterator[TableNews]:
        offsets = self._tables.offsets
        table, version = offsets.all(), offsets.version
        changed = [(key, dict(queues)) for key, queues in table.items() if self._offsets.get(key) != queues]
        gone = [key for key in self._offsets if key not in table]
        for at in range(0, max(len(changed), min(1, len(gone))), _ENTRIES_MAX):
            some = dict(changed[at : at + _ENTRIES_MAX])
            wrapper = ConsumerOffsetSerializeWrapper(
                offset_table={"@".join(key): queues for key, queues in some.items()}, data_version=version
            )
            yield TableNews(offsets=wrapper, offsets_gone=tuple("@".join(key) for key in gone))
            self._offsets.update(some)
        for key in gone:
            self._offsets.pop(key, None)

    # Writing.

    def _try(self, news: Iterator[TableNews]) -> None:
        """What cannot be written now is written a second later."""
        try:
            for each in news:
                self._put(each)
        except FlareError as error:
            if self._told.due() is not None:
                log.warning("changes of tables wait to be shared with the group", extra=fields(why=error))

    def _put(self, news: TableNews) -> None:
        message = NewMessage(
            topic=TABLES_TOPIC.encode(), body=beans.encode(news), born_timestamp_ms=self._clock.now_ms()
        )
        self._end = self._store.put(message, wait=False).end
