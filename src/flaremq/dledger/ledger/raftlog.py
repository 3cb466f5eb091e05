"""The log of a store whose members agree on it: the commit log, as entries of a ledger.

    put > [append, an entry each] > synced, here and at a majority > committed > dispatch

Records are appended by the turn, as in any commit log, each with room for the head of its entry. What a
follower gets are the same bytes: entries, copied as they lie at their leader, so the files of all members
are equal in every entry.

Consumers see what the group has decided on, and no more: `confirmed` is the committed mark. So an entry that
is given up was never in any queue.

Entries are found by their index through `index/`, and are safe as far as the checkpoint says, which a thread
of its own writes.
"""

from __future__ import annotations

import struct
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from flaremq.base.clock import Clock
from flaremq.base.errors import CorruptStore, FlareError, Malformed, NotWritable
from flaremq.base.lifecycle import Listener, Worker, WorkerFactory
from flaremq.base.logs import fields, logger
from flaremq.base.text import count
from flaremq.dledger.ledger.ballots import BallotFile
from flaremq.dledger.ledger.checkpoint import (
    Beginning,
    LedgerCheckpoint,
    LedgerSafety,
    ledger_folder,
)
from flaremq.dledger.ledger.entries import examine, seal
from flaremq.dledger.ledger.entryindex import EntryUnit
from flaremq.dledger.ledger.entrylog import EntryLog
from flaremq.dledger.ledger.records import CHANNEL
from flaremq.dledger.ledger.soundness import find_sound, members_marked
from flaremq.dledger.types import Ballot, EntryRun
from flaremq.model import layout
from flaremq.model.columns import Draft, Drafts
from flaremq.store.commitlog import LogFactory
from flaremq.store.files.disk import Disk
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.files.preallocate import WAIT_S
from flaremq.store.offline.scan import plain_files
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.settings import StoreSettings

log = logger("dledger.raftlog")

_BLANK: Final = struct.Struct(">ii")
_SAVED_S: Final = 1.0  # How often the checkpoint is written.
_CONFIRMED_S: Final = 10.0


def raft_log(self_id: str, *, as_library: bool = False, plain: Sequence[Path] = ()) -> LogFactory:
    """The log of this member; `as_library`, if members of the DLedger library are to have the same. `plain`:
    where a broker without a group would have its log, if not in the usual folder."""
    return partial(RaftLog, self_id=self_id, as_library=as_library, plain=plain)


class RaftLog(EntryLog):
    """Entries of a ledger, one for each record.

    Invariants, besides those of the commit log:
      R1  indexes grow by one, terms do not fall; both are in the index before anybody sees the entry.
      R2  what is committed is never given up.
      R3  the checkpoint never says more than what is on the disk, and less before anything is given up.
    """

    def __init__(
        self,
        disk: Disk,
        settings: StoreSettings,
        clock: Clock,
        store_host: bytes,
        offsets: QueueOffsets,
        *,
        self_id: str,
        as_library: bool = False,
        plain: Sequence[Path] = (),
        roll_wait_s: float = WAIT_S,
        listener: Listener | None = None,
        workers: WorkerFactory = Worker,
        unit_file_size: int = layout.DLEDGER_INDEX_FILE_SIZE,
    ) -> None:
        self._as_library = as_library
        self._self_id = self_id
        self._plain_folders = tuple(plain) or (settings.root / "commitlog",)
        super().__init__(
            *(disk, settings, clock, store_host, offsets),
            folder=ledger_folder(settings.root, self_id),
            roll_wait_s=roll_wait_s,
            listener=listener,
            workers=workers,
            unit_file_size=unit_file_size,
        )
        self.term = -1
        """Of entries that are appended now."""
        self.is_led = False
        """Whether this member leads in that term."""
        self.damage = ""
        """What was known to be on the disk and is lost; empty if nothing is."""
        self._disk = disk
        self._safe_index = -1
        self._channel = 0
        self._checkpoint = LedgerCheckpoint(disk, self.folder)
        self._saving = threading.Lock()
        self._saver = workers("flaremq-ledger", self._save_step, first_s=_SAVED_S)

    # Opening and closing.

    def load(self) -> None:
        """Find what lies on the disk, as far as it is whole."""
        self._check_kind()
        known = self._checkpoint.load()
        safety = known or LedgerSafety()
        self._beginning = safety.beginning
        self.files.load()
        self.index.load()
        files = self.files.files
        if files and files[0].offset < self._beginning.position:
            self.files.truncate(0)  # The log was to begin anew behind these.
        sound = find_sound(self.files, self.index, known)
        self.last_index, self.last_term, self.last_end = sound.last, sound.last_term, sound.end
        self.rosters = sound.rosters
        if sound.damage:
            self._damaged(sound.damage)
        if self.files.files:
            super().cut(sound.end)
        self.index.truncate(sound.last + 1)
        self._safe_index = min(safety.end, sound.last)
        self.committed_index = max(min(safety.committed, sound.last), sound.first - 1)
        unit = self.unit(self.committed_index)
        self.committed.advance(self.begin if unit is None else unit.end)

    def _damaged(self, what: str) -> None:
        """What was safe is lost. The checkpoint will say less from now on, so the ballot remembers it."""
        self.damage = what
        log.error(
            "a part of the log of this member is lost, and it does not vote before it has caught up: %s",
            what,
            extra=fields(folder=self.folder),
        )
        ballots = BallotFile(self._disk, self.folder)
        ballots.save(replace(ballots.load() or Ballot(), is_voter=False))

    def _check_kind(self) -> None:
        """Files of a plain log would not be served, whether or not a ledger lies behind them: RocketMQ leaves
        them where they are when a store becomes a member's."""
        own, usual = self.settings.commitlog_folders, self.settings.root / "commitlog"
        found = plain_files(self._disk, [folder for folder in self._plain_folders if folder not in own])
        if not found:
            return
        folder = found[0].parent
        before = "" if folder == usual else f"move them to {usual}, and then "
        raise CorruptStore(
            f"{folder} has {count(len(found), 'file')} of a plain log, whose messages a member of a group "
            f"would not serve: {before}`flaremq store convert {self.settings.root} --to dledger --self-id "
            f"{self._self_id}` makes one ledger of all messages, in a new folder for every member; or move "
            "the files away to go on without their messages"
        )

    def cut(self, end: int) -> int:
        """Recovery has found records that are whole up to `end`: no further than the group has decided."""
        lost = self.committed.value - end
        if lost > 0:
            last = self.index.last_before(end, self.first_index, self.last_index)
            self._damaged(f"entry {last + 1} has been decided on, and holds no sound record")
            self.committed_index = last
            self.committed.rewind(end)
            self._forget_from(last + 1)
        self.flushed.advance(self.end)
        return max(0, lost)

    def sync(self, begin: int, unsure: int) -> None:
        unit = self.unit(self._safe_index + 1)
        own = self.last_end if unit is None else unit.position
        super().sync(min(begin, own // self.file_size * self.file_size), min(unsure - self.head, own))

    def start(self) -> None:
        super().start()
        self._saver.start()

    def stop(self) -> None:
        self._saver.stop()
        try:
            self.save()
        finally:
            super().stop()

    def close(self) -> None:
        self.index.close()
        super().close()

    # The checkpoint.

    def _save_step(self, _worker: Worker) -> float:
        self.save()
        return _SAVED_S

    def save(self) -> None:
        """Write how far the log is safe, after the index is."""
        with self._saving:
            synced, committed = self.synced_index, self.committed_index
            self.index.flush()
            self._save(synced, min(committed, synced))
            self.index.trim(self.first_index)

    def _save(self, synced: int, committed: int) -> None:
        rosters = {index: members for index, members in self.rosters.items() if index <= synced}
        decided = max((index for index in rosters if index <= committed), default=-1)
        rosters = {index: members for index, members in rosters.items() if index >= decided}
        self._checkpoint.save(LedgerSafety(committed, synced, self._beginning, rosters))
        self._safe_index = synced

    # Appending, as the leader.

    def await_confirmed(self) -> int:
        end = self.last_end
        if not self.committed.wait_blocking(end, _CONFIRMED_S):
            raise NotWritable(
                f"the group has not decided on what this member holds within {_CONFIRMED_S:g} s: a majority "
                "of its members must be reachable"
            )
        return end

    def is_of(self, term: int) -> bool:
        return self.is_led and self.term == term

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self.committed.watch(lambda _value: callback())

    def watch_appends(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when entries were appended, perhaps under the lock of an append."""
        return super().watch(callback)

    @property
    def record_size_max(self) -> int:
        size_max = super().record_size_max
        if not self._as_library:
            return size_max
        return min(size_max, layout.DLEDGER_ENTRY_MAX - layout.DLEDGER_HEADER_SIZE)

    def append_many(self, drafts: Drafts) -> int:
        if self._as_library:
            # Members of the library end a file where the next entry does not fit. One that was ended earlier,
            # for a batch that belongs together, would lie elsewhere in their logs.
            for at in range(Draft.TOGETHER, len(drafts.rows), Draft.WIDTH):
                drafts.rows[at] = 1
        self.index.reserve(self.last_index + 1, len(drafts))
        return super().append_many(drafts)

    def append_said(self, drafts: Drafts, members: Mapping[str, str] | None = None) -> None:
        """Append a record of the group's own; `members`, if it says who they are."""
        self._channel = CHANNEL
        try:
            self.append_many(drafts)
        finally:
            self._channel = 0
        if members is not None:
            self.rosters = {**self.rosters, self.last_index: dict(members)}

    def _seal(self, drafts: Drafts, first: int, count: int, file: MappedFile) -> None:
        units = memoryview(bytearray(count * layout.DLEDGER_UNIT_SIZE))
        index = self.last_index + 1
        seal(self._out, drafts.rows, first, count, file.offset, index, self.term, self._channel, units)
        self._entered(index, count, self.term, units)

    def _entered(self, first: int, count: int, last_term: int, units: memoryview) -> None:
        """Note entries that were written; their count says that they are there, so it comes last."""
        self.index.put(first, units)
        position, size = struct.unpack_from(">qi", units, (count - 1) * layout.DLEDGER_UNIT_SIZE + 4)
        self.last_end = position + size
        self.last_term = last_term
        self.last_index = first + count - 1

    def _blank(self, left: int) -> bytes:
        return _BLANK.pack(layout.DLEDGER_BLANK_MAGIC, left)

    def _roll(self, begin: int = 0) -> None:
        super()._roll(begin or self.begin)

    # Appending, as a follower.

    @property
    def has_blank(self) -> bool:
        """Whether its last file was ended, and nothing has come behind that."""
        return self.last_end < self.end

    def drop_blank(self) -> None:
        """Go on in the file that was ended: the leader has."""
        self._truncate_files(self.last_end)

    def append_run(self, run: EntryRun) -> None:
        """Append entries as they lie at the leader. Raises Malformed if they do not belong here."""
        self._check_place(run)
        units = memoryview(bytearray(run.count * layout.DLEDGER_UNIT_SIZE))
        spans, marked, size = array("q"), array("q"), len(run.data)
        count, at, _ = examine(
            *(run.data, 0, size, run.position, run.first, max(0, self.last_term)),
            *(units, spans, marked),
        )
        terms = tuple(zip(spans[0::2], spans[1::2], strict=True))
        if count != run.count or at != size or terms != tuple(run.terms):
            raise Malformed(
                f"entry {run.first + count} came damaged from the leader: expected {run.count} sound entries "
                f"from {run.first} on; they are asked for again"
            )
        said = members_marked(memoryview(run.data), marked) if marked else []
        self.index.reserve(run.first, run.count)
        file = self._file_at(run.position)
        end = file.wrote + size
        self._out[file.wrote : end] = run.data
        self._entered(run.first, run.count, run.last_term, units)
        self._wrote(file, end)
        self.last_store_ms = self._newest_ms(units) or self.last_store_ms
        if said:
            self.rosters = {**self.rosters, **dict(said)}
        self._grown()

    def _check_place(self, run: EntryRun) -> None:
        if run.first != self.last_index + 1:
            raise Malformed(f"entry {run.first} came, and this log goes on with {self.last_index + 1}")
        files = self.files.files
        # Behind the last entry, or where the next file begins: a leader ends files for batches, too.
        places = (self.end,) if not files or self.has_blank else (self.last_end, files[-1].end)
        if run.position not in places:
            raise Malformed(
                f"entry {run.first} lies at {run.position} at the leader, and here it would at "
                f"{self.last_end}: the logs are not the same"
            )
        if run.position % self.file_size + len(run.data) + layout.BLANK_SIZE > self.file_size:
            raise Malformed(
                f"entries at {run.position} cross the end of a file of {self.file_size} bytes: all members "
                "of a group need the same mappedFileSizeCommitLog"
            )

    def _file_at(self, position: int) -> MappedFile:
        """The file that is written to there; the one before it is ended if need be."""
        file = self._active
        if file is None or file.offset + file.wrote != position:
            self._roll(position)
            file = self._active
        assert file is not None and file.offset + file.wrote == position
        return file

    def _newest_ms(self, units: memoryview) -> int:
        unit = EntryUnit._make(
            struct.unpack_from(layout.DLEDGER_UNIT_FORMAT, units, len(units) - layout.DLEDGER_UNIT_SIZE)
        )
        return max(0, self.store_time(unit.position + self.head, unit.size - self.head))

    def commit_to(self, index: int) -> None:
        """The group has decided on everything up to this entry, as far as it is here."""
        index = min(index, self.last_index)
        unit = self.unit(index) if index > self.committed_index else None
        if unit is not None:
            self.committed_index = index
            self.committed.advance(unit.end)

    # Giving up. Only while nothing is appended, and nothing synced.

    def give_up(self, first: int) -> None:
        """Forget the entries from this one on."""
        if first <= self.committed_index:
            raise FlareError(
                f"entries from {first} on should be given up, and the group has decided on all up to "
                f"{self.committed_index}: look after the disks of all members"
            )
        with self._saving:
            self.preallocator.discard()
            synced = min(self._safe_index, first - 1)
            self.rosters = {index: each for index, each in self.rosters.items() if index < first}
            self._save(synced, min(self.committed_index, synced))  # R3
            self._forget_from(first)

    def _forget_from(self, first: int) -> None:
        """Entries from this one on are no more."""
        unit = self.unit(first - 1)
        last_term = self.term_at(first - 1)
        end = self.begin if unit is None else unit.end
        self._truncate_files(end)
        self.index.truncate(first)
        self.last_index, self.last_term, self.last_end = first - 1, last_term, end
        self._synced = 0, -1

    def _truncate_files(self, end: int) -> None:
        self.preallocator.discard()
        self.truncate(end)
        files = self.files.files
        self._make_ahead(files[-1].end if files else end)

    def begin_anew(self, first: int, position: int, previous_term: int) -> None:
        """Forget all entries, and go on with this one at this place."""
        if position % self.file_size:
            raise Malformed(
                f"the log of the leader begins at {position}, within a file of {self.file_size} bytes: all "
                "members of a group need the same mappedFileSizeCommitLog"
            )
        if position < self.committed.value:
            raise FlareError(
                f"the log should begin anew at {position}, and the group has decided on all up to "
                f"{self.committed.value}: look after the disks of all members"
            )
        beginning = Beginning(first, position, previous_term)
        rosters = {index: each for index, each in self.rosters.items() if index < first}
        with self._saving:
            self.preallocator.discard()
            self._checkpoint.save(LedgerSafety(first - 1, first - 1, beginning, rosters))  # R3
            self.files.truncate(0)
            self.truncate(position)
            self.index.clear()
            self._beginning, self.rosters = beginning, rosters
            self.last_index, self.last_term, self.last_end = first - 1, previous_term, position
            self.committed_index = self._safe_index = first - 1
            self._synced = 0, -1
        self.flushed.advance(position)
        self.committed.advance(position)
        self._make_ahead(position)


def data_folder(settings: StoreSettings, self_id: str, data_path: str = "") -> Path:
    """Where the entries of a member lie."""
    return Path(data_path) if data_path else ledger_folder(settings.root, self_id) / "data"
