"""What retention deletes and spares. Every option has a test that fails when it is ignored."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.retentionrig import FOUR_IN_THE_MORNING_MS, SIZE, RetentionRig

from flaremq.base.errors import DiskFull
from flaremq.store.flags import Flag
from flaremq.testing.fakes.disk import FaultyDisk


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_young_files_on_a_disk_with_room_stay(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    assert bench.retention.run_once() == 0
    assert bench.on_disk == [0, 1, 2, 3, 4, 5]


def test_old_files_stay_until_the_hour_has_come(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    bench.age(hours=100)
    assert bench.retention.run_once() == 0
    bench.later(FOUR_IN_THE_MORNING_MS)
    assert bench.retention.run_once() == 5


def test_the_hour_is_an_option_and_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = RetentionRig(tmp_path, delete_when="07;15")
    bench.age(hours=100)
    bench.later(FOUR_IN_THE_MORNING_MS)
    assert bench.retention.run_once() == 0
    monkeypatch.setenv("TZ", "UTC-03:00")
    time.tzset()
    assert bench.retention.run_once() == 5


def test_files_go_from_the_oldest_on_until_one_is_young(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22")
    bench.age(72, 0, 1, 3, 4)
    assert bench.retention.run_once() == 2
    assert bench.on_disk == [2, 3, 4, 5]


@pytest.mark.parametrize(("hours", "gone"), [(4.99, 0), (5, 5)])
def test_how_long_files_are_kept_is_an_option(tmp_path: Path, hours: float, gone: int) -> None:
    bench = RetentionRig(tmp_path, delete_when="22", file_reserved_hours=5)
    bench.age(hours)
    assert bench.retention.run_once() == gone


def test_the_last_file_stays_however_old(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, files=1, delete_when="22")
    bench.log.files[0].set_positions(SIZE)
    bench.age(1000)
    bench.disk.ratio = 0.99
    assert bench.retention.run_once() == 0
    assert bench.on_disk == [0]


def test_the_file_being_written_stays_although_a_spare_follows_it(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, files=2)
    bench.log.add(2 * SIZE)
    bench.disk.ratio = 0.99
    assert bench.retention.run_once() == 1
    assert bench.on_disk == [1, 2]


def test_no_more_than_a_batch_goes_at_a_time(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22", delete_batch_max=2)
    bench.age(100)
    assert [bench.retention.run_once() for _ in range(4)] == [2, 2, 1, 0]


def test_the_disk_gets_a_pause_between_two_deletions(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22", delete_log_interval_ms=123)
    bench.age(100)
    bench.retention.run_once()
    assert bench.pauses_ms == [123] * 4


def test_a_file_that_somebody_else_removed_is_taken_out_all_the_same(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22")
    bench.log.files[0].path.unlink()
    assert bench.retention.run_once() == 1
    assert bench.log.files[0].offset == SIZE


def test_each_deleted_name_is_made_durable_before_the_next(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22")
    bench.age(100, 0, 1)
    synced: list[list[int]] = []

    class NotingDisk(FaultyDisk):
        def sync_folder(self, folder: Path) -> None:
            synced.append(bench.on_disk)

    bench.retention._disk = NotingDisk()
    bench.retention.run_once()
    assert synced == [[1, 2, 3, 4, 5], [2, 3, 4, 5]]


# A request by hand.


def test_a_request_is_good_for_twenty_rounds_at_any_hour(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    bench.retention.request()
    assert [bench.retention.run_once() for _ in range(19)] == [0] * 19
    bench.age(100, 0)
    assert bench.retention.run_once() == 1
    bench.age(100)
    assert bench.retention.run_once() == 0
    bench.retention.request()
    assert bench.retention.run_once() == 4


def test_a_request_does_not_touch_young_files(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    bench.retention.request()
    assert bench.retention.run_once() == 0


# The disk fills up.


@pytest.mark.parametrize(("ratio", "gone"), [(0.75, 0), (0.76, 5), (-1.0, 5)])
def test_above_the_first_level_or_unknown_old_files_go_at_any_hour(
    tmp_path: Path, ratio: float, gone: int
) -> None:
    bench = RetentionRig(tmp_path)
    bench.age(100)
    bench.disk.ratio = ratio
    assert bench.retention.run_once() == gone


def test_the_first_level_is_an_option(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, disk_max_used_percent=40)
    bench.age(100)
    assert bench.retention.run_once() == 5


def test_above_the_first_level_young_files_stay(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    bench.disk.ratio = 0.85
    assert bench.retention.run_once() == 0


def test_a_full_disk_of_the_queues_counts_too(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    bench.age(100)
    bench.disk.ratios[tmp_path / "consumequeue"] = 0.76
    assert bench.retention.run_once() == 5


def test_above_the_second_level_files_go_whatever_their_age(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_batch_max=1)
    bench.disk.ratio = 0.86
    assert bench.retention.run_once() == 1
    assert bench.flags.writable
    bench.disk.ratio, bench.disk.ratios[tmp_path / "consumequeue"] = 0.5, 0.86
    assert bench.retention.run_once() == 1
    assert bench.flags.writable


def test_the_second_level_is_an_option(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, disk_clean_forcibly_percent=60)
    bench.disk.ratio = 0.61
    assert bench.retention.run_once() == 5


def test_age_may_be_made_to_count_at_any_level(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, clean_forcibly_enabled=False)
    bench.disk.ratio = 0.99
    assert bench.retention.run_once() == 0
    bench.age(100, 0)
    assert bench.retention.run_once() == 1


def test_above_the_third_level_nothing_more_is_written(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    bench.disk.ratio = 0.91
    assert bench.retention.run_once() == 5
    with pytest.raises(DiskFull, match=r"commitlog is 91% full, limit is 90% \(diskSpaceWarningLevelRatio\)"):
        bench.flags.check_writable()


def test_the_third_level_is_an_option(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, disk_warning_percent=70, disk_clean_forcibly_percent=60)
    bench.disk.ratio = 0.71
    bench.retention.run_once()
    assert bench.flags.bits == Flag.DISK_FULL | Flag.QUEUE_DISK_FULL


@pytest.mark.parametrize(
    ("folder", "flag"), [("commitlog", Flag.DISK_FULL), ("consumequeue", Flag.QUEUE_DISK_FULL)]
)
def test_writing_goes_on_only_when_the_ratio_is_below_the_second_level_again(
    tmp_path: Path, folder: str, flag: Flag
) -> None:
    bench = RetentionRig(tmp_path)
    seen = []
    for ratio in (0.5, 0.90, 0.91, 0.90, 0.86, 0.85, 0.86, 0.90):
        bench.disk.ratios[tmp_path / folder] = ratio
        bench.retention.run_once()
        seen.append(bench.flags.bits)
    assert seen == [0, 0, flag, flag, flag, 0, 0, 0]


def test_an_unknown_ratio_ends_the_alarm_as_in_java(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    for ratio in (0.99, -1.0):
        bench.disk.ratio = ratio
        bench.retention.run_once()
    assert bench.flags.writable


def test_of_several_log_folders_the_emptiest_counts(tmp_path: Path) -> None:
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    bench = RetentionRig(tmp_path, commitlog_paths=paths)
    bench.disk.ratios = {tmp_path / "a": 0.99, tmp_path / "b": 0.5}
    assert bench.retention.run_once() == 0
    assert bench.flags.writable
    bench.disk.ratios[tmp_path / "b"] = 0.86
    assert bench.retention.run_once() == 5


# Several brokers on one partition.


@pytest.mark.parametrize(("own_bytes", "gone"), [(750, 0), (751, 1), (800, 1), (801, 5)])
def test_a_broker_is_measured_against_its_share(tmp_path: Path, own_bytes: int, gone: int) -> None:
    bench = RetentionRig(tmp_path, replicas_per_partition=3)
    bench.age(100, 0)
    bench.disk.partition, bench.own_bytes = 3000, own_bytes
    bench.disk.ratio = 0.84  # Of all brokers together: not what counts.
    assert bench.retention.run_once() == gone


def test_the_forced_level_of_a_share_is_an_option(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, replicas_per_partition=3, logical_disk_threshold=0.3)
    bench.disk.partition, bench.own_bytes = 3000, 301
    assert bench.retention.run_once() == 5


def test_a_single_broker_has_no_share(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path)
    bench.disk.partition, bench.own_bytes = 3000, 2900
    assert bench.retention.run_once() == 0


def test_a_disk_that_fills_up_and_empties_is_told_once_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench = RetentionRig(tmp_path, disk_warning_percent=90, disk_clean_forcibly_percent=80)
    folder = bench.settings.commitlog_folders[0]
    for ratio in (0.5, 0.91, 0.95, 0.85, 0.91):  # Between the levels nothing changes.
        bench.disk.ratios[folder] = ratio
        bench.retention.run_once()
    (told,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert told.flare == {"folder": folder, "used": "91%", "limit": "90%"}  # type: ignore[attr-defined]
    assert "lower fileReservedTime" in told.getMessage() and "at 80% or less" in told.getMessage()
    caplog.clear()
    for ratio in (0.8, 0.5):
        bench.disk.ratios[folder] = ratio
        bench.retention.run_once()
    (told,) = [record for record in caplog.records if "room again" in record.getMessage()]
    assert told.levelno == logging.INFO


def test_settings_may_change_between_two_rounds(tmp_path: Path) -> None:
    bench = RetentionRig(tmp_path, delete_when="22", file_reserved_hours=72)
    bench.age(48)
    assert bench.retention.run_once() == 0
    bench.retention.settings = replace(bench.settings, file_reserved_hours=24)
    assert bench.retention.run_once() == 5
