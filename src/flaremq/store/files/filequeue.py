"""A run of equal-sized files that together are one long sequence of bytes.

Each file is named by the offset of its first byte, in 20 digits. The commit log, the queues, their
extensions and the batch queues are all such runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from flaremq.base.errors import (
    CorruptStore,
)
from flaremq.store.files.disk import Disk
from flaremq.store.files.mappedfile import MappedFile, OpenFiles
from flaremq.store.settings import StoreSettings

NAME_DIGITS = 20


class LogFiles(Protocol):
    """The commit log, as a run of files with the oldest first."""

    @property
    def files(self) -> tuple[MappedFile, ...]: ...

    def drop_first(self, file: MappedFile) -> None: ...


def file_name(offset: int) -> str:
    return f"{offset:0{NAME_DIGITS}d}"


class FileQueue:
    """Files in order, without gaps. Structure changes under a lock; readers see a tuple, whole at any time.

    Invariants:
      Q1  each file begins where the one before it ends.
      Q2  only the last file with bytes in it is not full; a spare may follow it.
    """

    def __init__(
        self,
        disk: Disk,
        folders: Sequence[Path],
        file_size: int,
        *,
        open_files: OpenFiles | None = None,
        place: Callable[[int], Path] | None = None,
    ) -> None:
        self.disk = disk
        self.file_size = file_size
        self.files: tuple[MappedFile, ...] = ()
        self._folders = tuple(folders)
        self._open_files = open_files
        self._place = place or (lambda _offset: self._folders[0])
        self._lock = threading.Lock()

    def load(self) -> None:
        """Find the files on disk. They count as full until recovery says how far they reach."""
        found: dict[str, Path] = {}
        for folder in self._folders:
            for name in self.disk.names(folder):
                if name in found:
                    raise CorruptStore(f"{folder / name} and {found[name]}: the same part of the log twice")
                found[name] = folder / name
        files: list[MappedFile] = []
        for name, path in sorted(found.items()):
            file = self._loaded(name, path, last=name == max(found))
            if file is None:
                continue
            if files and file.offset != files[-1].end:
                raise CorruptStore(
                    f"{path}: begins at {file.offset}, but the file before it ends at {files[-1].end}: "
                    "a file is missing, or mapped file sizes were changed"
                )
            files.append(file)
        self.files = tuple(files)

    def _loaded(self, name: str, path: Path, *, last: bool) -> MappedFile | None:
        size = self.disk.size(path)
        if size == 0 and last:  # Created, but the process died before it got its length.
            self.disk.delete(path)
            return None
        if size != self.file_size:
            raise CorruptStore(
                f"{path}: {size} bytes long, but files here have {self.file_size}: "
                "set the mapped file size that this store was written with, or restore the file"
            )
        if not (name.isascii() and name.isdigit()):
            raise CorruptStore(f"{path}: not a name of {NAME_DIGITS} digits: move this file away")
        file = MappedFile(self.disk, path, int(name), size, self._open_files)
        file.set_positions(size)
        return file

    @property
    def folder(self) -> Path:
        """The first of its folders; the log alone may have several."""
        return self._folders[0]

    @property
    def begin(self) -> int:
        """Offset of the first byte that is still there; 0 when there is no file."""
        files = self.files
        return files[0].offset if files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at `offset`, or None."""
        files = self.files
        if not files:
            return None
        at = (offset - files[0].offset) // self.file_size
        return files[at] if 0 <= at < len(files) else None

    def path_of(self, offset: int) -> Path:
        return self._place(offset) / file_name(offset)

    def add(self, offset: int, *, reserved: bool = False) -> MappedFile:
        """Append a file that begins at `offset`: create it, or take the spare one that is there."""
        path = self.path_of(offset)
        if not self.disk.exists(path):
            self.disk.create(path, self.file_size, reserved=reserved)
        if self._open_files is not None:
            self._open_files.named(path)
        file = MappedFile(self.disk, path, offset, self.file_size, self._open_files)
        self.adopt(file)
        return file

    def adopt(self, file: MappedFile) -> None:
        """Append a file that was made elsewhere."""
        with self._lock:
            assert not self.files or self.files[-1].end == file.offset  # Q1
            self.files = (*self.files, file)

    def truncate(self, offset: int, *, keep_first: bool = False) -> None:
        """Forget all bytes from `offset` on: the file that holds it is cut, later ones go.

        With `keep_first` a run that loses all its bytes goes on where it began, and not at 0.
        """
        with self._lock:
            keep = [file for file in self.files if file.offset < offset]
            if keep_first and not keep:
                keep = list(self.files[:1])
            gone = self.files[len(keep) :]
            self.files = tuple(keep)
        for file in reversed(gone):
            file.delete()
            # One after the other, also on the disk: no power failure may leave a gap, or bring one back.
            self.disk.sync_folder(file.path.parent)
        if keep and keep[-1].wrote > offset - keep[-1].offset:
            keep[-1].cut(offset - keep[-1].offset)

    def drop_first(self, file: MappedFile) -> None:
        """Take the first file out of the run. Its bytes are the caller's business."""
        with self._lock:
            assert self.files and self.files[0] is file
            self.files = self.files[1:]

    def destroy(self) -> None:
        with self._lock:
            gone, self.files = self.files, ()
        for file in gone:
            file.delete()

    def close(self) -> None:
        for file in self.files:
            file.close()


class Placement:
    """Which folder a log file belongs to when the log is spread over several disks."""

    def __init__(self, disk: Disk, settings: StoreSettings) -> None:
        self._disk = disk
        self.full_ratio = settings.disk_clean_forcibly_ratio
        self.all_folders: Sequence[Path] = sorted(
            {*settings.commitlog_folders, *settings.read_only_commitlog_folders}
        )
        self._writable = [
            f for f in settings.commitlog_folders if f not in settings.read_only_commitlog_folders
        ]
        self._file_size = settings.commitlog_file_size

    def folder_for(self, offset: int) -> Path:
        """Round and round over the writable folders whose disk is not full; over all if all are."""
        if len(self._writable) == 1:
            return self._writable[0]
        roomy = [f for f in self._writable if self._disk.used_ratio(f) <= self.full_ratio]
        folders = sorted(roomy or self._writable)
        return folders[offset // self._file_size % len(folders)]
