"""When messages of delay levels are due though the table of levels or the clock has changed: never early."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.delay.test_levels import SECOND, Scene, a_scene

from flaremq.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from flaremq.model.delays import LEVELS, SCHEDULE_TOPIC
from flaremq.testing.clock import ManualClock

SHORTER = LEVELS.replace("2h", "1m")
EXT = [pytest.param({}, id="plain"), pytest.param({"ext_enabled": True}, id="with queue extensions")]


async def due_at(scene: Scene, span_ms: int, body: bytes = b"1") -> None:
    """A message comes after a span, and not before."""
    assert body not in await scene.after(0)
    assert body not in await scene.after(span_ms - 1)
    assert body in await scene.after(1)


# Another table.


@pytest.mark.parametrize("more", EXT)
async def test_a_level_that_has_become_shorter_brings_nothing_early(
    tmp_path: Path, more: dict[str, bool]
) -> None:
    """Everything that waited came at once: before the moment of the old table, and of the new one."""
    clock = ManualClock()
    async with a_scene(tmp_path, clock, **more) as scene:
        await scene.send(18, 1)
    async with a_scene(tmp_path, clock, delay_levels=SHORTER, **more) as scene:
        await due_at(scene, 2 * HOUR_MS)
        await scene.send(18, 2)
        await due_at(scene, MINUTE_MS, b"2")


@pytest.mark.parametrize("more", EXT)
async def test_a_level_that_has_become_longer_brings_what_waits_when_it_was_promised(
    tmp_path: Path, more: dict[str, bool]
) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock, delay_levels=SHORTER, **more) as scene:
        await scene.send(18, 1)
    async with a_scene(tmp_path, clock, **more) as scene:
        await due_at(scene, MINUTE_MS)


@pytest.mark.parametrize("more", EXT)
async def test_a_level_that_is_gone_brings_what_waits_when_it_was_promised(
    tmp_path: Path, more: dict[str, bool]
) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock, **more) as scene:
        await scene.send(18, 1)
    async with a_scene(tmp_path, clock, delay_levels="1s 5s", **more) as scene:
        await due_at(scene, 2 * HOUR_MS)


async def test_an_entry_whose_extension_is_lost_is_due_by_the_table_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock, ext_enabled=True) as scene:
        await scene.send(18, 1)
        await scene.send(3, 2)
        clock.advance_ms(4 * SECOND)
    async with a_scene(tmp_path, clock, ext_enabled=True, delay_levels="1s 5s") as scene:
        for key, queue in scene.desk.store.queues.items():
            ext = scene.desk.store.queues.ext_of(key)
            if key[0] == SCHEDULE_TOPIC and queue.max_offset and ext is not None:
                monkeypatch.setattr(ext, "get", lambda _: None)
        assert await scene.after(SECOND - 1) == []
        assert sorted(await scene.after(1)) == [b"1", b"2"], "the last level counts for those that are gone"


# Another clock.


@pytest.mark.parametrize("by_ms", [SECOND, HOUR_MS, 400 * DAY_MS])
async def test_after_the_clock_was_set_back_a_message_waits_its_whole_span_again_at_most(
    tmp_path: Path, by_ms: int
) -> None:
    """How long it has waited is not known then. RocketMQ delivers it at once."""
    async with a_scene(tmp_path) as scene:
        await scene.send(3, 1)
        scene.clock.step_wall_ms(-by_ms)
        assert await scene.after(0) == []
        await due_at(scene, 10 * SECOND)


async def test_after_the_clock_was_set_back_messages_wait_together_not_one_after_the_other(
    tmp_path: Path,
) -> None:
    async with a_scene(tmp_path) as scene:
        for number in range(5):
            await scene.send(4, number)
            assert await scene.after(SECOND) == []
        scene.clock.step_wall_ms(-DAY_MS)
        assert await scene.after(0) == []
        await scene.send(4, 5)
        assert await scene.after(30 * SECOND - 1) == []
        assert await scene.after(1) == [b"%d" % number for number in range(6)]


async def test_what_comes_after_the_clock_was_set_back_has_its_whole_span(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(4, 1)
        scene.clock.step_wall_ms(-DAY_MS)
        assert await scene.after(0) == []
        assert await scene.after(20 * SECOND) == []
        await scene.send(4, 2)
        assert await scene.after(10 * SECOND) == [b"1"]
        assert await scene.after(20 * SECOND - 1) == [b"1"]
        assert await scene.after(1) == [b"1", b"2"]


async def test_a_clock_that_is_set_back_while_the_broker_is_down_makes_nothing_early(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        await scene.send(3, 1)
    clock.step_wall_ms(-DAY_MS)
    async with a_scene(tmp_path, clock) as scene:
        assert await scene.after(0) == []
        await due_at(scene, 10 * SECOND)


async def test_a_clock_that_is_set_back_and_forward_again_makes_nothing_early(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.send(4, 1)
        scene.clock.step_wall_ms(-DAY_MS)
        assert await scene.after(SECOND) == []
        scene.clock.step_wall_ms(DAY_MS)
        await due_at(scene, 29 * SECOND)


async def test_a_clock_that_is_set_forward_delivers_early_by_no_more_than_that(tmp_path: Path) -> None:
    """The moment was promised by that clock."""
    async with a_scene(tmp_path) as scene:
        await scene.send(4, 1)
        scene.clock.step_wall_ms(10 * SECOND)
        await due_at(scene, 20 * SECOND)
