"""What the store asks of others, and what it answers: seams and values, no behaviour."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from flaremq.model.columns import Bytes


class ExtUnit(Protocol):
    """What lies beside a queue entry when queue extensions are on."""

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
