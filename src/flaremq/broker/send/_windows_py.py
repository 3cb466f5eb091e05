"""Windows of producers: the reference twin. _windows_c.pyx agrees with it on any rows.

A window is one int64 array: the columns of WindowHead, then a power of two of rows of Remembered. A sequence
has its row at sequence % capacity:

    it holds the same sequence      the message is stored already
    it holds none or a smaller one  the message is new
    it holds a greater one          the message is too old: the window has moved on

A window begins small. It doubles rather than drop a row that is younger than the span, up to its limit.
"""

from __future__ import annotations

from array import array
from typing import Final

from flaremq.model import sysflag
from flaremq.model.columns import Bytes, Draft, Fact, Remembered, WindowHead
from flaremq.model.delays import SCHEDULE_TOPIC
from flaremq.model.names import TRANS_HALF_TOPIC
from flaremq.model.properties import (
    PRODUCER_SEQ,
    REAL_TOPIC,
    TIMER_ROLL_TIMES,
    TRANSACTION_CHECK_TIMES,
    parse_sequence,
)
from flaremq.model.timers import WHEEL_TOPIC
from flaremq.protocol.bulk.columns import Send

CAPACITY: Final = 64
"""Rows of a new window."""
WAITING: Final = (SCHEDULE_TOPIC, WHEEL_TOPIC, TRANS_HALF_TOPIC.encode())
"""Topics in which a message waits that a producer sent."""
_TIMES_BEFORE_BODY: Final = 16


class Windows:
    """The windows of all producers, by id."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, array[int]] = {}
        self.count_max = CAPACITY
        self.span_ms = 0
        self.producers_max = 1
        self.part = 0

    # Many messages.

    def sift(self, heads: Bytes, sends: array[int], first: int) -> int:
        """The end of the rows of Send, from `first` on, that are new and can be stored together.

        `first` itself means that this one is not new, or that its producer has no window and gets none.
        Otherwise the rows of one producer ascend, so that none can repeat or displace an earlier one.
        """
        self.part += 1
        for row in range(first, len(sends) // Send.WIDTH):
            at, size, sequence = _number(sends, row)
            if sequence < 0:
                continue
            window = self.window(bytes(heads[at : at + size]))
            if window is None:
                return row
            if window[WindowHead.PART] != self.part:
                window[WindowHead.PART], window[WindowHead.IN_PART] = self.part, -1
            if sequence <= window[WindowHead.IN_PART] or window[place(window, sequence)] >= sequence:
                return row
            window[WindowHead.IN_PART] = sequence
        return len(sends) // Send.WIDTH

    def note(self, heads: Bytes, sends: array[int], drafts: array[int], now_ms: int) -> None:
        """Remember rows that were stored, with where the encoder put them."""
        for row in range(len(sends) // Send.WIDTH):
            at, size, sequence = _number(sends, row)
            if sequence < 0:
                continue
            draft = drafts[row * Draft.WIDTH : (row + 1) * Draft.WIDTH]
            stored = draft[Draft.PHYSICAL_OFFSET], draft[Draft.QUEUE_ID], draft[Draft.QUEUE_OFFSET]
            self.put(bytes(heads[at : at + size]), sequence, stored, now_ms)

    def recall(self, view: Bytes, facts: array[int], count: int, since_ms: int) -> None:
        """Remember stored records that producers sent, from `since_ms` on. What is known already stays, and
        so does a row with a greater sequence."""
        view = memoryview(view)
        for f in range(0, count * Fact.WIDTH, Fact.WIDTH):
            if facts[f + Fact.STORE_TIMESTAMP] < since_ms:
                continue
            found = _first_hand(view, facts, f)
            if found is None:
                continue
            window = self.by_id.get(found[0])
            if window is None or window[place(window, found[1])] < found[1]:
                self.put(
                    *found,
                    (facts[f + Fact.OFFSET], facts[f + Fact.QUEUE_ID], facts[f + Fact.QUEUE_OFFSET]),
                    facts[f + Fact.STORE_TIMESTAMP],
                )

    # One message.

    def window(self, producer: bytes) -> array[int] | None:
        """The window of a producer, made if need be; None if there are too many."""
        window = self.by_id.get(producer)
        if window is None and len(self.by_id) < self.producers_max:
            window = self.by_id[producer] = empty(min(CAPACITY, self.count_max))
        return window

    def put(self, producer: bytes, sequence: int, stored: tuple[int, int, int], store_ms: int) -> None:
        """Remember a stored message: its physical offset, queue and queue offset."""
        window = self.by_id.get(producer)
        if window is None:
            window = self.by_id[producer] = empty(min(CAPACITY, self.count_max))
        at = place(window, sequence)
        while (
            window[at] not in (-1, sequence)
            and window[at + Remembered.STORE_MS] > store_ms - self.span_ms
            and capacity(window) < self.count_max
        ):
            window = self.by_id[producer] = doubled(window)
            at = place(window, sequence)
        window[at : at + Remembered.WIDTH] = array("q", (sequence, *stored, store_ms))
        window[WindowHead.NEWEST] = max(window[WindowHead.NEWEST], sequence)
        window[WindowHead.USED_MS] = max(window[WindowHead.USED_MS], store_ms)

    def find(self, producer: bytes, sequence: int) -> tuple[int, ...]:
        """The row at the place of a sequence; its first column says whether it is this one."""
        window = self.by_id.get(producer)
        if window is None:
            return (-1,) * Remembered.WIDTH
        at = place(window, sequence)
        return tuple(window[at : at + Remembered.WIDTH])

    def newest(self, producer: bytes) -> int:
        """The greatest sequence of a producer; -1 without any."""
        window = self.by_id.get(producer)
        return -1 if window is None else window[WindowHead.NEWEST]

    def forget(self, before_ms: int) -> None:
        """Forget producers that have stored nothing since then."""
        for producer, window in list(self.by_id.items()):
            if window[WindowHead.USED_MS] < before_ms:
                del self.by_id[producer]


def _number(sends: array[int], row: int) -> array[int]:
    """Where the producer id of a row is in `heads`, its size, and the sequence."""
    at = row * Send.WIDTH + Send.PRODUCER_AT
    return sends[at : at + 3]


def empty(rows: int) -> array[int]:
    """A window without any message."""
    window = array("q", bytes(8 * (WindowHead.WIDTH + rows * Remembered.WIDTH)))
    window[WindowHead.NEWEST] = -1
    window[WindowHead.WIDTH :: Remembered.WIDTH] = array("q", (-1,)) * rows
    return window


def capacity(window: array[int]) -> int:
    return (len(window) - WindowHead.WIDTH) // Remembered.WIDTH


def place(window: array[int], sequence: int) -> int:
    """Where the row of a sequence begins."""
    return WindowHead.WIDTH + (sequence & (capacity(window) - 1)) * Remembered.WIDTH


def doubled(window: array[int]) -> array[int]:
    """The same in a window of twice the size: no two rows come to one place."""
    made = empty(2 * capacity(window))
    made[: WindowHead.WIDTH] = window[: WindowHead.WIDTH]
    for at in range(WindowHead.WIDTH, len(window), Remembered.WIDTH):
        if window[at] >= 0:
            to = place(made, window[at])
            made[to : to + Remembered.WIDTH] = window[at : at + Remembered.WIDTH]
    return made


def _first_hand(view: memoryview, facts: array[int], f: int) -> tuple[bytes, int] | None:
    """The producer id and sequence of a record that a producer sent. None for others, and for copies that a
    broker or a consumer made of one: they carry its properties."""

    def bytes_of(at: int, size: int) -> bytes:
        return bytes(view[facts[f + at] : facts[f + at] + facts[f + size]])

    raw = bytes_of(Fact.PROPERTIES_AT, Fact.PROPERTIES_SIZE)
    value = _first_value(raw, PRODUCER_SEQ)
    found = None if value is None else parse_sequence(value)
    if found is None or (facts[f + Fact.SYS_FLAG] & sysflag.TRANSACTION_MASK) == sysflag.TRANSACTION_COMMIT:
        return None
    topic, body_at = bytes_of(Fact.TOPIC_AT, Fact.TOPIC_SIZE), facts[f + Fact.BODY_AT]
    if topic[:1] == b"%" or any(view[body_at - _TIMES_BEFORE_BODY :][:4]):
        return None
    waits = topic in WAITING
    copied = (TIMER_ROLL_TIMES, TRANSACTION_CHECK_TIMES) if waits else (REAL_TOPIC,)
    return None if any(_first_value(raw, name) is not None for name in copied) else found


def _first_value(raw: bytes, name: str) -> bytes | None:
    start = name.encode() + b"\x01"
    values = (pair[len(start) :] for pair in raw.split(b"\x02") if pair.startswith(start))
    return next((value for value in values if value), None)
