"""Tables that travel through the log of a group: what the leader changes, the others read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from flaremq.base.errors import FlushFailed, NotShared
from flaremq.base.live import Live
from flaremq.base.watermark import Watermark
from flaremq.broker.offload import Offload
from flaremq.broker.replicas import tablewriter
from flaremq.broker.replicas.tablereader import TableReader
from flaremq.broker.replicas.tablewriter import TableWriter
from flaremq.broker.role import Role
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.stats.stats import Stats
from flaremq.broker.tables.tables import Tables
from flaremq.broker.tables.timercounts import TimerCounts
from flaremq.model.names import TABLES_TOPIC
from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.store.api import GetStatus, ReadResult
from flaremq.store.settings import StoreSettings
from flaremq.store.store import MessageStore
from flaremq.store.timer.timercheck import Progress
from flaremq.testing.clock import ManualClock

TOPIC, GROUP = "Orders", "billing"


class FakeTimers:
    def __init__(self, counts: TimerCounts) -> None:
        self.counts = counts
        self.progress = Progress()
        self.followed: list[Progress] = []
        self.adopted: list[Progress] = []

    def follow(self, told: Progress) -> None:
        self.followed.append(told)

    def adopt(self, told: Progress) -> None:
        self.adopted.append(told)


class Group:
    """A leader and other members. One log stands for the equal logs of all of them: what the leader appends
    is committed when the test says so."""

    def __init__(self, folder: Path, opened: AsyncExitStack) -> None:
        self._folder = folder
        self._opened = opened
        self.clock = ManualClock()
        self.store = opened.enter_context(MessageStore(StoreSettings(root=folder / "store")))
        self.committed = Watermark(self.store.log.end)
        self.timers: dict[str, FakeTimers] = {}
        self.terms = self.begun = 0
        """How many records there were when the present term had begun."""

    def commit(self) -> None:
        self.committed.advance(self.store.log.end)
        self.store.show()

    async def tables(self, name: str, *, is_slave: bool) -> Tables:
        live = Live(BrokerSettings(broker_name="broker-a"))
        offload = Offload(1)
        self._opened.push_async_callback(offload.stop)
        tables = Tables(live, self._folder / name, offload, self.clock)
        tables.load()
        tables.attach(self.store)
        timers = self.timers[name] = FakeTimers(
            TimerCounts(self._folder / name / "timermetrics", offload, self.clock)
        )
        stats, role = Stats(live, self.clock), Role(is_slave=is_slave, may_act=False)
        self.reader = TableReader(self.store, tables, stats, timers, offload, role=role)
        await self.reader.start()
        return tables

    async def leader(self, name: str = "leader", timeout_s: float = 5.0) -> tuple[Tables, TableWriter]:
        tables = await self.tables(name, is_slave=False)
        self.terms += 1
        writer = TableWriter(
            *(self.store, tables, self.timers[name], self.committed, self.clock),
            term=self.terms,
            shown=lambda: None,
            timeout_s=timeout_s,
        )
        await writer.start()
        self.begun += self.written()
        return tables, writer

    async def follower(self, name: str = "follower") -> Tables:
        tables = await self.tables(name, is_slave=True)
        self._opened.push_async_callback(self.reader.stop)
        return tables

    def written(self) -> int:
        """Since the present term had begun, with the names that its leader knew."""
        self.store.show()
        return self.store.max_offset(TABLES_TOPIC.encode(), 0) - self.begun


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with AsyncExitStack() as opened:
        yield Group(tmp_path, opened)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_topic_is_in_the_log_as_soon_as_it_exists(group: Group) -> None:
    tables, _ = await group.leader()
    tables.topics.put(TopicConfig(TOPIC, 4, 3))
    assert group.written() == 1
    followed = await group.follower()
    assert followed.topics.get(TOPIC) == TopicConfig(TOPIC, 4, 3)
    assert followed.topics.version == tables.topics.version


async def test_a_follower_reads_what_comes(group: Group) -> None:
    tables, _ = await group.leader()
    followed = await group.follower()
    tables.topics.put_many([TopicConfig(f"T{n}", 1, 1) for n in range(3)])
    tables.subscriptions.put(GroupConfig(GROUP, consume_enable=False))
    tables.subscriptions.set_forbidden(GROUP, TOPIC, True)
    group.commit()
    await settle()
    assert {"T0", "T1", "T2"} < followed.topics.all().keys()
    assert followed.subscriptions.all() == tables.subscriptions.all()
    assert followed.subscriptions.is_forbidden(GROUP, TOPIC)


async def test_a_follower_is_not_taken_back_by_a_commit_that_is_late(group: Group) -> None:
    """A client may find it while there is no leader, or keep to it. It may lead next."""
    tables, writer = await group.leader()
    followed = await group.follower()
    tables.offsets.commit(GROUP, TOPIC, 0, 7)
    writer.write()
    group.commit()
    await settle()
    followed.offsets.commit(GROUP, TOPIC, 0, 6)
    assert followed.offsets.get(GROUP, TOPIC, 0) == 7
    followed.offsets.commit(GROUP, TOPIC, 0, 8)
    assert followed.offsets.get(GROUP, TOPIC, 0) == 8
    tables.offsets.commit(GROUP, TOPIC, 0, 2)
    writer.write()
    group.commit()
    await settle()
    assert followed.offsets.get(GROUP, TOPIC, 0) == 2, "the leader takes its group back"


async def test_offsets_and_progress_are_written_together_and_once(group: Group) -> None:
    tables, writer = await group.leader()
    followed = await group.follower()
    tables.offsets.commit(GROUP, TOPIC, 0, 7)
    tables.offsets.commit(GROUP, TOPIC, 1, 9)
    tables.delays.set(3, 11)
    group.timers["leader"].progress = Progress(5_000, 52, 3)
    writer.write()
    assert group.written() == 3
    writer.write()
    assert group.written() == 3
    await settle()
    assert followed.offsets.all() == {(TOPIC, GROUP): {0: 7, 1: 9}}
    assert followed.delays.get(3) == 11
    assert group.timers["follower"].followed == [Progress(5_000, 52, 3)]


async def test_time_that_passes_while_nothing_waits_is_written_once_a_minute(group: Group) -> None:
    _, writer = await group.leader()
    timers = group.timers["leader"]
    for second in range(1, 62):
        timers.progress = Progress(second * 1000, 52, 3)
        writer.write()
    assert group.written() == 2  # The first has another queue offset.
    timers.counts.add("Orders", 1)
    for second in range(62, 65):
        timers.progress = Progress(second * 1000, 52, 3)
        writer.write()
    assert group.written() == 5


async def test_what_goes_goes_everywhere(group: Group) -> None:
    tables, writer = await group.leader()
    tables.topics.put(TopicConfig(TOPIC, 1, 1))
    tables.subscriptions.put(GroupConfig(GROUP))
    tables.offsets.commit(GROUP, TOPIC, 0, 7)
    writer.write()
    followed = await group.follower()
    assert followed.topics.get(TOPIC) is not None and followed.offsets.all()
    tables.deleted.add(TOPIC, 123)
    tables.topics.remove(TOPIC)
    tables.subscriptions.remove(GROUP)
    tables.offsets.remove_group(GROUP)
    writer.write()
    group.commit()
    async with asyncio.timeout(5):
        while followed.subscriptions.contains(GROUP):
            await asyncio.sleep(0)
    assert followed.topics.get(TOPIC) is None
    assert followed.deleted.all() == {TOPIC: 123}
    assert followed.offsets.all() == {}


async def test_a_change_is_answered_when_the_group_has_it(group: Group) -> None:
    tables, _ = await group.leader()
    tables.topics.put(TopicConfig(TOPIC, 1, 1))
    saving = asyncio.ensure_future(tables.topics.settle())
    async with asyncio.timeout(5):
        while not group.committed.waiting:
            await asyncio.sleep(0)
    assert not saving.done()
    group.commit()
    await saving


async def test_a_change_that_the_group_does_not_confirm_is_refused(group: Group) -> None:
    tables, _ = await group.leader(timeout_s=0.01)
    tables.topics.put(TopicConfig(TOPIC, 1, 1))
    with pytest.raises(NotShared, match=r"a majority of the group has not confirmed it within 0\.01 s"):
        await tables.topics.settle()


async def test_a_reset_of_offsets_does_not_wait_for_the_next_round(group: Group) -> None:
    tables, _ = await group.leader()
    tables.offsets.reset(GROUP, TOPIC, 0, 5)
    saving = asyncio.ensure_future(tables.offsets.settle())
    async with asyncio.timeout(5):
        while not group.committed.waiting:
            await asyncio.sleep(0)
    group.commit()
    await saving
    assert (await group.follower()).offsets.get(GROUP, TOPIC, 0) == 5


async def test_a_new_leader_has_what_the_last_one_wrote(group: Group) -> None:
    tables, writer = await group.leader("first")
    tables.topics.put(TopicConfig(TOPIC, 1, 1))
    tables.offsets.commit(GROUP, TOPIC, 0, 7)
    group.timers["first"].progress = Progress(5_000, 52, 3)
    writer.write()
    group.commit()
    then, _ = await group.leader("second")
    assert then.topics.get(TOPIC) is not None
    assert then.offsets.get(GROUP, TOPIC, 0) == 7
    assert group.timers["second"].adopted == [Progress(5_000, 52, 3)]
    written = group.written()
    then.topics.put(TopicConfig("Later", 1, 1))
    assert group.written() == written + 1


async def test_a_leader_that_leads_again_writes_what_the_group_had_not_decided_on(group: Group) -> None:
    """It changed its tables, lost its lead before that was in the log, and kept them. So no change of its new
    term would tell the others."""
    first, _ = await group.leader("first")
    group.store._takes_puts = False
    first.topics.put(TopicConfig(TOPIC, 1, 1))
    first.subscriptions.put(GroupConfig(GROUP, consume_enable=False))
    first.offsets.commit(GROUP, TOPIC, 0, 7)
    await first.save()
    group.store._takes_puts = True
    again, writer = await group.leader("first")
    assert again.offsets.get(GROUP, TOPIC, 0) == 7
    named = await group.follower("named")
    assert named.topics.get(TOPIC) == TopicConfig(TOPIC, 1, 1)
    assert named.subscriptions.all() == again.subscriptions.all()
    writer.write()
    assert (await group.follower("later")).offsets.get(GROUP, TOPIC, 0) == 7


async def test_a_member_that_starts_again_goes_on_where_it_was(group: Group) -> None:
    tables, _ = await group.leader()
    tables.topics.put(TopicConfig(TOPIC, 1, 1))
    await group.follower()
    await group.reader.stop()
    tables.topics.put(TopicConfig(TOPIC, 2, 2))
    group.commit()
    again = await group.follower()
    assert again.topics.get(TOPIC) == TopicConfig(TOPIC, 2, 2)
    await group.reader.stop()
    assert (group.store.settings.root.parent / "follower" / "groupTables.json").read_bytes() == (
        b'{\n"read":%d\n}\n' % (group.begun + 2)
    )


async def test_what_is_read_while_tables_are_saved_is_read_again_after_a_crash(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, _ = await group.leader()
    followed = await group.follower()
    tables.topics.put(TopicConfig("T0", 1, 1))
    group.commit()
    await settle()
    save = followed.delays.save

    async def meanwhile() -> None:
        tables.topics.put(TopicConfig(TOPIC, 1, 1))
        group.commit()
        await settle()
        await save()

    monkeypatch.setattr(followed.delays, "save", meanwhile)
    await group.reader.save()
    monkeypatch.undo()
    assert followed.topics.get(TOPIC) is not None
    again = await group.follower()  # With what is on the disk now, as after a kill.
    assert again.topics.get(TOPIC) == TopicConfig(TOPIC, 1, 1)


async def test_a_member_that_has_missed_records_leaves_its_versions_so_that_it_copies_whole_tables(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log no longer has the records of its topics, and the next news would pass for all of them."""
    tables, _ = await group.leader()
    tables.topics.put(TopicConfig("Missed", 1, 1))
    group.commit()
    get = group.store.get
    gone = group.store.max_offset(TABLES_TOPIC.encode(), 0)

    def forgotten(topic: bytes, queue_id: int, offset: int, count: int) -> ReadResult:
        if offset < gone:
            return ReadResult(GetStatus.OFFSET_TOO_SMALL, gone, gone, gone)
        return get(topic, queue_id, offset, count)

    monkeypatch.setattr(group.store, "get", forgotten)
    followed = await group.follower()
    tables.topics.put(TopicConfig(TOPIC, 1, 1))
    tables.subscriptions.put(GroupConfig(GROUP))
    group.commit()
    await settle()
    assert followed.topics.get(TOPIC) is not None and followed.topics.get("Missed") is None
    assert followed.subscriptions.contains(GROUP)
    assert followed.topics.version != tables.topics.version
    assert followed.subscriptions.version != tables.subscriptions.version


async def test_a_leader_whose_disk_has_failed_finds_its_offsets_in_the_log(group: Group) -> None:
    """It cannot save its table, so it must not save either how far that is read."""
    tables, writer = await group.leader()
    tables.offsets.commit(GROUP, TOPIC, 0, 7)
    writer.write()
    group.commit()
    group.store.flags.failed(FlushFailed("no sync"))
    await group.reader.stop()
    again = await group.follower("leader")
    assert again.offsets.get(GROUP, TOPIC, 0) == 7


async def test_many_entries_come_in_records_that_stay_small(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tablewriter, "_ENTRIES_MAX", 4)
    tables, writer = await group.leader()
    tables.topics.put_many([TopicConfig(f"T{n}", 1, 1) for n in range(10)])
    tables.subscriptions.put_many([GroupConfig(f"G{n}") for n in range(8)])
    for n in range(9):
        tables.offsets.commit(GROUP, f"T{n}", 0, n)
    writer.write()
    assert group.written() == 3 + 3 + 3
    followed = await group.follower()
    assert followed.topics.all() == tables.topics.all()
    assert followed.subscriptions.all() == tables.subscriptions.all()
    assert followed.offsets.all() == tables.offsets.all()


async def test_what_cannot_be_written_now_is_written_later(group: Group) -> None:
    tables, writer = await group.leader()
    group.store._takes_puts = False
    tables.topics.put(TopicConfig(TOPIC, 1, 1))
    assert group.written() == 0
    group.store._takes_puts = True
    writer.write()
    assert (await group.follower()).topics.get(TOPIC) == TopicConfig(TOPIC, 1, 1)
