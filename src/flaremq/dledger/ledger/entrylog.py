"""The entries of a member's log as they are found: by their index, by the run, as far as they are decided on.

Offsets are those of records, 48 bytes behind the beginning of their entries; ends and beginnings of the log
are those of entries.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from flaremq.base.clock import Clock
from flaremq.base.errors import CorruptStore
from flaremq.base.lifecycle import Listener, WorkerFactory
from flaremq.base.watermark import Watermark
from flaremq.dledger.ledger.checkpoint import FROM_ZERO
from flaremq.dledger.ledger.damage import KnownDamage
from flaremq.dledger.ledger.entryindex import EntryIndex, EntryUnit
from flaremq.dledger.types import EntryRun
from flaremq.model import layout
from flaremq.model.record import walk_entries
from flaremq.store.api import Stretch, Window
from flaremq.store.commitlog import CommitLog
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import LogFiles
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.settings import StoreSettings

_SIZES: Final = struct.Struct(">ii")
_INDEX_AT: Final = slice(8, 16)  # In the head of an entry.


class EntryLog(CommitLog):
    """A commit log of entries. How they get there, and go again, is the business of `RaftLog`."""

    walk_file = staticmethod(walk_entries)
    head = layout.DLEDGER_HEADER_SIZE
    is_shared: ClassVar[bool] = True
    files_ahead: ClassVar[int] = 1
    """DLedger refuses to start if more than one file lies behind the one in which the entries end, and a
    member that was killed leaves its files as they are (DLedgerMmapFileStore.recover)."""

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        clock: Clock,
        store_host: bytes,
        offsets: QueueOffsets,
        *,
        folder: Path,
        roll_wait_s: float,
        listener: Listener | None,
        workers: WorkerFactory,
        unit_file_size: int,
    ) -> None:
        super().__init__(
            *(disk, settings, clock, store_host, offsets),
            roll_wait_s=roll_wait_s,
            listener=listener,
            workers=workers,
        )
        self.folder = folder
        self.flushes_at_once = True
        self.index = EntryIndex(disk, folder / "index", unit_file_size)
        self.committed = Watermark()
        """Behind the last entry that the group has decided on."""
        self.committed_index = -1
        self.last_index = self.last_term = -1
        self.last_end = 0
        """Behind the last entry. The log itself may end with a blank behind that."""
        self.rosters: Mapping[int, Mapping[str, str]] = {}
        """Who belongs to the group, by the entries that say so. Replaced, never changed."""
        self.known_damage = KnownDamage()
        self._beginning = FROM_ZERO
        self._oldest: tuple[MappedFile | None, int] = None, 0
        self._synced = 0, -1

    @property
    def begin(self) -> int:
        files = self.files.files
        return files[0].offset if files else self._beginning.position

    @property
    def end(self) -> int:
        return super().end if self.files.files else self._beginning.position

    @property
    def safe(self) -> Watermark:
        return self.committed

    @property
    def confirmed(self) -> int:
        return min(self.readable_end, self.committed.value)

    @property
    def first_index(self) -> int:
        """Of the oldest entry that is still there; last_index + 1 without any."""
        files = self.files.files
        if not files or self.last_end == files[0].offset:
            return self.last_index + 1
        if self._oldest[0] is not files[0]:
            self._oldest = files[0], int.from_bytes(files[0].view[_INDEX_AT], "big")
        return self._oldest[1]

    @property
    def synced_index(self) -> int:
        """The last entry that is on the disk, with all before it."""
        flushed, last = self.flushed.value, self.last_index
        if flushed >= self.last_end:
            return last
        known, index = self._synced
        if flushed != known:
            first = self.first_index
            index = self.index.last_before(
                flushed, max(first, min(index, last) if flushed > known else first), last
            )
            self._synced = flushed, index
        return min(index, last)

    def unit(self, index: int) -> EntryUnit | None:
        """Where an entry lies that is there."""
        return self.index.unit(index) if self.first_index <= index <= self.last_index else None

    def term_at(self, index: int) -> int:
        """-1 if there is no such entry. The one before the first is known as long as the index has it."""
        if index == self.last_index:
            return self.last_term
        if not 0 <= index < self.last_index:
            return -1
        if index == self._beginning.first - 1:
            return self._beginning.previous_term
        unit = self.index.unit(index) if index >= self.first_index - 1 else None
        return -1 if unit is None else unit.term

    def run(self, first: int, bytes_max: int) -> EntryRun | None:
        """Entries of one file from `first` on: at least one, then as many as fit. None also while that one is
        known to be damaged: nobody else is to have it so."""
        unit = self.unit(first)
        if unit is None:
            return None
        file = self.files.find(unit.position)
        if file is None:
            return None
        end = min(unit.position + max(bytes_max, unit.size), file.end)
        damage = self.known_damage.within(unit.position, end)
        if damage is not None:
            if damage.position < unit.end:
                return None
            end = damage.position
        last = (
            self.last_index if self.last_end <= end else self.index.last_before(end, first, self.last_index)
        )
        newest = self.unit(last)
        if newest is None:
            raise CorruptStore(
                f"{self.folder}: its index does not know entry {last}: start this member again"
            )
        view = file.view[unit.position - file.offset : newest.end - file.offset]
        return EntryRun(first, unit.position, self._terms(unit, newest), view.toreadonly())

    def _terms(self, first: EntryUnit, last: EntryUnit) -> tuple[tuple[int, int], ...]:
        terms, at, term = [], first.index, first.term
        while term != last.term:
            border = self.index.last_of_term(term, at, last.index)
            terms.append((term, border - at + 1))
            at, term = border + 1, self.term_at(border + 1)
        return (*terms, (term, last.index - at + 1))

    def walk(self, begin: int, end: int, facts: array[int], check: int) -> Stretch | None:
        """As far as the group has decided."""
        return super().walk(begin, min(end, self.confirmed), facts, check)

    # Readers. Raises CorruptStore where damage is known; what is sound around it is read.

    def slice(self, offset: int, size: int) -> memoryview | None:
        self.known_damage.check(offset, offset + size)
        return super().slice(offset, size)

    def window(self, offset: int) -> Window | None:
        found = super().window(offset)
        if found is None or not self.known_damage.found:
            return found
        self.known_damage.check(offset, offset + 1)
        view, base = found
        damage = self.known_damage.within(offset, base + len(view))
        return found if damage is None else (view[: damage.position - base], base)

    def damaged_size(self, view: memoryview, at: int) -> int:
        size: int = _SIZES.unpack_from(view, at)[1]
        return size

    @property
    def deletable(self) -> LogFiles:
        return _DecidedFiles(self)

    @property
    def needs_oldest(self) -> bool:
        """Whether the oldest file alone says who the members are: it may not go before that is said again."""
        files = self.files.files
        index = max((index for index in self.rosters if index <= self.committed_index), default=-1)
        unit = self.unit(index) if files else None
        return unit is not None and unit.position < files[0].end


class _DecidedFiles:
    """The files of a log, if the group has decided on all that the oldest one holds, and it is not needed."""

    def __init__(self, entry_log: EntryLog) -> None:
        self._log = entry_log

    @property
    def files(self) -> tuple[MappedFile, ...]:
        files = self._log.files.files
        may_go = files and files[0].end <= self._log.committed.value and not self._log.needs_oldest
        return files if may_go else ()

    def drop_first(self, file: MappedFile) -> None:
        self._log.files.drop_first(file)
