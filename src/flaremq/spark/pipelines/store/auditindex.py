"""Audit of the index: every key of the log must have an entry in the index files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from flaremq.arrow.storefolder import Moment, Walked
from flaremq.model.layout import INDEX_ENTRY_SIZE
from flaremq.store.index.indexfile import IndexHeader, count_keys, entry_at, file_size, put_many, wrong_links
from flaremq.store.offline.moment import WrongLink, whole_header, wrong_links_now

_ENTRY: Final = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_NAME_DIGITS: Final = 17


@dataclass(frozen=True, slots=True)
class IndexFileView:
    """One index file, with the range that its header says it covers."""

    path: Path
    data: memoryview
    slots: int
    header: IndexHeader

    @property
    def entries(self) -> npt.NDArray[Any]:
        """The entries in use, in the order in which they were put."""
        count = (
            min(self.header.next_entry, (len(self.data) - entry_at(self.slots, 0)) // INDEX_ENTRY_SIZE) - 1
        )
        found: npt.NDArray[Any] = np.frombuffer(self.data, _ENTRY, max(0, count), entry_at(self.slots, 1))
        return found


def index_files(root: Path, slots: int) -> list[IndexFileView]:
    """All index files of a store, in the order of the log, but none that is too short for its slots."""
    found = []
    for path in sorted((root / "index").glob("[0-9]*")):
        if len(path.name) == _NAME_DIGITS and path.stat().st_size > entry_at(slots, 1):
            with path.open("rb") as file:
                data = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
            found.append(IndexFileView(path, data, slots, whole_header(data, slots)))
    return sorted(found, key=lambda file: file.header.end_offset)


class IndexAudit:
    """Compares walked records with the index of their store. Files are opened for the first records.

    While a broker runs, only records before `end` are compared: later ones may have no entries yet.
    """

    def __init__(self, root: Path, slots: int, end: int | None = None) -> None:
        self._root, self._slots, self._end = root, slots, end
        self._files: list[IndexFileView] | None = None

    def check(self, walked: Walked, note: Callable[[str], None]) -> None:
        """Note each key of these records that has no entry."""
        files = self._files = index_files(self._root, self._slots) if self._files is None else self._files
        keys, _ = count_keys(walked.facts, walked.count, walked.view)
        if not files or not keys:
            return
        wanted = self._wanted(walked, keys)
        if self._end is not None:
            wanted = wanted[wanted["offset"] < self._end]
            if not len(wanted):
                return
        there = self._there(int(wanted["offset"][0]), int(wanted["offset"][-1]))
        same = len(there) == len(wanted)
        if same and (there["offset"] == wanted["offset"]).all() and (there["hash"] == wanted["hash"]).all():
            return
        known = set(zip(there["offset"].tolist(), there["hash"].tolist(), strict=True))
        for offset, key in zip(wanted["offset"].tolist(), wanted["hash"].tolist(), strict=True):
            if (offset, key) not in known:
                note(f"index: the record at {offset} has a key with hash {key}, but no entry points to it")

    def _wanted(self, walked: Walked, keys: int) -> npt.NDArray[Any]:
        """The entries that the broker makes of these records, put into a file in memory with one slot."""
        data = bytearray(file_size(1, keys + 1))
        put_many(data, 1, walked.facts, walked.count, (0, 0), walked.view, 0)
        found: npt.NDArray[Any] = np.frombuffer(data, _ENTRY, keys, entry_at(1, 1))
        return found

    def _there(self, first: int, last: int) -> npt.NDArray[Any]:
        """Entries of records from one offset to another, inclusive. They were put in the order of the log."""
        pieces = []
        for file in self._files or ():
            if file.header.end_offset < first or file.header.begin_offset > last:
                continue
            entries = file.entries
            begin = bisect_left(_Offsets(entries), first)
            pieces.append(entries[begin : bisect_left(_Offsets(entries), last + 1, begin)])
        return np.concatenate(pieces) if pieces else np.empty(0, _ENTRY)


class _Offsets:
    """The offsets of entries, converted one at a time: a search does not need to convert all of them."""

    def __init__(self, entries: npt.NDArray[Any]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: int) -> int:
        return int(self._entries["offset"][place])


def chain_findings(file: IndexFileView, most: int, moment: Moment | None = None) -> tuple[int, list[str]]:
    """Check the chains of a file: a slot must point to its newest entry, each entry to the one before."""
    if moment is None:
        found, raw = wrong_links(file.data, file.slots, most)
        links = [WrongLink(*each) for each in raw]
    else:
        links = moment.settled(lambda: wrong_links_now(file.data, file.slots), lambda wrong: not wrong)
        found, links = len(links), links[:most]
    name = file.path.name
    return found, [
        f"index: slot {link.number} of {name} points to entry {link.there}: expected {link.expected}, its "
        "newest"
        if link.is_slot
        else f"index: entry {link.number} of {name} points back to {link.there}: expected {link.expected}"
        for link in links
    ]
