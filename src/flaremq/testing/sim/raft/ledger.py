"""The log and the ballot of a member on a simulated disk.

What is written is seen at once, and survives the end of the process. What is not synced may be lost with the
power, from any operation on: the disk then has what was synced, and as many of the later operations as it
likes, in their order.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Final

from flaremq.dledger.types import Ballot, EntryRun, Index, MemberId, Membership, Term
from flaremq.testing.sim.checks import Violated

_HEAD: Final = struct.Struct(">I")
_MEMBERS: Final = b"members "
_APPEND: Final = b"value "


@dataclass(frozen=True, slots=True)
class SimEntry:
    """Any bytes; some say who the members are."""

    term: Term
    value: bytes

    @property
    def stored(self) -> bytes:
        return _HEAD.pack(len(self.value)) + self.value

    def membership(self, index: Index) -> Membership | None:
        if not self.value.startswith(_MEMBERS):
            return None
        pairs = self.value.removeprefix(_MEMBERS).decode().split(";")
        return Membership(dict(pair.split("-", 1) for pair in pairs), index)


def membership_value(members: Membership) -> bytes:
    return _MEMBERS + ";".join(f"{each}-{members.addresses[each]}" for each in members.ids).encode()


def append_value(number: int) -> bytes:
    """What the append of this number writes."""
    return b"%b%d" % (_APPEND, number)


def append_number(value: bytes) -> int | None:
    """Of an append; None for what a group writes by itself."""
    return int(value.removeprefix(_APPEND)) if value.startswith(_APPEND) else None


def entries_of(run: EntryRun) -> list[SimEntry]:
    found, at = list[SimEntry](), 0
    for term, count in run.terms:
        for _ in range(count):
            (size,) = _HEAD.unpack_from(run.data, at)
            at += _HEAD.size
            found.append(SimEntry(term, bytes(run.data[at : at + size])))
            at += size
    return found


class _Content:
    """Entries from `first` on."""

    __slots__ = ("ends", "entries", "first", "position", "previous_term")

    def __init__(self, first: Index = 0, position: int = 0, previous_term: Term = -1) -> None:
        self.first = first
        self.position = position
        """Of the first entry."""
        self.previous_term = previous_term
        self.entries: list[SimEntry] = []
        self.ends: list[int] = []

    @property
    def last(self) -> Index:
        return self.first + len(self.entries) - 1

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else self.position

    def add(self, entry: SimEntry) -> None:
        self.ends.append(self.end + _HEAD.size + len(entry.value))
        self.entries.append(entry)

    def cut(self, first: Index) -> None:
        kept = max(0, first - self.first)
        del self.entries[kept:], self.ends[kept:]

    def drop(self, first: Index, *, knows_term: bool) -> None:
        """Forget what is before this entry."""
        count = first - self.first
        if count > 0:
            self.previous_term = self.entries[count - 1].term if knows_term else -1
            self.position = self.ends[count - 1]
            del self.entries[:count], self.ends[:count]
            self.first = first

    def copy(self) -> _Content:
        other = _Content(self.first, self.position, self.previous_term)
        other.entries, other.ends = self.entries.copy(), self.ends.copy()
        return other


class SimLedger:
    """As a member's rules and its node see it: flaremq.dledger.types.LedgerView."""

    def __init__(self, configured: Membership) -> None:
        self.configured = configured
        self.ballot = Ballot()
        self.has_ballot = False
        self.is_damaged = False
        """A part of it has rotted, and is known to have."""
        self._now = _Content()
        self._durable = _Content()
        self._unsynced: list[SimEntry | Index] = []
        """Entries appended, and first entries of truncations, since the last sync."""
        self._memberships: list[Membership] = []
        self._epoch = self._done = 0

    # LedgerView.

    @property
    def first_index(self) -> Index:
        return self._now.first

    @property
    def last_index(self) -> Index:
        return self._now.last

    @property
    def last_term(self) -> Term:
        entries = self._now.entries
        return entries[-1].term if entries else self._now.previous_term

    @property
    def synced_index(self) -> Index:
        cuts = [each - 1 for each in self._unsynced if isinstance(each, int)]
        return min(self._durable.last, *cuts) if cuts else self._durable.last

    def term_at(self, index: Index) -> Term:
        at = index - self._now.first
        if at == -1:
            return self._now.previous_term
        return self._now.entries[at].term if 0 <= at < len(self._now.entries) else -1

    def run(self, first: Index, bytes_max: int) -> EntryRun | None:
        now = self._now
        begin = first - now.first
        if not 0 <= begin < len(now.entries):
            return None
        terms, pieces, size = list[tuple[Term, int]](), list[bytes](), 0
        for entry in now.entries[begin : begin + 1000]:
            stored = entry.stored
            if pieces and size + len(stored) > bytes_max:
                break
            pieces.append(stored)
            size += len(stored)
            if terms and terms[-1][0] == entry.term:
                terms[-1] = (entry.term, terms[-1][1] + 1)
            else:
                terms.append((entry.term, 1))
        position = now.ends[begin - 1] if begin else now.position
        return EntryRun(first, position, tuple(terms), b"".join(pieces))

    @property
    def membership(self) -> Membership:
        return self._memberships[-1] if self._memberships else self.configured

    # What its node does.

    def entry(self, index: Index) -> SimEntry:
        return self._now.entries[index - self._now.first]

    def append(self, entry: SimEntry) -> Index:
        self._now.add(entry)
        self._unsynced.append(entry)
        members = entry.membership(self._now.last)
        if members is not None:
            self._memberships.append(members)
        return self._now.last

    def append_run(self, run: EntryRun) -> None:
        if (run.first, run.position) != (self.last_index + 1, self._now.end):
            place = f"{self.last_index + 1} at {self._now.end}"
            raise Violated("foreign entries", f"{run.first} at {run.position} are written, {place} are due")
        for entry in entries_of(run):
            self.append(entry)

    def truncate_from(self, first: Index) -> None:
        self._now.cut(first)
        self._unsynced.append(first)
        self._memberships = [each for each in self._memberships if each.index < first]

    def empty(self, first: Index, position: int, previous_term: Term) -> None:
        """Synced at once, as a folder that is made anew is."""
        self._now = _Content(first, position, previous_term)
        self._durable = self._now.copy()
        self._unsynced.clear()
        self._memberships = [each for each in self._memberships if each.index < first]
        self._epoch += 1

    def drop(self, first: Index, *, knows_term: bool) -> None:
        """Expired entries go. Who the members are is kept elsewhere then, as real ledgers do."""
        assert first <= self.synced_index
        for content in (self._now, self._durable):
            content.drop(first, knows_term=knows_term)

    def lead(self, term: Term) -> None:
        self.append(SimEntry(term, b"leader of %d" % term))

    # The disk.

    def written(self) -> tuple[int, int]:
        """What a sync that begins now covers."""
        return self._epoch, self._done + len(self._unsynced)

    def sync(self, written: tuple[int, int]) -> None:
        """That is on the disk now."""
        epoch, operations = written
        if epoch == self._epoch:
            self._apply(operations - self._done)

    @property
    def is_synced(self) -> bool:
        return not self._unsynced

    def _apply(self, operations: int) -> None:
        for each in self._unsynced[:operations]:
            if isinstance(each, int):
                self._durable.cut(each)
            else:
                self._durable.add(each)
        del self._unsynced[:operations]
        self._done += operations

    def lose_power(self, rng: random.Random) -> None:
        self._apply(rng.randint(0, len(self._unsynced)))
        self._unsynced.clear()
        self._reread(self._durable.copy())

    def lose_all(self) -> None:
        self.is_damaged = False
        self.ballot, self.has_ballot = Ballot(), False
        self._durable = _Content()
        self._unsynced.clear()
        self._reread(_Content())

    def lose_tail(self, first: Index) -> None:
        """Damage that recovery finds, and cuts off: known to be more than a crash may do."""
        content = self._now.copy()
        content.cut(first)
        self._durable = content.copy()
        self._unsynced.clear()
        self._reread(content)

    def open(self) -> None:
        """Recovery syncs what it finds."""
        self._epoch += 1
        self._apply(len(self._unsynced))

    def _reread(self, content: _Content) -> None:
        kept = [each for each in self._memberships if each.index < content.first]
        self._now, self._memberships = content, kept
        self._epoch += 1
        for at, entry in enumerate(content.entries):
            members = entry.membership(content.first + at)
            if members is not None:
                self._memberships.append(members)


def members_of(ids: list[MemberId]) -> Membership:
    return Membership({each: f"10.0.0.{1 + int(each[1:])}:40911" for each in ids})
