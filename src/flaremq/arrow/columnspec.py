"""Arguments and results of the twins of `columns`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class Number:
    """The numeric columns."""

    QUEUE_ID: Final = 0  # 32 bits.
    QUEUE_OFFSET: Final = 1
    PHYSICAL_OFFSET: Final = 2
    BORN_TIME: Final = 3  # Microseconds.
    STORE_TIME: Final = 4  # Microseconds.
    SYS_FLAG: Final = 5  # 32 bits.
    RECONSUME_TIMES: Final = 6  # 32 bits.
    PREPARED_OFFSET: Final = 7

    NARROW: Final = frozenset({QUEUE_ID, SYS_FLAG, RECONSUME_TIMES})


class TextColumn(NamedTuple):
    """A column of bytes of any length: Arrow's validity bitmap, int32 offsets, and the bytes."""

    valid: bytes | None
    """None: no value is missing."""
    offsets: bytes
    values: bytes


class Pairs(NamedTuple):
    """A column of maps: where each row's pairs begin, and the pairs."""

    rows: bytes
    names: TextColumn
    values: TextColumn


@dataclass(frozen=True, slots=True)
class Only:
    """Which rows to return. Bounds are [begin, end)."""

    offset_begin: int = 0
    """Of the queue offset, as is the next."""
    offset_end: int = (1 << 63) - 1
    time_begin_ms: int = -(1 << 63)
    """Of the store timestamp, as is the next."""
    time_end_ms: int = (1 << 63) - 1
    queue_id: int = -1
    """-1: all."""
    topics: tuple[bytes, ...] = ()
    """Empty: all."""
    tags: tuple[bytes, ...] = ()
    """Empty: all, including messages without tags."""
