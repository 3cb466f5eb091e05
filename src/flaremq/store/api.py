"""What the store asks of others, and what it answers: seams and values, no behaviour."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from flaremq.model.columns import Bytes


class Stretch(NamedTuple):
    """Whole records that lie one behind the other, noted as rows of facts, and how the walk ended."""

    count: int  # type: ignore[assignment]
    """Rows that were filled."""
    view: memoryview
    """The bytes that the rows' columns point into."""
    base: int
    """Physical offset of the view's first byte."""
    next: int
    """Physical offset at which to go on."""
    limit: int
    """Physical end of what could be walked here; no record crosses it."""
    stop: int
    """Why the walk ended (model.columns.Stop)."""


Window: TypeAlias = tuple[memoryview, int]
"""The readable bytes of one file of the log, and the physical offset of the first of them. A plain tuple,
because every pull makes one, and a named one takes ten times as long to make."""


class Log(Protocol):
    """The log as dispatch, recovery, readers and searches know it. They never see its files.

    All offsets are physical: bytes from the beginning of the log, whatever was deleted of it since.
    """

    head: ClassVar[int]
    """Bytes before each record that belong to it. A walk begins before them; offsets are those of records."""

    @property
    def file_size(self) -> int:
        """No record crosses a multiple of it."""

    @property
    def begin(self) -> int:
        """Offset of the oldest byte that is still there."""

    @property
    def readable_end(self) -> int:
        """Behind the last byte that readers may see."""

    @property
    def confirmed(self) -> int:
        """How far dispatch may go, and so what consumers can see."""

    def walk(self, begin: int, end: int, facts: array[int], check: int) -> Stretch | None:
        """Note whole records from the boundary `begin` on: up to `end`, to the end of a file, or until the
        rows are full. None if there is nothing to read at `begin`."""

    def window(self, offset: int) -> Window | None:
        """The readable part of the file that holds this byte; None if no file does."""

    def slice(self, offset: int, size: int) -> memoryview | None:
        """The bytes [offset, offset + size), as they lie in the map; None if they are not all there."""

    def store_time(self, offset: int, size: int) -> int:
        """Store time of the record that lies there; -1 if it cannot be read."""

    def damaged_size(self, view: memoryview, at: int) -> int:
        """How long something that is no sound record says that it is; `view` has its first bytes."""

    # For recovery.

    def starts(self) -> Sequence[int]:
        """Where a walk may begin without knowing a record: the beginnings of files, oldest first."""

    def cut(self, end: int) -> int:
        """Remove everything from `end` on. Returns how many bytes that were, 0 if all of them were blank."""

    def sync(self, begin: int, unsure: int) -> None:
        """Sync every byte from the boundary `begin` on, whatever is known to be on the disk, and before that
        write again what lies from `unsure` on: a sync that failed may have left it off the disk."""


Entry: TypeAlias = tuple[int, int, int]
"""Physical offset, size, tags code."""

TimeOf: TypeAlias = Callable[[int, int], int]
"""Store time of the record at this offset and of this size; -1 if it cannot be read."""


class Boundary(Enum):
    """LOWER: the first unit not before the time. UPPER: the last one not after it."""

    LOWER = "lower"
    UPPER = "upper"


class Located(NamedTuple):
    """Where the message at a queue offset lies. Messages of an inner batch share one record."""

    physical_offset: int
    size: int
    store_ms: int | None
    """None: only the record itself knows."""


class Queue(Protocol):
    """One queue of a topic, whatever its entries look like: ConsumeQueue or BatchConsumeQueue."""

    min_offset: int
    """Queue offset of the oldest message whose record is still in the log."""

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message will have."""

    @property
    def newest(self) -> int:
        """Where in the log its newest record lies; -1 without any."""

    @property
    def file_count(self) -> int: ...
    @property
    def folder(self) -> Path: ...
    def has_room(self, count: int) -> bool:
        """Whether this many entries can be added without making a file."""

    def locate(self, queue_offset: int) -> Located | None:
        """Where the message with this queue offset lies; None if it has no entry."""

    def listed(self, first: int, count: int) -> list[Entry]:
        """The entries of these queue offsets, as far as they are there."""

    def offset_by_time(self, timestamp_ms: int, boundary: Boundary, log_min: int, time_of: TimeOf) -> int:
        """The queue offset that belongs to a time, within what is there."""

    def load(self) -> None: ...
    def recover(self, trusted_end: int = 0) -> None: ...
    def truncate_to(self, physical_offset: int) -> None:
        """Forget the entries of records at or behind `physical_offset`."""

    def correct_min(self, log_min: int) -> None:
        """The log begins at `log_min` now."""

    def delete_before(self, log_min: int) -> int:
        """Delete leading files whose records have all left the log; how many."""

    def first_address(self) -> int | None:
        """The oldest address of an extension unit that is still needed."""

    def last_address(self) -> int | None:
        """The newest one; None if its entries have none."""

    def flush(self, least_pages: int) -> None: ...
    def close(self) -> None: ...
    def destroy(self) -> None: ...


class ExtUnit(Protocol):
    """What the extension holds for a queue entry, when extensions are on."""

    @property
    def tags_code(self) -> int: ...
    @property
    def store_ms(self) -> int: ...
    @property
    def bit_map(self) -> bytes: ...


class Selector(Protocol):
    """Which messages of a queue a consumer wants. Made by the filter floor, used by the reader."""

    @property
    def codes(self) -> array[int] | None:
        """Tags codes that decide alone, without a look at any record; None when they do not."""

    def matches_entry(self, tags_code: int, unit: ExtUnit | None) -> bool:
        """First look, at the queue entry. True when in doubt."""

    def matches_record(self, record: memoryview) -> bool:
        """Second look, at the record itself."""


class BitMapper(Protocol):
    """Computes which consumer groups want a record, for the queue extension."""

    def bit_map(self, topic: bytes, properties: Bytes) -> bytes: ...


class ArrivalListener(Protocol):
    """Told which queues have grown, once per dispatched batch and in the dispatching thread."""

    def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None: ...


class GetStatus(Enum):
    """Answers of a read, by their names in RocketMQ."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class PutStatus(Enum):
    """How far a put has come when it is answered."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"  # Stored, but not known to be on the disk.


@dataclass(frozen=True, slots=True)
class PutResult:
    """Where one message landed."""

    status: PutStatus
    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp_ms: int

    @property
    def end(self) -> int:
        return self.physical_offset + self.size


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Where the messages of a batch landed, one behind the other."""

    status: PutStatus
    physical_offsets: array[int]
    end: int
    queue_offset: int
    """Of the first."""
    store_timestamp_ms: int

    @property
    def size(self) -> int:
        return self.end - self.physical_offsets[0]


class ReadResult(NamedTuple):
    """Messages of one queue: raw records, as slices of the log where they lie. Made for every pull."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: Sequence[Bytes] = ()
    count: int = 0  # type: ignore[assignment]
    size: int = 0
    suggest_slave: bool = False

    def gathered(self) -> bytes:
        """All records in one piece: the body of a pull answer."""
        return b"".join(self.records)
