"""The next log files, made ready before they are needed: created, reserved, mapped, warmed, locked.

A roll then costs no more than taking one. Spares that a crash leaves behind are ordinary empty
files; a clean stop removes them.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from pathlib import Path

from flaremq.base.errors import FileNotReady, FlareError
from flaremq.base.lifecycle import Listener, Worker, WorkerFactory
from flaremq.store.files.disk import Disk
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.settings import FlushDisk, StoreSettings

WAIT_S = 5.0
"""So long an append waits for its file, as in Java."""
LOOP_WAIT_S = 0.05
"""So long where an event loop would wait: a burst is slowed down a little, others are not kept waiting."""


class Preallocator:
    """Makes files by request, ahead of those that are taken, the lowest offset first."""

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        *,
        wait_s: float = WAIT_S,
        listener: Listener | None = None,
        workers: WorkerFactory = Worker,
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._wait_s = wait_s
        self._wanted: dict[int, Path] = {}
        self._making = -1  # The offset of the file that is being made, -1 for none.
        self._ready: dict[int, MappedFile] = {}
        self._failed: dict[int, FlareError] = {}
        self._changed = threading.Condition()
        self._unsynced: Path | None = None  # The folder of a file whose name is not durable yet.
        self._worker = workers("flaremq-preallocate", self._step, listener)

    def start(self) -> None:
        self._worker.start()

    def want(self, offset: int, path: Path) -> None:
        """Begin to make a file, unless it is ready or on its way: two of one name would be one too many."""
        with self._changed:
            if offset not in self._ready and offset != self._making:
                self._wanted[offset] = path
                self._failed.pop(offset, None)
        self._worker.wake()

    def take(self, offset: int, path: Path) -> MappedFile:
        """The file that begins at `offset`. Raises DiskFull or FileNotReady if it cannot be had in time."""
        if not self._worker.alive:  # No thread makes it while this one waits.
            self._wanted.pop(offset, None)
            return self._ready.pop(offset, None) or self.make(offset, path)
        self.want(offset, path)
        with self._changed:
            self._changed.wait_for(lambda: offset in self._ready or offset in self._failed, self._wait_s)
            if offset in self._failed:
                raise self._failed.pop(offset)
            if offset not in self._ready:
                why = self._worker.failure or "the disk is slow or stuck"
                raise FileNotReady(
                    f"{path} was not ready within {self._wait_s:g} s: {why}; "
                    "the same message may be sent again"
                )
            return self._ready.pop(offset)

    def wait_ready(self, offset: int) -> None:
        """Return when this file is ready, or cannot be made, or is too late."""
        if not self._worker.alive:
            return
        with self._changed:
            self._changed.wait_for(lambda: offset in self._ready or offset in self._failed, WAIT_S)

    def make(self, offset: int, path: Path) -> MappedFile:
        """Make it now, in this thread, and its name durable."""
        file = self._make(offset, path)
        self._sync_names()
        return file

    def _make(self, offset: int, path: Path) -> MappedFile:
        settings = self._settings
        # Names become durable in their order: after a power failure a gap between files would be fatal.
        self._sync_names()
        if not self._disk.exists(path):
            self._disk.create(path, settings.commitlog_file_size, reserved=True)
            self._unsynced = path.parent
        file = MappedFile(self._disk, path, offset, settings.commitlog_file_size)
        if settings.warm_enabled:
            sync = settings.flush_disk is FlushDisk.SYNC_FLUSH
            file.file.warm(settings.warm_flush_least_pages if sync else 0)
        if not settings.read_ahead_enabled:
            file.file.expect_random_reads()
        return file

    def discard(self) -> None:
        """Delete all spare files, the last one first: the log goes on elsewhere."""
        with self._changed:
            self._wanted.clear()
            self._failed.clear()
            if not self._changed.wait_for(lambda: self._making < 0, self._wait_s):
                raise FileNotReady(
                    f"a log file is being made for more than {self._wait_s:g} s: the disk is slow or stuck; "
                    "nothing is given up meanwhile"
                )
        self._delete_ready()

    def _delete_ready(self) -> None:
        """One after the other, also on the disk: no power failure may leave a gap."""
        while self._ready:
            file = self._ready.pop(max(self._ready))
            file.delete()
            with suppress(FileNotFoundError):  # Who has taken the whole folder away leaves no gap in it.
                self._disk.sync_folder(file.path.parent)

    def stop(self) -> None:
        """Remove the spare files: after a clean stop the log ends with its last record."""
        self._worker.stop()
        self._delete_ready()

    def _step(self, _worker: Worker) -> float | None:
        with self._changed:
            offset = min(self._wanted, default=None)
            path = self._wanted.pop(offset) if offset is not None else None
            self._making = -1 if offset is None else offset
        if self._unsynced is not None and offset is None:
            self._sync_names()  # It failed when the file was made. Done, this step has ended well.
            return None
        if offset is None or path is None:
            return math.inf
        try:
            file = self._make(offset, path)
        except FlareError as error:  # Raised in `take`, whose caller may try again.
            with self._changed:
                self._failed[offset], self._making = error, -1
                self._changed.notify_all()
            return None
        except BaseException:
            with self._changed:
                self._wanted[offset], self._making = path, -1
            raise
        with self._changed:
            self._ready[offset], self._making = file, -1
            self._changed.notify_all()
        self._sync_names()  # Nobody waits for it: the first flush of the file syncs its name too.
        return None

    def _sync_names(self) -> None:
        if self._unsynced is not None:
            self._disk.sync_folder(self._unsynced)
            self._unsynced = None
