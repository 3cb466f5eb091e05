"""Which unit of a queue was stored at a given time. Pure: the caller does the reading.

The answers are Java's, odd ones included (ConsumeQueue.binarySearchInQueueByTime). Callers bring
them into [min offset, max offset] afterwards, which makes the odd ones harmless. Store times never
fall along a queue unless the clock is set back; then the answer is still one of the places where the
time passes by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from flaremq.store.api import Boundary

TimeAt: TypeAlias = Callable[[int], int]
"""Store time of a unit in ms, or one of the two below."""
UNKNOWN: Final = -1
"""The record cannot be read."""
GONE: Final = -2
"""The record has been deleted with the log's oldest files: it is older than any that is there."""


@dataclass(frozen=True, slots=True)
class UnitSpan:
    """A queue file: units [first, end), and the store times of the first and the last of them."""

    first: int
    end: int
    first_ms: int = UNKNOWN
    last_ms: int = UNKNOWN
    """Not needed of the newest file, which is still growing."""


class _UnreadableError(Exception):
    """A store time that is needed cannot be read."""


def find_unit(
    files: Sequence[UnitSpan], unit_min: int, time_ms: int, boundary: Boundary, time_at: TimeAt
) -> int:
    """A unit of a plain queue. `unit_min` is the first that is alive; 0 if the answer cannot be known."""
    file = _choose([file for file in files if file.first < file.end], time_ms, boundary)
    if file is None:
        return 0
    try:
        return _find_in(file, max(unit_min, file.first), time_ms, boundary, time_at)
    except _UnreadableError:
        return 0


def find_batch(first: int, end: int, time_ms: int, boundary: Boundary, time_at: TimeAt) -> int:
    """A unit of a batch queue, where units know their own time; -1 if UPPER meets no equal one."""
    if first >= end:
        return -1
    if time_ms >= time_at(end - 1):
        return end - 1
    if boundary is Boundary.LOWER:
        return _first_where(first, end, lambda unit: time_at(unit) >= time_ms)
    last = _first_where(first, end, lambda unit: time_at(unit) > time_ms) - 1
    return last if last >= first and time_at(last) == time_ms else -1


def _choose(files: list[UnitSpan], time_ms: int, boundary: Boundary) -> UnitSpan | None:
    if boundary is Boundary.UPPER:
        return next((file for file in reversed(files) if file.first_ms <= time_ms), None)
    return next((file for file in files if file.last_ms >= time_ms), files[-1] if files else None)


def _find_in(file: UnitSpan, low: int, time_ms: int, boundary: Boundary, time_at: TimeAt) -> int:
    def known(unit: int) -> int:
        found = time_at(unit)
        if found == UNKNOWN:
            raise _UnreadableError
        return found

    high = file.end - 1
    if low > high or known(high) < time_ms:
        return file.end if boundary is Boundary.LOWER else high
    if known(low) > time_ms:
        return file.first if boundary is Boundary.LOWER else 0
    if boundary is Boundary.LOWER:
        return _first_where(low, file.end, lambda unit: known(unit) >= time_ms)
    return _first_where(low, file.end, lambda unit: known(unit) > time_ms) - 1


def _first_where(low: int, end: int, reached: Callable[[int], bool]) -> int:
    """The first unit for which it holds, `end` if for none. Many equal times cost no more than one."""
    while low < end:
        mid = (low + end) // 2
        if reached(mid):
            end = mid
        else:
            low = mid + 1
    return low
