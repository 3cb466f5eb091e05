"""Timers: where messages for a later moment wait, when they come, and what becomes of them after trouble."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.delay.timerscenes import SECOND, TOPIC, WHEEL, a_scene, handle_of, spoil
from tests.protocol.samples import a_send

from flaremq.base.errors import ConfigError, DiskFull
from flaremq.base.units import DAY_MS, HOUR_MS
from flaremq.model import layout, names
from flaremq.model.columns import Draft, Drafts
from flaremq.model.timers import Handle
from flaremq.model.topic import TopicConfig
from flaremq.protocol import fastjson
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.testing.clock import START_MS, ManualClock

# Waiting and coming.


@pytest.mark.parametrize(
    "asked",
    [{"DELAY_SEC": 5}, {"DELAY_MS": 5000}, {"DELIVER_MS": START_MS + 5000}],
    ids=lambda asked: str(*asked),
)
async def test_a_message_comes_at_its_moment_and_not_before(tmp_path: Path, asked: dict[str, Any]) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await scene.send(7, **asked)
        assert (answer.code, answer.fields["queueId"]) == (ResponseCode.SUCCESS, "2")
        assert await scene.after(4999) == []
        assert await scene.after(1) == [b"7"]
        (message,) = scene.of(TOPIC)
    assert message.queue_id == 2
    known = message.properties
    assert (known["REAL_TOPIC"], known["REAL_QID"], known["UNIQ_KEY"]) == (TOPIC, "2", "U7")
    assert known["TIMER_OUT_MS"] == str(START_MS + 4000)
    assert known["TIMER_DEQUEUE_MS"] == str(START_MS + 5000)


async def test_a_moment_within_a_second_comes_at_the_end_of_that_second(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(DELAY_MS=1300)
        assert await scene.after(1999) == []
        assert await scene.after(1) == [b"0"]


async def test_a_finer_precision_brings_messages_closer_to_their_moment(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_precision_ms=100) as scene:
        await scene.send(DELAY_MS=1330)
        assert await scene.after(1399) == []
        assert await scene.after(1) == [b"0"]


@pytest.mark.parametrize("asked", [{"DELAY_SEC": 0}, {"DELAY_MS": -1}, {"DELIVER_MS": START_MS}])
async def test_a_moment_that_is_past_means_now(tmp_path: Path, asked: dict[str, Any]) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await scene.send(**asked)
        assert handle_of(answer) is None
        assert [each.body for each in scene.of(TOPIC)] == [b"0"]


async def test_messages_come_in_order_of_their_seconds_and_then_of_arrival(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        for number, span in enumerate((9, 3, 6, 3, 9, 1)):
            await scene.send(number, DELAY_SEC=span)
        assert await scene.after(20 * SECOND) == [b"5", b"1", b"3", b"2", b"0", b"4"]


async def test_what_a_client_copies_from_a_timer_message_does_not_switch_its_timer_off(
    tmp_path: Path,
) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(DELAY_SEC=5, OUT_MS=17, ENQUEUE_MS=17, ROLL_TIMES=3, DEL_UNIQKEY="Orders+U1")
        await scene.send(1, DELAY_SEC=5)
        assert await scene.after(4999) == []
        assert await scene.after(1) == [b"0", b"1"]


async def test_a_delay_level_wins_over_a_timer(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        text = "UNIQ_KEY\x01U\x02DELAY\x011\x02TIMER_DELAY_SEC\x01900\x02"
        await scene.desk.ask(replace(a_send(b=TOPIC, i=text), body=b"x", opaque=9))
        (waiting,) = scene.desk.messages()
    assert waiting.topic == "SCHEDULE_TOPIC_XXXX"
    assert "TIMER_DELAY_SEC" not in waiting.properties


# Refusals.


@pytest.mark.parametrize("name", ["DELAY_SEC", "DELAY_MS", "DELIVER_MS"])
@pytest.mark.parametrize("value", ["soon", "1.5", "9" * 30])
async def test_what_is_no_time_is_refused(tmp_path: Path, name: str, value: str) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await scene.send(0, **{name: value})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"TIMER_{name}={value!r}" in (answer.remark or "")
        assert scene.desk.messages() == []


async def test_a_delay_over_the_cap_is_refused_with_the_cap(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_delay_max_s=60) as scene:
        refused = await scene.send(0, DELAY_MS=60_001)
        assert (scene.desk.messages(), handle_of(refused)) == ([], None)
        taken = await scene.send(1, DELAY_SEC=60)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "limit is 60 s (timerMaxDelaySec)" in (refused.remark or "")
    assert taken.code == ResponseCode.SUCCESS


async def test_a_broker_without_the_wheel_says_so(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_enabled=False) as scene:
        answer = await scene.send(DELAY_SEC=5)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "timerWheelEnable=true" in (answer.remark or "")
        assert not (tmp_path / "timerwheel").exists()


async def test_a_second_that_is_full_takes_no_more(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_slot_max=3) as scene:
        for number in range(60):
            await scene.send(number, DELAY_SEC=5)
            await scene.timers.run()
        before = len(scene.desk.messages())
        answer = await scene.send(60, DELAY_SEC=5)
        assert len(scene.desk.messages()) == before
        elsewhere = await scene.send(61, DELAY_SEC=9)
        came = await scene.after(20 * SECOND)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "limit is 3 (timerCongestNumEachSlot)" in (answer.remark or "")
    assert elsewhere.code == ResponseCode.SUCCESS
    assert 4 <= len(came) <= 7, "three, a few by chance, and never more than twice the limit; and the last"


async def test_nobody_sends_to_the_wheels_topic(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await scene.send(topic=WHEEL)
        assert answer.code != ResponseCode.SUCCESS
        assert scene.desk.messages() == []


# Rolling.


async def test_a_far_moment_rolls_and_comes_once_and_in_time(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_roll_slots=10) as scene:
        await scene.send(DELAY_SEC=65)
        for _ in range(64):
            assert await scene.after(SECOND) == []
        assert await scene.after(SECOND) == [b"0"]
        assert await scene.after(60 * SECOND) == [b"0"]
        rolled = [each.properties.get("TIMER_ROLL_TIMES") for each in scene.of(WHEEL)]
    assert rolled[0] is None
    assert rolled[1:] == [str(n) for n in range(1, len(rolled))]
    assert len(rolled) > 5


async def test_a_year_ahead_is_no_special_case(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(DELAY_SEC=400 * 86_400)
        for _ in range(399):
            assert await scene.after(DAY_MS) == []
        await scene.after(DAY_MS)
        assert await scene.after() == [b"0"], "at the next look at the latest: it may have rolled just now"


# Cancelling.


async def test_a_cancelled_message_does_not_come_and_others_of_its_second_do(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        handles = [handle_of(await scene.send(number, DELAY_SEC=5)) for number in range(3)]
        await scene.after(SECOND)
        answer = await scene.recall(handles[1])
        assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, "U1")
        assert await scene.after(10 * SECOND) == [b"0", b"2"]
        assert scene.timers.counts.total == 0


async def test_a_message_can_be_cancelled_at_once_though_its_queue_has_no_file_yet(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        handle = handle_of(await scene.send(DELAY_SEC=5))
        assert (await scene.recall(handle)).code == ResponseCode.SUCCESS
        assert await scene.after(10 * SECOND) == []


async def test_every_answer_to_a_recall_names_the_region(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        handle = handle_of(await scene.send(1, DELAY_SEC=5))
        for code in (ResponseCode.SUCCESS, ResponseCode.ILLEGAL_OPERATION):
            answer = await scene.recall(handle)
            assert (answer.code, answer.fields["MSG_REGION"]) == (code, "DefaultRegion")
            await scene.after(6000)


async def test_a_message_can_be_cancelled_until_its_second_is_over(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        handle = handle_of(await scene.send(DELAY_SEC=5))
        await scene.after(4999)
        assert (await scene.recall(handle)).code == ResponseCode.SUCCESS
        assert await scene.after(SECOND) == []


async def test_a_cancelled_message_stays_cancelled_when_it_rolls(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_roll_slots=10) as scene:
        handle = handle_of(await scene.send(0, DELAY_SEC=65))
        await scene.send(1, DELAY_SEC=65)
        await scene.after(3 * SECOND)
        await scene.recall(handle)
        for _ in range(80):
            await scene.after(SECOND)
        assert await scene.after() == [b"1"]


async def test_a_message_that_has_come_can_no_longer_be_cancelled(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        handle = handle_of(await scene.send(DELAY_SEC=5))
        await scene.after(5 * SECOND)
        answer = await scene.recall(handle)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "can no longer be cancelled" in (answer.remark or "")


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        ("nonsense", ResponseCode.INVALID_PARAMETER),
        (str(Handle("Other", "broker-a", START_MS + 5000, "U0")), ResponseCode.ILLEGAL_OPERATION),
        (str(Handle(TOPIC, "broker-b", START_MS + 5000, "U0")), ResponseCode.ILLEGAL_OPERATION),
        (str(Handle(TOPIC, "broker-a", START_MS + 5000, "never")), ResponseCode.QUERY_NOT_FOUND),
    ],
)
async def test_a_forged_handle_is_refused_and_changes_nothing(tmp_path: Path, handle: str, code: int) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(DELAY_SEC=5)
        before = len(scene.desk.messages())
        answer = await scene.recall(handle)
        assert answer.code == code
        assert len(scene.desk.messages()) == before
        assert await scene.after(5 * SECOND) == [b"0"]


async def test_recall_can_be_switched_off(tmp_path: Path) -> None:
    async with a_scene(tmp_path, broker={"recall_enabled": False}) as scene:
        answer = await scene.recall(handle_of(await scene.send(DELAY_SEC=5)))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "recallMessageEnable=true" in (answer.remark or "")


@pytest.mark.parametrize("allowed", [True, False])
async def test_whether_a_broker_that_is_only_read_takes_recalls_can_be_chosen(
    tmp_path: Path, allowed: bool
) -> None:
    async with a_scene(tmp_path, broker={"recall_when_read_only": allowed}) as scene:
        handle = handle_of(await scene.send(DELAY_SEC=5))
        scene.desk.broker.configuration.update({"brokerPermission": "4"})
        answer = await scene.recall(handle)
    assert answer.code == (ResponseCode.SUCCESS if allowed else ResponseCode.NO_PERMISSION)


def test_a_handle_is_written_as_rocketmq_writes_it() -> None:
    handle = Handle("T", "broker-a", 1700000060001, "0A00000100002A139A5507123456ABCD")
    text = "djEgVCBicm9rZXItYSAxNzAwMDAwMDYwMDAxIDBBMDAwMDAxMDAwMDJBMTM5QTU1MDcxMjM0NTZBQkNE"
    assert str(handle) == text
    assert Handle.parse(text) == handle


# Stops, crashes and lost files.


async def test_what_waits_survives_a_stop_however_long(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        for number, span in enumerate((40, 20, 30 * 86_400, 10)):
            await scene.send(number, DELAY_SEC=span)
        await scene.after(15 * SECOND)
    clock.advance_ms(25 * DAY_MS)
    async with a_scene(tmp_path, clock) as scene:
        assert await scene.after() == [b"3", b"1", b"0"]
        for _ in range(6):
            await scene.after(DAY_MS)
        assert await scene.after() == [b"3", b"1", b"0", b"2"]


async def test_counts_that_are_lost_lose_no_message(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(DELAY_SEC=40)
        await scene.after(SECOND)
    for path in (tmp_path / "config").glob("timermetrics*"):
        path.unlink()
    clock.advance_ms(40 * DAY_MS)
    async with a_scene(tmp_path, clock) as scene:
        assert scene.timers.needed_from() is not None, "retention must not take it"
        assert await scene.after() == [b"0"]


async def test_a_clean_stop_needs_no_rebuilding(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(DELAY_SEC=40)
        await scene.after(SECOND)
    caplog.clear()
    async with a_scene(tmp_path, clock) as scene:
        assert "made again" not in caplog.text
        assert scene.timers.counts.total == 1
        assert await scene.after(40 * SECOND) == [b"0"]


@pytest.mark.parametrize(
    "harm",
    ["wheel lost", "wheel shorter", "wheel longer", "wheel damaged", "log lost", "log damaged", "all lost"],
)
async def test_lost_and_damaged_files_are_made_again(tmp_path: Path, harm: str) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        for number in range(100):
            await scene.send(number, DELAY_SEC=20 + number)
        assert len(await scene.after(50 * SECOND)) == 31
    wheel, units = tmp_path / "timerwheel", sorted((tmp_path / "timerlog").iterdir())
    if harm == "wheel lost":
        wheel.unlink()
    elif harm == "wheel shorter":
        wheel.write_bytes(wheel.read_bytes()[:-320])
    elif harm == "wheel longer":
        wheel.write_bytes(wheel.read_bytes() * 2)
    elif harm == "wheel damaged":
        slot = START_MS // SECOND % layout.WHEEL_SLOTS * layout.WHEEL_SLOT_SIZE
        with wheel.open("r+b") as file:
            file.seek(slot)
            file.write(bytes(layout.WHEEL_SLOT_SIZE * 90))
    elif harm in ("log lost", "all lost"):
        for path in units:
            path.unlink()
        if harm == "all lost":
            wheel.unlink()
            (tmp_path / "config" / "timercheck").unlink()
    else:
        with units[1].open("r+b") as file:
            file.seek(10 * layout.TIMER_UNIT_SIZE)
            file.write(struct.pack(">i", 17))
        (tmp_path / "abort").touch()
    async with a_scene(tmp_path, clock) as scene:
        came = await scene.after(100 * SECOND)
    if harm == "all lost":  # Nothing tells any more what was delivered.
        assert set(came) == {b"%d" % n for n in range(100)}
    else:
        assert came == [b"%d" % n for n in range(100)]


async def test_another_precision_is_refused_while_messages_wait_and_taken_afterwards(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(0, DELAY_SEC=40)
        await scene.after(SECOND)
    with pytest.raises(ConfigError, match="set timerPrecisionMs=1000 until all of them are delivered"):
        async with a_scene(tmp_path, clock, timer_precision_ms=100):
            pass
    async with a_scene(tmp_path, clock) as scene:
        assert await scene.after(40 * SECOND) == [b"0"]
    async with a_scene(tmp_path, clock, timer_precision_ms=100) as scene:
        await scene.send(1, DELAY_MS=1330)
        assert await scene.after(1399) == [b"0"]
        assert await scene.after(1) == [b"0", b"1"]


# Trouble while running.


async def test_while_the_store_refuses_nothing_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_scene(tmp_path) as scene:
        for number in range(5):
            await scene.send(number, DELAY_SEC=3)
        append, calls = scene.desk.store.log.append_many, 0

        def refusing(drafts: Drafts) -> int:
            """Room for two, then none, twice."""
            nonlocal calls
            calls += 1
            if calls in (2, 3):
                raise DiskFull("the disk is full")
            rows = drafts.rows[: 2 * Draft.WIDTH] if calls == 1 else drafts.rows
            stored = append(Drafts(rows, drafts.heads, drafts.bodies))
            drafts.rows[: len(rows)] = rows  # Where they have landed.
            return stored

        monkeypatch.setattr(scene.desk.store.log, "append_many", refusing)
        assert await scene.after(3 * SECOND) == [b"0", b"1"]
        assert await scene.after(SECOND) == [b"0", b"1"]
        assert await scene.after(SECOND) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_message_whose_topic_is_no_text_any_more_stops_no_other(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.desk.tables.topics.put(TopicConfig("Spoiled", 4, 4))
        await scene.send(0, topic="Spoiled", DELAY_SEC=3)
        await scene.send(1, DELAY_SEC=3)
        spoil(scene, b"REAL_TOPIC\x01Spoiled", b"REAL_TOPIC\x01\xff")
        assert await scene.after(5 * SECOND) == [b"1"]


async def test_a_message_whose_queue_is_no_number_of_ours_any_more_stops_no_other(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        text = f"UNIQ_KEY\x01U\x02TIMER_DELAY_SEC\x013\x02NOTE\x01{'x' * 20}\x02"
        await scene.desk.ask(replace(a_send(b=TOPIC, e="2", i=text), body=b"0", opaque=9))
        await scene.send(1, DELAY_SEC=3)
        spoil(scene, b"NOTE\x01" + b"x" * 20, b"REAL_QID\x01" + b"9" * 16)
        spoil(scene, b"REAL_QID\x012\x02", b"XEAL_QID\x012\x02")
        assert await scene.after(5 * SECOND) == [b"0", b"1"]
        assert [each.queue_id for each in scene.of(TOPIC)] == [0, 2]


async def test_a_message_whose_topic_is_gone_is_put_aside(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(0, DELAY_SEC=3)
        scene.desk.tables.topics.put(TopicConfig("Gone", 4, 4))
        await scene.send(1, topic="Gone", DELAY_SEC=3)
        await scene.desk.delete("Gone")
        await scene.send(2, DELAY_SEC=3)
        assert await scene.after(3 * SECOND) == [b"0", b"2"]
        assert [each.body for each in scene.of(names.UNDELIVERED_TOPIC)] == [b"1"]


async def test_a_clock_that_is_set_back_makes_nothing_early_and_nothing_double(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(0, DELAY_SEC=10)
        assert await scene.after(20 * SECOND) == [b"0"]
        scene.clock.step_wall_ms(-HOUR_MS)
        await scene.send(1, DELAY_SEC=5)
        assert await scene.after(4999) == [b"0"]
        assert await scene.after(1) == [b"0", b"1"]
        assert await scene.after(2 * HOUR_MS) == [b"0", b"1"]


async def test_a_clock_that_is_set_forward_brings_what_is_due_by_it(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(0, DELAY_SEC=100)
        await scene.send(1, DELAY_SEC=5000)
        scene.clock.step_wall_ms(HOUR_MS)
        assert await scene.after(SECOND) == [b"0"]


async def test_old_files_of_the_timer_log_go_with_their_messages(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        for number in range(100):
            await scene.send(number, DELAY_SEC=3)
        await scene.after(10 * SECOND)
        assert len(list((tmp_path / "timerlog").iterdir())) == 4
        wheel = scene.of(WHEEL)
        assert scene.timers.files.log.delete_before(wheel[40].physical_offset) == 1
        assert len(list((tmp_path / "timerlog").iterdir())) == 3


# What others ask.


async def test_counts_and_progress_are_told(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        for number in range(3):
            await scene.send(number, DELAY_SEC=5)
        await scene.send(4, DELAY_SEC=50)
        await scene.after(5 * SECOND)
        scene.desk.store.workers.log_flusher.flush(0)
        await scene.timers.save()
        counts = fastjson.loads(bytes((await scene.ask(RequestCode.GET_TIMER_METRICS)).body or b""))
        longs = struct.unpack(">7q", bytes((await scene.ask(RequestCode.GET_TIMER_CHECK_POINT)).body or b""))
        figures = scene.timers.figures()
    assert isinstance(counts, dict)
    assert counts["timingCount"][TOPIC]["count"] == 1
    assert longs[2:4] == (4, 4)
    assert figures == {"timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "1"}


async def test_progress_of_the_wheel_is_saved_as_often_as_is_configured(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_flush_ms=2500) as scene:
        periods = {task.name: task.period_s for task in scene.timers.tasks()}
    assert periods["save-timers"] == 2.5


async def test_retention_keeps_what_waits(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        assert scene.timers.needed_from() is None
        await scene.send(0, DELAY_SEC=5)
        (waiting,) = scene.of(WHEEL)
        await scene.desk.run()
        assert scene.timers.needed_from() == waiting.physical_offset, "it is not entered yet"
        await scene.after(SECOND)
        assert scene.timers.needed_from() == waiting.physical_offset
        await scene.after(5 * SECOND)
        assert scene.timers.needed_from() is None


async def test_messages_that_come_in_the_place_of_cut_ones_are_delivered(tmp_path: Path) -> None:
    """The log of a slave may be cut: its master does not have what lay there, and has something else."""
    async with a_scene(tmp_path) as scene:
        await scene.send(1, DELAY_SEC=5)
        await scene.send(2, DELAY_SEC=6)
        await scene.after()
        lost = scene.of(WHEEL)[-1].physical_offset
        scene.desk.store.cut(lost)
        scene.desk.store.offsets.set(WHEEL.encode(), 0, 1)  # As a slave's are after its next start.
        scene.timers.log_was_cut()
        await scene.send(3, DELAY_SEC=7)
        assert await scene.after(5 * SECOND) == [b"1"]
        assert await scene.after(5 * SECOND) == [b"1", b"3"]
