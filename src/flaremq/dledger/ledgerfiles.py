"""The files of a ledger, written: entries, their index, how far they are committed, and the term.

    dledger-n0/data/         entries, one behind the other; files end in a blank of their own kind
    dledger-n0/index/        a unit for each entry, at 32 * its index
    dledger-n0/checkpoint    the committed and the last index
    dledger-n0/currterm      the term, and for whom this member has voted in it

A member opens them as those of a group that has just been started: term 0, nobody elected.
"""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from typing import Final

from flaremq.base.files import replace_whole
from flaremq.dledger.logwriter import LogWriter
from flaremq.dledger.relocate import relocate
from flaremq.model import layout
from flaremq.store.files.disk import Disk, DiskFile
from flaremq.store.files.filequeue import file_name

TERM: Final = 0
_BLANK: Final = struct.Struct(">ii")


def ledger_folder(root: Path, self_id: str) -> Path:
    """Where a member keeps its ledger, below its storePathRootDir."""
    return root / f"dledger-{self_id}"


class LedgerWriter(LogWriter):
    """Writes each record as an entry of term 0."""

    def __init__(self, disk: Disk, ledger: Path, file_size: int, begin: int, index: int) -> None:
        """`index` is that of the next entry."""
        super().__init__(disk, ledger / "data", file_size, begin)
        self._ledger = ledger
        self._units = _UnitFiles(disk, ledger / "index")
        self.index = index

    @property
    def record_size_max(self) -> int:
        return super().record_size_max - layout.DLEDGER_HEADER_SIZE

    def _copy(
        self, source: memoryview, facts: array[int], first: int, count: int, moved: array[int]
    ) -> tuple[int, int]:
        units = bytearray((count - first) * layout.DLEDGER_UNIT_SIZE)
        done, at = relocate(
            source, facts, first, count, self.view, self._at, self.base, moved, units, self.index, TERM
        )
        self._units.put(self.index, memoryview(units)[: (done - first) * layout.DLEDGER_UNIT_SIZE])
        self.index += done - first
        return done, at

    def _end_file(self, view: memoryview, at: int) -> None:
        _BLANK.pack_into(view, at, layout.DLEDGER_BLANK_MAGIC, self.file_size - at)

    def synced(self) -> None:
        super().synced()
        self._units.synced()

    def finish(self) -> None:
        """Everything is there: say so to the member that will open it."""
        last = self.index - 1
        replace_whole(self._ledger / "checkpoint", f"committedIndex={last}\nendIndex={last}\n".encode())
        replace_whole(self._ledger / "currterm", f"voteLeader=\ncurrTerm={TERM}\n".encode())

    def close(self) -> None:
        super().close()
        self._units.close()


class _UnitFiles:
    """The index of a ledger."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._file: DiskFile | None = None
        self._begin = -1

    def put(self, index: int, units: memoryview) -> None:
        position = index * layout.DLEDGER_UNIT_SIZE
        while units:
            begin = position // layout.DLEDGER_INDEX_FILE_SIZE * layout.DLEDGER_INDEX_FILE_SIZE
            file = self._at(begin)
            size = min(len(units), begin + layout.DLEDGER_INDEX_FILE_SIZE - position)
            file.put(position - begin, units[:size])
            position, units = position + size, units[size:]

    def _at(self, begin: int) -> DiskFile:
        if self._file is None or begin != self._begin:
            self.synced()
            self.close()
            path = self._folder / file_name(begin)
            self._disk.make_folder(self._folder)
            if not self._disk.exists(path):
                self._disk.create(path, layout.DLEDGER_INDEX_FILE_SIZE)
            self._file = self._disk.open(path, layout.DLEDGER_INDEX_FILE_SIZE, lasting=True)
            self._begin = begin
        return self._file

    def synced(self) -> None:
        if self._file is not None:
            self._file.sync()
            self._disk.sync_folder(self._folder)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
