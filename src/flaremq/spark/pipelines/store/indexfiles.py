"""Index files written from a log, each by a separate task that knows where its file begins.

An index file takes keys until it is full, in the order of the log. So the number of keys in each piece of the
log shows in which piece, at which record and with which of its keys a file begins. The header of a following
file begins with the end values of its predecessor, which are those of the last record with keys before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from mmap import mmap
from pathlib import Path
from typing import Final

from flaremq.arrow.storefolder import ArrowStore, LogPiece, Walked
from flaremq.model.columns import Fact
from flaremq.spark.pipelines.store.derive import Tally
from flaremq.store.index.indexfile import IndexHeader, count_keys, file_size, put_many

_ROWS: Final = 8192


@dataclass(frozen=True, slots=True)
class IndexFileShape:
    slots: int
    entries_max: int

    @property
    def keys_max(self) -> int:
        """Keys that a file holds: entry 0 is never used."""
        return self.entries_max - 1


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The part of the log that one index file covers."""

    number: int
    pieces: tuple[LogPiece, ...]
    """Pieces of the log that may have its keys."""
    skip: int
    """Keys of the first piece that are in the file before."""
    keys: int
    """The most keys that it takes."""
    before: tuple[int, int] | None
    """Store time and offset of the last record with keys before it; None for the first file."""


def first_part(pieces: Sequence[LogPiece], shape: IndexFileShape) -> IndexPart:
    """The part of the first file, which can be written before keys are counted: it begins with the log.

    Mostly it is the only file.
    """
    return IndexPart(0, tuple(pieces), 0, shape.keys_max, None)


def parts_of(tallies: Sequence[Tally], shape: IndexFileShape) -> list[IndexPart]:
    """The parts of all files. Tallies are in the order of the log."""
    ends = list(accumulate(tally.keys for tally in tallies))
    total = ends[-1] if ends else 0
    befores: list[tuple[int, int]] = []  # The last record with keys before each piece.
    last_key = (0, 0)
    for tally in tallies:
        befores.append(last_key)
        last_key = (tally.last_key_ms, tally.last_key_offset) if tally.keys else last_key
    parts: list[IndexPart] = []
    for number, begin in enumerate(range(0, total, shape.keys_max)):
        end = min(begin + shape.keys_max, total)
        first, last = bisect_right(ends, begin), bisect_right(ends, end - 1)
        skip = begin - (ends[first] - tallies[first].keys)
        before = befores[first] if number else None
        pieces = tuple(tally.piece for tally in tallies[first : last + 1])
        parts.append(IndexPart(number, pieces, skip, end - begin, before))
    return parts


def write_index(folder: ArrowStore, part: IndexPart, shape: IndexFileShape, path: Path) -> tuple[int, int]:
    """Write the file. Returns the number of its entries, and the store time that it begins with.

    Another attempt writes the same bytes.
    """
    # Built in anonymous memory, of which only the pages that are written to are allocated: slots are written
    # in random order, which takes much longer in a file.
    with mmap(-1, file_size(shape.slots, part.keys + 1)) as room, memoryview(room) as view:
        _fill(folder, part, shape, view)
        made = IndexHeader.read(view)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file, view[: file_size(shape.slots, made.next_entry)] as used:
            file.write(used)
            file.truncate(file_size(shape.slots, shape.entries_max))
        return made.next_entry - 1, made.begin_ms


def _fill(folder: ArrowStore, part: IndexPart, shape: IndexFileShape, view: memoryview) -> None:
    skip, before = part.skip, part.before
    begun = part.number == 0
    for walked in (each for piece in part.pieces for each in folder.walks(piece, lambda: _ROWS)):
        row = number = 0
        if not begun:
            keys, last = count_keys(walked.facts, walked.count, walked.view)
            if keys <= skip:
                skip -= keys
                before = _place(walked, last) if last >= 0 else before
                continue
            row, number, before = _start(walked, skip, before)
            assert before is not None
            IndexHeader(before[0], before[0], before[1], before[1]).write(view)
            begun = True
        done, _ = put_many(view, shape.slots, walked.facts, walked.count, (row, number), walked.view, 0)
        if done < walked.count:
            return  # Full.


def _start(walked: Walked, skip: int, before: tuple[int, int] | None) -> tuple[int, int, tuple[int, int]]:
    """The row that holds the first key of a file, the number of that key, and the record before it."""
    for row in range(walked.count):
        f = row * Fact.WIDTH
        one = walked.facts[f : f + Fact.WIDTH]
        keys, _ = count_keys(one, 1, walked.view)
        if keys > skip:
            # A record whose first keys are in the file before is itself the last record there.
            found = _place(walked, row) if skip else before
            return row, skip, found or (0, 0)
        skip -= keys
        if keys:
            before = _place(walked, row)
    raise AssertionError("the keys of these rows were counted before")


def _place(walked: Walked, row: int) -> tuple[int, int]:
    f = row * Fact.WIDTH
    return walked.facts[f + Fact.STORE_TIMESTAMP], walked.facts[f + Fact.OFFSET]
