"""What a store has besides its log: settings, offsets, waiting timers, carried over into a converted one.

Most of it speaks of queue offsets and stays as it is. Three things speak of places in the log:

    deletedTopics.json    where the log ended when a topic was deleted
    timerlog              where the record of each waiting message lies
    deduplication.json    where to begin to read for numbered messages: left out, a broker reads the whole log

What can be made from the log again, such as queues and index, is made, and not carried over.
"""

from __future__ import annotations

import shutil
import struct
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from flaremq.base.files import replace_whole
from flaremq.model.layout import TIMER_UNIT_FORMAT, TIMER_UNIT_SIZE
from flaremq.protocol.configfiles import DELETED_TOPICS, FOLDER

_UNIT: Final = struct.Struct(TIMER_UNIT_FORMAT)
_OFFSET_AT: Final = 28  # Of the record, in a unit of the timer log.
_OFFSET: Final = struct.Struct(">q")
_GONE: Final = -1
_MARKER: Final = "deduplication.json"
_DELETED: Final = f"{DELETED_TOPICS}.json"
_MADE_AGAIN: Final = frozenset(
    {
        "commitlog",
        "consumequeue",
        "consumequeue_ext",
        "batchconsumequeue",
        "index",
        "checkpoint",
        "abort",
        "lock",
    }
)
_CARRIED: Final = frozenset({FOLDER, "timerwheel", "timerlog"})


class Relocations:
    """Where records went that others name by their offset. Records come in order, so both columns grow."""

    def __init__(self) -> None:
        self._old = array("q")
        self._new = array("q")

    def __len__(self) -> int:
        return len(self._old)

    def add(self, old: int, new: int) -> None:
        self._old.append(old)
        self._new.append(new)

    def find(self, old: int) -> int | None:
        """Where the record went that was at this offset; None if it is no such record, or gone."""
        at = bisect_left(self._old, old)
        return self._new[at] if at < len(self._old) and self._old[at] == old else None

    def pairs(self, first: int) -> bytes:
        """Those from the `first` on, as they are kept on the disk."""
        both = array("q")
        for pair in zip(self._old[first:], self._new[first:], strict=True):
            both.extend(pair)
        return both.tobytes()

    def take(self, pairs: bytes) -> None:
        both = array("q", pairs)
        self._old, self._new = both[0::2], both[1::2]


def carry(source: Path, target: Path, links: Relocations, deleted: Mapping[str, int]) -> list[str]:
    """Copy what is not in the log; names of what was left behind. Doing it again changes nothing."""
    left = []
    for path in sorted(source.iterdir()):
        name = path.name
        if name in _CARRIED:
            _copy(path, target / name)
        elif name not in _MADE_AGAIN and not name.startswith(("dledger-", "abort")):
            left.append(name)
    for name in (_MARKER, _DELETED):
        for each in (target / FOLDER / name, target / FOLDER / f"{name}.bak"):
            each.unlink(missing_ok=True)
    if deleted:
        replace_whole(target / FOLDER / _DELETED, orjson.dumps({DELETED_TOPICS: dict(deleted)}))
    if (target / "timerlog").is_dir():
        for path in sorted((target / "timerlog").iterdir()):
            _point_anew(path, links)
    return left


def _copy(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, target, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _point_anew(path: Path, links: Relocations) -> None:
    """Give the units of one file of the timer log the new offsets of their records. A unit whose record is
    gone leads nowhere."""
    data = bytearray(path.read_bytes())
    for at in range(0, len(data) - TIMER_UNIT_SIZE + 1, TIMER_UNIT_SIZE):
        size, _, _, _, _, offset, *_ = _UNIT.unpack_from(data, at)
        if size != TIMER_UNIT_SIZE:
            break
        found = links.find(offset)
        _OFFSET.pack_into(data, at + _OFFSET_AT, _GONE if found is None else found)
    replace_whole(path, bytes(data))
