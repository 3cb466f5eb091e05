"""The power fails: what was synced is there, what is served is whole, and queues and keys follow."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from tests.store.lives import Lives, end_of
from tests.store.proofs import Promises, Queue, a_proof, served

from flaremq.base.errors import FlareError
from flaremq.store.api import PutStatus
from flaremq.store.settings import FlushDisk
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.disk import PowerLossDisk

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "sync flush": {"flush_disk": FlushDisk.SYNC_FLUSH},
    "async flush": {},
    "queue files of several pages": {"consumequeue_file_size": 3 * 4096, "ext_enabled": True},
    "pool": {"pool_enabled": True, "pool_size": 2},
}
WHOLE: Final[dict[str, Any]] = {"append_crc": True, "force_record_crc": True}
QUICK: Final = [134, 185, 206, 244, 318]  # Each has found something once.


def run(folder: Path, shape: str, seed: int, events: int) -> None:
    lives = Lives(folder, seed, **SHAPES[shape])
    try:
        lives.live(events)
        lives.lose_power()
    finally:
        lives.end()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", QUICK)
def test_nothing_that_was_promised_is_lost(tmp_path: Path, shape: str, seed: int) -> None:
    run(tmp_path, shape, seed, 40)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("hundred", range(10, 13))
def test_nothing_that_was_promised_is_lost_over_hundreds_of_histories(
    tmp_path: Path, shape: str, hundred: int
) -> None:
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        run(tmp_path / str(seed), shape, seed, 40)
        shutil.rmtree(tmp_path / str(seed))


def producing(store: MessageStore, name: str, promises: Promises, power: threading.Event,
              acked: threading.Semaphore) -> None:  # fmt: skip
    """Put until the power fails. Only what was acknowledged before that counts."""
    random, number = Random(name), 0
    while power.is_set():
        queue, number = (b"A", random.randrange(3)), number + 1
        try:
            result = store.put(a_proof(queue, f"{name}-{number}", random.choice([0, 100, 3000])))
        except (FlareError, OSError):
            return
        if result.status is PutStatus.PUT_OK and power.is_set():
            promises.add(queue, result.queue_offset, f"{name}-{number}")
            acked.release()


def cut_the_power(root: Path, seed: int, promises: Promises) -> Path:
    """Some threads put under SYNC_FLUSH, and the power fails in the middle; where the store lies now."""
    options: dict[str, Any] = {**WHOLE, "flush_disk": FlushDisk.SYNC_FLUSH}
    disk = PowerLossDisk(strict_names=seed % 2 == 1)
    store = MessageStore(small_settings(root, **options), disk=disk)
    store.open()
    power, acked = threading.Event(), threading.Semaphore(0)
    power.set()
    arguments = [(store, f"s{seed}t{i}", promises, power, acked) for i in range(3)]
    threads = [threading.Thread(target=producing, args=one) for one in arguments]
    for thread in threads:
        thread.start()
    for _ in range(Random(seed).choice([1, 20, 100])):
        acked.acquire()
    power.clear()
    left = root.with_name(f"left{seed}")
    with disk._lock:
        disk.lose_power(seed)
        root.rename(left)  # What the old store still does, it does to nobody.
    end_of(store)
    for thread in threads:
        thread.join()
    return left


def power_fails_under_load(root: Path, seeds: Iterable[int]) -> None:
    promises = Promises()
    for seed in seeds:
        root = cut_the_power(root, seed, promises)
        with MessageStore(small_settings(root, **WHOLE)) as store:
            promises.check(store)


def test_every_put_that_was_answered_under_sync_flush_survives(tmp_path: Path) -> None:
    power_fails_under_load(tmp_path / "store", range(4))


@pytest.mark.slow
@pytest.mark.parametrize("ten", range(1, 6))
def test_every_put_that_was_answered_under_sync_flush_survives_many_failures(
    tmp_path: Path, ten: int
) -> None:
    power_fails_under_load(tmp_path / "store", range(10 * ten, 10 * ten + 10))


# Histories of two failures, each of which was lost once.

IDLE: Final[Queue] = (b"Idle", 0)


def by_hand(folder: Path) -> Lives:
    return Lives(folder, 0)


def put(lives: Lives, queue: Queue, *names: str, size: int = 0) -> None:
    for name in names:
        lives.store.put(a_proof(queue, name, size), wait=False)


def checkpoint_passes_by(lives: Lives) -> None:
    """Other queues fill log files, and all is flushed, until the checkpoint vouches for most of it."""
    for number in range(3):
        names = [f"busy-{lives.clock.now_ms()}-{number}-{i}" for i in range(20)]
        put(lives, (b"Busy", 0), *names, size=9000)
        lives.clock.advance_ms(10_000)
    lives.store.workers.log_flusher.flush(0)
    lives.store.dispatch()
    lives.store.workers.queue_flusher.flush(0)
    put(lives, (b"Busy", 0), f"newest-{lives.clock.now_ms()}")
    lives.store.workers.log_flusher.flush(0)


def worst_power_loss(lives: Lives) -> dict[Queue, list[str]]:
    lives.lose_power(worst=True)
    return served(lives.store)


@pytest.mark.parametrize("safe", [["safe"], []], ids=["some entries stay", "none stays"])
def test_entries_that_recovery_has_cut_do_not_rise_again(tmp_path: Path, safe: list[str]) -> None:
    lives = by_hand(tmp_path)
    try:
        put(lives, (b"Busy", 0), "first")
        put(lives, IDLE, *safe)
        checkpoint_passes_by(lives)
        put(lives, IDLE, "dead")
        lives.store.dispatch()
        lives.store.workers.queue_flusher.flush(0)  # The entry is on the disk, the record is not.
        assert worst_power_loss(lives).get(IDLE, []) == safe
        checkpoint_passes_by(lives)
        assert worst_power_loss(lives).get(IDLE, []) == safe
    finally:
        lives.end()


def test_entries_that_a_killed_process_left_in_memory_are_synced_before_the_checkpoint_vouches_for_them(
    tmp_path: Path,
) -> None:
    lives = by_hand(tmp_path)
    try:
        put(lives, IDLE, "message")
        lives.store.workers.log_flusher.flush(0)
        lives.store.dispatch()
        lives.kill()
        checkpoint_passes_by(lives)
        assert lives.store.checkpoint.min_time_ms() > 0
        assert worst_power_loss(lives)[IDLE] == ["message"]
    finally:
        lives.end()


def test_a_log_that_a_killed_process_left_in_memory_is_synced_before_anything_behind_it(
    tmp_path: Path,
) -> None:
    lives = by_hand(tmp_path)
    try:
        put(lives, IDLE, *[f"m{i}" for i in range(10)], size=9000)
        lives.kill()
        assert lives.store.log.begin < lives.store.log.files.files[-1].offset
        put(lives, IDLE, "acknowledged")
        lives.store.workers.log_flusher.flush(0)
        assert worst_power_loss(lives)[IDLE] == [*[f"m{i}" for i in range(10)], "acknowledged"]
    finally:
        lives.end()


def overwrite(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(b"damaged")


def remove_the_middle(folder: Path) -> None:
    """Of three files; nobody misses it before the next message of this queue comes by."""
    for path in folder.iterdir():
        if int(path.name) >= 1000:
            path.unlink()


@pytest.mark.parametrize(
    "damage", [overwrite, remove_the_middle], ids=["noticed at once", "noticed by a gap"]
)
def test_queues_that_are_being_rebuilt_are_not_vouched_for(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    names = [f"m{i}" for i in range(120)]
    vouched = 120 if damage is overwrite else 110
    lives = by_hand(tmp_path)
    try:
        put(lives, IDLE, *names[:vouched])
        checkpoint_passes_by(lives)
        put(lives, IDLE, *names[vouched:])
        lives.store.workers.log_flusher.flush(0)
        lives.kill()
        end_of(lives.store)
        damage(lives.root / "consumequeue" / "Idle" / "0")
        lives._again()
        assert lives.store.report is not None
        assert lives.store.report.rebuilt == (IDLE,)
        assert worst_power_loss(lives)[IDLE] == names
    finally:
        lives.end()


@pytest.mark.parametrize("seed", range(6))
def test_files_that_recovery_has_deleted_leave_no_gap_when_some_of_them_come_back(
    tmp_path: Path, seed: int
) -> None:
    disk, settings = PowerLossDisk(), small_settings(tmp_path, **WHOLE)
    for loss, count in ((None, 28), (seed, 0)):
        store = MessageStore(settings, disk=disk)
        store.open()
        store.workers.log_flusher._flusher.stop()
        for i in range(count):
            store.put(a_proof(IDLE, f"m{i}", 9000), wait=False)
        disk.lose_power(loss)  # Names of log files are safe, their content is not.
        end_of(store)
    with MessageStore(settings) as store:
        assert served(store) == {}


def test_entries_of_a_time_when_the_clock_was_set_back_are_not_taken_for_old_ones(tmp_path: Path) -> None:
    lives = by_hand(tmp_path)
    try:
        put(lives, IDLE, "before")
        checkpoint_passes_by(lives)
        lives.clock.step_wall_ms(-3_600_000)
        put(lives, IDLE, "after")
        for _ in range(3):
            put(lives, (b"Busy", 0), *[f"{lives.clock.now_ms()}-{i}" for i in range(20)], size=9000)
            lives.clock.advance_ms(10_000)
        lives.store.workers.log_flusher.flush(0)
        lives.store.dispatch()
        lives.store.workers.queue_flusher.flush(1)  # The pass of every second: it syncs no queue, but looks.
        assert worst_power_loss(lives)[IDLE] == ["before", "after"]
    finally:
        lives.end()
