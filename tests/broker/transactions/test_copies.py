"""Copies of open transactions: they carry what a restart must know, and stand for the first one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.transactions.scenes import COMMIT, HALF, OP, PARKED, SECOND, TOPIC, Scene, a_scene

from flaremq.base.units import HOUR_MS
from flaremq.broker.transactions import transactions
from flaremq.protocol.codes import ResponseCode
from flaremq.store.drafts import NewMessage
from flaremq.testing.clock import ManualClock


@pytest.fixture(autouse=True, params=[True, False], ids=["by the lane", "one by one"])
def by_lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scene, "by_lane", request.param)


def a_place(scene: Scene, number: int) -> dict[str, str]:
    """What an end names to end one of the prepared messages, in the order in which they were stored."""
    half = scene.of(HALF)[number]
    return {
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.physical_offset),
    }


def put_copy(scene: Scene, more: bytes) -> None:
    """A copy of the only prepared message, without an op."""
    (half,) = scene.of(HALF)
    properties = half.raw_properties.rstrip(b"\x02") + b"\x02" + more
    scene.desk.store.put(
        NewMessage(
            topic=HALF.encode(),
            body=half.body,
            properties=properties,
            born_timestamp_ms=half.born_timestamp_ms,
        )
    )


@pytest.mark.parametrize("crashes", [False, True])
async def test_questions_before_a_restart_count(tmp_path: Path, crashes: bool) -> None:
    """A broker that restarted more often than that parked nothing, ever."""
    clock = ManualClock()
    for run in range(4):
        async with a_scene(tmp_path, clock, broker={"transaction_checks_max": 3}) as scene:
            scene.joins()
            if not run:
                await scene.prepare(7)
            assert len(await scene.check(30 * SECOND)) == (run < 3)
            parked = scene.of(PARKED)
        if crashes:
            (tmp_path / "abort").touch()
    assert [each.properties["TRANSACTION_CHECK_TIMES"] for each in parked] == ["3"]


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_an_end_that_names_any_of_the_copies_ends_all_of_them(tmp_path: Path, number: int) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        scene.joins()
        await scene.prepare(7, KEYS="k")
        for _ in range(2):
            assert len(await scene.check(30 * SECOND)) == 1
        places = [a_place(scene, each) for each in range(3)]
        for place in (places[number], *places):
            answer = await scene.end(7, COMMIT, **place)
            assert answer is not None
            assert answer.code == ResponseCode.SUCCESS
        assert await scene.check(HOUR_MS) == []
        assert scene.bodies() == [b"7"]
        (message,) = scene.of(TOPIC)
        assert message.keys == ("k",)
    async with a_scene(tmp_path, clock) as scene:
        assert len(scene.transactions.ledger) == 0


async def test_a_copy_whose_note_was_lost_in_a_crash_is_the_same_transaction(tmp_path: Path) -> None:
    """They are stored together, but power loss may leave the first record only."""
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.prepare(7)
        put_copy(scene, b"TRANSACTION_CHECK_TIMES\x011\x02")
    (tmp_path / "abort").touch()
    async with a_scene(tmp_path, clock) as scene:
        scene.joins()
        assert [half.queue_offset for half in scene.transactions.ledger] == [0, 1]
        (asked,) = await scene.check(30 * SECOND)
        assert len(scene.transactions.ledger) == 1
        place = {name: asked.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
        await scene.end(7, COMMIT, **place)
        assert (scene.bodies(), await scene.check(30 * SECOND)) == ([b"7"], [])


async def test_a_commit_of_a_copy_whose_note_was_lost_in_a_crash_is_not_repeated(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        scene.joins()
        await scene.prepare(7)
        await scene.check(30 * SECOND)
        await scene.end(7, COMMIT, **a_place(scene, 0))
        scene.desk.store.cut(scene.of(OP)[1].physical_offset)
        assert scene.bodies() == [b"7"]
    (tmp_path / "abort").touch()
    async with a_scene(tmp_path, clock) as scene:
        scene.joins()
        assert await scene.check(30 * SECOND) == []
        await scene.end(7, COMMIT, **a_place(scene, 1))
        assert scene.bodies() == [b"7"]


async def test_an_old_one_that_nobody_can_be_asked_about_leaves_the_log_to_retention(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        await scene.check(HOUR_MS)
        assert scene.transactions.needed_from() == 0
        await scene.check(73 * HOUR_MS)
        copy = scene.of(HALF)[1]
        assert scene.transactions.needed_from() == copy.physical_offset
        assert copy.properties["TRANSACTION_CHECK_TIMES"] == "0"
        scene.joins()
        assert len(await scene.check(30 * SECOND)) == 1
        assert scene.bodies(PARKED) == []


async def test_one_that_is_open_for_long_does_not_have_all_that_follows_read_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for an hour, and 40 others come and go: written anew behind them, it still has its hour."""
    monkeypatch.setattr(transactions, "_BEHIND_MAX", 30)
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        scene.joins()
        await scene.prepare(0, CHECK_IMMUNITY_TIME_IN_SECONDS=3600)
        for number in range(1, 41):
            await scene.prepare(number)
            await scene.end(number, COMMIT)
        assert await scene.check(HOUR_MS // 2) == []
        scene.transactions.notice()
        assert (scene.transactions.ledger.half_offset, scene.transactions.ledger.op_offset) == (41, 41)
        assert await scene.check(SECOND) == []
        assert len(scene.of(HALF)) == 42, "only once"
    async with a_scene(tmp_path, clock) as scene:
        scene.joins()
        assert await scene.check(HOUR_MS // 2 - 2 * SECOND) == []
        assert len(await scene.check(2 * SECOND)) == 1


async def test_a_copy_that_rocketmq_made_for_more_time_is_written_anew_without_its_first_place(
    tmp_path: Path,
) -> None:
    """RocketMQ takes such a copy for ended if the op of the first one is there."""
    async with a_scene(tmp_path) as scene:
        scene.joins()
        await scene.prepare(7)
        put_copy(scene, b"TRAN_PREPARED_QUEUE_OFFSET\x010\x02TRANSACTION_CHECK_TIMES\x011\x02")
        await scene.check(30 * SECOND)
        copy = scene.of(HALF)[-1].properties
        assert "TRAN_PREPARED_QUEUE_OFFSET" not in copy
