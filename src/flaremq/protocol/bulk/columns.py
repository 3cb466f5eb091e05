"""The int64 tables in which many frames are exchanged at once; see model/columns.py for the idea.

What all connections delivered in a turn is in one buffer, `data`. `burst.split` turns it into a row per
frame and a row per ext field; `sends.parse_sends` and `pulls.parse_pulls` turn those into the rows that the
lanes work on. Strings that must be changed (escapes, properties that the broker adds) are written to a
second buffer, `heads`; all others are given by their place in `data`.
"""

from __future__ import annotations

from array import array
from typing import Final

PAIRS_MAX: Final = 256
"""Ext fields of one frame; one with more is not ordinary. A Java client sends twenty at most."""


class Chunk:
    """Columns of what one connection delivered. It begins in `data` where the one before it ends."""

    END: Final = 0  # Given.
    BORN_HOST_AT: Final = 1  # Given, for sends: the peer's address and port, in `heads`.
    BORN_HOST_SIZE: Final = 2
    REST: Final = 3  # Found: where an incomplete frame begins; END if there is none.
    NEEDED: Final = 4  # Found: the size of that frame, 0 if not known yet.
    BROKEN: Final = 5  # Found: one of Broken. If not NOTHING, no frame can be found from REST on.

    WIDTH: Final = 6


class Broken:
    """Why a connection must be closed. The frames before that are good."""

    NOTHING: Final = 0
    LENGTH: Final = 1  # No frame has this length.
    SERIALIZE_TYPE: Final = 2  # Unknown.
    HEADER_SIZE: Final = 3  # The header is longer than the frame.


class Frame:
    """Columns of a complete frame. Its header follows the prefix, from AT + 8 to BODY_AT."""

    CHUNK: Final = 0
    AT: Final = 1
    END: Final = 2
    SERIALIZE: Final = 3
    CODE: Final = 4
    OPAQUE: Final = 5
    FLAG: Final = 6
    VERSION: Final = 7
    LANGUAGE: Final = 8  # -1: unknown.
    FIRST_PAIR: Final = 9  # Its ext fields: rows of Pair from this one on.
    PAIRS: Final = 10
    BODY_AT: Final = 11
    BODY_SIZE: Final = 12
    PLAIN: Final = 13  # One of Plain. With HEADER, columns 4 to 10 have no meaning.

    WIDTH: Final = 14


class Plain:
    """Why a frame takes the plain lane: it may be right or wrong, but it is not ordinary."""

    NO: Final = 0
    HEADER: Final = 1  # The header is not written in the ordinary way.
    FIELDS: Final = 2  # The fields ask for more than the fast lane does, or make no sense.
    TAKEN: Final = 3  # Neither lane: an answer that was already handed to the call that waited for it.


class Pair:
    """Columns of an ext field; all places in `data`. A compact field without a value has no row."""

    NAME_AT: Final = 0
    NAME_SIZE: Final = 1
    VALUE_AT: Final = 2
    VALUE_SIZE: Final = 3
    KIND: Final = 4  # Sum of the Kind bits.

    WIDTH: Final = 5


class Kind:
    """What kind of value an ext field has."""

    TEXT: Final = 0
    ESCAPED: Final = 1  # With JSON escapes in it.
    BARE: Final = 2  # Not a string: a number, true or false.
    WIDE: Final = 4  # Not only ASCII.


class Send:
    """Columns of a message to be stored; its other half is the row of Draft with the same number."""

    FRAME: Final = 0
    CHUNK: Final = 1
    TARGET: Final = 2  # Row of Target.
    SERIALIZE: Final = 3
    OPAQUE: Final = 4
    ONE_WAY: Final = 5  # 1: no answer.
    GROUP_AT: Final = 6  # In `data`.
    GROUP_SIZE: Final = 7
    DEFAULT_TOPIC_AT: Final = 8  # In `data`.
    DEFAULT_TOPIC_SIZE: Final = 9
    DEFAULT_TOPIC_QUEUE_NUMS: Final = 10
    UNIQUE_KEY_AT: Final = 11  # In `heads`. Always there, without characters that JSON would escape.
    UNIQUE_KEY_SIZE: Final = 12
    WAIT: Final = 13  # 0: answer without waiting for flush or slaves.
    QUEUE_ID: Final = 14  # The queue that it is for, which the answer names. Draft.QUEUE_ID may be changed.
    KIND: Final = 15  # One of SendKind.
    VALUE: Final = 16  # What that kind asks for.
    HANDLE_AT: Final = 17  # Filled in by the broker, in `heads`: what cancels the message.
    HANDLE_SIZE: Final = 18  # 0: the answer has none.
    PRODUCER_AT: Final = 19  # In `heads`: the id in PRODUCER_SEQ.
    PRODUCER_SIZE: Final = 20
    SEQUENCE: Final = 21  # The number in PRODUCER_SEQ; -1: not to be compared with others.

    WIDTH: Final = 22


class SendKind:
    """Which way a message takes to its queue. VALUE tells more."""

    AT_ONCE: Final = 0
    LEVEL: Final = 1  # It waits. VALUE: the delay level, from 1 to 99.
    AFTER: Final = 2  # It waits. VALUE: how long, in ms.
    MOMENT: Final = 3  # It waits. VALUE: until when, in ms since the epoch.
    PREPARED: Final = 4  # It waits for the end of its transaction.


class Target:
    """Columns of a queue that rows of Send go to: checks are done once for all of them."""

    TOPIC_AT: Final = 0  # In `heads`.
    TOPIC_SIZE: Final = 1
    QUEUE_ID: Final = 2
    FIRST: Final = 3  # The first of its rows.
    ROWS: Final = 4  # Their number.

    WIDTH: Final = 5


class Stored:
    """Columns of an answer that says where a message was stored; all places in `data`."""

    FRAME: Final = 0
    CHUNK: Final = 1
    OPAQUE: Final = 2
    QUEUE_ID: Final = 3
    QUEUE_OFFSET: Final = 4
    ID_AT: Final = 5  # msgId.
    ID_SIZE: Final = 6
    REGION_AT: Final = 7  # MSG_REGION, if messages are to be traced; a size of 0 otherwise.
    REGION_SIZE: Final = 8

    WIDTH: Final = 9


class Pull:
    """Columns of a pull; all places in `data`."""

    FRAME: Final = 0
    CHUNK: Final = 1
    SERIALIZE: Final = 2
    OPAQUE: Final = 3
    GROUP_AT: Final = 4
    GROUP_SIZE: Final = 5
    TOPIC_AT: Final = 6
    TOPIC_SIZE: Final = 7
    QUEUE_ID: Final = 8
    QUEUE_OFFSET: Final = 9
    MAX_MSG_NUMS: Final = 10
    SYS_FLAG: Final = 11
    COMMIT_OFFSET: Final = 12
    SUSPEND_TIMEOUT_MILLIS: Final = 13
    SUBSCRIPTION_AT: Final = 14
    SUBSCRIPTION_SIZE: Final = 15  # 0: none.
    SUB_VERSION: Final = 16
    EXPRESSION_TYPE_AT: Final = 17
    EXPRESSION_TYPE_SIZE: Final = 18  # 0: none, which means TAG.
    MAX_MSG_BYTES: Final = 19  # -1: none.

    WIDTH: Final = 20


class Request:
    """Columns of a request of any code: its frame, then place in `data`, size and kind of each field."""

    FRAME: Final = 0
    FIELD: Final = 3  # Columns for each field, in the order in which the names were given.
    MISSING: Final = (-1, 0, 0)  # A field that the request does not have.


class PullAnswer:
    """Columns of the answer to a pull, without the records."""

    SERIALIZE: Final = 0
    OPAQUE: Final = 1
    CODE: Final = 2
    SUGGEST_WHICH_BROKER_ID: Final = 3
    NEXT_BEGIN_OFFSET: Final = 4
    MIN_OFFSET: Final = 5
    MAX_OFFSET: Final = 6
    TOPIC_SYS_FLAG: Final = 7
    GROUP_SYS_FLAG: Final = 8
    BODY_SIZE: Final = 9

    WIDTH: Final = 10


def chunks_table(ends: list[int], hosts: list[tuple[int, int]] | None = None) -> array[int]:
    """Rows of Chunk: where each chunk ends, and where the address of its peer is in `heads`."""
    table = array("q", bytes(8 * Chunk.WIDTH * len(ends)))
    for row, end in enumerate(ends):
        table[row * Chunk.WIDTH + Chunk.END] = end
        if hosts is not None:
            table[row * Chunk.WIDTH + Chunk.BORN_HOST_AT] = hosts[row][0]
            table[row * Chunk.WIDTH + Chunk.BORN_HOST_SIZE] = hosts[row][1]
    return table
