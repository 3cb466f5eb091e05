"""Reading from a slave, and the ways there and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.desks import DeskBench, Line
from tests.broker.pull.test_lane import bodies, pull
from tests.broker.replicas.pairs import Pair, a_pair
from tests.protocol.samples import a_send

from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.command import Command
from flaremq.testing.clock import settle

TOPIC, GROUP = "TopicTest", "g1"
NOT_FOUND = ResponseCode.PULL_NOT_FOUND


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        pair.slave.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        yield pair


async def put(desk: DeskBench, count: int) -> None:
    sends = [replace(a_send(e="0", i=f"UNIQ_KEY\x01U{n}\x02"), body=b"body %d" % n) for n in range(count)]
    for answer in await desk.ask(*sends):
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def one(desk: DeskBench, request: Command) -> Command:
    (answer,) = await desk.ask(request)
    return answer


async def test_a_slave_serves_what_its_master_took(pair: Pair) -> None:
    await put(pair.master, 3)
    pair.replicate()
    answer = await one(pair.slave, pull(1))
    assert (answer.code, bodies(answer)) == (0, [b"body 1", b"body 2"])
    assert answer.fields["maxOffset"] == "3"


async def test_a_long_poll_is_held_and_woken_by_what_is_replicated(pair: Pair) -> None:
    line = Line()
    assert not await pair.slave.ask(pull(0, hold_ms=15_000), line=line)
    await put(pair.master, 1)
    await pair.slave.run()
    assert not line.written
    pair.replicate()
    await pair.slave.run()
    (answer,) = line.read()
    assert bodies(answer) == [b"body 0"]


@pytest.mark.parametrize("offset", [3, 4, 1_000_000])
async def test_a_consumer_ahead_of_a_slave_waits_until_that_has_caught_up(pair: Pair, offset: int) -> None:
    await put(pair.master, 3)
    pair.replicate()
    line = Line()
    assert not await pair.slave.ask(pull(offset, hold_ms=15_000), line=line)
    assert len(pair.slave.pulls.parked) == 1
    await put(pair.master, 3)
    pair.replicate()
    await pair.slave.run()
    expected = [[b"body %d" % n for n in range(offset - 3, 3)]] if offset < 6 else []
    assert [bodies(each) for each in line.read()] == expected


async def test_a_consumer_below_the_begin_of_a_slave_waits(pair: Pair) -> None:
    """Its messages are at the master, or gone with it: nothing here can say which."""
    await put(pair.master, 3)
    pair.replicate()
    queue = pair.slave.store.queues.get(TOPIC.encode(), 0)
    assert queue is not None
    queue.correct_min(pair.slave.store.log.end - 1)
    assert queue.min_offset > 0
    line = Line()
    assert not await pair.slave.ask(pull(0, hold_ms=15_000), line=line)
    assert not await pair.slave.ask(pull(-1, hold_ms=15_000), line=line)
    assert len(pair.slave.pulls.parked) == 2


@pytest.mark.parametrize("offset", [0, 5])
async def test_a_consumer_of_a_queue_that_is_not_here_yet_waits(pair: Pair, offset: int) -> None:
    line = Line()
    assert not await pair.slave.ask(pull(offset, hold_ms=15_000, queueId="2"), line=line)
    assert len(pair.slave.pulls.parked) == 1


@pytest.mark.parametrize("offset", [4, -1])
async def test_one_that_may_not_wait_is_told_that_there_is_nothing_at_the_offset_it_has(
    pair: Pair, offset: int
) -> None:
    await put(pair.master, 3)
    pair.replicate()
    answer = await one(pair.slave, pull(offset))
    assert (answer.code, answer.fields["nextBeginOffset"]) == (NOT_FOUND, str(offset))


async def test_where_the_master_lives_a_pull_that_it_could_serve_is_not_held_for_long(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[float] = []

    def park(_topic: bytes, _queue_id: int, _pull: object, hold_s: float) -> bool:
        held.append(hold_s)
        return True

    monkeypatch.setattr(pair.slave.pulls.parked, "park", park)
    await put(pair.master, 3)
    pair.replicate()
    for has_master, offset in ((True, 9), (True, 3), (False, 9)):
        pair.slave.broker.role.learn("10.0.0.1:10911" if has_master else "", "")
        await pair.slave.ask(pull(offset, hold_ms=15_000))
    assert held == [1.0, 15.0, 15.0]


async def test_offsets_are_corrected_where_the_operator_wants_it(tmp_path: Path) -> None:
    async with a_pair(tmp_path, slave={"offset_check_in_slave": True}) as pair:
        for desk in (pair.master, pair.slave):
            desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await put(pair.master, 3)
        pair.replicate()
        answer = await one(pair.slave, pull(9, hold_ms=15_000))
        assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3")


async def test_offsets_that_ride_on_pulls_are_stored(pair: Pair) -> None:
    await put(pair.master, 3)
    pair.replicate()
    await pair.slave.ask(pull(1, sysFlag="5", commitOffset="1", consumerGroup=GROUP))
    assert pair.slave.tables.offsets.get(GROUP, TOPIC, 0) == 1


async def test_a_slave_that_may_not_be_read_refuses_before_any_work(tmp_path: Path) -> None:
    async with a_pair(tmp_path, broker={"slave_read": False}) as pair:
        answer = await one(pair.slave, pull(0, topic="Unknown"))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "slaveReadEnable=false" in (answer.remark or "")
        assert (await one(pair.master, pull(0, topic="Unknown"))).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("in_memory_percent", "has_master", "suggested"),
    [(40, True, "0"), (40, False, "1"), (0, True, "1")],
    ids=["back to the master", "there is no master", "far behind"],
)
async def test_a_slave_sends_consumers_back_while_there_is_a_master(
    tmp_path: Path, in_memory_percent: int, has_master: bool, suggested: str
) -> None:
    async with a_pair(tmp_path, in_memory_percent=in_memory_percent) as pair:
        for desk in (pair.master, pair.slave):
            desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await put(pair.master, 3)
        pair.replicate()
        pair.slave.broker.role.learn("10.0.0.1:10911" if has_master else "", "")
        answer = await one(pair.slave, pull(0))
        assert (answer.code, answer.fields["suggestWhichBrokerId"]) == (0, suggested)


@pytest.mark.parametrize(("has_slaves", "suggested"), [(True, "3"), (False, "0")])
async def test_a_master_sends_slow_consumers_away_only_while_there_is_a_slave(
    tmp_path: Path, has_slaves: bool, suggested: str
) -> None:
    async with a_pair(tmp_path, in_memory_percent=0) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        pair.master.tables.subscriptions.put(GroupConfig(GROUP, which_broker_when_consume_slowly=3))
        await put(pair.master, 3)
        pair.master.pulls._has_slaves = lambda: has_slaves
        await settle()
        answer = await one(pair.master, pull(0, consumerGroup=GROUP))
        assert (answer.code, answer.fields["suggestWhichBrokerId"]) == (0, suggested)
