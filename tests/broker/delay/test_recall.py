"""Recalls: which handles cancel a message, and what is stored for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.delay.timerscenes import SECOND, TOPIC, WHEEL, Scene, a_scene, handle_of

from flaremq.base.units import HOUR_MS
from flaremq.model.timers import Handle
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import ResponseCode
from flaremq.testing.clock import START_MS


def marks(scene: Scene) -> list[str]:
    """What the markers in the log cancel."""
    found = (each.properties.get("TIMER_DEL_UNIQKEY") for each in scene.of(WHEEL))
    return [each for each in found if each is not None]


@pytest.mark.parametrize("moment_ms", [START_MS + 4 * SECOND, START_MS + 5 * SECOND + 1, START_MS + HOUR_MS])
async def test_a_handle_with_another_moment_than_the_message_is_refused(
    tmp_path: Path, moment_ms: int
) -> None:
    """Its markers would lie in another slot, and the message would come though its recall succeeded."""
    async with a_scene(tmp_path) as scene:
        await scene.send(DELAY_SEC=5)
        answer = await scene.recall(str(Handle(TOPIC, "broker-a", moment_ms, "U0")))
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert "waits for another moment" in (answer.remark or "")
        assert marks(scene) == []
        assert await scene.after(10 * SECOND) == [b"0"]


async def test_a_handle_with_another_topic_than_the_message_is_refused(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.desk.tables.topics.put(TopicConfig("Other", 4, 4))
        await scene.send(DELAY_SEC=5)
        forged = str(Handle("Other", "broker-a", START_MS + 5 * SECOND, "U0"))
        answer = await scene.recall(forged, topic="Other")
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert marks(scene) == []
        assert await scene.after(10 * SECOND) == [b"0"]


async def test_a_handle_with_a_key_that_another_message_only_mentions_is_refused(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await scene.send(0, DELAY_SEC=5)
        handle = Handle.parse(handle_of(answer) or "")
        mentioned = "UNIQ_KEY\x01U9\x02KEYS\x01other\x02TIMER_DELAY_SEC\x015\x02"
        await scene.send_with(mentioned)
        assert (await scene.recall(str(handle._replace(unique_key="other")))).code != ResponseCode.SUCCESS
        assert marks(scene) == []


async def test_a_message_that_others_mention_often_is_still_found(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        handle = handle_of(await scene.send(0, DELAY_SEC=5))
        for number in range(1, 60):
            await scene.send_with(f"UNIQ_KEY\x01U{number}\x02KEYS\x01U0\x02TIMER_DELAY_SEC\x015\x02")
        assert (await scene.recall(handle)).code == ResponseCode.SUCCESS
        assert b"0" not in await scene.after(10 * SECOND)


async def test_a_message_can_be_recalled_twice_and_is_marked_once(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        handles = [handle_of(await scene.send(number, DELAY_SEC=5)) for number in range(2)]
        await scene.after(SECOND)
        for _ in range(3):
            answer = await scene.recall(handles[0])
            assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, "U0")
        assert marks(scene) == [f"{TOPIC}+U0", "U0"]
        assert await scene.after(10 * SECOND) == [b"1"]
        assert (await scene.recall(handles[0])).code == ResponseCode.ILLEGAL_OPERATION


async def test_a_recall_adds_the_marker_that_a_crash_or_another_version_left_out(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        handle = handle_of(await scene.send(DELAY_SEC=5))
        await scene.recall(handle)
        scene.desk.store.cut(scene.of(WHEEL)[-1].physical_offset)
        scene.desk.store.offsets.set(WHEEL.encode(), 0, 2)
        assert marks(scene) == [f"{TOPIC}+U0"]
        assert (await scene.recall(handle)).code == ResponseCode.SUCCESS
        assert marks(scene) == [f"{TOPIC}+U0", "U0"]


async def test_a_message_can_be_recalled_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """It was stored later than now."""
    async with a_scene(tmp_path) as scene:
        handle = handle_of(await scene.send(DELAY_SEC=5))
        await scene.after(SECOND)
        scene.clock.step_wall_ms(-HOUR_MS)
        assert (await scene.recall(handle)).code == ResponseCode.SUCCESS
        assert await scene.after(2 * HOUR_MS) == []
