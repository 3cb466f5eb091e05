"""A disk that has no room: the server says so once, and once when it is over."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.proofs import Queue, a_proof
from tests.store.test_survival import until

from flaremq.base.errors import DiskFull
from flaremq.store.store import MessageStore
from flaremq.testing.builders import small_settings
from flaremq.testing.clock import ManualClock
from flaremq.testing.disk import FaultyDisk

A: Queue = (b"A", 0)


def test_a_disk_without_room_for_the_next_file_is_told_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = FaultyDisk(free_bytes=6 * 64 * 1024)
    with MessageStore(small_settings(tmp_path), clock=ManualClock(), disk=disk) as store:
        refused = 0
        while refused < 3:
            try:
                store.put(a_proof(A, "large", 9000))
            except DiskFull:
                refused += 1
        store.put(a_proof(A, "a small one still fits"))
        told = [record for record in caplog.records if "no room for the next log file" in record.getMessage()]
        assert [record.levelno for record in told] == [logging.ERROR]
        assert told[0].flare == {  # type: ignore[attr-defined]
            "folder": tmp_path / "commitlog",
            "used": "50%",
            "file_size": 64 * 1024,
        }
        assert "lower fileReservedTime" in told[0].getMessage()
        assert not [record for record in caplog.records if "room again" in record.getMessage()]
        disk.free_bytes = 1 << 30
        for _ in range(20):
            store.put(a_proof(A, "large", 9000))
        over = [record for record in caplog.records if "room again" in record.getMessage()]
        assert [record.levelno for record in over] == [logging.INFO]


def test_levels_of_a_full_disk_change_while_the_store_is_open(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.ratio = 0.80
    settings = small_settings(tmp_path, clean_interval_ms=600_000, clean_forcibly_enabled=False)
    with MessageStore(settings, clock=ManualClock(), disk=disk) as store:
        store.put(a_proof(A, "taken"))
        store.change(replace(settings, disk_warning_percent=75, disk_clean_forcibly_percent=70))
        until(lambda: not store.flags.writable)
        with pytest.raises(DiskFull, match="80% full, limit is 75%"):
            store.put(a_proof(A, "refused"))
        store.change(settings)
        until(lambda: store.flags.writable)
        store.put(a_proof(A, "taken again"))
        store.change(replace(settings, message_size_max=1))
        assert store.settings.message_size_max == settings.message_size_max, "not while it is open"
