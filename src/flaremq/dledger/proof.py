"""The proof of a conversion: every record of the source has its copy, and every copy its queue entry.

Both logs are walked side by side. The entries that a run of copies should have are compared with those that
lie in its queue, all at once; only where they differ is each looked at, as an entry may hold a time or an
address in the place of its tags code.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from flaremq.base.errors import CorruptStore
from flaremq.base.text import count
from flaremq.dledger.rebuild import batch_topics
from flaremq.dledger.relocate import differing_row
from flaremq.model import layout
from flaremq.model.columns import Fact
from flaremq.protocol.configfiles import deleted_topics
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.offline.scan import Walked
from flaremq.store.queue.entries import Key, Run, group

ROWS: Final = 4096
_ENTRY: Final = struct.Struct(layout.ENTRY_FORMAT)


class Proof:
    """Raises CorruptStore where the target is not what the source is."""

    def __init__(self, source: OfflineStore, target: Path, tell: Callable[[str, int], None]) -> None:
        self._source = source
        self._target = OfflineStore(target)
        self._tell = tell
        self._deleted = {os.fsencode(topic): end for topic, end in deleted_topics(target).items()}
        self._batch_topics = frozenset(os.fsencode(topic) for topic in batch_topics(target))
        self._ends: dict[Key, int] = {}

    def run(self) -> None:
        self._compare()
        for (topic, queue_id), end in self._ends.items():
            queue = self._target.queues.get(os.fsdecode(topic), queue_id)
            if queue is None or queue.end != end:
                raise self._wrong(
                    f"queue {os.fsdecode(topic)}-{queue_id} does not end at {end}, as its records do"
                )

    def _compare(self) -> None:
        first_byte = self._source.scan.log_files()[0].offset
        ours = _Cursor(self._source.scan.records(rows=ROWS))
        theirs = _Cursor(self._target.scan.records(rows=ROWS))
        records = 0
        while (rows := min(ours.left, theirs.left)) > 0:
            copies = theirs.facts(rows)
            same = differing_row(ours.view, ours.facts(rows), theirs.view, copies, rows)
            if same < rows:
                raise self._wrong(f"record {records + same} is not that of {self._source.root}")
            self._in_queues(copies, rows, theirs.view)
            records += rows
            self._tell("comparing", ours.offset - first_byte)
            ours.move(rows)
            theirs.move(rows)
        if ours.left != theirs.left:
            raise self._wrong(f"it ends after {count(records, 'record')}, and its source does not")

    def _in_queues(self, facts: array[int], rows: int, view: memoryview) -> None:
        keys, entries, runs, order = group(facts, rows, view)
        expected = memoryview(entries)
        for number, key in enumerate(keys):
            if key[0] in self._batch_topics:
                continue  # Their queues have units of another kind, one for each batch.
            r = number * Run.WIDTH
            first, length, dense = (runs[r + column] for column in (Run.FIRST, Run.COUNT, Run.DENSE))
            if runs[r + Run.END] <= self._deleted.get(key[0], 0):
                continue
            step = length if dense else 1
            for at in range(first, first + length, step):
                place = facts[order[at] * Fact.WIDTH + Fact.QUEUE_OFFSET]
                self._check_run(
                    key, place, expected[at * layout.ENTRY_SIZE : (at + step) * layout.ENTRY_SIZE]
                )

    def _check_run(self, key: Key, first: int, expected: memoryview) -> None:
        topic, queue_id = os.fsdecode(key[0]), key[1]
        queue = self._target.queues.get(topic, queue_id)
        rows = len(expected) // layout.ENTRY_SIZE
        found = b"" if queue is None else queue.run(first, rows)
        self._ends[key] = max(self._ends.get(key, 0), first + rows)
        if found == expected:
            return
        for row in range(rows):
            entry = expected[row * layout.ENTRY_SIZE : (row + 1) * layout.ENTRY_SIZE]
            there = found[row * layout.ENTRY_SIZE : (row + 1) * layout.ENTRY_SIZE]
            offset = _ENTRY.unpack(entry)[0]
            if offset >= self._deleted.get(key[0], 0) and there[:12] != entry[:12]:
                raise self._wrong(
                    f"queue {topic}-{queue_id} has no entry {first + row} for the record at {offset}"
                )

    def _wrong(self, what: str) -> CorruptStore:
        return CorruptStore(
            f"{self._target.root}: {what}: look after the disk, remove the folder, and convert again"
        )


class _Cursor:
    """Goes over walked records in steps of any length."""

    def __init__(self, all_walked: Iterator[Walked]) -> None:
        self._all = all_walked
        self._walked: Walked | None = next(all_walked, None)
        self._row = 0

    @property
    def left(self) -> int:
        """Rows that can be had at once; 0 at the end."""
        return 0 if self._walked is None else self._walked.count - self._row

    @property
    def view(self) -> memoryview:
        assert self._walked is not None
        return self._walked.view

    @property
    def offset(self) -> int:
        assert self._walked is not None
        return self._walked.facts[self._row * Fact.WIDTH + Fact.OFFSET]

    def facts(self, rows: int) -> array[int]:
        assert self._walked is not None
        return self._walked.facts[self._row * Fact.WIDTH : (self._row + rows) * Fact.WIDTH]

    def move(self, rows: int) -> None:
        self._row += rows
        if self.left == 0:
            self._walked, self._row = next(self._all, None), 0
