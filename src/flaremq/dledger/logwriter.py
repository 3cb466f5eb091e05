"""A log written anew, file by file: a commit log here, a ledger in `ledgerfiles`.

Nothing that is written can be relied on before `synced` has been called. A writer goes on where a file
begins, so that a conversion that was interrupted repeats one file at most.
"""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from typing import Final

from flaremq.dledger.relocate import relocate
from flaremq.model import layout
from flaremq.store.files.disk import Disk, DiskFile
from flaremq.store.files.filequeue import file_name

_BLANK: Final = struct.Struct(">ii")


class LogWriter:
    """Writes records one behind the other, each with its new offset."""

    def __init__(self, disk: Disk, folder: Path, file_size: int, begin: int) -> None:
        """`begin` is where a file begins. What lies there, from another time, is written over."""
        assert begin % file_size == 0
        self._disk = disk
        self._folder = folder
        self._file: DiskFile | None = None
        self._at = 0
        self.file_size = file_size
        self.base = begin
        """Where the present file begins."""
        self.view = memoryview(b"")
        """The present file."""

    @property
    def end(self) -> int:
        return self.base + self._at

    @property
    def record_size_max(self) -> int:
        """Of a record that fits into a file."""
        return self.file_size - layout.BLANK_SIZE

    def put(self, source: memoryview, facts: array[int], first: int, count: int, moved: array[int]) -> int:
        """Copy rows of records, as many as fit into the present file; the row at which to go on."""
        if self._file is None:
            self._open()
        done, self._at = self._copy(source, facts, first, count, moved)
        return done

    def _copy(
        self, source: memoryview, facts: array[int], first: int, count: int, moved: array[int]
    ) -> tuple[int, int]:
        return relocate(source, facts, first, count, self.view, self._at, self.base, moved)

    def roll(self) -> None:
        """End the present file, which is full, and bring it to the disk."""
        file = self._file
        assert file is not None
        self._end_file(self.view, self._at)
        self.synced()
        self.view = memoryview(b"")
        file.close()
        self._file = None
        self.base, self._at = self.base + self.file_size, 0

    def synced(self) -> None:
        """Return when everything that was written is on the disk."""
        if self._file is not None:
            self._file.sync()
            self._disk.sync_folder(self._folder)

    def close(self) -> None:
        self.view = memoryview(b"")
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end_file(self, view: memoryview, at: int) -> None:
        _BLANK.pack_into(view, at, self.file_size - at, layout.BLANK_MAGIC)

    def _open(self) -> None:
        path = self._folder / file_name(self.base)
        if self._disk.exists(path):
            self._disk.delete(path)
        self._disk.make_folder(self._folder)
        self._disk.create(path, self.file_size, reserved=True)
        self._file = self._disk.open(path, self.file_size, lasting=True)
        self.view = self._file.view
