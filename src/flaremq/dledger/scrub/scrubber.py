"""Reads all files of a ledger again, once in a period, and finds what has rotted.

The problem
-----------
A message is on the disks of a majority when it is acknowledged, and is then perhaps not read for months.
Disks lose bits meanwhile. Nobody notices as long as nobody reads, and by then another copy may be gone too.

How it works
------------
A pass goes from the oldest entry to the last one that was decided on when the pass began. It reads the disk
itself (`store.files.coldfile`) in slices, with a pause behind each, in a thread of its own.

    entries   each must be sound (`coldledger`), and be what the index says
    index     a unit that disagrees with a sound entry is written anew from it: no other member is needed
    blank     so is the filler that ends a file: it is nothing but zeros behind its head
    a hole    from the first entry that is not sound to the next one that is; the index says where that may be

A hole is noted (`KnownDamage`), and the walk goes on behind it. Repairing it is the business of `repairs`. If
an entry and the index only disagree about its term, one of them is wrong, and nothing here says which:
another member does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.lifecycle import Worker
from flaremq.base.logs import fields, logger
from flaremq.base.units import MiB
from flaremq.dledger.frames import FRAME_MAX
from flaremq.dledger.ledger.damage import LedgerDamage
from flaremq.dledger.ledger.entryindex import EntryUnit
from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.dledger.scrub.coldledger import HEAD_SIZE, UNIT_SIZE, ColdLedger, Examined
from flaremq.dledger.scrub.patch import Patcher
from flaremq.dledger.scrub.place import ScrubNote, ScrubPlace
from flaremq.dledger.types import Index
from flaremq.model import layout
from flaremq.model.columns import Stop
from flaremq.store.files.disk import Disk
from flaremq.store.files.mappedfile import MappedFile

log = logger("dledger.scrub")

SLICE: Final = 1 * MiB
_KNOWN_MAX: Final = 64
"""So many damaged places are known at a time: a disk that has more is to be replaced, not to be mended."""
_SAVED_BYTES: Final = 64 * MiB
_LOOK_S: Final = 1.0
_REST_MAX_S: Final = 3600.0


class Scrubber:
    """Called by one thread."""

    def __init__(
        self, raft_log: RaftLog, disk: Disk, clock: Clock, *, interval_s: float, bytes_per_s: int
    ) -> None:
        self._log = raft_log
        self._disk = disk
        self._clock = clock
        self._interval_s = interval_s
        self._bytes_per_s = bytes_per_s
        self._cold = ColdLedger(raft_log, disk)
        self._patcher = Patcher(raft_log, disk)
        self._note = ScrubNote(disk, raft_log.folder)
        self._place: ScrubPlace | None = None
        self._is_loaded = False
        self._unsaved = 0
        self._suspect: ScrubPlace | None = None
        """Where something was wrong at the first look. It may be the log that changes just then."""
        self.passes = 0
        """That have ended since the start."""
        self.mended = 0
        """Units and blanks that were written anew, since the start."""

    @property
    def scrubbed_bytes(self) -> int:
        return self._cold.read_bytes

    # The pass.

    def step(self, _worker: Worker) -> float:
        """Read a slice; for how long to rest then."""
        if not self._is_loaded:
            self._load()
        known = self._log.known_damage
        known.forget_outside(self._log.begin, self._log.last_index)
        if len(known.found) >= _KNOWN_MAX:
            return _LOOK_S
        before, damage = self._cold.read_bytes, known.found
        place = self._place
        if place is None or place.is_over:
            place = self._begun(place)
        if place is None:
            return self._rest_s()
        try:
            self._place = self._slice(place)
        finally:
            self._cold.close()
        size = self._cold.read_bytes - before
        self._unsaved += size
        if self._place.is_over or self._unsaved >= _SAVED_BYTES or known.found != damage:
            self._save()
        if self._place.is_over:
            self.passes += 1
        return size / self._bytes_per_s or _LOOK_S

    def _load(self) -> None:
        place, damage = self._note.load()
        if place is not None and (place.is_over or self._is_here(place.index, place.position)):
            self._place = place
        for each in damage:
            if self._is_here(each.first, each.position) and not self._is_repaired(each):
                self._log.known_damage.add(each)
        self._is_loaded = True

    def _is_here(self, index: Index, position: int) -> bool:
        """Whether the note still tells of this log: it may have been cut, or begun anew, since."""
        unit, file_size = self._log.unit(index), self._log.file_size
        next_file = -(-position // file_size) * file_size
        return unit is not None and unit.position in (position, next_file)

    def _is_repaired(self, damage: LedgerDamage) -> bool:
        """Whether the process ended between a repair and its note."""
        try:
            for index in range(damage.first, damage.last + 1):
                found = self._cold.units(index, 1)
                if damage.terms or not found or found[0] is None or not self._cold.is_sound(found[0]):
                    return False
        except FileNotFoundError:
            return False
        finally:
            self._cold.close()
        return True

    def _save(self) -> None:
        if self._place is not None:
            self._note.save(self._place, self._log.known_damage.found)
            self._unsaved = 0

    def _rest_s(self) -> float:
        """Until the next pass; with a look now and then, as damage may have been repaired meanwhile."""
        self._save()
        place = self._place
        if place is None:
            return _LOOK_S
        due_s = place.began_ms / 1000 + self._interval_s - self._clock.now_ms() / 1000
        return min(max(_LOOK_S, due_s), self._interval_s, _REST_MAX_S)

    def _begun(self, last: ScrubPlace | None) -> ScrubPlace | None:
        """A new pass, if it is time, and there is anything to read."""
        now_ms = self._clock.now_ms()
        if last is not None and 0 <= now_ms - last.began_ms < self._interval_s * 1000:
            return None
        raft_log, end = self._log, self._log.committed.value
        index = min(raft_log.committed_index, raft_log.synced_index)
        unit = raft_log.unit(index)
        if unit is None or unit.end > end:
            return None
        return self._oldest(ScrubPlace(now_ms, 0, 0, -1, index, unit.end))

    def _oldest(self, place: ScrubPlace) -> ScrubPlace:
        first = self._log.first_index
        return replace(place, index=first, position=self._log.begin, term=self._log.term_at(first - 1))

    # A slice.

    def _slice(self, place: ScrubPlace) -> ScrubPlace:
        if place.position < self._log.begin:
            place = self._oldest(place)  # Retention was faster.
        file = self._log.files.find(place.position)
        if file is None or place.last > self._log.last_index:
            return replace(place, index=place.last + 1)  # The log has begun anew.
        try:
            return self._read(place, file)
        except FileNotFoundError:
            # Retention takes its name away first, and the file out of the log then.
            return self._hole(place, file, f"{file.path} is gone", is_there=False)

    def _read(self, place: ScrubPlace, file: MappedFile) -> ScrubPlace:
        stop_at = min(file.end, place.end)
        found = self._cold.data(place.position, min(SLICE, stop_at - place.position))
        data, rows = found.view[: found.readable], place.last - place.index + 1
        examined = self._cold.examine(data, place.position, place.index, place.term, rows)
        if examined.entries:
            return self._compared(place, examined)
        if examined.stop == Stop.BLANK or self._ends(place, file):
            return self._blank(place, file)
        if found.is_whole():
            larger = self._large(place, stop_at)
            if larger is not None:
                return self._compared(place, larger)
            return self._hole(place, file, "it is not sound any more")
        return self._hole(place, file, "the disk cannot read it")

    def _large(self, place: ScrubPlace, stop_at: int) -> Examined | None:
        """The entry there, if it is a sound one that is larger than a slice."""
        head = self._cold.head(place.position)
        if head is None or not SLICE < head.size <= min(FRAME_MAX, stop_at - place.position):
            return None
        found = self._cold.data(place.position, head.size)
        if not found.is_whole():
            return None
        examined = self._cold.examine(found.view, place.position, place.index, place.term, 1)
        return examined if examined.entries else None

    def _compared(self, place: ScrubPlace, examined: Examined) -> ScrubPlace:
        """Behind sound entries, as far as the index does not call their terms in question."""
        units, count = examined.units, 0
        while count < examined.entries:
            index = place.index + count
            raw = self._cold.raw_units(index, examined.entries - count)
            own = units[count * UNIT_SIZE :]
            step = len(raw) // UNIT_SIZE
            if raw != own[: len(raw)] or not step:
                step = max(1, step)
                doubt = self._differing(place, index, own[: step * UNIT_SIZE], self._cold.units(index, step))
                if doubt is not None:
                    return doubt
            count += step
        return replace(
            place,
            index=place.index + examined.entries,
            position=place.position + examined.size,
            term=examined.last_term,
        )

    def _differing(
        self, place: ScrubPlace, first: Index, own: memoryview, known: list[EntryUnit | None]
    ) -> ScrubPlace | None:
        """The index does not say what the entries say. If only about a term: where to go on behind that."""
        term = place.term if first == place.index else self._log.term_at(first - 1)
        for number, each in enumerate(EntryUnit.iter_unpack(own)):
            unit = known[number] if number < len(known) else None
            place_of = unit is not None and (unit.position, unit.size) == (each.position, each.size)
            if unit is not None and place_of and unit.term != each.term:
                behind = self._cold.units(each.index + 1, 1)
                next_term = -1 if not behind or behind[0] is None else behind[0].term
                why = f"its term is {each.term}, and by the index {unit.term}"
                terms = (each.term, unit.term)
                self._found(
                    LedgerDamage(
                        *(each.index, each.index, each.position, each.end, term, next_term, why), terms=terms
                    )
                )
                return replace(place, index=each.index + 1, position=each.end, term=min(terms))
            if unit != each:
                begin = number * UNIT_SIZE
                written = self._patcher.write_units(self._cold, each.index, own[begin : begin + UNIT_SIZE])
                self._mended(
                    written, "what the index said of an entry was damaged, and is made anew", each.index
                )
            term = each.term
        return None

    # Blanks.

    def _ends(self, place: ScrubPlace, file: MappedFile) -> bool:
        """Whether the file ends here, by the entry that comes next: it begins the next file."""
        if place.position == file.offset or file.end - place.position < layout.BLANK_SIZE:
            return False
        found = self._cold.units(place.index, 1)
        unit = found[0] if found else None
        if unit is not None and unit.position in (place.position, file.end):
            return unit.position == file.end
        head = self._cold.head(file.end) if file.end < place.end else None
        return head is not None and head.number == place.index

    def _blank(self, place: ScrubPlace, file: MappedFile) -> ScrubPlace:
        if not self._ends(place, file):
            return self._hole(place, file, "a blank lies in its place")
        expected = layout.DLEDGER_BLANK_MAGIC.to_bytes(4, "big", signed=True)
        expected += (file.end - place.position).to_bytes(4, "big")
        for at in range(place.position, file.end, SLICE):
            size = min(SLICE, file.end - at)
            found = self._cold.data(at, size)
            if not found.is_whole() or bytes(found.view) != expected.ljust(size, b"\0"):
                self._patcher.write_blank(place.position, file.end)
                self._mended(1, "the blank at the end of a file was damaged, and is made anew", place.index)
                break
            expected = b""
        return replace(place, position=file.end)

    def _mended(self, count: int, what: str, index: Index) -> None:
        self.mended += count
        log.warning(what, extra=fields(folder=self._log.folder, entry=index))

    # Holes.

    def _hole(self, place: ScrubPlace, file: MappedFile, why: str, *, is_there: bool = True) -> ScrubPlace:
        """Note what is damaged, up to the next sound entry, and go on there; at the second look."""
        if self._suspect != place:
            self._suspect = place
            return place
        behind = self._next_sound(place, file, is_there=is_there)
        self._found(
            LedgerDamage(
                first=place.index,
                last=behind.index - 1,
                position=place.position,
                end=behind.position,
                previous_term=place.term,
                next_term=self._log.term_at(behind.index) if behind.index > place.last else behind.term,
                why=why,
            )
        )
        return replace(place, index=behind.index, position=behind.position, term=behind.term)

    def _next_sound(self, place: ScrubPlace, file: MappedFile, *, is_there: bool) -> EntryUnit:
        """The next entry that is whole, in this file or at the beginning of another one; what would come
        behind the last one if there is none."""
        if is_there:
            stop_at = min(file.end, place.end)
            tried = self._cold.plausible(place.index + 1, place.last, place.position + HEAD_SIZE, stop_at)
            for unit in tried:
                if self._cold.is_sound(unit):
                    return unit
        for other in self._log.files.files:
            if file.end <= other.offset < place.end:
                head = self._cold.head(other.offset)
                if head is not None and place.index < head.number <= place.last:
                    return EntryUnit(layout.DLEDGER_MAGIC, other.offset, head.size, head.number, head.term)
        return EntryUnit(layout.DLEDGER_MAGIC, place.end, 0, place.last + 1, place.term)

    def _found(self, damage: LedgerDamage) -> None:
        if damage.position < self._log.begin or damage.last > self._log.committed_index:
            return  # Deleted while it was read.
        log.error(
            "a part of the log is damaged: %s",
            damage,
            extra=fields(folder=self._log.folder, entries=damage.count, bytes=damage.end - damage.position),
        )
        self._log.known_damage.add(damage)
