"""The checkpoint file: its bytes, what it survives, and what it never claims."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import FlushFailed
from flaremq.store.files.checkpoint import Checkpoint
from flaremq.store.files.disk import Disk, DiskFile

GOLDEN = bytes.fromhex(
    "0000018bcfe5687b 0000018bcfe56864 0000000000000000 0000000000000000 0000000000001000"
) + bytes(4056)


def opened(path: Path) -> Checkpoint:
    return Checkpoint(Disk(), path / "checkpoint")


def test_the_bytes_are_those_of_rocketmq(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path)
    checkpoint.log_time_ms = 1700000000123
    checkpoint.queue_time_ms = 1700000000100
    checkpoint.confirmed_offset = 4096
    checkpoint.flush()
    assert (tmp_path / "checkpoint").read_bytes() == GOLDEN


def test_a_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(GOLDEN)
    checkpoint = opened(tmp_path)
    assert checkpoint.log_time_ms == 1700000000123
    assert checkpoint.queue_time_ms == 1700000000100
    assert checkpoint.index_time_ms == 0
    assert checkpoint.master_flushed_offset == 0
    assert checkpoint.confirmed_offset == 4096


def test_all_five_values_come_back_after_a_flush(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path)
    checkpoint.log_time_ms, checkpoint.queue_time_ms, checkpoint.index_time_ms = 11, 12, 13
    checkpoint.master_flushed_offset, checkpoint.confirmed_offset = 14, 15
    checkpoint.flush()
    checkpoint.close()
    again = opened(tmp_path)
    assert (again.log_time_ms, again.queue_time_ms, again.index_time_ms) == (11, 12, 13)
    assert (again.master_flushed_offset, again.confirmed_offset) == (14, 15)


def test_what_was_set_but_not_flushed_is_forgotten(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path)
    checkpoint.log_time_ms = 5
    checkpoint.close()
    assert opened(tmp_path).log_time_ms == 0


def test_a_new_store_begins_with_zeros(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path / "not" / "yet" / "there")
    assert checkpoint.min_time_ms() == 0
    assert (tmp_path / "not" / "yet" / "there" / "checkpoint").stat().st_size == 4096


@pytest.mark.parametrize("size", [0, 40, 4095, 4097])
def test_a_file_of_another_size_counts_as_zeros(tmp_path: Path, size: int) -> None:
    (tmp_path / "checkpoint").write_bytes(b"\x01" * size)
    assert opened(tmp_path).log_time_ms == 0
    assert (tmp_path / "checkpoint").read_bytes() == bytes(4096)


def test_negative_values_count_as_zeros(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"\xff" * 4096)
    checkpoint = opened(tmp_path)
    assert checkpoint.min_time_ms() == 0
    assert checkpoint.confirmed_offset == 0


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_the_smaller_of_log_and_queue_time_counts_less_three_seconds(log_ms: int, queue_ms: int) -> None:
    checkpoint = Checkpoint.__new__(Checkpoint)
    checkpoint.log_time_ms, checkpoint.queue_time_ms = log_ms, queue_ms
    assert checkpoint.min_time_ms() == max(0, min(log_ms, queue_ms) - 3000)


class CountingFile(DiskFile):
    syncs = 0

    def sync(self) -> None:
        type(self).syncs += 1
        if type(self).syncs > 2:
            raise FlushFailed("this disk has had enough")


class CountingDisk(Disk):
    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        return CountingFile(path, size, lasting=lasting)


def test_a_flush_without_news_does_not_touch_the_disk(tmp_path: Path) -> None:
    CountingFile.syncs = 0
    checkpoint = Checkpoint(CountingDisk(), tmp_path / "checkpoint")
    checkpoint.flush()
    assert CountingFile.syncs == 0
    checkpoint.log_time_ms = 1
    checkpoint.flush()
    checkpoint.flush()
    assert CountingFile.syncs == 1


def test_a_failed_flush_is_told_and_tried_again(tmp_path: Path) -> None:
    CountingFile.syncs = 2
    checkpoint = Checkpoint(CountingDisk(), tmp_path / "checkpoint")
    checkpoint.log_time_ms = 1
    for _ in range(2):
        with pytest.raises(FlushFailed):
            checkpoint.flush()
