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

from flaremq.dledger.ledger.ballots import BallotFile
from flaremq.dledger.ledger.checkpoint import LedgerCheckpoint, LedgerSafety
from flaremq.dledger.ledger.entryindex import EntryIndex
from flaremq.dledger.logwriter import LogWriter
from flaremq.dledger.relocate import relocate
from flaremq.dledger.types import Ballot
from flaremq.model import layout
from flaremq.store.files.disk import Disk

TERM: Final = 0
_BLANK: Final = struct.Struct(">ii")


class LedgerWriter(LogWriter):
    """Writes each record as an entry of term 0."""

    def __init__(self, disk: Disk, ledger: Path, file_size: int, begin: int, index: int) -> None:
        """`index` is that of the next entry."""
        super().__init__(disk, ledger / "data", file_size, begin)
        self._ledger = ledger
        self._units = EntryIndex(disk, ledger / "index")
        self._units.load()
        self._units.truncate(index)
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
        self._units.flush()

    def finish(self) -> None:
        """Everything is there: say so to the member that will open it."""
        last = self.index - 1
        LedgerCheckpoint(self._disk, self._ledger).save(LedgerSafety(last, last))
        BallotFile(self._disk, self._ledger).save(Ballot(TERM))

    def close(self) -> None:
        super().close()
        self._units.close()
