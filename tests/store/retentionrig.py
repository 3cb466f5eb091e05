"""A log to be kept short, on a disk as full as a test wants it, for tests of retention."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flaremq.base.units import HOUR_MS
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.flags import Flags
from flaremq.store.retention import Kept, Retention
from flaremq.store.settings import StoreSettings
from flaremq.testing.clock import START_MS, ManualClock
from flaremq.testing.fakes.disk import FaultyDisk

SIZE: Final = 4096
FOUR_IN_THE_MORNING_MS: Final = START_MS + 6 * HOUR_MS  # 04:13:20 UTC; START_MS is 22:13:20.


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


class RetentionRig:
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
