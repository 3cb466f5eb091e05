"""Transactional messages: nobody sees them until they are committed, and none is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.transactions.scenes import (
    COMMIT,
    HALF,
    OP,
    PARKED,
    ROLLBACK,
    SECOND,
    TOPIC,
    UNKNOWN,
    Scene,
    a_scene,
)

from flaremq.base.units import HOUR_MS
from flaremq.broker.delay.levels import DelayedMessages
from flaremq.broker.delay.timers import Timers
from flaremq.broker.transactions.ledger import HalfLedger
from flaremq.broker.transactions.transactions import GROUP
from flaremq.model.record import decode
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.store.drafts import NewMessage
from flaremq.testing.clock import ManualClock


@pytest.fixture(autouse=True, params=[True, False], ids=["by the lane", "one by one"])
def by_lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """All that is true of ends that are served alone is true of many at once."""
    monkeypatch.setattr(Scene, "by_lane", request.param)
    return bool(request.param)


def code_of(answer: Command | None) -> int:
    assert answer is not None
    return answer.code


# Preparing and ending.


async def test_a_prepared_message_is_hidden_and_its_answer_names_what_ends_it(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(6)
        answer = await scene.prepare(7)
        half = scene.of(HALF)[1]
        assert scene.bodies() == []
    assert answer.code == ResponseCode.SUCCESS
    told = {name: answer.fields[name] for name in ("queueId", "queueOffset", "transactionId", "msgId")}
    assert told == {"queueId": "2", "queueOffset": "1", "transactionId": "U7", "msgId": half.message_id}
    assert (half.queue_id, half.sys_flag, half.body) == (0, 0, b"7")
    known = half.properties
    assert (known["REAL_TOPIC"], known["REAL_QID"], known["__transactionId__"]) == (TOPIC, "2", "U7")


async def test_a_committed_message_is_delivered_with_all_that_the_prepared_one_had(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7, KEYS="k", color="red")
        assert code_of(await scene.end(7, COMMIT)) == ResponseCode.SUCCESS
        (half,), (message,), (op,) = scene.of(HALF), scene.of(TOPIC), scene.of(OP)
    assert (message.queue_id, message.body, message.sys_flag) == (2, b"7", 8)
    assert message.prepared_transaction_offset == half.physical_offset
    assert message.raw_properties == half.raw_properties
    assert (message.born_timestamp_ms, message.flag) == (half.born_timestamp_ms, half.flag)
    assert (op.body, op.raw_properties) == (b"0", b"TAGS\x01d\x02WAIT\x01true\x02")
    assert op.physical_offset == message.physical_offset + message.size, "in one append"


async def test_a_message_that_is_rolled_back_never_comes(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        assert code_of(await scene.end(7, ROLLBACK)) == ResponseCode.SUCCESS
        assert (scene.bodies(), scene.bodies(OP)) == ([], [b"0"])
        assert len(scene.transactions.ledger) == 0


async def test_committing_twice_is_committing_once(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        for _ in range(3):
            assert code_of(await scene.end(7, COMMIT)) == ResponseCode.SUCCESS
        assert scene.bodies() == [b"7"]
        late = await scene.end(7, ROLLBACK)
        assert code_of(late) == ResponseCode.ILLEGAL_OPERATION
        assert late is not None and "was committed before" in (late.remark or "")


async def test_not_known_yet_changes_nothing_and_has_no_answer(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        assert await scene.end(7, UNKNOWN) is None
        assert await scene.end(7, COMMIT) is not None
        assert scene.bodies() == [b"7"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"producerGroup": "others"}, "The producer group wrong"),
        ({"tranStateTableOffset": "9"}, "The transaction state table offset wrong"),
        ({"commitLogOffset": "9999999"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "-1"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "7"}, "Find prepared transaction message failed"),
    ],
)
async def test_an_end_that_names_no_transaction_is_refused(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        answer = await scene.end(7, COMMIT, **changes)
        assert answer is not None
        assert (answer.code, scene.bodies()) == (ResponseCode.SYSTEM_ERROR, [])
        assert words in (answer.remark or "")


async def test_a_prepared_message_without_a_producer_group_is_refused(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await scene.prepare(PGROUP=None)
        assert (answer.code, scene.desk.messages()) == (ResponseCode.MESSAGE_ILLEGAL, [])
        assert "PGROUP" in (answer.remark or "")


async def test_transactions_can_be_refused(tmp_path: Path) -> None:
    async with a_scene(tmp_path, broker={"reject_transactions": True}) as scene:
        assert (await scene.prepare()).code == ResponseCode.NO_PERMISSION
        assert scene.desk.messages() == []


async def test_a_commit_for_a_topic_that_is_gone_leaves_the_transaction_open(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        await scene.desk.delete(TOPIC)
        assert code_of(await scene.end(7, COMMIT)) == ResponseCode.TOPIC_NOT_EXIST
        scene.desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        assert code_of(await scene.end(7, COMMIT)) == ResponseCode.SUCCESS
        assert scene.bodies() == [b"7"]


async def test_a_commit_finds_the_topic_that_a_crash_has_lost(tmp_path: Path) -> None:
    """The prepared message made it, and topics are saved a moment later."""
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        scene.desk.tables.topics.remove(TOPIC)
        assert code_of(await scene.end(7, COMMIT)) == ResponseCode.SUCCESS
        assert scene.bodies() == [b"7"]


async def test_a_producer_is_asked_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """So is one whose message a former leader has stored whose clock was ahead."""
    async with a_scene(tmp_path) as scene:
        scene.joins()
        await scene.prepare(7)
        scene.clock.step_wall_ms(-3_600_000)
        (asked,) = await scene.check(after_ms=10_000)
        assert asked.code == RequestCode.CHECK_TRANSACTION_STATE


@pytest.mark.parametrize("asked", [{"DELAY": "2"}, {"TIMER_DELAY_SEC": "5"}], ids=["level", "timer"])
async def test_a_delay_begins_with_the_commit(tmp_path: Path, asked: dict[str, str]) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7, **asked)
        (half,) = scene.desk.messages()
        assert half.topic == HALF
        await scene.end(7, COMMIT)

        async def after(span_ms: int) -> list[bytes]:
            scene.clock.advance_ms(span_ms)
            await scene.desk.run()
            for feature in scene.desk.made.inner:
                if isinstance(feature, DelayedMessages):
                    await feature.deliver()
                elif isinstance(feature, Timers):
                    await feature.run()
            return scene.bodies()

        assert await after(4999) == []
        assert await after(1) == [b"7"]
        assert scene.bodies(HALF) == [b"7"], "it does not become a prepared message again"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"DELAY": "soon"}, "expected a delay level from 1 to 18"),
        ({"TIMER_DELAY_SEC": "61"}, "limit is 60 s (timerMaxDelaySec)"),
        ({"TIMER_DELIVER_MS": "soon"}, "expected a whole number"),
    ],
)
async def test_a_delay_that_a_commit_could_not_give_is_refused_at_once(
    tmp_path: Path, asked: dict[str, str], words: str
) -> None:
    async with a_scene(tmp_path, timer_delay_max_s=60) as scene:
        answer = await scene.prepare(7, **asked)
        assert answer.code != ResponseCode.SUCCESS
        assert (words in (answer.remark or ""), scene.desk.messages()) == (True, [])


async def test_timers_that_are_switched_off_refuse_a_prepared_message_that_asks_for_them(
    tmp_path: Path,
) -> None:
    async with a_scene(tmp_path, timer_enabled=False) as scene:
        answer = await scene.prepare(7, TIMER_DELAY_SEC=5)
        assert "timerWheelEnable=true" in (answer.remark or "")
        assert (await scene.prepare(8, DELAY=1, TIMER_DELAY_SEC=5)).code == ResponseCode.SUCCESS


async def test_fault_29_a_late_end_decides_no_later_transaction(tmp_path: Path) -> None:
    """The end of a transaction is delayed on its way, until its producer is at the next one."""
    async with a_scene(tmp_path) as scene:
        await scene.prepare(1)
        late = scene.an_end(1, ROLLBACK)
        await scene.end(1, COMMIT)
        for number in (2, 3):
            await scene.prepare(number)
        later = scene.an_end(2, COMMIT)
        for _ in range(2):
            assert code_of(await scene.ask(late)) == ResponseCode.ILLEGAL_OPERATION
        await scene.check()
        assert [half.key for half in scene.transactions.ledger] == ["U2", "U3"]
        await scene.end(3, ROLLBACK)
        assert code_of(await scene.ask(later)) == ResponseCode.SUCCESS
        assert scene.bodies() == [b"1", b"2"]
        forged = {"commitLogOffset": str(scene.of(HALF)[0].physical_offset)}
        assert code_of(await scene.end(2, COMMIT, **forged)) == ResponseCode.SYSTEM_ERROR
        assert scene.bodies() == [b"1", b"2"]


# Asking.


async def test_a_producer_of_the_group_is_asked_once_the_time_is_up(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.joins()
        await scene.prepare(7)
        assert await scene.check(5999) == []
        (asked,) = await scene.check(1)
        half = scene.of(HALF)[-1]
    assert asked.code == RequestCode.CHECK_TRANSACTION_STATE
    assert asked.is_oneway
    told = asked.fields
    assert (told["tranStateTableOffset"], told["commitLogOffset"]) == ("1", str(half.physical_offset))
    assert (told["msgId"], told["transactionId"], told["topic"]) == ("U7", "U7", HALF)
    record = decode(bytes(asked.body or b""))
    assert (record.topic, record.queue_id, record.body) == (TOPIC, 2, b"7")
    assert record.raw_properties == half.raw_properties


async def test_what_is_told_after_a_check_ends_the_transaction(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.joins()
        await scene.prepare(7)
        assert len(await scene.check(10 * SECOND)) == 1
        await scene.end(7, COMMIT, fromTransactionCheck="true")
        assert scene.bodies() == [b"7"]
        assert await scene.check(60 * SECOND) == []


async def test_after_the_last_check_a_message_is_parked_and_can_be_brought_back(tmp_path: Path) -> None:
    """Fault 27: its producer has died, and nobody knows."""
    async with a_scene(tmp_path, broker={"transaction_checks_max": 3}) as scene:
        scene.joins()
        await scene.prepare(7)
        asked = [len(await scene.check(30 * SECOND)) for _ in range(6)]
        assert asked == [1, 1, 1, 0, 0, 0]
        (parked,) = scene.of(PARKED)
        assert (parked.body, scene.bodies()) == (b"7", [])
        assert parked.properties["TRANSACTION_CHECK_TIMES"] == "3"
        assert (await scene.resume(parked.message_id)).code == ResponseCode.SUCCESS
        assert len(await scene.check(30 * SECOND)) == 1
        again = scene.of(HALF)[-1]
        place = {
            "tranStateTableOffset": str(again.queue_offset),
            "commitLogOffset": str(again.physical_offset),
        }
        assert code_of(await scene.end(7, COMMIT, **place)) == ResponseCode.SUCCESS
        assert scene.bodies() == [b"7"]


async def test_a_message_without_room_for_another_property_is_parked_and_brought_back(tmp_path: Path) -> None:
    async with a_scene(tmp_path, broker={"transaction_checks_max": 1}) as scene:
        scene.joins()
        room = 32_767
        while code_of(await scene.prepare(7, fill="x" * room)) != ResponseCode.SUCCESS:
            room -= 1
        for _ in range(2):
            await scene.check(30 * SECOND)
        (parked,) = scene.of(PARKED)
        assert (await scene.resume(parked.message_id)).code == ResponseCode.SUCCESS
        again = scene.of(HALF)[-1]
        place = {
            "tranStateTableOffset": str(again.queue_offset),
            "commitLogOffset": str(again.physical_offset),
        }
        assert code_of(await scene.end(7, COMMIT, **place)) == ResponseCode.SUCCESS
        assert scene.bodies() == [b"7"]


async def test_only_a_parked_message_can_be_brought_back(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        await scene.end(7, COMMIT)
        (message,) = scene.of(TOPIC)
        assert (await scene.resume(message.message_id)).code == ResponseCode.SYSTEM_ERROR
        assert (await scene.resume("nonsense")).code == ResponseCode.INVALID_PARAMETER


async def test_while_nobody_can_be_asked_nothing_is_counted(tmp_path: Path) -> None:
    async with a_scene(tmp_path, broker={"transaction_checks_max": 2}) as scene:
        await scene.prepare(7)
        for _ in range(10):
            await scene.check(30 * SECOND)
        assert scene.bodies(PARKED) == []
        scene.joins()
        assert len(await scene.check(30 * SECOND)) == 1


async def test_a_transaction_as_old_as_the_files_that_go_is_parked_once_somebody_was_asked(
    tmp_path: Path,
) -> None:
    """Its producers were away for three days: they are asked when they are back, and then it is enough."""
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        for _ in range(3):
            assert await scene.check(73 * HOUR_MS) == []
        assert scene.bodies(PARKED) == []
        scene.joins()
        assert len(await scene.check(30 * SECOND)) == 1
        assert scene.bodies(PARKED) == []
        assert await scene.check(73 * HOUR_MS) == []
        assert scene.bodies(PARKED) == [b"7"]


async def test_a_transaction_may_ask_for_more_time_than_files_are_kept(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.joins()
        await scene.prepare(7, CHECK_IMMUNITY_TIME_IN_SECONDS=100 * HOUR_MS // SECOND)
        assert await scene.check(99 * HOUR_MS) == []
        assert scene.bodies(PARKED) == []
        assert len(await scene.check(HOUR_MS)) == 1
        await scene.end(7, COMMIT)
        assert (scene.bodies(), scene.bodies(PARKED)) == ([b"7"], [])


async def test_a_message_may_ask_for_more_time_without_being_counted(tmp_path: Path) -> None:
    async with a_scene(tmp_path, broker={"transaction_checks_max": 2}) as scene:
        scene.joins()
        await scene.prepare(7, CHECK_IMMUNITY_TIME_IN_SECONDS=600)
        await scene.prepare(8)
        first = [each.fields["msgId"] for _ in range(10) for each in await scene.check(30 * SECOND)]
        assert first == ["U8", "U8"]
        later = [each.fields["msgId"] for _ in range(12) for each in await scene.check(30 * SECOND)]
        assert later == ["U7", "U7"]


async def test_how_often_and_when_producers_are_asked_can_be_set(tmp_path: Path) -> None:
    changed = {"transaction_timeout_ms": 20_000, "transaction_check_ms": 7_000}
    async with a_scene(tmp_path, broker=changed) as scene:
        periods = {task.name: task.period_s for task in scene.transactions.tasks()}
        scene.joins()
        await scene.prepare(7)
        assert await scene.check(19_999) == []
        assert len(await scene.check(1)) == 1
    assert periods["check-transactions"] == 7


# Stops and crashes.


async def test_what_is_open_and_what_has_ended_is_known_after_a_stop(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        for number in range(6):
            await scene.prepare(number)
        await scene.end(1, COMMIT)
        await scene.end(4, ROLLBACK)
    async with a_scene(tmp_path, clock) as scene:
        assert [half.key for half in scene.transactions.ledger] == ["U0", "U2", "U3", "U5"]
        for number in (1, 4):
            await scene.end(number, COMMIT)
        assert scene.bodies() == [b"1"]
        await scene.end(5, COMMIT)
        assert scene.bodies() == [b"1", b"5"]


async def test_what_has_ended_behind_an_open_one_is_known_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HalfLedger, "ops_max", 4)
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        for number in range(40):
            await scene.prepare(number)
        for number in range(1, 39):
            await scene.end(number, COMMIT)
        scene.desk.store.workers.log_flusher.flush(0)
        scene.transactions.save()
    (tmp_path / "abort").touch()
    async with a_scene(tmp_path, clock) as scene:
        assert [half.key for half in scene.transactions.ledger] == ["U0", "U39"]
        assert scene.transactions.ledger.ahead == 0
        for number in (0, 1, 20, 38, 39):
            assert code_of(await scene.end(number, COMMIT)) == ResponseCode.SUCCESS
        assert scene.bodies() == [b"%d" % number for number in (*range(1, 39), 0, 39)]


async def test_a_commit_whose_op_was_lost_in_a_crash_is_not_repeated(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.prepare(7)
        await scene.prepare(8)
        (half, _) = scene.of(HALF)
        scene.desk.store.put(
            NewMessage(
                topic=TOPIC.encode(),
                body=half.body,
                properties=half.raw_properties,
                sys_flag=8,
                prepared_transaction_offset=half.physical_offset,
            )
        )
    (tmp_path / "abort").touch()
    async with a_scene(tmp_path, clock) as scene:
        assert [half.key for half in scene.transactions.ledger] == ["U8"]
        assert code_of(await scene.end(7, COMMIT)) == ResponseCode.SUCCESS
        assert scene.bodies() == [b"7"]


async def test_ops_of_other_versions_are_understood(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        for number in range(5):
            await scene.prepare(number)
        for body in (b"0,2,", b"3"):
            scene.desk.store.put(NewMessage(topic=OP.encode(), body=body, properties=b"TAGS\x01d\x02"))
    async with a_scene(tmp_path, clock) as scene:
        assert [half.key for half in scene.transactions.ledger] == ["U1", "U4"]


async def test_a_copy_that_a_check_of_rocketmq_made_is_the_same_transaction(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        (half,) = scene.of(HALF)
        scene.desk.store.put(
            NewMessage(topic=HALF.encode(), body=half.body, properties=half.raw_properties), wait=False
        )
        scene.desk.store.dispatch()
        scene.transactions.save()
        await scene.end(7, COMMIT)
        assert (scene.bodies(), len(scene.transactions.ledger)) == ([b"7"], 0)
        assert sorted(scene.bodies(OP)) == [b"0", b"1"]


async def test_the_queues_are_done_with_up_to_the_first_that_is_open(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:

        def saved() -> tuple[int, int]:
            scene.desk.store.workers.log_flusher.flush(0)
            scene.transactions.save()
            scene.transactions.save()
            half, op = (scene.desk.tables.offsets.get(GROUP, topic, 0) for topic in (HALF, OP))
            return half, op

        for number in range(6):
            await scene.prepare(number)
        for number in (0, 1, 3):
            await scene.end(number, COMMIT)
        assert saved() == (2, 2), "the op of 3 is needed: 2 is open"
        await scene.end(2, ROLLBACK)
        assert saved() == (4, 4)
        for number in (4, 5):
            await scene.end(number, COMMIT)
        assert saved() == (6, 6)


async def test_retention_keeps_what_is_open(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.prepare(7)
        scene.transactions.save()
        assert scene.transactions.needed_from() == scene.of(HALF)[0].physical_offset
        await scene.end(7, ROLLBACK)
        assert scene.transactions.needed_from() is None
