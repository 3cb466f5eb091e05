"""Units of the timer log, many a call: the reference twin. _units_c.pyx gives the same units and numbers.

A slot is a chain: the wheel knows its newest unit, and each unit the one before it.

    log          ... [a] ...... [b] .. [c] ......      wheel: this second ends in c
                      ^----------+ ^----+

All calls work within one file of the log. `view` is what is written of it, and `base` its first position.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from flaremq.model.columns import Bytes
from flaremq.model.layout import (
    TIMER_DELETE,
    TIMER_MAGIC_MAX,
    TIMER_NORMAL,
    TIMER_ROLL,
    TIMER_UNIT_FORMAT,
    TIMER_UNIT_SIZE,
)

_UNIT: Final = struct.Struct(TIMER_UNIT_FORMAT)


class Waiting:
    """Columns of a message that waits."""

    OFFSET: Final = 0  # Physical.
    SIZE: Final = 1
    SINCE_MS: Final = 2  # When its unit was written.

    WIDTH: Final = 3


class Entrant:
    """Columns of a message to enter."""

    OFFSET: Final = 0  # Physical.
    SIZE: Final = 1
    SLOT: Final = 2  # Row of its slot.
    TOPIC: Final = 3  # Number of its topic.
    CANCELS: Final = 4  # 1 for a marker that cancels another message.

    WIDTH: Final = 5


class SlotRow:
    """Columns of a slot that messages enter."""

    AT_MS: Final = 0
    FIRST: Final = 1  # Position of the first unit,
    LAST: Final = 2  # and of the last one; -1 in an empty slot.
    COUNT: Final = 3

    WIDTH: Final = 4


def walk_back(
    view: Bytes, base: int, position: int, slot_ms: int, count_max: int
) -> tuple[array[int], array[int], int, bool]:
    """Follow the chain of a slot from a unit to older ones.

    Returns positions of messages and of markers, newest first, then where the chain goes on, before `base` or
    behind `count_max` units, and whether it is sound there. It ends with a negative position.
    """
    messages, markers = array("q"), array("q")
    for _ in range(count_max):
        at = position - base
        if at < 0 or position < 0:
            break
        if at + TIMER_UNIT_SIZE > len(view):
            return messages, markers, position, False
        size, before, magic, written_ms, delay_ms, *_ = _UNIT.unpack_from(view, at)
        is_unit = size == TIMER_UNIT_SIZE and 0 <= magic <= TIMER_MAGIC_MAX
        if not is_unit or written_ms + delay_ms != slot_ms or before >= position:
            return messages, markers, position, False
        (markers if magic & TIMER_DELETE else messages).append(position)
        position = before
    return messages, markers, position, True


def read_units(view: Bytes, base: int, positions: array[int]) -> array[int]:
    """Rows of Waiting for the units at these positions, up to the first that is not in this file, or only
    rolls."""
    rows = array("q")
    for position in positions:
        at = position - base
        if at < 0 or at + TIMER_UNIT_SIZE > len(view):
            break
        unit_size, _before, magic, written_ms, _delay_ms, offset, size, *_ = _UNIT.unpack_from(view, at)
        if unit_size != TIMER_UNIT_SIZE or not 0 <= magic <= TIMER_MAGIC_MAX or magic & TIMER_ROLL:
            break
        rows.extend((offset, size, written_ms))
    return rows


def pack_units(
    entrants: array[int],
    first: int,
    count: int,
    slots: array[int],
    hashes: array[int],
    now_ms: int,
    position: int,
) -> bytes:
    """The units of `count` messages from row `first` on, chained, for a place in the log.

    Moves the ends of their slots. `hashes` are those of the topics, by number.
    """
    units = bytearray()
    if not 0 <= first <= first + count <= len(entrants) // Entrant.WIDTH:
        raise ValueError(f"rows {first} to {first + count} of {len(entrants) // Entrant.WIDTH}")
    for row in range(first, first + count):
        offset, size, slot, topic, cancels = entrants[row * Entrant.WIDTH : (row + 1) * Entrant.WIDTH]
        if not (0 <= slot < len(slots) // SlotRow.WIDTH and 0 <= topic < len(hashes)):
            raise ValueError(f"row {row} speaks of what is not there")
        s = slot * SlotRow.WIDTH
        at_ms, before = slots[s + SlotRow.AT_MS], slots[s + SlotRow.LAST]
        magic = TIMER_NORMAL | (TIMER_DELETE if cancels else 0)
        rest = offset, size, hashes[topic], 0
        units += _UNIT.pack(TIMER_UNIT_SIZE, before, magic, now_ms, at_ms - now_ms, *rest)
        if before < 0:
            slots[s + SlotRow.FIRST] = position
        slots[s + SlotRow.LAST] = position
        slots[s + SlotRow.COUNT] += -1 if cancels else 1
        position += TIMER_UNIT_SIZE
    return bytes(units)
