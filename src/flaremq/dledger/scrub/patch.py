"""Entries of another member, judged and written in the place of damaged ones.

All members have the same entries at the same positions, so a file is repaired in place. What another member
gives is taken only if it can be nothing else: its indexes and positions fit into the hole without a byte to
spare, its terms lie between those of the neighbours, its CRCs hold, and the index agrees wherever it has
something to say. What is written is synced and read again from the disk.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flaremq.base.errors import FileUnavailable, Malformed
from flaremq.base.units import MiB
from flaremq.dledger.ledger.damage import LedgerDamage
from flaremq.dledger.ledger.entryindex import EntryUnit
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.dledger.scrub.coldledger import UNIT_SIZE, ColdLedger, Examiner
from flaremq.dledger.types import EntryRun
from flaremq.model import layout
from flaremq.store.files.coldfile import BLOCK
from flaremq.store.files.disk import Disk
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import MappedFile

_BLANK: Final = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Patch:
    """Entries that may be written here."""

    run: EntryRun
    units: bytes

    @property
    def end(self) -> int:
        return self.run.position + len(self.run.data)


class Patcher:
    """Of one log. Of one thread at a time."""

    def __init__(self, log: RaftLog, disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self._examiner = Examiner()

    # Judging.

    def judge(self, damage: LedgerDamage, run: EntryRun) -> Patch:
        """Raise Malformed unless these are the damaged entries, from the first one on."""
        self._check_place(damage, run)
        view = memoryview(run.data)
        units, at, index, term = bytearray(), 0, run.first, damage.previous_term
        while at < len(view):
            found = self._examiner.examine(view[at:], run.position + at, index, term)
            if not found.entries:
                raise Malformed(
                    f"entry {index} is not sound there: its bytes do not have the CRC of its head"
                )
            units += found.units
            at, index, term = at + found.size, index + found.entries, found.last_term
        if index != run.first + run.count or term != run.last_term:
            raise Malformed(f"{index - run.first} entries came, and {run.count} were announced")
        if 0 <= damage.next_term < term:
            raise Malformed(
                f"entry {run.last} is of term {term}, and the one behind it of {damage.next_term}"
            )
        self._check_units(damage, run, units)
        return Patch(run, bytes(units))

    def _check_place(self, damage: LedgerDamage, run: EntryRun) -> None:
        file_size = self._log.file_size
        next_file = -(-damage.position // file_size) * file_size
        if run.first != damage.first or not run.count or run.last > damage.last:
            raise Malformed(
                f"entries {run.first} to {run.last} came: expected {damage.first} to {damage.last}, or the "
                "first of them"
            )
        fits = run.position == damage.position or (
            run.position == next_file and next_file - damage.position >= layout.BLANK_SIZE
        )
        end = run.position + len(run.data)
        crosses = run.position % file_size + len(run.data) + layout.BLANK_SIZE > file_size
        if not fits or crosses or end > damage.end:
            raise Malformed(
                f"entries {run.first} to {run.last} lie at {run.position} to {end} there, and here they "
                f"belong between {damage.position} and {damage.end}"
            )
        if run.last == damage.last and not self._closes(damage, end):
            raise Malformed(
                f"entry {run.last} ends at {end} there, and here the next one begins at {damage.end}"
            )

    def _closes(self, damage: LedgerDamage, end: int) -> bool:
        """Whether nothing, or the blank that ends a file, is left behind the last entry."""
        file_size, left = self._log.file_size, damage.end - end
        return not left or (damage.end % file_size == 0 and layout.BLANK_SIZE <= left < file_size)

    def _check_units(self, damage: LedgerDamage, run: EntryRun, units: bytearray) -> None:
        """What the index says of these entries must be the same, as far as it is about this place."""
        with ColdLedger(self._log, self._disk) as cold:
            for known in _known_units(cold, run):
                place = (known.index - run.first) * UNIT_SIZE
                (given,) = EntryUnit.iter_unpack(memoryview(units)[place : place + UNIT_SIZE])
                is_of_here = damage.position <= known.position and known.end <= damage.end
                same_term = given.term in damage.terms if damage.terms else given.term == known.term
                if is_of_here and (
                    (given.position, given.size) != (known.position, known.size) or not same_term
                ):
                    raise Malformed(
                        f"entry {known.index} has {given.size} bytes and term {given.term} there, and by the "
                        f"index here {known.size} bytes and term {known.term}"
                    )

    # Writing.

    def write(self, damage: LedgerDamage, patch: Patch) -> None:
        """Bring these to the disk, with their units, and with the blanks before and behind them."""
        run = patch.run
        if run.position != damage.position:
            self.write_blank(damage.position, run.position)
        self.put(self._log.files, run.position, run.data)
        if run.last == damage.last and patch.end != damage.end:
            self.write_blank(patch.end, damage.end)
        with ColdLedger(self._log, self._disk) as cold:
            self.write_units(cold, run.first, memoryview(patch.units))

    def write_blank(self, begin: int, end: int) -> None:
        """Let a file end there as its leader has ended it: with a blank, and zeros behind."""
        self.put(self._log.files, begin, _BLANK.pack(layout.DLEDGER_BLANK_MAGIC, end - begin))
        for at in range(begin + layout.BLANK_SIZE, end, MiB):
            self.put(self._log.files, at, bytes(min(MiB, end - at)))

    def write_units(self, cold: ColdLedger, first: int, units: memoryview) -> int:
        """Those that the index does not have already; how many that were."""
        written = 0
        while units:
            raw = bytes(cold.raw_units(first, len(units) // UNIT_SIZE))
            room = self._log.index.files.file_size
            size = min(len(units), room - first * UNIT_SIZE % room)
            if raw[:size] != units[:size]:
                self.put(self._log.index.files, first * UNIT_SIZE, units[:size])
                written += size // UNIT_SIZE
            first, units = first + size // UNIT_SIZE, units[size:]
        return written

    def put(self, files: FileQueue, place: int, data: bytes | bytearray | memoryview) -> None:
        """Write into one file, which a broker has open, and see that it is on the disk. Raises StoreError."""
        file = files.find(place)
        if file is None:
            raise FileUnavailable(f"{files.folder}: the file of byte {place} is not there any more")
        at, view = place - file.offset, memoryview(data)
        self._disk.lengthen(file.path, file.size)
        # A descriptor of its own: an error of this sync is nobody else's, and no other one is missed.
        fresh = self._disk.open(file.path, file.size, lasting=True)
        try:
            try:
                fresh.write(at, view)
            except FileUnavailable:
                # A part of a block that cannot be read cannot be written either, and a whole block can.
                block, whole = self._whole_blocks(files, file, at, view)
                fresh.write(block, whole)
            fresh.sync()
        finally:
            fresh.close()
        self._verify(file.path, at, view)

    def _whole_blocks(
        self, files: FileQueue, file: MappedFile, at: int, view: memoryview
    ) -> tuple[int, bytes]:
        begin, end = at // BLOCK * BLOCK, min(file.size, -(-(at + len(view)) // BLOCK) * BLOCK)
        is_data = files is self._log.files
        cold_end = self._log.committed.value if is_data else self._log.committed_index * UNIT_SIZE
        if file.offset + end > cold_end:
            raise FileUnavailable(
                f"{file.path}: byte {at} cannot be written while the block around it is appended to; it is "
                "tried again"
            )
        upto = at + len(view)
        with self._disk.cold(file.path) as cold:
            found = cold.read(begin, at - begin)
            before = bytes(found.view[: found.readable]).ljust(at - begin, b"\0")
            found = cold.read(upto, end - upto)
            behind = bytes(found.view[: found.readable]).ljust(end - upto, b"\0")
        return begin, before + bytes(view) + behind

    def _verify(self, path: Path, at: int, view: memoryview) -> None:
        with self._disk.cold(path) as cold:
            for begin in range(0, len(view), MiB):
                part = view[begin : begin + MiB]
                found = cold.read(at + begin, len(part))
                if not found.is_whole() or found.view != part:
                    raise FileUnavailable(
                        f"{path}: what was written to byte {at + begin} is not what the disk gives back: "
                        "replace the disk, and start this member with an empty folder"
                    )


def _known_units(cold: ColdLedger, run: EntryRun) -> Iterator[EntryUnit]:
    index = run.first
    while index <= run.last:
        found = cold.units(index, min(4096, run.last - index + 1))
        yield from (each for each in found if each is not None)
        if not found:
            return
        index += len(found)
