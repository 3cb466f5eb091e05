"""What of a ledger is whole, after a stop or a crash.

The problem
-----------
Entries, their index and the checkpoint reach the disk at different moments, and a crash may tear the last
entries. A member may lose entries that it never said were on its disk: the group has not counted on them. But
if one is missing that it has acknowledged, it must not vote as if nothing had happened: its vote might elect
a leader who lacks what the group has decided.

How it works
------------
The checkpoint says up to which entry everything was on the disk, index included (`endIndex`). So the walk
begins with the newest file whose first entry is not behind that, and agrees with the index. It follows
entries as long as each is sound: its place, its index, a term that does not fall, and the CRC of its record,
if it has one. The index is written anew where it disagrees. What lies behind the last sound entry is cut.

If that last one is before `endIndex`, something was lost that had been safe. That is damage, and is reported.

An example
----------
    checkpoint    endIndex=700
    files         entries 0 to 499, and from 500 on
    the walk      500 ... 731, then half an entry       the ledger ends with 731
                  500 ... 640, then half an entry       damage: 641 to 700 were on the disk
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field
from typing import Final

from flaremq.base.logs import logger
from flaremq.dledger.ledger.checkpoint import Beginning, LedgerSafety
from flaremq.dledger.ledger.entries import examine
from flaremq.dledger.ledger.entryindex import EntryIndex
from flaremq.dledger.ledger.records import members_in
from flaremq.model import layout
from flaremq.model.columns import Stop
from flaremq.store.files.filequeue import FileQueue
from flaremq.store.files.mappedfile import MappedFile

log = logger("dledger.soundness")

_HEAD: Final = struct.Struct(layout.DLEDGER_HEADER_FORMAT)
_INT: Final = struct.Struct(">i")
_ROWS: Final = 4096


@dataclass(slots=True)
class SoundLedger:
    """The whole entries of a ledger."""

    first: int
    """Index of the oldest; last + 1 without any."""
    last: int
    last_term: int
    end: int
    """Behind the last one."""
    rosters: dict[int, dict[str, str]] = field(default_factory=dict)
    damage: str = ""
    """What has been lost that was known to be on the disk; empty if nothing has."""


def find_sound(files: FileQueue, index: EntryIndex, known: LedgerSafety | None) -> SoundLedger:
    """Walk the newest part of a ledger, and bring its index up to that. Nothing is cut here."""
    safety = known or LedgerSafety()
    walk = _Walk(files, index, safety)
    sound = walk.run()
    if known is None and sound.last >= 0:
        sound.damage = "its checkpoint is missing, so nobody knows what of it was on the disk"
    elif sound.last < safety.end:
        sound.damage = (
            f"entries {sound.last + 1} to {safety.end} were on the disk and are not there, or not sound, "
            "any more"
        )
    return sound


class _Walk:
    def __init__(self, files: FileQueue, index: EntryIndex, safety: LedgerSafety) -> None:
        self._files = files
        self._index = index
        self._safety = safety
        self._units = memoryview(bytearray(_ROWS * layout.DLEDGER_UNIT_SIZE))
        self._marked = array("q")

    def run(self) -> SoundLedger:
        files, beginning = self._files.files, self._safety.beginning
        oldest = _head(files[0]) if files else None
        if oldest is None or (files[0].offset == 0 and oldest[0] != 0):
            begin = files[0].offset if files else beginning.position
            return self._empty(begin, beginning)
        number, (first, term) = self._start(files, oldest)
        sound = SoundLedger(oldest[0], first - 1, term, files[number].offset)
        for index, roster in self._safety.rosters.items():
            if index < first:
                sound.rosters[index] = dict(roster)
        for file in files[number:]:
            if not self._file(file, sound):
                break
        return sound

    @staticmethod
    def _empty(begin: int, beginning: Beginning) -> SoundLedger:
        if begin != beginning.position:
            beginning = Beginning(0, begin)
        return SoundLedger(beginning.first, beginning.first - 1, beginning.previous_term, beginning.position)

    def _start(self, files: tuple[MappedFile, ...], oldest: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        """The file to begin with, and index and term of its first entry."""
        for number in range(len(files) - 1, 0, -1):
            head = _head(files[number])
            if head is None or head[0] > self._safety.end + 1:
                continue
            unit = self._index.unit(head[0])
            if unit is not None and (unit.position, unit.term) == (files[number].offset, head[1]):
                return number, head
        return 0, oldest

    def _file(self, file: MappedFile, sound: SoundLedger) -> bool:
        """Walk the entries of one file; whether the log goes on in the next one."""
        at, stop, spans = 0, int(Stop.LIMIT), array("q")
        while stop == Stop.LIMIT and at < file.size:
            before = sound.last + 1
            count, at, stop = examine(
                *(file.view, at, file.size, file.offset, before, sound.last_term),
                *(self._units, spans, self._marked),
            )
            if not count:
                break
            units = self._units[: count * layout.DLEDGER_UNIT_SIZE]
            if self._index.differs(before, units):
                self._index.put(before, units)
            sound.last, sound.last_term, sound.end = before + count - 1, spans[-2], file.offset + at
            self._note_members(file, sound)
        return stop == Stop.BLANK

    def _note_members(self, file: MappedFile, sound: SoundLedger) -> None:
        for index, members in members_marked(file.view, self._marked):
            sound.rosters[index] = members
        del self._marked[:]


def members_marked(view: memoryview, marked: array[int]) -> list[tuple[int, dict[str, str]]]:
    """Entries among these that say who the members are, each with what it says."""
    found = []
    for index, at in zip(marked[0::2], marked[1::2], strict=True):
        (size,) = _INT.unpack_from(view, at)
        members = members_in(view[at : at + size])
        if members is not None:
            found.append((index, members))
    return found


def _head(file: MappedFile) -> tuple[int, int] | None:
    """Index and term of the first entry of a file; None if there is none."""
    magic, _, index, term, position, *_ = _HEAD.unpack_from(file.view)
    if magic != layout.DLEDGER_MAGIC or position != file.offset or index < 0 or term < 0:
        return None
    return index, term
