"""A log of entries, as dispatch and recovery know logs: each entry of a ledger wraps one record."""

from __future__ import annotations

from pathlib import Path

from flaremq.model.record import walk_entries
from flaremq.store.filelog import FileLog
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue


class LedgerLog(FileLog):
    """Offsets are those of records, 48 bytes behind the beginning of their entries."""

    walk_file = staticmethod(walk_entries)

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self.files = FileQueue(disk, (folder,), file_size)

    @property
    def readable_end(self) -> int:
        files = self.files.files
        return files[-1].offset + files[-1].committed if files else 0

    @property
    def confirmed(self) -> int:
        return self.readable_end

    def cut(self, end: int) -> int:
        before = self.readable_end
        self.files.truncate(end, keep_first=True)
        return before - end

    def sync(self, begin: int, unsure: int) -> None:  # noqa: ARG002 - Written and synced just now.
        for file in self.files.files:
            if file.end > begin:
                file.flushed = 0
                file.flush()
