"""The int64 tables in which modules exchange many messages at once.

A table is an `array('q')` with a row per message and a fixed number of columns. Bytes are given as a place
and a length in a buffer that is passed along with the table, so no Python object is made per message, either
twin can fill or read it, and a test can print it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview
"""What every module accepts where it reads bytes."""


class Draft:
    """Columns of a message to be stored. The encoder fills in the last three."""

    TOPIC_AT: Final = 0  # In `heads`.
    TOPIC_SIZE: Final = 1
    PROPERTIES_AT: Final = 2  # In `heads`.
    PROPERTIES_SIZE: Final = 3
    BODY_AT: Final = 4  # In `bodies`.
    BODY_SIZE: Final = 5
    BORN_HOST_AT: Final = 6  # In `heads`: address and port, 8 or 20 bytes.
    BORN_HOST_SIZE: Final = 7
    QUEUE_ID: Final = 8
    QUEUE: Final = 9  # Place in the table of next queue offsets; -1 takes none (offset 0).
    STEP: Final = 10  # How far the queue moves: 1, or the number of elements of an inner batch.
    TOGETHER: Final = 11  # Rows, from this one on, that must be in one file; 1 for a single message.
    FLAG: Final = 12
    SYS_FLAG: Final = 13
    BORN_TIMESTAMP: Final = 14
    RECONSUME_TIMES: Final = 15
    PREPARED_OFFSET: Final = 16
    PHYSICAL_OFFSET: Final = 17
    SIZE: Final = 18
    QUEUE_OFFSET: Final = 19

    WIDTH: Final = 20


class Fact:
    """Columns of a stored record: what dispatch, recovery and readers need."""

    OFFSET: Final = 0  # Physical.
    SIZE: Final = 1
    QUEUE_ID: Final = 2
    QUEUE_OFFSET: Final = 3
    SYS_FLAG: Final = 4
    STORE_TIMESTAMP: Final = 5
    TAGS_CODE: Final = 6  # Java's hash of TAGS, 0 without.
    TOPIC_AT: Final = 7  # This and all other places: in the walked buffer.
    TOPIC_SIZE: Final = 8
    PROPERTIES_AT: Final = 9
    PROPERTIES_SIZE: Final = 10
    KEYS_AT: Final = 11
    KEYS_SIZE: Final = 12  # 0: no KEYS.
    UNIQUE_KEY_AT: Final = 13
    UNIQUE_KEY_SIZE: Final = 14  # 0: no UNIQ_KEY.
    BODY_AT: Final = 15
    BODY_SIZE: Final = 16
    TAGS_AT: Final = 17
    TAGS_SIZE: Final = 18  # 0: no TAGS.
    ODD: Final = 19  # Sum of the Odd bits; 0 for a plain record.

    WIDTH: Final = 20


class WindowHead:
    """The first numbers of a producer's window. Rows of Remembered follow."""

    NEWEST: Final = 0  # The greatest sequence; -1 without any.
    USED_MS: Final = 1  # When it last stored a message.
    PART: Final = 2  # The last part of a turn in which it had messages,
    IN_PART: Final = 3  # and the greatest sequence among those.

    WIDTH: Final = 4


class Remembered:
    """Columns of a message that a window remembers, at the place of sequence % capacity."""

    SEQUENCE: Final = 0  # -1: none.
    PHYSICAL_OFFSET: Final = 1
    QUEUE_ID: Final = 2
    QUEUE_OFFSET: Final = 3
    STORE_MS: Final = 4

    WIDTH: Final = 5


class Odd:
    """Properties that need more than plain dispatch."""

    DELAY: Final = 1
    INNER_BATCH: Final = 2
    MULTI_DISPATCH: Final = 4


class Stop:
    """Why a walk over records ended."""

    LIMIT: Final = 0  # The end of the range, or no row left in the table.
    BLANK: Final = 1  # The end of a log file.
    INVALID: Final = 2  # No valid record: zeros, torn or foreign bytes.
    HALF: Final = 3  # A record whose lengths do not add up to its size.


class Check:
    """What a walk verifies in addition to the lengths. Bits, to be added."""

    NOTHING: Final = 0
    BODY_CRC: Final = 1
    RECORD_CRC: Final = 2  # The CRC property must be there and match.
    OFFSET: Final = 4  # The offset stored in the record must be its place.


@dataclass(slots=True)
class Drafts:
    """Messages to be stored: rows of Draft columns, and the bytes that they refer to.

    `heads` contains topics, properties and hosts, `bodies` the bodies; they may be one buffer. They are two
    because a body is still where the socket put it, while a head may have been rewritten.
    """

    rows: array[int] = field(default_factory=lambda: array("q"))
    heads: Bytes = b""
    bodies: Bytes = b""

    def __len__(self) -> int:
        return len(self.rows) // Draft.WIDTH


def facts_table(rows: int) -> array[int]:
    """An empty table for a walk over up to `rows` records."""
    return array("q", bytes(8 * rows * Fact.WIDTH))
