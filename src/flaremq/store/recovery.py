"""Recovery: where did we stop, what of it is whole, and which queues must be caught up.

The log is the truth; everything else is made from it. The newest files are walked again, after a crash
as far back as the checkpoint does not vouch for the queues, and what a queue already has it skips. A
queue or index that turns out to miss more than that is rebuilt from the beginning of the log.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from flaremq.model import layout
from flaremq.model.columns import Check, Fact, Stop, facts_table
from flaremq.model.record import walk
from flaremq.store.commitlog import CommitLog
from flaremq.store.dispatch import Dispatcher
from flaremq.store.files.checkpoint import Checkpoint
from flaremq.store.files.mappedfile import MappedFile
from flaremq.store.index.index import Index
from flaremq.store.queue.entries import Key
from flaremq.store.queue.queues import AnyQueue, Queues

log = logging.getLogger(__name__)

_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Report:
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
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        checkpoint: Checkpoint,
        dispatcher: Dispatcher,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._dispatcher = dispatcher
        self._settings = commit_log.settings
        self._facts = facts_table(_ROWS)
        self._damaged: dict[Key, None] = {}
        self._from_begin = False
        self._records = 0

    def run(self, *, clean: bool, damaged: list[Key], index_damaged: bool = False) -> Report:
        """Bring log, queues and index to one state: all records that are whole, and no others."""
        self._damaged = dict.fromkeys(damaged)
        if not self._log.queue.files:
            return self._start_empty(clean)
        first, newest = self._after_stop() if clean else self._after_crash()
        self._from_begin = first is self._log.queue.files[0]
        self._dispatcher.on_gap = self._note_gap
        end = self._scan(first)
        cut = self._cut(end)
        if not clean:
            self._make_safe(first)
        self._dispatcher.on_gap = None
        self._rebuild_queues(end)
        trusted = clean and not index_damaged
        self._catch_up_index(clean, max(newest, self._log.begin) if trusted else None, end)
        self._dispatcher.position = end
        self._set_offsets()
        return Report(clean, self._log.begin, end, first.offset, self._records, cut, tuple(self._damaged))

    def _start_empty(self, clean: bool) -> Report:
        """No log, so nothing that queues, index or checkpoint could speak of."""
        self._checkpoint.log_time_ms = self._checkpoint.index_time_ms = 0
        self._checkpoint.forget_queues()
        self._queues.remove_all()
        if self._index is not None:
            self._index.destroy()
        return Report(clean, 0, 0, 0, 0, 0, ())

    def _after_stop(self) -> tuple[MappedFile, int]:
        """Where to begin, and the end of the newest record that a queue knows."""
        newest = self._queues.recover(self._damaged)
        return self._first_file(lambda file, _: file.offset <= newest), newest

    def _after_crash(self) -> tuple[MappedFile, int]:
        """The same. Entries that the checkpoint does not vouch for are made again: they may be torn,
        or lie in the page cache alone, where nobody would ever sync them."""
        safe_ms = self._checkpoint.min_time_ms()
        first = self._first_file(lambda _, stored_ms: stored_ms <= safe_ms)
        return first, self._queues.recover(self._damaged, trusted_end=first.offset)

    def _first_file(self, is_known: Callable[[MappedFile, int], bool]) -> MappedFile:
        """The newest file that begins with a record which queues are sure to know, else the oldest."""
        for file in reversed(self._log.queue.files):
            count, _, _ = walk(file.view, 0, file.size, file.offset, facts_table(1), Check.OFFSET)
            if not count:
                continue
            stored_ms = self._log_time(file)
            if stored_ms and is_known(file, stored_ms):
                return file
        return self._log.queue.files[0]

    def _log_time(self, file: MappedFile) -> int:
        facts = facts_table(1)
        walk(file.view, 0, file.size, file.offset, facts, Check.NOTHING)
        return facts[Fact.STORE_TIMESTAMP]

    @property
    def _check(self) -> int:
        if not self._settings.check_crc_on_recover:
            return Check.OFFSET
        return Check.OFFSET | (Check.RECORD_CRC if self._settings.force_record_crc else Check.BODY_CRC)

    def _scan(self, first: MappedFile) -> int:
        """Validate and dispatch record after record; the end of what is whole."""
        end = first.offset
        for file in self._log.queue.files:
            if file.offset < first.offset:
                continue
            if file.offset != end:
                break  # The file before this one did not reach its end.
            end, full = self._scan_file(file)
            if not full:
                break
        return end

    def _scan_file(self, file: MappedFile) -> tuple[int, bool]:
        view, at = file.view, 0
        while True:
            count, at, stop = walk(view, at, file.size, file.offset, self._facts, self._check)
            if count:
                self._records += count
                self._dispatcher.to_queues(self._facts, count, view)
            if stop == Stop.BLANK:
                return file.end, True
            if stop != Stop.LIMIT or at == file.size:
                return file.offset + at, False

    def _cut(self, end: int) -> int:
        """Remove what is not whole, from the log and from all that points into it."""
        files = self._log.queue.files
        dirty = sum(1 for file in files if file.offset > end and _has_bytes(file))
        tail = self._log.queue.find(end)
        torn = tail is not None and any(tail.view[end - tail.offset : end - tail.offset + layout.BLANK_SIZE])
        if dirty or torn:
            log.warning("the log ends at %d: a torn record and %d files behind it are removed", end, dirty)
        before = files[-1].end
        self._queues.truncate(end)
        self._log.truncate(end)
        self._log.flushed.advance(end)
        return before - end if dirty or torn else 0

    def _make_safe(self, first: MappedFile) -> None:
        """Sync what a killed process may have left in the page cache: it is shown from now on, and
        what is acknowledged next lies behind it."""
        for file in self._log.queue.files:
            if file.offset >= first.offset:
                file.flushed = 0
                file.flush()

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
            begin = known if known is not None else max(begin, at - at % self._log.file_size)
        self._replay(begin, end, index.put_many)

    def _replay(self, begin: int, end: int, give: Callable[[array[int], int, memoryview], None]) -> None:
        """Walk records that are known to be whole, from the boundary `begin` on, and give them away."""
        while begin < end:
            file = self._log.queue.find(begin)
            if file is None:
                return
            stop_at = min(end - file.offset, file.size)
            count, at, stop = walk(file.view, begin - file.offset, stop_at, file.offset, self._facts, 0)
            if count:
                give(self._facts, count, file.view)
            begin = file.offset + at if stop == Stop.LIMIT else file.end

    def _set_offsets(self) -> None:
        """The next queue offsets follow from the queues, so they cannot run ahead of the log."""
        self._log.offsets.reset()
        for (topic, queue_id), queue in self._queues.items():
            if not queue.max_offset:
                self._queues.remove((topic, queue_id))  # The log has lost all its messages.
                continue
            self._log.offsets.set(topic, queue_id, queue.max_offset)
            queue.correct_min(self._log.begin)


def _has_bytes(file: MappedFile) -> bool:
    return any(file.view[: layout.BLANK_SIZE])
