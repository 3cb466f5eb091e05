"""What a slave copies from its master besides the log: topics, groups, offsets, and how far deliveries are.

    every 3 s, each kind by itself:  the master's tables > [metasync] > our tables, in their own files

With them a slave serves consumers as its master does, and a slave that is promoted goes on where its master
was. RocketMQ's slaves ask once a minute, so that consumers that move to one repeat a minute of messages;
nothing else depends on that time. Here the first round comes 3 s after the start, and one every 3 s. That is
cheap: topics and groups are fetched only when their version differs, which a page of one entry tells; and a
table that takes long to fetch is fetched less often, so that no kind takes more than a tenth of the time.

    topics, groups     replaced when the version differs: those that the master lacks go, with their queues
    consumer offsets   merged (masteroffsets)
    delay offsets      replaced, but never beyond the messages that our log has
    timers             the wheel follows (delay.timers), the counts are replaced
    request modes      replaced

A record of a topic that is not known here is a reason to ask for topics and groups at once: a topic that was
created with its first message is known here a round trip later, and not up to 3 s, in which its master may
die.

How far deliveries are (of delay levels, timers and transactions) counts only once our log has all that the
master had when it told it: what was delivered lies behind what waited, and a slave that was promoted in
between would have neither. A FlareMQ master tells the end of its log with its answer; others are
asked for it.

A kind that fails, or that the master does not know, does not keep the others from being copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, Malformed, MessageNotFound, NotServed, Unreachable
from flaremq.base.lifecycle import Owned, Sleep
from flaremq.base.logs import Seldom, fields, logger
from flaremq.broker.features import Feature
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.calls import Ask, MasterCalls
from flaremq.broker.replicas.masteroffsets import MasterOffsets
from flaremq.broker.role import Role
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.offsets import key_of
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tables.timercounts import TimerCounts
from flaremq.model.delays import SCHEDULE_TOPIC
from flaremq.model.topic import DataVersion
from flaremq.protocol.bodies.group import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
)
from flaremq.protocol.bodies.pop import MessageRequestModeSerializeWrapper
from flaremq.protocol.bodies.timer import TimerMetrics
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command
from flaremq.protocol.headers.broker import LOG_END
from flaremq.store.store import MessageStore
from flaremq.store.timer.timercheck import Progress, progress_of

log = logger("broker.metasync")

T = TypeVar("T")

_PERIOD_S: Final = 3.0
_SHARE: Final = 9
"""A copy that took a time rests for that many times as long."""
_ABSENT_S: Final = 10.0
"""Between two questions for what the master does not have."""
_TABLE_S: Final = 30.0
_BODY_S: Final = 3.0
_TOLD_EVERY_S: Final = 60.0
_NAMES: Final = ("topics", "groups")
_MET_MAX: Final = 100_000  # Topics. Each that is asked for needlessly costs two small requests.
_TRANSACTIONS: Final = "CID_RMQ_SYS_TRANS"
_OF_TRANSACTIONS: Final = f"@{_TRANSACTIONS}"
"""How the names of offsets end that tell how far transactions are."""


class TimerFollower(Protocol):
    """The timers of a slave."""

    counts: TimerCounts

    def follow(self, told: Progress) -> None: ...


class Deferral(Generic[T]):
    """What a master has told, until our log has all that the master's had then. One value is held at a time:
    when it counts, a newer one is taken."""

    def __init__(self, apply: Callable[[T], None]) -> None:
        self._apply = apply
        self._held: tuple[int, T] | None = None

    def offer(self, told: T, master_end: int, our_end: int) -> None:
        if master_end <= our_end:
            self._held = None
            self._apply(told)
        elif self._held is None:
            self._held = master_end, told
        elif self._held[0] <= our_end:
            self._apply(self._held[1])
            self._held = master_end, told


@dataclass(slots=True)
class _Kind:
    """One kind of what is copied."""

    name: str
    limit_s: float
    copy: Callable[[str], Awaitable[None]]
    """From the master at this address."""
    trouble: Seldom = field(default_factory=lambda: Seldom(_TOLD_EVERY_S))
    failed: bool = False
    copying: asyncio.Lock = field(default_factory=asyncio.Lock)
    """An answer that is older must not replace a newer one."""


class MetaSync(Feature):
    """Copies while the broker is a slave, and does nothing in a master."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        stats: Stats,
        offload: Offload,
        clock: Clock,
        *,
        role: Role,
        ask: Ask,
        timers: TimerFollower,
        address: Callable[[], str],
        counts_on: bool = False,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`address` is our own: a NameServer may still hold us for the master. `counts_on`: whether each
        master counts the versions of tables on, as leaders of a Raft group do. RocketMQ's do not."""
        self._store = store
        self._tables = tables
        self._stats = stats
        self._offload = offload
        self._clock = clock
        self._role = role
        self._calls = MasterCalls(ask, offload, clock)
        self._timers = timers
        self._address = address
        self._counts_on = counts_on
        self._sleep = sleep
        self._offsets = MasterOffsets()
        self._offsets_of = ""
        """The master that the offsets were told by."""
        self._ends = Deferral(self._end_transactions)
        self._delays = Deferral(self._deliver_from)
        self._progress = Deferral(timers.follow)
        self._running = Owned()
        self._loop = asyncio.get_running_loop()
        self._names: list[_Kind] = []
        """Topics and groups."""
        self._lacks_names = self._asks_for_names = self._has_stopped = False
        self._met: set[bytes] = set()
        """Topics of which a record was seen here."""
        self.step = "copies of the master's tables" if role.is_slave else ""

    async def start(self) -> None:
        if not self._role.is_slave:
            return
        kinds = self._kinds()
        self._names = [kind for kind in kinds if kind.name in _NAMES]
        for kind in kinds:
            self._running.spawn(f"copy-{kind.name}", self._repeat(kind))
        self._store.listen(self)

    async def stop(self) -> None:
        self._has_stopped = True
        await self._running.aclose(timeout_s=5)

    def connection_lost(self, address: str) -> None:
        """The master may have crashed, and forgotten the last offsets that it told."""
        if address == self._role.master:
            self._offsets.away()

    # Topics that are new.

    def arrived(self, topic: bytes, _queue_id: int, _max_offset: int) -> None:
        """Records of a topic have become visible. Called in any thread."""
        if topic in self._met:
            return
        if len(self._met) >= _MET_MAX:
            self._met.clear()
        self._met.add(topic)
        if self._tables.topics.get(topic.decode("utf-8", "replace")) is None:
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._ask_for_names)

    def _ask_for_names(self) -> None:
        self._lacks_names = True
        if not self._asks_for_names and not self._has_stopped:
            self._asks_for_names = True
            self._running.spawn("copy-names", self._copy_names())

    async def _copy_names(self) -> None:
        while self._lacks_names:
            self._lacks_names = False
            for kind in self._names:
                await self._copy(kind)
        self._asks_for_names = False

    def _kinds(self) -> list[_Kind]:
        return [
            _Kind("topics", _TABLE_S, self._copy_topics),
            _Kind("offsets", _BODY_S, self._copy_offsets),
            _Kind("delay-offsets", _BODY_S, self._copy_delays),
            _Kind("groups", _TABLE_S, self._copy_groups),
            _Kind("request-modes", _BODY_S, self._copy_modes),
            *(
                (
                    _Kind("timer-counts", _BODY_S, self._copy_timer_counts),
                    _Kind("timer-progress", _BODY_S, self._copy_timer_progress),
                )
                if self._store.settings.timer_enabled
                else ()
            ),
        ]

    async def _repeat(self, kind: _Kind) -> None:
        rest_s = _PERIOD_S
        while True:
            await self._sleep(rest_s)
            rest_s = await self._copy(kind)

    async def _copy(self, kind: _Kind) -> float:
        """Copy once. Returns how long to rest before the next time."""
        master = self._role.master
        if not master or master == self._address():
            self._offsets.away()
            return _PERIOD_S
        began_s = self._clock.monotonic_s()
        try:
            async with kind.copying, asyncio.timeout(kind.limit_s):
                await kind.copy(master)
        except (NotServed, MessageNotFound) as error:
            if kind.trouble.due() is not None:
                log.info("the master has no %s to copy", kind.name, extra=fields(why=error))
            return _ABSENT_S
        except (FlareError, TimeoutError) as error:
            why = str(error) or f"not done within {kind.limit_s:g} s"
            self._failed(kind, f"the master's {kind.name} could not be copied, trying again", why)
            return _PERIOD_S
        except Exception as error:
            log.exception("copying the master's %s failed, trying again", kind.name, exc_info=error)
            return _TOLD_EVERY_S
        if kind.failed:
            kind.failed = False
            kind.trouble.reset()
            log.info("the master's %s are copied again", kind.name)
        return max(_PERIOD_S, _SHARE * (self._clock.monotonic_s() - began_s))

    def _failed(self, kind: _Kind, what: str, why: str) -> None:
        kind.failed = True
        if kind.trouble.due() is not None:
            log.warning(what, extra=fields(master=self._role.master, why=why))

    def _is_older(self, told: DataVersion, ours: DataVersion) -> bool:
        """Whether a table is not the present leader's: one that led before is asked until we know better, and
        may have started again with less than we have, or with an empty disk."""
        return self._counts_on and (told.state_version, told.counter) < (ours.state_version, ours.counter)

    # Topics and groups.

    async def _copy_topics(self, master: str) -> None:
        topics = self._tables.topics
        changes = topics.changes
        told = await self._calls.topics(master, topics.version, _TABLE_S)
        # What a group's log has told meanwhile is newer.
        if told is None or topics.changes != changes or self._is_older(told.version, topics.version):
            return
        gone = [name for name in topics.all() if name not in told.entries and not topics.is_system(name)]
        for name in gone:
            self._tables.deleted.add(name, self._store.log.end)
        if gone:
            await self._tables.deleted.save()  # Before the queues go: a crash must not bring them back.
        topics.replace_all(told.entries, told.version)
        self._met -= {name.encode("utf-8", "replace") for name in gone}
        for name in gone:
            await self._delete(name)
        await topics.save()

    async def _delete(self, topic: str) -> None:
        self._tables.offsets.remove_topic(topic)
        self._stats.topic_deleted(topic)
        name = topic.encode("utf-8", "replace")
        await self._offload.run(lambda: self._store.dispatcher.remove_topic(name))

    async def _copy_groups(self, master: str) -> None:
        groups = self._tables.subscriptions
        changes = groups.changes
        told = await self._calls.groups(master, groups.version, _TABLE_S)
        if told is None or groups.changes != changes or self._is_older(told.version, groups.version):
            return
        wrapper = SubscriptionGroupWrapper(
            subscription_group_table=told.entries, forbidden_table=told.forbidden, data_version=told.version
        )
        for name in [each for each in groups.all() if each not in told.entries]:
            self._stats.group_deleted(name)
        groups.replace_all(wrapper)
        await groups.save()

    # Offsets.

    async def _end_of(self, master: str, answer: Command) -> int:
        """The end of the master's log when it answered, or a little later."""
        told = answer.fields.get(LOG_END)
        if told is None:
            told = (await self._calls.runtime(master, _BODY_S)).get("commitLogMaxOffset", "")
        if not told.isascii() or not told.isdigit():
            raise Malformed(f"the master says that its log ends at {told!r}: expected a number")
        return int(told)

    async def _copy_offsets(self, master: str) -> None:
        if master != self._offsets_of:
            self._offsets.forget()
            self._offsets_of = master
        try:
            answer = await self._calls.body(master, RequestCode.GET_ALL_CONSUMER_OFFSET, _BODY_S)
        except Unreachable:
            self._offsets.away()
            raise
        told = await self._calls.bean(ConsumerOffsetSerializeWrapper, answer)
        ours, version = self._tables.offsets, told.data_version or DataVersion()
        if self._is_older(version, ours.version):
            return
        news = self._offsets.news(told, ours.all(), ours.version)
        for key in [each for each in news if each[1] == _TRANSACTIONS]:
            del news[key]
        ours.adopt(news, version)  # Saved with all tables, every few seconds.
        ends = {
            key_of(name): queues
            for name, queues in told.offset_table.items()
            if name.endswith(_OF_TRANSACTIONS)
        }
        if any(ours.all().get(key) != queues for key, queues in ends.items()):
            self._ends.offer(ends, await self._end_of(master, answer), self._store.flushed.value)

    def _end_transactions(self, ends: Mapping[tuple[str, str], Mapping[int, int]]) -> None:
        self._tables.offsets.adopt(ends, self._tables.offsets.version)

    async def _copy_delays(self, master: str) -> None:
        answer = await self._calls.body(master, RequestCode.GET_ALL_DELAY_OFFSET, _BODY_S)
        told = await self._calls.bean(DelayOffsetSerializeWrapper, answer)
        if told != self._tables.delays.wrapper():
            self._delays.offer(told, await self._end_of(master, answer), self._store.flushed.value)

    def _deliver_from(self, told: DelayOffsetSerializeWrapper) -> None:
        ends = {level: self._store.max_offset(SCHEDULE_TOPIC, level - 1) for level in told.offset_table}
        offsets = {level: min(offset, ends[level]) for level, offset in told.offset_table.items()}
        self._tables.delays.replace(offsets, told.data_version or DataVersion())

    # The others.

    async def _copy_modes(self, master: str) -> None:
        answer = await self._calls.body(master, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, _BODY_S)
        self._tables.modes.replace(await self._calls.bean(MessageRequestModeSerializeWrapper, answer))

    async def _copy_timer_counts(self, master: str) -> None:
        answer = await self._calls.at_vip(master, RequestCode.GET_TIMER_METRICS, _BODY_S)
        told = await self._calls.bean(TimerMetrics, answer)
        if told.data_version != self._timers.counts.version:
            self._timers.counts.replace(told)

    async def _copy_timer_progress(self, master: str) -> None:
        answer = await self._calls.at_vip(master, RequestCode.GET_TIMER_CHECK_POINT, _BODY_S)
        told = progress_of(bytes(answer.body or b""))
        self._progress.offer(told, await self._end_of(master, answer), self._store.flushed.value)
