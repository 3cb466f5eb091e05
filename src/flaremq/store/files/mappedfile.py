"""One file of a queue of files: where it begins, how far it is written, how far it is safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from flaremq.model.layout import PAGE
from flaremq.store.files.disk import Disk, DiskFile

_RESERVE_STEP_MAX = 256 * 1024
_opening = threading.RLock()  # Of lasting files: each is opened once.
_FOLDERS_ABOVE = 3  # consumequeue/TOPIC/ID: each may be as new as the file.


class OpenFiles:
    """Limits how many files are mapped: those not used lately are closed, and mapped again on demand.

    Only for files that are read and written in short calls. A file whose slices a reader still holds
    stays mapped, and is asked again when its turn comes. Being used costs a file one bit; the work is
    done when another one is opened (the second-chance rule).
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lock = threading.RLock()  # Of opening and resting.
        self._files: OrderedDict[MappedFile, None] = OrderedDict()
        self._unsynced: set[Path] = set()

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, file: MappedFile) -> None:
        for _ in range(2 * len(self._files)):
            if len(self._files) < self.limit:
                break
            oldest, _ = self._files.popitem(last=False)
            if oldest.used or not oldest.rest():
                oldest.used = False
                self._files[oldest] = None
        self._files[file] = None

    def forget(self, file: MappedFile) -> None:
        self._files.pop(file, None)

    def named(self, path: Path) -> None:
        """A file was created: its folder, and those above it that may be as new, have names to sync."""
        self._unsynced.update(path.parents[:_FOLDERS_ABOVE])

    def take_unsynced(self, folder: Path) -> bool:
        """Whether a folder has new names. Asked before its sync: a name that comes meanwhile counts anew."""
        if folder not in self._unsynced:
            return False
        self._unsynced.discard(folder)
        return True

    def give_back_unsynced(self, folder: Path) -> None:
        """That sync failed: its names are as unsafe as before."""
        self._unsynced.add(folder)


class MappedFile:
    """Positions count from the file's own beginning; `offset` is where that lies in the whole queue.

    Invariants:
      M1  flushed <= committed <= wrote <= size.
      M2  bytes below `wrote` do not change; readers see those below `committed`.
    """

    __slots__ = (
        "_disk",
        "_file",
        "_open_files",
        "_reserved",
        "committed",
        "flushed",
        "offset",
        "path",
        "size",
        "used",
        "wrote",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, path: Path, offset: int, size: int, open_files: OpenFiles | None = None
    ) -> None:
        self._disk = disk
        self._file: DiskFile | None = None
        self._open_files = open_files
        self._reserved = 0  # Unknown for an old file: reserving twice does no harm.
        self.path = path
        self.offset = offset
        self.size = size
        self.wrote = self.committed = self.flushed = 0
        self.used = False  # Of late: for OpenFiles.

    @property
    def end(self) -> int:
        """The offset behind the last byte that this file can hold."""
        return self.offset + self.size

    @property
    def file(self) -> DiskFile:
        """The mapped file, opened if it is closed. It may be used even if it is closed meanwhile: the map
        lives as long as there is a reference to the file or a view of it."""
        self.used = True
        file = self._file
        return file if file is not None else self._opened()

    def _opened(self) -> DiskFile:
        with self._lock:
            file = self._file
            if file is None:
                file = self._disk.open(self.path, self.size, lasting=self._open_files is None)
                self._file = file
                if self._open_files is not None:
                    self._open_files.opened(self)
            return file

    @property
    def view(self) -> memoryview:
        """The whole map. A reference to it, or to a slice, keeps it alive whatever becomes of the file."""
        return self.file.view

    @property
    def _lock(self) -> threading.RLock:
        return self._open_files.lock if self._open_files is not None else _opening

    def set_positions(self, at: int) -> None:
        self.wrote = self.committed = self.flushed = at

    def reserve(self, end: int) -> None:
        """Have disk space for all bytes below `end`, in steps that grow with the file."""
        if end > self._reserved:
            step = min(max(self._reserved, PAGE), _RESERVE_STEP_MAX)
            upto = min(self.size, max(end, self._reserved + step))
            self.file.reserve(self._reserved, upto - self._reserved)
            self._reserved = upto

    def append(self, data: bytes | memoryview) -> None:
        """Write behind the last byte; the caller has seen to it that there is room."""
        end = self.wrote + len(data)
        assert end <= self.size
        self.reserve(end)
        self.file.put(self.wrote, data)
        self.wrote = self.committed = end  # Last: a reader below it sees whole bytes only.

    def dirty_pages(self) -> int:
        """Pages begun since the last flush, as RocketMQ counts them; a full file counts as a lot."""
        if self.flushed >= self.committed:
            return 0
        if self.committed == self.size:
            return self.size  # More than any limit: a full file is always worth a flush.
        return self.committed // PAGE - self.flushed // PAGE

    def flush(self) -> int:
        """Sync, and say up to which position. A position is taken first: more may be written meanwhile."""
        position = self.committed
        if position > self.flushed:
            if self.flushed == 0:  # Perhaps a new file: its name must survive as its bytes do.
                self._sync_name()
            self.file.sync()
            self.flushed = position
        return position

    def _sync_name(self) -> None:
        """One sync of a folder saves all names in it, so among many new queues few syncs are needed."""
        for folder in self.path.parents[:_FOLDERS_ABOVE]:
            if self._open_files is None:
                self._disk.sync_folder(folder)
            elif self._open_files.take_unsynced(folder):
                try:
                    self._disk.sync_folder(folder)
                except BaseException:
                    self._open_files.give_back_unsynced(folder)
                    raise

    def cut(self, at: int) -> None:
        """Forget everything from `at` on. It is wiped too: dead records must not rise again.

        Nor after a power failure, so the next flush syncs, whether more was written or not.
        """
        self.file.clear_from(at, keep_space=self._open_files is None)
        self._reserved = min(self._reserved, at)
        self.set_positions(at)
        self.flushed = 0

    def rest(self) -> bool:
        """Close the map until it is needed; False while a reader holds a part of it."""
        with self._lock:
            if self._file is not None and self._file.held:
                return False
            self.close()
            return True

    @property
    def held(self) -> bool:
        with self._lock:
            return self._file is not None and self._file.held

    def close(self) -> None:
        with self._lock:
            if self._open_files is not None:
                self._open_files.forget(self)
            self._file = None  # The last one who lets go of it closes it.

    def delete(self) -> None:
        """Remove the name. Readers that have found the file may still read it: the map of a lasting file
        goes with the last reference to this object, that of another file with its last slice."""
        if self._open_files is not None:
            self.close()
        self._disk.delete(self.path)
