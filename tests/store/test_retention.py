"""What retention deletes and spares. Every option has a test that fails when it is ignored."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.errors import DiskFull
from flaremq.base.units import HOUR_MS
from flaremq.store.filequeue import FileQueue
from flaremq.store.flags import Flag, Flags
from flaremq.store.retention import Kept, Retention
from flaremq.store.settings import StoreSettings
from flaremq.testing.clock import START_MS, ManualClock
from flaremq.testing.disk import FaultyDisk

SIZE = 4096
FOUR_IN_THE_MORNING_MS = START_MS + 6 * HOUR_MS  # 04:13:20 UTC; START_MS is 22:13:20.


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@dataclass
class FakeQueue:
    """Loses files as often as it is told, and remembers what was asked of it."""

    files_to_lose: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)

    def delete_before(self, min_physical_offset: int, /) -> int:
        self.asked.append(("delete", min_physical_offset))
        lost, self.files_to_lose = self.files_to_lose, 0
        return lost

    def correct_min(self, min_physical_offset: int, /) -> None:
        self.asked.append(("correct", min_physical_offset))


class Bench:
    """A log of some full files and one that is being written to, all young, at 22:13 on a half-full disk."""

    def __init__(self, folder: Path, files: int = 6, **options: Any) -> None:
        small: dict[str, Any] = {"commitlog_file_size": SIZE, "message_size_max": 1024, "root": folder}
        self.settings = StoreSettings(**(small | options))
        self.clock = ManualClock()
        self.disk = FaultyDisk()
        self.flags = Flags(self.clock, page_cache_busy_ms=1000, dispatch_lag_max=1)
        self.log = FileQueue(self.disk, self.settings.commitlog_folders, SIZE)
        self.queues = [FakeQueue(), FakeQueue()]
        self.index = FakeQueue()
        self.pauses_ms: list[int] = []
        self.own_bytes = 0
        kept = Kept(self.log, lambda: self.queues, self.index, lambda: self.own_bytes)
        self.retention = Retention(
            self.settings, self.clock, self.disk, self.flags, kept, pause_ms=self.pauses_ms.append
        )
        for n in range(files):
            self.log.add(n * SIZE).set_positions(SIZE if n < files - 1 else 100)
        self.age(hours=0)

    def age(self, hours: float, *files: int) -> None:
        """Modification times lie so far back from now."""
        at_ms = self.clock.now_ms() - int(hours * HOUR_MS)
        for n in files or range(len(self.log.files)):
            os.utime(self.log.files[n].path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def later(self, now_ms: int) -> None:
        self.clock.advance_ms(now_ms - self.clock.now_ms())

    def hold(self, n: int = 0) -> memoryview:
        """What a reader of file n has in its hands."""
        file = self.log.files[n]
        modified_ns = file.path.stat().st_mtime_ns
        file.view[0:5] = b"bytes"
        os.utime(file.path, ns=(modified_ns, modified_ns))
        return file.view[0:5]

    @property
    def on_disk(self) -> list[int]:
        """Numbers of the files whose names are there."""
        folders = [folder for folder in self.settings.commitlog_folders if folder.exists()]
        return sorted(int(path.name) // SIZE for folder in folders for path in folder.iterdir())


def test_young_files_on_a_disk_with_room_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.retention.run_once() == 0
    assert bench.on_disk == [0, 1, 2, 3, 4, 5]


def test_old_files_stay_until_the_hour_has_come(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.age(hours=100)
    assert bench.retention.run_once() == 0
    bench.later(FOUR_IN_THE_MORNING_MS)
    assert bench.retention.run_once() == 5


def test_the_hour_is_an_option_and_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, delete_when="07;15")
    bench.age(hours=100)
    bench.later(FOUR_IN_THE_MORNING_MS)
    assert bench.retention.run_once() == 0
    monkeypatch.setenv("TZ", "UTC-03:00")
    time.tzset()
    assert bench.retention.run_once() == 5


def test_files_go_from_the_oldest_on_until_one_is_young(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_when="22")
    bench.age(72, 0, 1, 3, 4)
    assert bench.retention.run_once() == 2
    assert bench.on_disk == [2, 3, 4, 5]


@pytest.mark.parametrize(("hours", "gone"), [(4.99, 0), (5, 5)])
def test_how_long_files_are_kept_is_an_option(tmp_path: Path, hours: float, gone: int) -> None:
    bench = Bench(tmp_path, delete_when="22", file_reserved_hours=5)
    bench.age(hours)
    assert bench.retention.run_once() == gone


def test_the_last_file_stays_however_old(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=1, delete_when="22")
    bench.log.files[0].set_positions(SIZE)
    bench.age(1000)
    bench.disk.ratio = 0.99
    assert bench.retention.run_once() == 0
    assert bench.on_disk == [0]


def test_the_file_being_written_stays_although_a_spare_follows_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=2)
    bench.log.add(2 * SIZE)
    bench.disk.ratio = 0.99
    assert bench.retention.run_once() == 1
    assert bench.on_disk == [1, 2]


def test_no_more_than_a_batch_goes_at_a_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_when="22", delete_batch_max=2)
    bench.age(100)
    assert [bench.retention.run_once() for _ in range(4)] == [2, 2, 1, 0]


def test_the_disk_gets_a_pause_between_two_deletions(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_when="22", delete_log_interval_ms=123)
    bench.age(100)
    bench.retention.run_once()
    assert bench.pauses_ms == [123] * 4


def test_a_file_that_somebody_else_removed_is_taken_out_all_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_when="22")
    bench.log.files[0].path.unlink()
    assert bench.retention.run_once() == 1
    assert bench.log.files[0].offset == SIZE


def test_each_deleted_name_is_made_durable_before_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_when="22")
    bench.age(100, 0, 1)
    synced: list[list[int]] = []

    class NotingDisk(FaultyDisk):
        def sync_folder(self, folder: Path) -> None:  # noqa: ARG002
            synced.append(bench.on_disk)

    bench.retention._disk = NotingDisk()
    bench.retention.run_once()
    assert synced == [[1, 2, 3, 4, 5], [2, 3, 4, 5]]


# A request by hand.


def test_a_request_is_good_for_twenty_rounds_at_any_hour(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.retention.request()
    assert [bench.retention.run_once() for _ in range(19)] == [0] * 19
    bench.age(100, 0)
    assert bench.retention.run_once() == 1
    bench.age(100)
    assert bench.retention.run_once() == 0
    bench.retention.request()
    assert bench.retention.run_once() == 4


def test_a_request_does_not_touch_young_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.retention.request()
    assert bench.retention.run_once() == 0


# The disk fills up.


@pytest.mark.parametrize(("ratio", "gone"), [(0.75, 0), (0.76, 5), (-1.0, 5)])
def test_above_the_first_level_or_unknown_old_files_go_at_any_hour(
    tmp_path: Path, ratio: float, gone: int
) -> None:
    bench = Bench(tmp_path)
    bench.age(100)
    bench.disk.ratio = ratio
    assert bench.retention.run_once() == gone


def test_the_first_level_is_an_option(tmp_path: Path) -> None:
    bench = Bench(tmp_path, disk_max_used_percent=40)
    bench.age(100)
    assert bench.retention.run_once() == 5


def test_above_the_first_level_young_files_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.disk.ratio = 0.85
    assert bench.retention.run_once() == 0


def test_a_full_disk_of_the_queues_counts_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.age(100)
    bench.disk.ratios[tmp_path / "consumequeue"] = 0.76
    assert bench.retention.run_once() == 5


def test_above_the_second_level_files_go_whatever_their_age(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_batch_max=1)
    bench.disk.ratio = 0.86
    assert bench.retention.run_once() == 1
    assert bench.flags.writable
    bench.disk.ratio, bench.disk.ratios[tmp_path / "consumequeue"] = 0.5, 0.86
    assert bench.retention.run_once() == 1
    assert bench.flags.writable


def test_the_second_level_is_an_option(tmp_path: Path) -> None:
    bench = Bench(tmp_path, disk_clean_forcibly_percent=60)
    bench.disk.ratio = 0.61
    assert bench.retention.run_once() == 5


def test_age_may_be_made_to_count_at_any_level(tmp_path: Path) -> None:
    bench = Bench(tmp_path, clean_forcibly_enabled=False)
    bench.disk.ratio = 0.99
    assert bench.retention.run_once() == 0
    bench.age(100, 0)
    assert bench.retention.run_once() == 1


def test_above_the_third_level_nothing_more_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.disk.ratio = 0.91
    assert bench.retention.run_once() == 5
    with pytest.raises(DiskFull, match=r"commitlog is 91% full, limit is 90% \(diskSpaceWarningLevelRatio\)"):
        bench.flags.check_writable()


def test_the_third_level_is_an_option(tmp_path: Path) -> None:
    bench = Bench(tmp_path, disk_warning_percent=70, disk_clean_forcibly_percent=60)
    bench.disk.ratio = 0.71
    bench.retention.run_once()
    assert bench.flags.bits == Flag.DISK_FULL | Flag.QUEUE_DISK_FULL


@pytest.mark.parametrize(
    ("folder", "flag"), [("commitlog", Flag.DISK_FULL), ("consumequeue", Flag.QUEUE_DISK_FULL)]
)
def test_writing_goes_on_only_when_the_ratio_is_below_the_second_level_again(
    tmp_path: Path, folder: str, flag: Flag
) -> None:
    bench = Bench(tmp_path)
    seen = []
    for ratio in (0.5, 0.90, 0.91, 0.90, 0.86, 0.85, 0.86, 0.90):
        bench.disk.ratios[tmp_path / folder] = ratio
        bench.retention.run_once()
        seen.append(bench.flags.bits)
    assert seen == [0, 0, flag, flag, flag, 0, 0, 0]


def test_an_unknown_ratio_ends_the_alarm_as_in_java(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for ratio in (0.99, -1.0):
        bench.disk.ratio = ratio
        bench.retention.run_once()
    assert bench.flags.writable


def test_of_several_log_folders_the_emptiest_counts(tmp_path: Path) -> None:
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    bench = Bench(tmp_path, commitlog_paths=paths)
    bench.disk.ratios = {tmp_path / "a": 0.99, tmp_path / "b": 0.5}
    assert bench.retention.run_once() == 0
    assert bench.flags.writable
    bench.disk.ratios[tmp_path / "b"] = 0.86
    assert bench.retention.run_once() == 5


# Several brokers on one partition.


@pytest.mark.parametrize(("own_bytes", "gone"), [(750, 0), (751, 1), (800, 1), (801, 5)])
def test_a_broker_is_measured_against_its_share(tmp_path: Path, own_bytes: int, gone: int) -> None:
    bench = Bench(tmp_path, replicas_per_partition=3)
    bench.age(100, 0)
    bench.disk.partition, bench.own_bytes = 3000, own_bytes
    bench.disk.ratio = 0.84  # Of all brokers together: not what counts.
    assert bench.retention.run_once() == gone


def test_the_forced_level_of_a_share_is_an_option(tmp_path: Path) -> None:
    bench = Bench(tmp_path, replicas_per_partition=3, logical_disk_threshold=0.3)
    bench.disk.partition, bench.own_bytes = 3000, 301
    assert bench.retention.run_once() == 5


def test_a_single_broker_has_no_share(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.disk.partition, bench.own_bytes = 3000, 2900
    assert bench.retention.run_once() == 0


# Somebody still reads.


def a_reader_in_the_way(folder: Path, **options: Any) -> tuple[Bench, memoryview]:
    bench = Bench(folder, delete_when="22", **options)
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
    bench = Bench(tmp_path, delete_when="22", delete_batch_max=2)
    bench.age(100)
    bench.retention.run_once()
    assert [queue.asked for queue in bench.queues] == [[("delete", 2 * SIZE), ("correct", 2 * SIZE)]] * 2
    assert bench.index.asked == [("delete", 2 * SIZE)]


def test_queues_are_left_alone_while_the_log_keeps_its_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_when="22")
    bench.age(100, 0)
    for _ in range(3):
        bench.retention.run_once()
    assert len(bench.queues[0].asked) == 2
    assert len(bench.index.asked) == 1


def test_a_log_that_did_not_begin_at_zero_is_followed_at_the_first_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=2)
    first = bench.log.files[0]
    bench.log.drop_first(first)
    bench.retention.run_once()
    assert bench.index.asked == [("delete", SIZE)]


def test_a_queue_that_lost_files_is_followed_by_a_pause(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_when="22", delete_queue_interval_ms=77, delete_batch_max=1)
    bench.age(100)
    bench.queues[1].files_to_lose = 3
    bench.retention.run_once()
    assert bench.pauses_ms == [77]


def test_minimum_offsets_are_corrected_again_after_an_interval(tmp_path: Path) -> None:
    bench = Bench(tmp_path, correct_min_offset_interval_ms=60_000)
    bench.clock.advance_ms(59_999)
    bench.retention.run_once()
    assert bench.queues[0].asked == []
    bench.clock.advance_ms(1)
    bench.retention.run_once()
    bench.retention.run_once()
    assert bench.queues[0].asked == [("correct", 0)]


def test_a_store_without_an_index_is_cleaned_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_when="22")
    bench.age(100)
    kept = Kept(bench.log, lambda: bench.queues, None, lambda: 0)
    retention = Retention(
        bench.settings, bench.clock, bench.disk, bench.flags, kept, pause_ms=bench.pauses_ms.append
    )
    assert retention.run_once() == 5


def test_an_empty_log_is_no_trouble(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=0, delete_when="22")
    bench.disk.ratio = 0.99
    assert bench.retention.run_once() == 0
