"""Timers after a kill, and after files are lost: each message comes, however long the broker was down."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.delay.timerscenes import SECOND, TOPIC, WHEEL, Scene, a_scene

from flaremq.model.layout import TIMER_BLANK_SIZE, TIMER_UNIT_SIZE
from flaremq.store.store import MessageStore
from flaremq.store.timer.timercheck import TimerCheck
from flaremq.store.timer.timerlog import TimerLog
from flaremq.store.timer.wheel import Wheel
from flaremq.testing.clock import ManualClock

SPANS = pytest.mark.parametrize("down_s", [0, 3, 30], ids="down for {} s".format)


def killed(scene: Scene, folder: Path) -> Path:
    """The folder as it would be if the process were killed now. Another thread may be saving a table: what
    has not taken the place of a file yet is nothing to a start."""
    unsaved = shutil.ignore_patterns("*.tmp")
    return Path(shutil.copytree(scene.desk.store.settings.root, folder / "killed", ignore=unsaved))


async def saved(scene: Scene) -> None:
    scene.desk.store.workers.log_flusher.flush(0)
    await scene.timers.save()


def cut(scene: Scene, folder: Path, offset: int) -> None:
    """Take the end of the log from a folder, as a power failure does."""
    store = MessageStore(replace(scene.desk.store.settings, root=folder))
    store.load()
    store.log.cut(offset)
    store.close()
    (folder / "abort").touch()


@SPANS
@pytest.mark.parametrize("slots", [2, 172_800], ids=["rolling", "not rolling"])
async def test_what_comes_due_after_the_kill_of_a_new_broker_comes(
    tmp_path: Path, slots: int, down_s: int
) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path / "new", clock, timer_roll_slots=slots) as scene:
        for number in range(10):
            await scene.send(number, DELAY_SEC=2 + number)
        assert await scene.after() == []
        folder = killed(scene, tmp_path)
    clock.advance_ms(down_s * SECOND)
    async with a_scene(folder, clock, timer_roll_slots=slots) as scene:
        for _ in range(20):
            came = await scene.after(SECOND)
    assert sorted(came) == [b"%d" % n for n in range(10)]


@SPANS
async def test_a_lost_progress_loses_no_message(tmp_path: Path, down_s: int) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        for number in range(10):
            await scene.send(number, DELAY_SEC=2 + number)
        assert len(await scene.after(5 * SECOND)) == 4
    (tmp_path / "config" / "timercheck").unlink()
    clock.advance_ms(down_s * SECOND)
    async with a_scene(tmp_path, clock) as scene:
        came = await scene.after(30 * SECOND)
    assert set(came) == {b"%d" % n for n in range(10)}


@pytest.mark.parametrize("seals", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("left", [0.0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_file_of_the_timer_log_that_was_cut_short_loses_no_message(
    tmp_path: Path, number: int, left: float, seals: bool
) -> None:
    clock = ManualClock()
    sizes: dict[str, Any] = {"timer_log_file_size": 10 * TIMER_UNIT_SIZE + TIMER_BLANK_SIZE}
    async with a_scene(tmp_path / "first", clock, **sizes) as scene:
        for each in range(25):
            await scene.send(each, DELAY_SEC=20)
        await scene.after(SECOND)
        await saved(scene)
        folder = tmp_path / "first" if seals else killed(scene, tmp_path)
    files = sorted((folder / "timerlog").iterdir())
    assert len(files) == 3
    os.truncate(files[number], int(files[number].stat().st_size * left))
    async with a_scene(folder, clock, **sizes) as scene:
        came = await scene.after(100 * SECOND)
    assert sorted(came, key=int) == [b"%d" % each for each in range(25)]


async def test_after_a_crash_everything_that_waits_comes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        for number in range(100):
            await scene.send(number, DELAY_SEC=5 + number % 50)
        await scene.after(20 * SECOND)
        await saved(scene)
        await scene.after(5 * SECOND)
        before = {path.name: path.read_bytes() for path in (tmp_path / "config").glob("timer*")}
    # As if the process had died: no last save, and no vouching for the wheel.
    (tmp_path / "abort").touch()
    check = bytearray(before["timercheck"])
    (tmp_path / "config" / "timercheck").write_bytes(check)
    async with a_scene(tmp_path, clock) as scene:
        came = await scene.after(100 * SECOND)
    assert set(came) == {b"%d" % n for n in range(100)}
    assert len(came) <= 100 + 2 * 5, "the seconds since the last save come again, no others"


async def test_units_of_messages_that_the_log_has_lost_are_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_scene(tmp_path, clock) as scene:
        for number in range(10):
            await scene.send(number, DELAY_SEC=20)
        await scene.after(SECOND)
        last = scene.of(WHEEL)[5].physical_offset
    cut(scene, tmp_path, last)
    async with a_scene(tmp_path, clock) as scene:
        for number in range(20, 25):
            await scene.send(number, DELAY_SEC=30)
        came = await scene.after(100 * SECOND)
    assert came == [b"%d" % n for n in (0, 1, 2, 3, 4, 20, 21, 22, 23, 24)]


async def test_a_late_copy_that_a_power_failure_took_is_delivered_again(tmp_path: Path) -> None:
    """It has no unit in the timer log, and a unit behind it may reach the disk before the copy."""
    clock = ManualClock()
    rolling: dict[str, Any] = {"timer_roll_slots": 2}
    async with a_scene(tmp_path / "first", clock, **rolling) as scene:
        await scene.send(1, DELAY_SEC=3)
        await scene.after()
        await saved(scene)
        folder = killed(scene, tmp_path)
    clock.advance_ms(10 * SECOND)
    async with a_scene(folder, clock, **rolling) as scene:
        assert await scene.after() == [], "it was put back"
        await scene.send(2, DELAY_SEC=1)
        await saved(scene)
        assert await scene.after() == [b"1"], "and is late"
        (copy,) = scene.of(TOPIC)
        folder = killed(scene, tmp_path / "again")
    cut(scene, folder, copy.physical_offset)
    async with a_scene(folder, clock, **rolling) as scene:
        assert await scene.after(30 * SECOND) == [b"1", b"2"]


@pytest.mark.parametrize(
    "before",
    [(TimerLog, "sync"), (Wheel, "sync"), (TimerCheck, "write")],
    ids=["timer log", "wheel", "progress"],
)
async def test_a_kill_inside_the_saving_of_progress_loses_and_doubles_nothing_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[type, str]
) -> None:
    """The timer log, the wheel and the progress are brought to the disk one after the other."""
    clock = ManualClock()
    async with a_scene(tmp_path / "first", clock) as scene:
        for number in range(20):
            await scene.send(number, DELAY_SEC=2 + number)
        await scene.after(5 * SECOND)
        await saved(scene)
        await scene.send(20, DELAY_SEC=30)
        assert len(await scene.after(5 * SECOND)) == 9
        step = getattr(*before)
        folders: list[Path] = []

        def killed_before(self: object, *given: object) -> object:
            folders.append(killed(scene, tmp_path / str(len(folders))))
            return step(self, *given)

        monkeypatch.setattr(*before, killed_before)
        await saved(scene)
        monkeypatch.undo()
    (folder,) = folders
    (folder / "abort").touch()
    async with a_scene(folder, clock) as scene:
        came = await scene.after(60 * SECOND)
    assert set(came) == {b"%d" % n for n in range(21)}
    assert [each for each in came if came.count(each) > 1 and int(each) < 4] == [], "saved long before"


async def test_power_that_fails_inside_the_delivery_of_a_second_loses_nothing(tmp_path: Path) -> None:
    """Of the copies of a second, some are on the disk. The others come when the broker is back."""
    clock = ManualClock()
    async with a_scene(tmp_path / "first", clock, flush_interval_ms=3_600_000) as scene:
        for number in range(5):
            await scene.send(number, DELAY_SEC=3)
        await scene.after(SECOND)
        await saved(scene)
        await scene.after(5 * SECOND)
        await scene.timers.save()
        ends = [each.physical_offset for each in scene.of(TOPIC)]
        folders = [killed(scene, tmp_path / str(end)) for end in ends]
    for stored, (end, folder) in enumerate(zip(ends, folders, strict=True)):
        cut(scene, folder, end)
        async with a_scene(folder, clock) as again:
            came = await again.after(30 * SECOND)
        assert came[:stored] == [b"%d" % n for n in range(stored)]
        assert set(came) == {b"%d" % n for n in range(5)}
