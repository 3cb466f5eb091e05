"""Whether what clients saw of one register can be explained by one order of all their operations.

The problem
-----------
A leader that was deposed and does not know it yet answers a read with an old value. Nothing is lost by that,
and no log is wrong afterwards: only somebody who saw the new value, and then the old one, can tell.

How it works
------------
Each operation took effect at one moment between its beginning and its end, if the register is linearisable.
In general such an order must be searched for, and the search doubles with each operation. But where each
value is written once, as Gibbons and Korach have shown, it is enough to look at values two by two. A write
and all reads of its value stand together in that order, with nothing of another value in between. So

    a value must come before another   if any operation on it ended before one on the other began

and an order exists as long as no two values must each come before the other, and no read ended before its
write began. Only a value whose first end lies before its last beginning can get into such a conflict: its
span, from the one to the other, is closed to all others.

A write whose end nobody saw may have taken effect at any time after its beginning, or never: if nobody has
read it either, never explains as much.

An example
----------
    write 1   |----|
    write 2            |-------|
    read            1? |---|          1 and 2 are both right: it overlaps the second write
    read                          |-| only 2 is right: 1 ended before 2 began, and 2 before this begins
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

NEVER: Final = math.inf
"""When an operation ended whose end nobody saw."""


@dataclass(frozen=True, slots=True)
class RegisterOp:
    """A write or a read of one register."""

    value: Hashable
    begun_s: float
    ended_s: float
    is_read: bool = False

    def __str__(self) -> str:
        what = "read" if self.is_read else "wrote"
        ended = f"{self.ended_s:.3f}" if self.ended_s < NEVER else "?"
        return f"{what} {self.value!r} at {self.begun_s:.3f} to {ended}"


@dataclass(slots=True)
class _Value:
    """A write, and all reads of its value."""

    ops: list[RegisterOp]
    first_end_s: float
    last_begin_s: float

    @property
    def is_closed(self) -> bool:
        """Whether nothing else fits between its operations."""
        return self.first_end_s < self.last_begin_s


def unexplained(ops: Iterable[RegisterOp], initial: Hashable = None) -> Sequence[RegisterOp]:
    """Operations which no order explains, if there are such. Each value is written once at most."""
    finished = [each for each in ops if each.ended_s < NEVER or not each.is_read]
    values: dict[Hashable, _Value] = {}
    for write in (RegisterOp(initial, -NEVER, -NEVER), *(each for each in finished if not each.is_read)):
        if write.value in values:
            raise ValueError(f"{write.value!r} is written twice: each value must be written once at most")
        values[write.value] = _Value([write], write.ended_s, write.begun_s)
    for read in (each for each in finished if each.is_read):
        value = values.get(read.value)
        if value is None:
            return [read]
        if read.ended_s < value.ops[0].begun_s:
            return [read, value.ops[0]]
        value.ops.append(read)
        value.first_end_s = min(value.first_end_s, read.ended_s)
        value.last_begin_s = max(value.last_begin_s, read.begun_s)
    return _conflict(list(values.values()))


def _conflict(values: list[_Value]) -> Sequence[RegisterOp]:
    """The operations on two values each of which must come before the other."""
    closed = sorted((each for each in values if each.is_closed), key=lambda each: each.first_end_s)
    for each, after in pairwise(closed):
        if after.first_end_s < each.last_begin_s:
            return each.ops + after.ops
    first_ends_s = [each.first_end_s for each in closed]
    for value in values:
        # Closed spans do not overlap: only the last one that begins before this value does may cover it.
        at = bisect_left(first_ends_s, value.last_begin_s) - 1
        if at >= 0 and not value.is_closed and value.first_end_s < closed[at].last_begin_s:
            return closed[at].ops + value.ops
    return ()
