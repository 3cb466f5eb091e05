"""Recovery: where did we stop, what of it is whole, and which queues must catch up.

The problem
-----------
Three kinds of files tell of a message: the log has it, a queue entry points to it, an index entry finds
it by key. They are written at different moments and reach the disk in any order. After a crash, any of
them may be ahead of the others, the end of the log may be torn, and entries may point to records that
never made it.

The log is the truth, and everything else can be made from it. But walking a log of a terabyte to prove
that takes hours. The checkpoint helps: it holds store times up to which log, queues and index are known
to be on the disk. So only the newest files are walked.

How it works
------------
1. Choose where to begin: after a clean stop, the newest file whose first record some queue knows; after a
   crash, the newest file whose first record is older than the checkpoint vouches for. Queue entries
   behind that point are forgotten: they may be torn, or lie only in the page cache and would never be
   synced.
2. Walk record after record from there, checking each, and dispatch it. A queue skips what it has.
3. The first record that is not whole ends the log. It is cut off, with everything that points behind it.
4. After a crash, sync what was walked: consumers see it from now on, and what is acknowledged next lies
   behind it. Records that the checkpoint does not vouch for are written once more before that: if it was a
   sync that failed, the system takes their pages for clean, and would leave them off the disk.
5. A queue that misses entries from before the walk is rebuilt from the whole log. The index catches up by
   itself.
6. The next offset of each queue follows from the queues, so it cannot be ahead of the log.

An example
----------
Files of the log begin at 0, 1000 and 2000; the checkpoint vouches for times up to 10:00. The process was
killed.

    0      09:58 ...    older than 10:00
    1000   09:59 ...    older than 10:00: begin here
    2000   10:01 ...    newer
    2400   half a record

    queue entries of records from 1000 on are forgotten
    1000 .. 2400 is walked: its records get queue entries again
    2400 .. is cut off; the log goes on at 2400

An acknowledged message is never among what is cut: under SYNC_FLUSH it was synced before its answer, and
what was synced is whole.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from flaremq.model.columns import Check, Fact, Stop, facts_table
from flaremq.store.api import Log
from flaremq.store.dispatch import Dispatcher
from flaremq.store.files.checkpoint import Checkpoint
from flaremq.store.index.index import Index
from flaremq.store.queue.entries import Key
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.queue.queues import AnyQueue, Queues
from flaremq.store.settings import StoreSettings

log = logging.getLogger(__name__)

_ROWS = 4096
_LOG_END = 1 << 62  # Behind any log.


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery found and did."""

    clean: bool
    begin: int
    end: int
    scanned_from: int
    records: int
    cut_bytes: int
    rebuilt: tuple[Key, ...]


class Recovery:
    """One run over the parts of a store that was loaded and not yet started."""

    def __init__(
        self,
        settings: StoreSettings,
        commit_log: Log,
        queues: Queues,
        index: Index | None,
        checkpoint: Checkpoint,
        dispatcher: Dispatcher,
        offsets: QueueOffsets,
    ) -> None:
        self._settings = settings
        self._log = commit_log
        self._offsets = offsets
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._dispatcher = dispatcher
        self._facts = facts_table(_ROWS)
        self._damaged: dict[Key, None] = {}
        self._from_begin = False
        self._records = 0
        self._unsure = _LOG_END
        """Where the records begin that may never have reached the disk."""
        self._newest_ms = 0

    def run(self, *, clean: bool, damaged: list[Key], index_damaged: bool = False) -> RecoveryReport:
        """Bring log, queues and index to one state: all records that are whole, and no others."""
        self._damaged = dict.fromkeys(damaged)
        if not self._log.starts():
            return self._start_empty(clean)
        first, newest = self._after_stop() if clean else self._after_crash()
        self._from_begin = first == self._log.begin
        self._dispatcher.on_gap = self._note_gap
        end = self._scan(first)
        # Incomplete records leave the log, and everything that points at them goes too.
        self._queues.truncate(end)
        cut = self._log.cut(end)
        if not clean:
            # A killed process may have left these in the page cache alone: they are shown from now on, and
            # what is acknowledged next lies behind them.
            self._log.sync(first, self._unsure)
        self._dispatcher.on_gap = None
        self._rebuild_queues(end)
        trusted = clean and not index_damaged
        self._catch_up_index(clean, max(newest, self._log.begin) if trusted else None, end)
        self._dispatcher.position = end
        self._set_offsets()
        return RecoveryReport(clean, self._log.begin, end, first, self._records, cut, tuple(self._damaged))

    def _start_empty(self, clean: bool) -> RecoveryReport:
        """No log, so nothing that queues, index or checkpoint could speak of."""
        self._checkpoint.log_time_ms = self._checkpoint.index_time_ms = 0
        self._checkpoint.forget_queues()
        self._queues.remove_all()
        if self._index is not None:
            self._index.destroy()
        return RecoveryReport(clean, 0, 0, 0, 0, 0, ())

    def _after_stop(self) -> tuple[int, int]:
        """Where to begin, and the boundary before the newest record that a queue knows."""
        newest = self._queues.recover(self._damaged) - self._log.head
        return self._first_start(lambda start, _: start <= newest), newest

    def _after_crash(self) -> tuple[int, int]:
        """The same. Entries that the checkpoint does not vouch for are made again: they may be torn,
        or lie in the page cache alone and would never be synced."""
        safe_ms = self._checkpoint.min_time_ms()
        first = self._first_start(lambda _, stored_ms: stored_ms <= safe_ms)
        return first, self._queues.recover(self._damaged, trusted_end=first)

    def _first_start(self, is_known: Callable[[int, int], bool]) -> int:
        """The newest start of the log whose first record queues are sure to know, else the oldest."""
        facts = facts_table(1)
        for start in reversed(self._log.starts()):
            stretch = self._log.walk(start, _LOG_END, facts, Check.OFFSET)
            if stretch is None or not stretch.count:
                continue
            stored_ms = facts[Fact.STORE_TIMESTAMP]
            if stored_ms and is_known(start, stored_ms):
                return start
        return self._log.begin

    @property
    def _check(self) -> int:
        if not self._settings.check_crc_on_recover:
            return Check.OFFSET
        return Check.OFFSET | (Check.RECORD_CRC if self._settings.force_record_crc else Check.BODY_CRC)

    def _scan(self, first: int) -> int:
        """Validate and dispatch record after record; the end of what is whole."""
        at = first
        while True:
            stretch = self._log.walk(at, _LOG_END, self._facts, self._check)
            if stretch is None:
                return at
            at = stretch.next
            if stretch.count:
                self._records += stretch.count
                self._vouch(stretch.count)
                self._dispatcher.to_queues(self._facts, stretch.count, stretch.view)
            # A file that is full ends in a blank record: one that does not was still being written.
            is_whole = stretch.stop == Stop.LIMIT and at < stretch.limit
            if stretch.stop != Stop.BLANK and not is_whole:
                return at

    def _vouch(self, count: int) -> None:
        """Note the first record that is not older than the last sync that the checkpoint tells of. Times that
        go back say that the clock was set: they prove nothing."""
        if self._unsure < _LOG_END:
            return
        end, safe_ms = count * Fact.WIDTH, self._checkpoint.log_time_ms
        for row, stored_ms in enumerate(self._facts[Fact.STORE_TIMESTAMP : end : Fact.WIDTH]):
            if stored_ms >= safe_ms or stored_ms < self._newest_ms:
                self._unsure = self._facts[row * Fact.WIDTH + Fact.OFFSET]
                return
            self._newest_ms = stored_ms

    def _note_gap(self, key: Key, queue: AnyQueue) -> bool:
        if self._from_begin and not queue.file_count:
            return False  # There are no older records: the queue did not begin at 0.
        self._damaged[key] = None
        return True

    def _rebuild_queues(self, end: int) -> None:
        """Queues that miss more than the scan gave them get all that the log has of them."""
        if self._damaged:
            self._checkpoint.forget_queues()
        for key in self._damaged:
            log.warning("queue %s-%d is rebuilt from the log", key[0].decode("utf-8", "replace"), key[1])
            self._queues.remove(key)
        if self._damaged:
            self._replay(self._log.begin, end, self._dispatcher.to_queues)

    def _catch_up_index(self, clean: bool, known: int | None, end: int) -> None:
        """Index what is not indexed: from `known` on, or from the last record that is sure to be.

        After a crash only flushed index files are believed.
        """
        index = self._index
        if index is None:
            return
        if not clean:
            index.discard_unsafe(self._checkpoint.index_time_ms)
        if index.cut(end):
            known = None
        # What the checkpoint spoke of may be gone, and its successor of the same time is not yet safe.
        self._checkpoint.index_time_ms = min(self._checkpoint.index_time_ms, index.full_until_ms)
        self._checkpoint.flush()
        begin = self._log.begin
        if index.file_count:
            at = index.next_offset
            begin = known if known is not None else max(begin, self._start_before(at))
        self._replay(begin, end, index.put_many)

    def _start_before(self, physical_offset: int) -> int:
        return max((start for start in self._log.starts() if start <= physical_offset), default=0)

    def _replay(self, begin: int, end: int, give: Callable[[array[int], int, memoryview], None]) -> None:
        """Walk records that are known to be whole, from the boundary `begin` on, and give them away."""
        while begin < end:
            stretch = self._log.walk(begin, end, self._facts, Check.NOTHING)
            if stretch is None:
                return
            if stretch.count:
                give(self._facts, stretch.count, stretch.view)
            begin = stretch.next if stretch.stop in (Stop.LIMIT, Stop.BLANK) else stretch.limit

    def _set_offsets(self) -> None:
        """The next queue offsets follow from the queues, so they cannot run ahead of the log."""
        for (topic, queue_id), queue in self._queues.items():
            if not queue.max_offset:
                self._queues.remove((topic, queue_id))  # The log has lost all its messages.
                continue
            queue.correct_min(self._log.begin)
        self._queues.number(self._offsets)
