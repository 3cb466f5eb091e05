"""The next log file, made ready before it is needed: created, reserved, mapped, warmed, locked.

A roll then costs no more than taking it. The spare that a crash leaves behind is an ordinary empty
file; a clean stop removes it.
"""

from __future__ import annotations

import threading
from pathlib import Path

from flaremq.base.errors import FileNotReady, FlareError
from flaremq.base.lifecycle import Worker
from flaremq.store.disk import Disk
from flaremq.store.mappedfile import MappedFile
from flaremq.store.settings import FlushDisk, StoreSettings

_WAIT_S = 5.0  # An append waits so long for its file, as in Java.


class Preallocator:
    """Makes files by request, one ahead of each that is taken."""

    def __init__(self, disk: Disk, settings: StoreSettings) -> None:
        self._disk = disk
        self._settings = settings
        self._wanted: dict[int, Path] = {}
        self._making = -1  # The offset of the file that is being made, -1 for none.
        self._ready: dict[int, MappedFile] = {}
        self._failed: dict[int, FlareError] = {}
        self._changed = threading.Condition()
        self._worker = Worker("flaremq-preallocate", self._step, on_crash=lambda _error: None)

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
        """The file that begins at `offset`. Raises DiskFull or FileNotReady if it cannot be had."""
        if not self._worker.alive:
            return self.make(offset, path)
        self.want(offset, path)
        with self._changed:
            self._changed.wait_for(lambda: offset in self._ready or offset in self._failed, _WAIT_S)
            if offset in self._failed:
                raise self._failed.pop(offset)
            if offset not in self._ready:
                raise FileNotReady(
                    f"{path} was not ready within {_WAIT_S:g} s: the disk is too slow or stuck; "
                    "the same message may be sent again"
                )
            return self._ready.pop(offset)

    def make(self, offset: int, path: Path) -> MappedFile:
        settings = self._settings
        if not self._disk.exists(path):
            self._disk.create(path, settings.commitlog_file_size, reserved=True)
            self._disk.sync_folder(path.parent)
        file = MappedFile(self._disk, path, offset, settings.commitlog_file_size)
        if settings.warm_enabled:
            sync = settings.flush_disk is FlushDisk.SYNC_FLUSH
            file.file.warm(settings.warm_flush_least_pages if sync else 0)
        if not settings.read_ahead_enabled:
            file.file.expect_random_reads()
        return file

    def stop(self) -> None:
        """Remove the spare files: after a clean stop the log ends with its last record."""
        self._worker.stop()
        for file in self._ready.values():
            file.delete()
        self._ready.clear()

    def _step(self, worker: Worker) -> None:
        with self._changed:
            offset = min(self._wanted, default=None)
            path = self._wanted.pop(offset) if offset is not None else None
            self._making = -1 if offset is None else offset
        if offset is None or path is None:
            worker.pause(None)
            return
        try:
            file = self.make(offset, path)
        except FlareError as error:
            with self._changed:
                self._failed[offset], self._making = error, -1
                self._changed.notify_all()
            return
        with self._changed:
            self._ready[offset], self._making = file, -1
            self._changed.notify_all()
