"""The checkpoint: up to which store times the log, the queues and the index are safe on disk.

Recovery after a crash begins at the first log file that is older than all of this. Values that are
too small only make it begin earlier, so whatever is lost or unreadable here counts as zero; values
that are too large would leave records without queue entries, so they are set only after
the sync that they stand for.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Final

from flaremq.base.logs import fields, logger
from flaremq.model.layout import CHECKPOINT_FORMAT, CHECKPOINT_SIZE
from flaremq.store.files.disk import Disk, DiskFile

log = logger("store.checkpoint")

_LONGS: Final = struct.Struct(CHECKPOINT_FORMAT)
SLACK_MS: Final = 3000  # Clocks and batches: records of the last seconds are looked at again.


class Checkpoint:
    """Five longs in one page. They live in memory; `flush` brings all of them to the disk at once.

    Any thread may set a value, each value has one setter. What `flush` has written is never newer
    than what was set when it was called.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._file = _opened(disk, path)
        self._lock = threading.Lock()
        self._flushed = self._read()
        (
            self.log_time_ms,
            self.queue_time_ms,
            self.index_time_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
        ) = self._flushed

    def min_time_ms(self) -> int:
        """Records stored before this time are safe, in the log and in their queues."""
        return max(0, min(self.log_time_ms, self.queue_time_ms) - SLACK_MS)

    def flush(self) -> None:
        """Make the values of now durable; free when nothing has changed."""
        with self._lock:
            values = (
                self.log_time_ms,
                self.queue_time_ms,
                self.index_time_ms,
                self.master_flushed_offset,
                self.confirmed_offset,
            )
            if values != self._flushed:
                _LONGS.pack_into(self._file.view, 0, *values)
                self._file.sync()
                self._flushed = values

    def forget_queues(self) -> None:
        """Queues will be rebuilt: none of their entries counts as safe until they are synced again."""
        self.queue_time_ms = 0
        self.flush()

    def forget(self) -> None:
        """The log was cut: records with the same times will come again, and none of them is safe yet."""
        self.log_time_ms = self.queue_time_ms = self.index_time_ms = 0
        self.flush()

    def close(self) -> None:
        """Close the file. Values that were not flushed are forgotten, which is safe."""
        with self._lock:
            self._file.close()

    def _read(self) -> tuple[int, int, int, int, int]:
        log_ms, queue_ms, index_ms, master, confirmed = _LONGS.unpack_from(self._file.view)
        # No time and no offset is negative: such a page was not written by a checkpoint.
        return max(0, log_ms), max(0, queue_ms), max(0, index_ms), max(0, master), max(0, confirmed)


def _opened(disk: Disk, path: Path) -> DiskFile:
    if disk.exists(path) and disk.size(path) != CHECKPOINT_SIZE:
        log.warning(
            "the checkpoint is replaced by an empty one: recovery reads more of the log",
            extra=fields(file=path, size=disk.size(path), size_wanted=CHECKPOINT_SIZE),
        )
        disk.delete(path)
    if not disk.exists(path):
        disk.create(path, CHECKPOINT_SIZE, reserved=True)
        disk.sync_folder(path.parent)
    file = disk.open(path, CHECKPOINT_SIZE, lasting=True)
    # A sparse file, as Java makes it, on a full disk: better to hear of it now than at a flush.
    file.reserve(0, CHECKPOINT_SIZE)
    return file
