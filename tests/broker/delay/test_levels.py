"""Delay levels: where messages wait, when they are delivered, and what becomes of them after trouble."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.desks import DeskBench, a_desk
from tests.protocol.samples import a_send

from flaremq.base.errors import DiskFull
from flaremq.base.units import MiB
from flaremq.broker.delay.levels import DelayedMessages
from flaremq.model import names
from flaremq.model.columns import Drafts
from flaremq.model.delays import SCHEDULE_TOPIC
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode_many
from flaremq.model.topic import TopicConfig
from flaremq.protocol import fastjson
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.command import Command
from flaremq.testing.clock import ManualClock

TOPIC = "Orders"
SECOND = 1_000


class Scene:
    """A broker whose time is moved by hand."""

    def __init__(self, desk: DeskBench, clock: ManualClock) -> None:
        self.desk = desk
        self.clock = clock
        (self.delayed,) = (each for each in desk.made.inner if isinstance(each, DelayedMessages))

    async def send(self, level: object, number: int = 0, **changes: str | None) -> Command:
        properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01k{number}\x02DELAY\x01{level}\x02WAIT\x01true\x02"
        given = {"b": TOPIC, "e": "2", "i": properties, **changes}
        (answer,) = await self.desk.ask(replace(a_send(**given), body=b"%d" % number, opaque=9))
        return answer

    async def after(self, span_ms: int) -> list[bytes]:
        """Let time pass, and say which messages have come to the topic by then."""
        self.clock.advance_ms(span_ms)
        await self.delayed.deliver()
        await self.desk.run()
        return [each.body for each in self.of(TOPIC)]

    def of(self, topic: str) -> list[StoredMessage]:
        return [each for each in self.desk.messages() if each.topic == topic]


@asynccontextmanager
async def a_scene(folder: Path, clock: ManualClock | None = None, **store: Any) -> AsyncIterator[Scene]:
    clock = clock or ManualClock()
    async with a_desk(folder, clock=clock, **store) as desk:
        if desk.tables.topics.get(TOPIC) is None:
            desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        yield Scene(desk, clock)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_scene(tmp_path) as scene:
        yield scene


async def test_a_message_waits_in_the_queue_of_its_level_and_comes_when_its_time_has_come(
    scene: Scene,
) -> None:
    answer = await scene.send(3, 7)
    assert (answer.code, answer.fields["queueId"]) == (ResponseCode.SUCCESS, "2")
    (waiting,) = scene.of(names.SCHEDULE_TOPIC)
    assert waiting.queue_id == 2
    assert (waiting.get("REAL_TOPIC"), waiting.get("REAL_QID")) == (TOPIC, "2")
    assert await scene.after(9_999) == []
    assert await scene.after(1) == [b"7"]
    (delivered,) = scene.of(TOPIC)
    assert (delivered.queue_id, delivered.keys, delivered.unique_key) == (2, ("k7",), "U7")
    assert delivered.born_timestamp_ms == waiting.born_timestamp_ms
    assert delivered.raw_properties == waiting.raw_properties
    assert await scene.after(3_600 * SECOND) == [b"7"]


@pytest.mark.parametrize(("level", "span_s"), [(1, 1), (4, 30), (18, 7_200), (19, 7_200), (2**31, 7_200)])
async def test_each_level_has_its_span_and_too_high_a_level_is_the_highest(
    scene: Scene, level: int, span_s: int
) -> None:
    await scene.send(level)
    assert await scene.after(span_s * SECOND - 1) == []
    assert await scene.after(1) == [b"0"]


@pytest.mark.parametrize("level", [0, -1])
async def test_without_a_level_a_message_is_there_at_once(scene: Scene, level: int) -> None:
    await scene.send(level)
    assert [each.body for each in scene.of(TOPIC)] == [b"0"]


async def test_messages_of_a_level_keep_their_order_and_levels_do_not_wait_for_each_other(
    tmp_path: Path,
) -> None:
    async with a_scene(tmp_path, commitlog_file_size=1 * MiB) as scene:
        await scene.send(3, 1)
        for number in range(2, 600):
            await scene.send(1, number)
        await scene.send(3, 600)
        assert await scene.after(1 * SECOND) == [b"%d" % number for number in range(2, 600)]
        assert (await scene.after(9 * SECOND))[-2:] == [b"1", b"600"]


async def test_levels_can_be_configured(tmp_path: Path) -> None:
    async with a_scene(tmp_path, delay_levels="3s 1m") as scene:
        await scene.send(1, 1)
        await scene.send(9, 2)
        assert await scene.after(3 * SECOND) == [b"1"]
        assert await scene.after(57 * SECOND) == [b"1", b"2"]


async def test_a_level_that_is_no_longer_configured_still_delivers(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(5, 1)
    async with a_scene(tmp_path, clock, delay_levels="1s 5s") as scene:
        assert await scene.after(60 * SECOND - 1) == []
        assert await scene.after(1) == [b"1"]


async def test_what_waits_survives_a_restart_and_is_not_delivered_twice(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(1, 1)
        await scene.send(3, 2)
        assert await scene.after(1 * SECOND) == [b"1"]
    kept = fastjson.load_object((tmp_path / "config" / "delayOffset.json").read_bytes())
    assert kept["offsetTable"] == {1: 1}
    async with a_scene(tmp_path, clock) as scene:
        assert await scene.after(3_600 * SECOND) == [b"1", b"2"]


async def test_progress_is_saved_only_for_what_is_on_the_disk(tmp_path: Path) -> None:
    async with a_scene(tmp_path, flush_interval_ms=3_600_000) as scene:
        await scene.send(1, 1)
        await scene.after(1 * SECOND)
        assert scene.desk.store.flushed.value <= scene.of(TOPIC)[0].physical_offset
        await scene.delayed.save()
        assert scene.desk.tables.delays.get(1) == 0
        scene.desk.store.workers.log_flusher.flush(0)
        await scene.delayed.save()
        assert scene.desk.tables.delays.get(1) == 1


async def test_a_message_that_has_become_too_large_does_not_stop_its_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(1, 10**80)
        await scene.send(1, 2)
    async with a_scene(tmp_path, clock, message_size_max=50) as scene:
        assert await scene.after(1 * SECOND) == [b"2"]
    assert "it stays where it is in the log" in caplog.text


@pytest.mark.parametrize("noted", [99, 10**15])
async def test_progress_beyond_the_queue_is_corrected(tmp_path: Path, noted: int) -> None:
    """A crash may cut the end of a log. Java's level then waits for ever."""
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(1, 1)
        await scene.after(1 * SECOND)
    (tmp_path / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{1:{noted}}}}}')
    async with a_scene(tmp_path, clock) as scene:
        await scene.delayed.deliver()
        await scene.send(1, 2)
        assert await scene.after(1 * SECOND) == [b"1", b"2"]


async def test_a_delivery_that_fails_is_tried_again_and_others_wait_behind_it(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.send(1, 1)
    await scene.send(1, 2)
    log, append = scene.desk.store.log, scene.desk.store.log.append_many
    failures = iter([DiskFull("the disk is full")] * 3)

    def refused(drafts: Drafts) -> int:
        for error in failures:
            raise error
        return append(drafts)

    log.append_many = refused  # type: ignore[method-assign]
    for _ in range(3):
        assert await scene.after(1 * SECOND) == []
    assert await scene.after(100) == [b"1", b"2"]
    assert caplog.text.count("cannot be delivered now") == 1


async def test_a_message_whose_topic_is_gone_is_put_aside_and_the_level_goes_on(scene: Scene) -> None:
    scene.desk.tables.topics.put(TopicConfig("Gone", 1, 1))
    await scene.send(1, 1, b="Gone", e="0")
    await scene.send(1, 2)
    await scene.desk.delete("Gone")
    assert await scene.after(1 * SECOND) == [b"2"]
    (aside,) = scene.of(names.UNDELIVERED_TOPIC)
    assert (aside.body, aside.get("REAL_TOPIC")) == (b"1", "Gone")


async def test_a_message_comes_though_a_crash_has_lost_the_topic_that_it_made(tmp_path: Path) -> None:
    """Topics are saved a moment after they are made, and nothing in a queue tells of them yet."""
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(1, 1, b="New", e="2")
        await scene.send(1, 2)
    file = tmp_path / "config" / "topics.json"
    saved = json.loads(file.read_text())
    del saved["topicConfigTable"]["New"]
    file.write_text(json.dumps(saved))
    async with a_scene(tmp_path, clock) as scene:
        assert await scene.after(1 * SECOND) == [b"2"]
        assert [each.body for each in scene.of("New")] == [b"1"]
        assert scene.desk.tables.topics.get("New") is not None


async def test_a_damaged_record_does_not_stop_its_level(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.send(1, 1)
    await scene.send(1, 2)
    record = scene.of(names.SCHEDULE_TOPIC)[0]
    view = scene.desk.store.log.files.files[0].view
    at = record.physical_offset + bytes(view[: record.size]).index(SCHEDULE_TOPIC) - 2  # The body's one byte.
    view[at : at + 1] = b"9"
    scene.clock.advance_ms(1 * SECOND)
    await scene.delayed.deliver()
    await scene.desk.run()
    found = scene.desk.store.get(TOPIC.encode(), 2, 0)
    assert [each.body for each in decode_many(found.gathered())] == [b"2"]
    assert "is damaged and cannot be delivered" in caplog.text


async def test_timers_of_a_message_with_a_level_are_dropped(scene: Scene) -> None:
    await scene.send(1, 1, i="UNIQ_KEY\x01U\x02DELAY\x011\x02TIMER_DELAY_SEC\x0160\x02")
    assert await scene.after(1 * SECOND) == [b"1"]
    assert scene.of(TOPIC)[0].get("TIMER_DELAY_SEC") is None


async def test_a_level_that_is_no_number_is_refused(scene: Scene) -> None:
    answer = await scene.send("soon")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "DELAY='soon': expected a delay level from 1 to 18"
    assert scene.desk.messages() == []


async def test_progress_is_saved_as_often_as_is_configured(tmp_path: Path) -> None:
    async with a_scene(tmp_path, flush_delay_offsets_ms=2_500) as scene:
        periods = {task.name: task.period_s for task in scene.delayed.tasks()}
    assert periods["save-delay-offsets"] == 2.5
