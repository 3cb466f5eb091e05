"""Dispatch: records that may be seen get their queue entries and index entries, by the batch.

    append > (flushed) > [dispatch] > queue, index > reader

The problem
-----------
Consumers read queues, not the log. Each record needs an entry in its queue and one index entry per key.
Making them when a message is appended would slow down every send, and would show messages that a power
cut could still take. So dispatch follows the log at some distance: up to its confirmed end
(`Log.confirmed`), which is the flushed mark under SYNC_FLUSH.

Dispatch may fail half way: no descriptor for a new queue, a full disk, a bug. It may be interrupted by a
crash. And recovery gives it records again that some queues have and others have not. In all these cases
nothing may be missing and nothing double.

How it works
------------
There is no list of what was done. `position` is where the next batch begins, and it moves last. Each
queue knows up to which record it is complete (`physical_end`), also when only a part of a run went in
because its file was full; the index knows its next record, and the next key of it. So a batch that failed
is simply dispatched again: what was done is skipped, what was not is done, whatever raised, and wherever.

An example
----------
A batch has records 1 (queue A), 2 (queue B) and 3 (queue A); B is new, and its file cannot be made.

    first time    A gets its entries for 1 and 3, B raises; `position` stays before 1
    again         A skips 1 and 3 (they end below its physical_end), B gets 2, the index gets all three
                  `position` moves behind 3

The event loop must not wait for a disk that makes files. It dispatches with `makes_files=False`: a batch
that needs one raises `FilesNeeded` before anything else is done for that queue, and a thread does it a
moment later.
"""

from __future__ import annotations

import logging
import struct
import threading
from array import array
from collections.abc import Callable

from flaremq.base.errors import InvalidName
from flaremq.base.logs import Seldom
from flaremq.model import layout, sysflag
from flaremq.model.columns import Check, Fact, Odd, Stop, facts_table
from flaremq.model.properties import decode_properties
from flaremq.store.api import ArrivalListener, BitMapper, Log, Stretch
from flaremq.store.drafts import allows_light_queues
from flaremq.store.index.index import Index
from flaremq.store.queue.batchconsumequeue import BatchConsumeQueue, BatchEntry
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.queue.entries import Key, Run, group, set_delivery_times
from flaremq.store.queue.queues import AnyQueue, Queues
from flaremq.store.settings import StoreSettings

log = logging.getLogger(__name__)

_ENTRY = struct.Struct(layout.ENTRY_FORMAT)
_ROWS = 1024  # Of one batch: the table stays in the cache.
_LMQ_PREFIX = "%LMQ%"
_UNHEARD_S = 60.0  # Failing listeners are logged at most this often.
_OFFSET_MAX = (1 << 62) // layout.ENTRY_SIZE  # More than any queue will hold, and safe to count with.


class FilesNeeded(Exception):
    """This batch needs a new file, and the caller may not make one."""


OnGap = Callable[[Key, AnyQueue], bool]
"""A queue misses entries before those that come now. True: leave them out, it will be rebuilt."""


class Dispatcher:
    """Follows the log. One batch at a time, whichever thread asks."""

    def __init__(
        self,
        log: Log,
        queues: Queues,
        index: Index | None,
        settings: StoreSettings,
        bit_mapper: BitMapper | None = None,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self.settings = settings
        self._bit_mapper = bit_mapper
        self._with_ext = settings.ext_enabled
        self._facts = facts_table(_ROWS)
        self._lock = threading.Lock()
        self._makes_files = True
        self._unheard = Seldom(_UNHEARD_S)
        self.listeners: list[ArrivalListener] = []
        self.on_gap: OnGap | None = None
        self.position = 0  # Everything below it is in its queue.
        self.records = 0  # Dispatched since the start.
        self.last_store_ms = 0

    @property
    def behind(self) -> int:
        """Bytes that may be seen but are in no queue yet."""
        return max(0, self._log.confirmed - self.position)

    def catch_up(self, *, wait: bool = True, makes_files: bool = True) -> int:
        """Dispatch everything that consumers may see. Returns the number of records.

        Without `wait`, does nothing if another thread is dispatching; without `makes_files`, stops where
        the present files are full. `behind` is the number of bytes that are left.
        """
        end = self._log.confirmed
        if self.position >= end or not self._lock.acquire(blocking=wait):
            return 0
        try:
            before, self._makes_files = self.records, makes_files
            self.position = max(self.position, self._log.begin)
            while self.position < end and self._step(end):
                pass
        except FilesNeeded:
            pass
        finally:
            self._makes_files = True
            self._lock.release()
        return self.records - before

    def remove_topic(self, topic: bytes) -> int:
        """Take the queues of a topic away, with their files; how many there were.

        Messages that come later begin new queues, and go on with the numbers: a record of before that a
        crash brings back is then never taken for one of after.
        """
        return self._queues.remove_topic(topic, self._lock)

    def rewind(self, to: int, work: Callable[[], None]) -> None:
        """Do something to log and queues while nothing is dispatched. What lies from `to` on is dispatched
        again: queues and index skip what they have."""
        with self._lock:
            work()
            self.position = min(self.position, to)

    def _step(self, end: int) -> bool:
        """One batch; False when there is nothing to be read."""
        stretch = self._log.walk(self.position, end, self._facts, Check.NOTHING)
        if stretch is None:
            return False
        if stretch.count:
            self.dispatch(self._facts, stretch.count, stretch.view)
        is_record = stretch.stop in (Stop.LIMIT, Stop.BLANK)
        self.position = stretch.next if is_record else self._skipped(stretch)
        return True

    def _skipped(self, stretch: Stretch) -> int:
        """Where to go on behind bytes that are no record, as ReputMessageService does."""
        at, room = stretch.next - stretch.base, stretch.limit - stretch.next
        size = self._log.damaged_size(stretch.view, at) if room >= layout.BLANK_SIZE else 0
        skipped = size if stretch.stop == Stop.HALF and 0 < size <= room else room
        log.error("the log holds no valid record at offset %d: %d bytes are skipped", stretch.next, skipped)
        return stretch.next + skipped

    def dispatch(self, facts: array[int], count: int, view: memoryview) -> None:
        """Write the queue and index entries of these walked records."""
        if not self._makes_files and self._index is not None and not self._index.has_room(facts, count):
            raise FilesNeeded
        self.to_queues(facts, count, view)
        if self._index is not None:
            self._index.put_many(facts, count, view)
        self.records += count
        self.last_store_ms = facts[(count - 1) * Fact.WIDTH + Fact.STORE_TIMESTAMP]

    def to_queues(self, facts: array[int], count: int, view: memoryview) -> None:
        """Queue entries alone: recovery gives queues and index their records at different times."""
        odd = _odd_rows(facts, count)
        if odd:
            set_delivery_times(facts, count, view, self.settings.delay_levels_ms)
        keys, entries, runs, order = group(facts, count, view)
        whole = memoryview(entries)
        for number, key in enumerate(keys):
            if not self._append_plain_run(key, runs, number * Run.WIDTH, whole):
                run = runs[number * Run.WIDTH : (number + 1) * Run.WIDTH]
                self._append_run(key, run, whole, facts, order, view)
        if odd and self.settings.multi_dispatch_enabled:
            for row in odd:
                self._dispatch_multi(facts, row, view)

    def _append_plain_run(self, key: Key, runs: array[int], r: int, entries: memoryview) -> bool:
        """The ordinary case in few steps: the run goes on exactly where its queue ends."""
        queue = self._queues.get(*key)
        if type(queue) is not ConsumeQueue or not runs[r + Run.DENSE]:
            return False
        behind = runs[r + Run.QUEUE_OFFSET] + runs[r + Run.COUNT]
        if behind <= queue.max_offset and runs[r + Run.END] <= queue.physical_end:
            return True  # Recovery gives much again that its queue has: all of this run.
        if (
            self._with_ext
            or runs[r + Run.OFFSET] < queue.physical_end
            or runs[r + Run.QUEUE_OFFSET] != queue.max_offset
        ):
            return False
        if not self._makes_files and not queue.has_room(runs[r + Run.COUNT]):
            raise FilesNeeded
        first = runs[r + Run.FIRST] * layout.ENTRY_SIZE
        end = first + runs[r + Run.COUNT] * layout.ENTRY_SIZE
        queue.append(entries[first:end], runs[r + Run.QUEUE_OFFSET], runs[r + Run.END])
        self._queues.dirty.add(key)
        self._tell(key, queue.max_offset)
        return True

    def _tell(self, key: Key, max_offset: int) -> None:
        """Entries are there, whatever becomes of those who hear of it."""
        for listener in self.listeners:
            try:
                listener.arrived(key[0], key[1], max_offset)
            except Exception as error:
                if self._unheard.due() is not None:
                    log.error("a listener failed to hear of new messages: %s", error, exc_info=error)

    def _has_room(self, key: Key, count: int) -> bool:
        """Whether this many entries fit into the present files of the queue and of its extension."""
        queue = self._queues.get(*key)
        if queue is None or not queue.has_room(count):
            return False
        ext = self._queues.ext_of(key)
        return not self._with_ext or (
            ext is not None and ext.has_room(count, self.settings.ext_bit_map_length // 8)
        )

    def _append_run(
        self,
        key: Key,
        run: array[int],
        entries: memoryview,
        facts: array[int],
        order: array[int],
        view: memoryview,
    ) -> None:
        if not self._makes_files and not self._has_room(key, run[Run.COUNT]):
            raise FilesNeeded
        try:
            queue = self._queues.ensure(key)
        except InvalidName as error:
            log.error("%d records stay in the log without a queue: %s", run[Run.COUNT], error)
            return
        if self._is_gap(key, queue, run):
            return
        rows = order[run[Run.FIRST] : run[Run.FIRST] + run[Run.COUNT]]
        if queue.is_batch:
            self._append_batches(queue, rows, facts, view)
        else:
            self._append_plain(key, queue, run, entries, rows, facts, view)
        self._queues.dirty.add(key)
        self._tell(key, queue.max_offset)

    def _is_gap(self, key: Key, queue: AnyQueue, run: array[int]) -> bool:
        missing = run[Run.QUEUE_OFFSET] > queue.max_offset
        return missing and self.on_gap is not None and self.on_gap(key, queue)

    def _append_plain(
        self,
        key: Key,
        queue: ConsumeQueue,
        run: array[int],
        entries: memoryview,
        rows: array[int],
        facts: array[int],
        view: memoryview,
    ) -> None:
        first, count = run[Run.FIRST] * layout.ENTRY_SIZE, run[Run.COUNT] * layout.ENTRY_SIZE
        mine = entries[first : first + count]
        ext = self._queues.ext(key)
        plain = run[Run.DENSE] and run[Run.OFFSET] >= queue.physical_end
        if plain and ext is None and (run[Run.QUEUE_OFFSET] >= queue.max_offset or not queue.file_count):
            queue.append(mine, run[Run.QUEUE_OFFSET], run[Run.END])
            return
        for place, row in enumerate(rows):
            f = row * Fact.WIDTH
            offset, end = facts[f + Fact.OFFSET], facts[f + Fact.OFFSET] + facts[f + Fact.SIZE]
            if end <= queue.physical_end:
                continue  # Dispatched before.
            entry = mine[place * layout.ENTRY_SIZE : (place + 1) * layout.ENTRY_SIZE]
            queue_offset = facts[f + Fact.QUEUE_OFFSET]
            if queue_offset == 0 and queue.file_count:
                queue_offset = queue.max_offset  # Java asks no questions of a zero.
            if queue_offset < queue.max_offset:
                log.warning(
                    "%s-%d: record at %d says it is number %d, which is there", *key, offset, queue_offset
                )
                continue
            if ext is not None:
                bits = self._bits(key[0], facts, row, view)
                address = ext.put(facts[f + Fact.TAGS_CODE], facts[f + Fact.STORE_TIMESTAMP], bits)
                if address is not None:
                    entry = memoryview(_ENTRY.pack(offset, facts[f + Fact.SIZE], address))
            queue.append(entry, queue_offset, end)

    def _bits(self, topic: bytes, facts: array[int], row: int, view: memoryview) -> bytes:
        if self._bit_mapper is None:
            return b""
        bits = self._bit_mapper.bit_map(topic, _properties_of(facts, row, view))
        size = self.settings.ext_bit_map_length // 8
        # A map that was cut would deny messages to those who want them; none at all denies nothing.
        return bits.ljust(size, b"\0") if 0 < len(bits) <= size else b""

    def _append_batches(
        self, queue: BatchConsumeQueue, rows: array[int], facts: array[int], view: memoryview
    ) -> None:
        for row in rows:
            f = row * Fact.WIDTH
            base, count = facts[f + Fact.QUEUE_OFFSET], 1
            if facts[f + Fact.ODD] & Odd.INNER_BATCH:
                properties = decode_properties(bytes(_properties_of(facts, row, view)))
                base, count = int(properties["INNER_BASE"]), int(properties["INNER_NUM"])
            offset, size = facts[f + Fact.OFFSET], facts[f + Fact.SIZE]
            code, store_ms = facts[f + Fact.TAGS_CODE], facts[f + Fact.STORE_TIMESTAMP]
            queue.append(BatchEntry(offset, size, code, store_ms, base, count))

    def _dispatch_multi(self, facts: array[int], row: int, view: memoryview) -> None:
        """Further queues that a record names itself (light message queues)."""
        f = row * Fact.WIDTH
        if not facts[f + Fact.ODD] & Odd.MULTI_DISPATCH or not _is_queued(facts[f + Fact.SYS_FLAG]):
            return
        at = facts[f + Fact.TOPIC_AT]
        if not allows_light_queues(bytes(view[at : at + facts[f + Fact.TOPIC_SIZE]])):
            return  # A retry still carries what sent the first try there.
        properties = decode_properties(bytes(_properties_of(facts, row, view)))
        names = properties.get("INNER_MULTI_DISPATCH", "").split(",")
        offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
        if len(names) != len(offsets):
            return
        record_offset, size = facts[f + Fact.OFFSET], facts[f + Fact.SIZE]
        for name, text in zip(names, offsets, strict=True):
            queue_offset = _integer(text)
            if queue_offset is None or not 0 <= queue_offset <= _OFFSET_MAX or "/" in name or not name:
                continue
            light = self.settings.lmq_enabled and name.startswith(_LMQ_PREFIX)
            key = (name.encode(), 0 if light else facts[f + Fact.QUEUE_ID])
            if not self._makes_files and not self._has_room(key, 1):
                raise FilesNeeded
            try:
                queue = self._queues.ensure(key)
            except InvalidName as error:
                log.error("the record at %d stays out of a light queue: %s", record_offset, error)
                continue
            if queue.is_batch or record_offset + size <= queue.physical_end:
                continue
            if queue.file_count:
                if queue_offset < queue.max_offset:
                    continue
                # A sender can write any number here: no gap is filled for it, as in Java.
                queue_offset = queue.max_offset
            entry = _ENTRY.pack(record_offset, size, facts[f + Fact.TAGS_CODE])
            queue.append(memoryview(entry), queue_offset, record_offset + size)
            self._queues.dirty.add((name.encode(), queue.queue_id))


def _odd_rows(facts: array[int], count: int) -> list[int]:
    marks = facts[Fact.ODD : count * Fact.WIDTH : Fact.WIDTH]
    return [row for row, mark in enumerate(marks) if mark] if any(marks) else []


def _is_queued(sys_flag: int) -> bool:
    """Open and rolled back transactions lie in no queue."""
    return sysflag.transaction_type(sys_flag) in (sysflag.TRANSACTION_NONE, sysflag.TRANSACTION_COMMIT)


def _properties_of(facts: array[int], row: int, view: memoryview) -> memoryview:
    at = facts[row * Fact.WIDTH + Fact.PROPERTIES_AT]
    return view[at : at + facts[row * Fact.WIDTH + Fact.PROPERTIES_SIZE]]


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
