"""A consistent view of a store while its broker writes: one moment of its log, queues and index.

A broker, ours or Java's, writes through shared maps. Another process sees its bytes at once, but in no order
that it could rely on, and no mark on disk says how far the log is written: the checkpoint is seconds behind.
At the end of a live log a reader therefore meets records of which it sees the length and not yet the body.
That is not damage, though it looks the same; and a reader that then searches for the next whole record
finds one, because the broker has gone on meanwhile.

What it can rely on is the order of the broker's own work, which is the same for Java:

    the record, whole  ─►  its queue entry  ─►  its index entries  ─►  the next batch of records

So a queue entry vouches for the record it leads to, and for all records before that one. A moment is taken
against that order: first the end of the index, then those of the queues, and the end of the log follows from
them.
Below them everything is there and never changes again, but for two things:

- A broker dispatches many records at a time, queue by queue. One queue may have its entries of a batch
  before another, and the slot of an index entry comes after the entry.
- An entry of 20 bytes, or a header, may be seen half written.

Both are over in an instant, so whatever looks wrong is read again until `PATIENCE_S` after the moment was
taken. If it is still wrong then, it is damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import sleep, time
from typing import Final, NamedTuple, TypeVar

from flaremq.base.errors import CorruptStore
from flaremq.model import layout
from flaremq.store.index.indexfile import IndexHeader, entry_at, wrong_links
from flaremq.store.offline.scan import QueueEntry, StoreScan

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""A batch is dispatched in milliseconds; this is fair to a broker that gets no processor for seconds."""
_PAUSE_S: Final = 0.05
_HEADER_LOOKS: Final = 200
_LINKS_MAX: Final = 1_000_000  # So many slots do not change while they are read.
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Moment:
    """How far a running broker had come at one moment."""

    log_end: int
    """All records that begin below it are whole, and all have their queue entries, or get them at once."""
    index_end: int
    """All records that begin below it have their keys in the index."""
    taken_s: float
    """By the clock of the machine, so that it may travel to other processes."""

    def settled(self, look: Callable[[], T], is_fine: Callable[[T], bool]) -> T:
        """What `look` finds, looked at again while it is not fine and may still be in the making."""
        found = look()
        while not is_fine(found) and time() < self.taken_s + PATIENCE_S:
            sleep(_PAUSE_S)
            found = look()
        return found


def moment_of(scan: StoreScan) -> Moment | None:
    """None if no process has the store open: then nothing changes, and all of it can be judged."""
    if not scan.is_live:
        return None
    index_end = _index_end(scan)
    log_end = max((_dispatched(scan, *queue) for queue in scan.queues()), default=0)
    return Moment(log_end, index_end, time())


def last_entry(scan: StoreScan, topic: str, queue_id: int) -> QueueEntry | None:
    """The last entry of a queue that leads to a whole record, which says the same of itself.

    Those behind it are half written, or what a crash has left there: Java does not wipe what it cuts off.
    """
    files = scan.log_files()
    for entry in scan.entries_backwards(topic, queue_id):
        if not files or entry.physical_offset < files[0].offset:
            return None  # Its part of the log is gone, and so is that of all before it.
        if scan.leads_to_record(entry, topic, queue_id, files):
            return entry
    return None


def _dispatched(scan: StoreScan, topic: str, queue_id: int) -> int:
    entry = last_entry(scan, topic, queue_id)
    return 0 if entry is None else entry.physical_offset + entry.size


def _index_end(scan: StoreScan) -> int:
    return max((header.end_offset for header in _headers(scan)), default=0)


def _headers(scan: StoreScan) -> Iterator[IndexHeader]:
    for path in scan.index_paths():
        try:
            view = scan.disk.look(path)
        except CorruptStore:
            continue  # Deleted by the broker meanwhile.
        slots = layout.index_slots(len(view))
        # Of a file that is divided in another way only the header is known, which is whole almost always.
        header = IndexHeader.read(view) if slots is None else whole_header(view, slots)
        if header.next_entry > 1:
            yield header


def whole_header(view: memoryview, slots: int) -> IndexHeader:
    """The header of an index file, not while it is being written: its last entry must be of its last record.

    One that never agrees with its entries is damaged, and given as it is.
    """
    header = IndexHeader.read(view)
    for _ in range(_HEADER_LOOKS):
        at = entry_at(slots, header.next_entry - 1)
        if header.next_entry <= 1 or at + layout.INDEX_ENTRY_SIZE > len(view):
            return header
        if _LONG.unpack_from(view, at + 4)[0] == header.end_offset and header == IndexHeader.read(view):
            return header
        header = IndexHeader.read(view)
    return header


def slot_leads_to(view: memoryview, slots: int, slot: int, entry: int) -> bool:
    """Whether a slot leads to an entry, perhaps by way of newer ones. Entry 0 is the end of a chain."""
    (number,) = _INT.unpack_from(view, layout.INDEX_HEADER_SIZE + slot * layout.INDEX_SLOT_SIZE)
    while number > entry and entry_at(slots, number + 1) <= len(view):
        (previous,) = _INT.unpack_from(view, entry_at(slots, number) + 16)
        if previous >= number:
            return False
        number = previous
    return bool(number == entry)


class WrongLink(NamedTuple):
    """A link of an index file that leads elsewhere than it should."""

    is_slot: bool
    number: int
    """Of the slot, or of the entry."""
    there: int
    expected: int


def wrong_links_now(view: memoryview, slots: int) -> list[WrongLink]:
    """As `indexfile.wrong_links`, for a file that a broker may be adding to: slots may lead to newer ones."""
    _, links = wrong_links(view, slots, _LINKS_MAX)
    found = [WrongLink(*link) for link in links]
    return [
        link
        for link in found
        if not link.is_slot or not slot_leads_to(view, slots, link.number, link.expected)
    ]
