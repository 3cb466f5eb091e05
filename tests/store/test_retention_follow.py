"""Retention while somebody still reads, and what follows when the log has lost files."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.retentionrig import FOUR_IN_THE_MORNING_MS, SIZE, RetentionRig

from flaremq.store.retention import Kept, Retention


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# Somebody still reads.


def a_reader_in_the_way(folder: Path, **options: Any) -> tuple[RetentionRig, memoryview]:
    bench = RetentionRig(folder, delete_when="22", **options)
    bench.age(1000)
    return bench, bench.hold(0)


def test_a_file_that_is_being_read_waits_and_so_do_all_after_it(tmp_path: Path) -> None:
    bench, held = a_reader_in_the_way(tmp_path)
    assert bench.retention.run_once() == 0
    assert bench.on_disk == [0, 1, 2, 3, 4, 5]
    assert bytes(held) == b"bytes"


def test_a_file_in_the_middle_that_is_being_read_stops_the_row(tmp_path: Path) -> None:
    bench, held = a_reader_in_the_way(tmp_path)
    held.release()
    held = bench.hold(2)
    assert bench.retention.run_once() == 2
    assert bench.on_disk == [2, 3, 4, 5]


def test_a_postponed_file_is_asked_again_after_an_interval(tmp_path: Path) -> None:
    bench, held = a_reader_in_the_way(tmp_path, redelete_interval_ms=30_000)
    bench.retention.run_once()
    held.release()
    bench.clock.advance_ms(29_999)
    assert bench.retention.run_once() == 0
    bench.clock.advance_ms(1)
    assert bench.retention.run_once() == 5


def test_a_postponed_file_goes_later_although_its_hour_has_passed(tmp_path: Path) -> None:
    bench, held = a_reader_in_the_way(tmp_path, redelete_interval_ms=30_000, destroy_interval_ms=10**9)
    bench.retention.run_once()
    bench.later(FOUR_IN_THE_MORNING_MS)
    assert bench.retention.run_once() == 0
    held.release()
    assert bench.retention.run_once() == 0
    bench.clock.advance_ms(30_000)
    assert bench.retention.run_once() == 1
    assert bench.on_disk == [1, 2, 3, 4, 5]


def test_the_name_goes_at_the_latest_after_the_grace_and_the_reader_keeps_its_bytes(tmp_path: Path) -> None:
    bench, held = a_reader_in_the_way(tmp_path, destroy_interval_ms=50_000)
    bench.retention.run_once()
    bench.clock.advance_ms(49_999)
    assert bench.retention.run_once() == 0
    bench.clock.advance_ms(1)
    assert bench.retention.run_once() == 5
    assert bench.on_disk == [5]
    assert bytes(held) == b"bytes"


def test_without_grace_the_name_goes_at_once(tmp_path: Path) -> None:
    bench, held = a_reader_in_the_way(tmp_path, destroy_interval_ms=0)
    assert bench.retention.run_once() == 5
    assert bytes(held) == b"bytes"


def test_each_held_file_has_a_grace_of_its_own(tmp_path: Path) -> None:
    bench, _held = a_reader_in_the_way(tmp_path, destroy_interval_ms=50_000)
    _other = bench.hold(1)
    bench.retention.run_once()
    bench.clock.advance_ms(50_000)
    assert bench.retention.run_once() == 1
    bench.clock.advance_ms(49_999)
    assert bench.retention.run_once() == 0
    bench.clock.advance_ms(1)
    assert bench.retention.run_once() == 4


def test_a_full_disk_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    bench, held = a_reader_in_the_way(tmp_path)
    bench.retention.run_once()
    held.release()
    bench.disk.ratio = 0.86
    assert bench.retention.run_once() == 5


def test_a_postponed_file_that_is_gone_otherwise_is_forgotten(tmp_path: Path) -> None:
    bench, held = a_reader_in_the_way(tmp_path)
    bench.retention.run_once()
    held.release()
    bench.log.destroy()
    bench.later(FOUR_IN_THE_MORNING_MS)
    assert bench.retention.run_once() == 0


# What points to the log.


def test_queues_and_index_follow_the_log(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22", delete_batch_max=2)
    bench.age(100)
    bench.retention.run_once()
    assert [queue.asked for queue in bench.queues] == [[("delete", 2 * SIZE), ("correct", 2 * SIZE)]] * 2
    assert bench.index.asked == [("delete", 2 * SIZE)]


def test_queues_are_left_alone_while_the_log_keeps_its_files(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22")
    bench.age(100, 0)
    for _ in range(3):
        bench.retention.run_once()
    assert len(bench.queues[0].asked) == 2
    assert len(bench.index.asked) == 1


def test_a_log_that_did_not_begin_at_zero_is_followed_at_the_first_run(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, files=2)
    first = bench.log.files[0]
    bench.log.drop_first(first)
    bench.retention.run_once()
    assert bench.index.asked == [("delete", SIZE)]


def test_a_queue_that_lost_files_is_followed_by_a_pause(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22", delete_queue_interval_ms=77, delete_batch_max=1)
    bench.age(100)
    bench.queues[1].files_to_lose = 3
    bench.retention.run_once()
    assert bench.pauses_ms == [77]


def test_minimum_offsets_are_corrected_again_after_an_interval(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, correct_min_offset_interval_ms=60_000)
    bench.clock.advance_ms(59_999)
    bench.retention.run_once()
    assert bench.queues[0].asked == []
    bench.clock.advance_ms(1)
    bench.retention.run_once()
    bench.retention.run_once()
    assert bench.queues[0].asked == [("correct", 0)]


def test_a_store_without_an_index_is_cleaned_too(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22")
    bench.age(100)
    kept = Kept(bench.log, lambda: bench.queues, None, lambda: 0)
    retention = Retention(
        bench.settings, bench.clock, bench.disk, bench.flags, kept, pause_ms=bench.pauses_ms.append
    )
    assert retention.run_once() == 5


def test_an_empty_log_is_no_trouble(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, files=0, delete_when="22")
    bench.disk.ratio = 0.99
    assert bench.retention.run_once() == 0
