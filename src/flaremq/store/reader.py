"""Reading: messages of one queue from an offset on, and single records by their place in the log.

    dispatch > queue > [reader] > raw record bytes > answer

Record bytes leave as they lie in the map, undecoded. Records close to the end of the log count as
being in memory, and may be read in larger portions than those that have to come from the disk.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import Final

from flaremq.base.errors import CorruptStore
from flaremq.base.units import MiB
from flaremq.model import layout
from flaremq.model.columns import Bytes
from flaremq.store.api import GetStatus, Log, ReadResult, Selector
from flaremq.store.queue.batchconsumequeue import BatchConsumeQueue
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.store.queue.entries import Limit, choose, gather, take
from flaremq.store.queue.extension import ConsumeQueueExt, is_address
from flaremq.store.queue.queues import Queues
from flaremq.store.settings import StoreSettings

_SIZE_MIN, _SIZE_MAX = 100, 128 * MiB
_KNOWN_LIMITS_MAX = 64
_COUNT_MAX = 4096  # Of one read, whatever was asked for.
_VIEWS_FROM = 64 * 1024  # From this size on a record is handed out where it lies, not copied.
_ENTRY = struct.Struct(layout.ENTRY_FORMAT)
_SCAN_MAX, _LOG_END = Limit.SCAN_MAX, Limit.LOG_END  # Globals are found faster than members of a class.

_HEAD: Final = struct.Struct(">ii")  # Size and magic of a record.


class Reader:
    """Any thread may read; what it gets stays readable as long as it keeps it."""

    def __init__(
        self,
        log: Log,
        queues: Queues,
        settings: StoreSettings,
        follows: Callable[[], bool] = lambda: False,
        undispatched: Callable[[], bool] = lambda: False,
    ) -> None:
        """`follows`: whether this store may lack what another one has. `undispatched`: whether the log has
        records that are in no queue yet."""
        self._log = log
        self._queues = queues
        self._settings = settings
        self._known_limits: dict[tuple[int, int], array[int]] = {}
        self._near = _memory_size() * settings.in_memory_percent // 100
        self._follows = follows
        self._undispatched = undispatched

    def get(
        self,
        topic: bytes,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        size_max: int = _SIZE_MAX,
        selector: Selector | None = None,
    ) -> ReadResult:
        """Messages from `queue_offset` on, as DefaultMessageStore.getMessage chooses them."""
        queue = self._queues.get(topic, queue_id)
        high = 0 if queue is None else queue.max_offset
        if queue is None or high == 0:
            return self._nothing(GetStatus.NO_MESSAGE_IN_QUEUE, queue_offset, 0, 0, 0)
        low = queue.min_offset
        if queue_offset < low:
            return self._nothing(GetStatus.OFFSET_TOO_SMALL, queue_offset, low, low, high)
        if queue_offset == high:
            return self._nothing(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, queue_offset, low, high)
        if queue_offset > high:
            return self._nothing(GetStatus.OFFSET_OVERFLOW_BADLY, queue_offset, high, low, high)
        limits = self._limits(count_max, size_max)
        try:
            if queue.is_batch:
                return self._read_batches(queue, queue_offset, limits, selector)
            found = self._read_at_once(queue, queue_offset, limits, selector)
            return found or self._read_plain(queue, queue_offset, limits, selector)
        except CorruptStore:
            if count_max == 1:
                raise
            # One of them is damaged. What is before it can be had.
            return self.get(topic, queue_id, queue_offset, 1, size_max, selector)

    def _nothing(self, status: GetStatus, asked: int, correct: int, low: int, high: int) -> ReadResult:
        """Where nothing can be said of the offset that was asked for, it is repeated."""
        return ReadResult(status, correct if self.corrects(status) else asked, low, high)

    def corrects(self, status: GetStatus) -> bool:
        """Whether one who asks outside of a queue is told where to go on.

        A slave may lag behind, and its master may have what it lacks. And what lies in the log may be in no
        queue for as long as the disk is full: a slave may have shown it to its readers long ago.
        """
        if self._follows():
            return self._settings.offset_check_in_slave
        return status is GetStatus.OFFSET_TOO_SMALL or not self._undispatched()

    def _limits(self, count_max: int, size_max: int) -> array[int]:
        """Of a read that asks for so much. Most readers ask for the same again and again."""
        known = self._known_limits.get((count_max, size_max))
        if known is None:
            known = self._made_limits(count_max, size_max)
            if len(self._known_limits) < _KNOWN_LIMITS_MAX:
                self._known_limits[count_max, size_max] = known
        row = known[:]
        row[Limit.LOG_MIN], row[Limit.LOG_END] = self._log.begin, self._log.readable_end
        return row

    def _made_limits(self, count_max: int, size_max: int) -> array[int]:
        settings = self._settings
        row = array("q", bytes(8 * Limit.WIDTH))
        row[Limit.COUNT_MAX] = max(1, min(count_max, _COUNT_MAX))
        row[Limit.BYTES_MAX] = max(_SIZE_MIN, min(size_max, _SIZE_MAX))
        row[Limit.SCAN_MAX] = max(settings.filter_scan_max // layout.ENTRY_SIZE, count_max)
        row[Limit.NEAR] = self._near
        row[Limit.NEAR_BYTES] = settings.transfer_bytes_in_memory
        row[Limit.NEAR_COUNT] = settings.transfer_count_in_memory
        row[Limit.FAR_BYTES] = settings.transfer_bytes_on_disk
        row[Limit.FAR_COUNT] = settings.transfer_count_on_disk
        row[Limit.FILE_SIZE] = self._log.file_size
        return row

    def _read_at_once(
        self, queue: ConsumeQueue, queue_offset: int, limits: array[int], selector: Selector | None
    ) -> ReadResult | None:
        """The ordinary read in one step: a few small records that lie in one file. None if it is another."""
        codes = None if selector is None else selector.codes
        entries = queue.entries(queue_offset, limits[_SCAN_MAX])
        if not entries or (selector is not None and (codes is None or self._settings.ext_enabled)):
            return None
        window = self._log.window(int.from_bytes(entries[:8], "big"))
        if window is None:
            return None
        view, base = window
        taken, scanned, size, last, _, data = take(entries, limits, codes, view, base, _VIEWS_FROM)
        if data is None:
            return None
        far = limits[_LOG_END] - last > self._near
        return ReadResult(
            GetStatus.FOUND,
            queue_offset + scanned,
            queue.min_offset,
            queue.max_offset,
            (data,),
            taken,
            size,
            far,
        )

    def _read_plain(
        self, queue: ConsumeQueue, queue_offset: int, limits: array[int], selector: Selector | None
    ) -> ReadResult:
        chosen = array("q", bytes(16 * limits[Limit.COUNT_MAX]))
        at, low, high = queue_offset, queue.min_offset, queue.max_offset
        gone = last = taken = size = 0
        for _ in range(self._settings.travel_queue_files):
            entries = queue.entries(at, limits[Limit.SCAN_MAX])
            if not entries:
                if at == queue_offset:
                    return self._nothing(
                        GetStatus.OFFSET_FOUND_NULL,
                        queue_offset,
                        queue.next_file_offset(queue_offset),
                        low,
                        high,
                    )
                break
            taken, scanned, size, last, lost = self._choose(queue, entries, limits, selector, chosen)
            at += scanned
            gone += lost
            if taken or at >= high:
                break
        try:
            records = self._records(chosen, taken)
        except ValueError:  # A damaged entry that leads out of its file.
            records = None
        if records is None:  # Deleted between the choice and the reading.
            return ReadResult(GetStatus.MESSAGE_WAS_REMOVING, at, low, high)
        status = GetStatus.FOUND if taken else _empty_status(gone)
        far = self._log.readable_end - last > self._near
        return ReadResult(status, at, low, high, records, taken, size, suggest_slave=far)

    def _choose(
        self,
        queue: ConsumeQueue,
        entries: memoryview,
        limits: array[int],
        selector: Selector | None,
        chosen: array[int],
    ) -> tuple[int, int, int, int, int]:
        """Taken, looked at, bytes taken, the offset of the last one looked at, and how many were gone."""
        if selector is None:
            return choose(entries, limits, None, chosen)
        ext = self._queues.ext((os.fsencode(queue.topic), queue.queue_id))
        if selector.codes is not None and ext is None:
            return choose(entries, limits, selector.codes, chosen)
        return self._choose_slowly(entries, limits, selector, ext, chosen)

    def _choose_slowly(
        self,
        entries: memoryview,
        limits: array[int],
        selector: Selector,
        ext: ConsumeQueueExt | None,
        chosen: array[int],
    ) -> tuple[int, int, int, int, int]:
        """The same choice, one entry at a time, for filters that must look closer."""
        found = array("q", (0, 0))
        taken = size = scanned = gone = last = 0
        step = array("q", limits)
        for at in range(0, len(entries), layout.ENTRY_SIZE):
            entry = entries[at : at + layout.ENTRY_SIZE]
            offset, record_size, code = _ENTRY.unpack(entry)
            if scanned >= limits[Limit.SCAN_MAX] or (
                taken and self._is_full(limits, taken, size + record_size, offset)
            ):
                break
            scanned, last = scanned + 1, offset
            unit = ext.get(code) if ext is not None else None
            lost = unit is None and is_address(code)  # A lost unit: the record alone can tell.
            if not lost and not selector.matches_entry(unit.tags_code if unit else code, unit):
                continue
            one, _, _, _, removed = choose(entry, step, None, found)
            gone += removed
            record = self._log.slice(found[0], found[1]) if one else None
            if record is None or not selector.matches_record(record):
                continue
            chosen[2 * taken], chosen[2 * taken + 1] = found[0], found[1]
            taken += 1
            size += record_size
        return taken, scanned, size, last, gone

    @staticmethod
    def _is_full(limits: array[int], taken: int, size: int, physical_offset: int) -> bool:
        if taken + 1 > limits[Limit.COUNT_MAX] or size > limits[Limit.BYTES_MAX]:
            return True
        near = limits[Limit.LOG_END] - physical_offset <= limits[Limit.NEAR]
        bytes_max = limits[Limit.NEAR_BYTES if near else Limit.FAR_BYTES]
        count_max = limits[Limit.NEAR_COUNT if near else Limit.FAR_COUNT]
        return size > bytes_max or taken > count_max - 1

    def _records(self, chosen: array[int], taken: int) -> list[Bytes] | None:
        """The chosen records: small ones copied together, file by file, large ones as they lie."""
        records: list[Bytes] = []
        for first, last in self._pieces(chosen, taken):
            window = self._log.window(chosen[2 * first])
            if window is None:
                return None
            view, base = window
            if chosen[2 * last - 2] + chosen[2 * last - 1] > base + len(view):
                return self._each(chosen, taken)
            if last - first == 1 and chosen[2 * first + 1] >= _VIEWS_FROM:
                at = chosen[2 * first] - base
                records.append(view[at : at + chosen[2 * first + 1]].toreadonly())
            else:
                records.append(gather(view, base, chosen, first, last))
        return records

    def _each(self, chosen: array[int], taken: int) -> list[Bytes] | None:
        """The chosen records one by one: not all of their file can be read. Raises CorruptStore if one of
        them is damaged: a consumer that was told that it is gone would go on behind it."""
        records: list[Bytes] = []
        for i in range(taken):
            record = self._log.slice(chosen[2 * i], chosen[2 * i + 1])
            if record is None:
                return None
            records.append(record)
        return records

    def _pieces(self, chosen: array[int], taken: int) -> Iterator[tuple[int, int]]:
        """Runs of chosen records that lie in one file and are copied, or shown, together."""
        file_size, first = self._log.file_size, 0
        for i in range(1, taken + 1):
            if (
                i == taken
                or chosen[2 * i] // file_size != chosen[2 * first] // file_size
                or chosen[2 * i + 1] >= _VIEWS_FROM
                or chosen[2 * first + 1] >= _VIEWS_FROM
            ):
                yield first, i
                first = i

    def _read_batches(
        self, queue: BatchConsumeQueue, queue_offset: int, limits: array[int], selector: Selector | None
    ) -> ReadResult:
        records: list[memoryview] = []
        low, high = queue.min_offset, queue.max_offset
        at = queue_offset
        count = size = gone = last = 0
        for entry in queue.entries(queue_offset, limits[Limit.SCAN_MAX]):
            full = self._is_full(limits, count + entry.count - 1, size + entry.size, entry.physical_offset)
            if records and full:
                break
            at, last = entry.end_offset, entry.physical_offset
            if selector is not None and not selector.matches_entry(entry.tags_code, None):
                continue
            record = self._log.slice(last, entry.size) if last >= self._log.begin else None
            if record is None:
                gone += 1
                continue
            if selector is not None and selector.codes is None and not selector.matches_record(record):
                continue
            records.append(record)
            count, size = count + entry.count, size + entry.size
        status = GetStatus.FOUND if records else _empty_status(gone)
        far = self._log.readable_end - last > self._near
        return ReadResult(status, at, low, high, records, count, size, suggest_slave=far)

    def is_near(self, topic: bytes, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is there, and so young that it counts as being in memory."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return False
        found = queue.locate(queue_offset)
        return found is not None and self._log.readable_end - found.physical_offset <= self._near

    def record(self, physical_offset: int) -> memoryview | None:
        """The record that begins at this offset of the log, or None."""
        found = self._log.window(physical_offset)
        if found is None:
            return None
        view, base = found
        at = physical_offset - base
        if at + layout.BLANK_SIZE > len(view):
            return None
        size, magic = _HEAD.unpack_from(view, at)
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2) or not layout.FIXED_SIZE <= size <= len(view) - at:
            return None
        return view[at : at + size].toreadonly()


def _empty_status(gone: int) -> GetStatus:
    return GetStatus.MESSAGE_WAS_REMOVING if gone else GetStatus.NO_MATCHED_MESSAGE


def _memory_size() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
