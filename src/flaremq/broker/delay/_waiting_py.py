"""Records of messages that wait, many a call: the reference twin. _waiting_c.pyx gives the same rows.

    to_enter    entries of the queue in which they wait  >  rows for the wheel
    to_deliver  messages that are due                    >  rows of drafts, for one append
    tally       what has become of those                 >  counts by topic

The first two stop before a message that is not ordinary: damaged, not where it should be, too long, or with
properties that ask for more than a copy. The caller looks at that one alone. `view` is what can be read of
one file of the log, and `base` its first offset.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final, NamedTuple, Protocol

from flaremq.model import layout, sysflag
from flaremq.model.columns import Draft
from flaremq.model.record import crc31
from flaremq.store.copyrows import Glance, glance
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.store.timer.units import Entrant, Waiting

_ENTRY: Final = struct.Struct(layout.ENTRY_FORMAT)
_DIGITS_MAX: Final = 18  # More may be no 64-bit number,
_QUEUE_DIGITS_MAX: Final = 9  # and these no 32-bit one.
_PROPERTIES_MAX: Final = layout.PROPERTIES_SIZE_MAX - layout.CRC_TAIL_SIZE - 1
_ODD: Final = (b"INNER_", b"__CRC32#")
"""Parts of names of properties for which the store does more than to copy a message."""
_WAS_IN_A_WHEEL: Final = b"QUEUE_MS\x01"


class Enterable(NamedTuple):
    """Which messages may enter the wheel together."""

    topic: bytes
    """In which they wait."""
    precision_ms: int
    earliest_ms: int
    """The first slot that takes messages,"""
    latest_ms: int
    """and the last."""


class Due(NamedTuple):
    """Which messages are due, and what is added to them."""

    topic: bytes
    """In which they wait."""
    body_max: int
    precision_ms: int = 0
    """Of the wheel; 0 if they do not come from one. Then nothing is added, and the rest does not matter."""
    slot_ms: int = 0
    now_ms: int = 0
    cancelled: frozenset[bytes] = frozenset()
    """Unique keys, with or without their topics: `topic+key`."""


class Tally:
    """Columns of what has become of the messages of a topic."""

    DONE: Final = 0  # How many wait no longer.
    STORED: Final = 1  # How many of them were delivered,
    SIZE: Final = 2  # and their bytes in the log.

    WIDTH: Final = 3


class Targets(Protocol):
    def number(self, topic: bytes) -> int:
        """Of a topic; -1 if no message may be delivered there."""


def to_enter(
    view: memoryview, base: int, entries: bytes | memoryview, terms: Enterable
) -> tuple[array[int], list[int], list[bytes]]:
    """Rows of Entrant, the times of their slots and the topics, both by number."""
    rows: array[int] = array("q")
    slots: dict[int, int] = {}
    topics: dict[bytes, int] = {}
    for physical_offset, size, _code in _ENTRY.iter_unpack(entries):
        seen = _see(view, physical_offset - base, size)
        slot_ms = _slot_ms(seen, terms.topic, terms.precision_ms) if seen is not None else -1
        if seen is None or slot_ms < 0 or not terms.earliest_ms <= slot_ms <= terms.latest_ms:
            break
        topic = seen.property(b"REAL_TOPIC") or b""
        cancels = seen.property(b"TIMER_DEL_UNIQKEY") is not None
        numbers = slots.setdefault(slot_ms, len(slots)), topics.setdefault(topic, len(topics))
        rows.extend((physical_offset, size, *numbers, cancels))
    return rows, list(slots), list(topics)


def to_deliver(
    view: memoryview, base: int, waiting: array[int], offsets: QueueOffsets, targets: Targets, due: Due
) -> tuple[array[int], bytearray, array[int]]:
    """Rows of drafts whose bodies lie in `view`, their heads, and what becomes of each message.

    That is the number of its topic if it has a row, and -1 - number if it was cancelled.
    """
    rows: array[int] = array("q")
    heads, fates = bytearray(), array("q")
    for w in range(0, len(waiting), Waiting.WIDTH):
        physical_offset, size, since_ms = waiting[w : w + Waiting.WIDTH]
        seen = _see(view, physical_offset - base, size)
        if seen is None or crc31(seen.body) != seen.body_crc or not _is_ordinary(seen, due):
            break
        topic, queue = seen.property(b"REAL_TOPIC") or b"", seen.property(b"REAL_QID") or b""
        target = targets.number(topic) if topic else -1
        if target < 0 or not queue.isdigit() or len(queue) > _QUEUE_DIGITS_MAX:
            break
        if due.cancelled:
            key = seen.property(b"UNIQ_KEY") or b""
            if not (topic.isascii() and key.isascii()):
                break  # Keys are compared as text.
            if key in due.cancelled or topic + b"+" + key in due.cancelled:
                fates.append(-1 - target)
                continue
        properties = seen.properties
        if due.precision_ms:
            end = b"" if properties.endswith(b"\x02") else b"\x02"
            added = b"%bTIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02" % (end, since_ms, due.now_ms)
            properties += added
        if len(properties) > _PROPERTIES_MAX:
            break
        _add(rows, heads, seen, physical_offset - base, topic, int(queue), properties, offsets)
        fates.append(target)
    return rows, heads, fates


def tally(rows: array[int], fates: array[int], stored: int, topic_count: int) -> array[int]:
    """What has become of messages when the first rows were `stored`: rows of Tally, one for each topic.

    Cancelled messages before the first row that was not stored count as well.
    """
    tallies = array("q", bytes(8 * Tally.WIDTH * topic_count))
    row = 0
    for fate in fates:
        t = (fate if fate >= 0 else -1 - fate) * Tally.WIDTH
        if fate >= 0:
            if row == stored:
                break
            tallies[t + Tally.STORED] += 1
            tallies[t + Tally.SIZE] += rows[row * Draft.WIDTH + Draft.SIZE]
            row += 1
        tallies[t + Tally.DONE] += 1
    return tallies


def _see(view: memoryview, at: int, size: int) -> Glance | None:
    return glance(view[at : at + size]) if 0 <= at <= at + size <= len(view) else None


def _slot_ms(seen: Glance, topic: bytes, precision_ms: int) -> int:
    """The slot of the moment that a message names; -1 if it does not wait in the topic, or names none."""
    text = seen.property(b"TIMER_OUT_MS") or b""
    if seen.topic != topic or not text.isdigit() or len(text) > _DIGITS_MAX:
        return -1
    return int(text) // precision_ms * precision_ms


def _is_ordinary(seen: Glance, due: Due) -> bool:
    known = seen.properties
    if seen.sys_flag & sysflag.INNER_BATCH or any(part in known for part in _ODD):
        return False
    if seen.topic != due.topic or seen.body_size > due.body_max:
        return False
    if not due.precision_ms:
        return True
    return _WAS_IN_A_WHEEL not in known and _slot_ms(seen, due.topic, due.precision_ms) == due.slot_ms


def _add(
    rows: array[int],
    heads: bytearray,
    seen: Glance,
    at: int,
    topic: bytes,
    queue_id: int,
    properties: bytes,
    offsets: QueueOffsets,
) -> None:
    topic_at, properties_at = len(heads), len(heads) + len(topic)
    host_at = properties_at + len(properties)
    heads += topic + properties + seen.born_host
    rows.extend((
        topic_at, len(topic), properties_at, len(properties), at + seen.body_at, seen.body_size,
        host_at, len(seen.born_host), queue_id, offsets.number(topic, queue_id), 1, 1,
        seen.flag, seen.sys_flag, seen.born_timestamp_ms, seen.reconsume_times, seen.prepared_offset, 0, 0, 0,
    ))  # fmt: skip


assert (Entrant.WIDTH, Draft.WIDTH) == (5, 20)
