"""What a follower does with what a leader of the library pushes.

    COMPARE, TRUNCATE    where do the logs part? From there on they are the same
    APPEND               entries, in any order: held until those before them are there, then written together
    COMMIT               how far the group has decided

More careful than the library in three places, none of which its leaders notice. An acknowledgement waits for
the disk. Entries are appended only behind one that was compared since this leader leads, or since this member
started: a leader that hears INCONSISTENT_STATE compares. And what is committed is never given up: the
library counts entries of earlier terms as decided when a majority has them, which may turn out to be wrong.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from flaremq.dledger.library.messages import LibraryEntry, PushCall, PushReply, Result, run_of
from flaremq.dledger.library.state import LibraryState
from flaremq.dledger.types import Commit, Empty, Index, Standing, Term, Truncate, Write

_HELD_MAX: Final = 64 << 20  # Bytes. A leader has up to 1000 pushes under way.
_RUN_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Held:
    """A push whose entries wait for those before them."""

    call: PushCall
    ticket: object
    since_s: float
    size: int


class LibraryFollowing:
    """Of the time in which this member follows."""

    def __init__(self, state: LibraryState) -> None:
        self._s = state
        self._matched: Index | None = None
        """The log is the leader's up to here. None before it was compared."""
        self._held: dict[Index, _Held] = {}
        """By the first index, the one that has waited longest first."""
        self._held_bytes = 0
        self._unsynced: deque[tuple[Index, PushCall, object]] = deque()
        """What is acknowledged when this entry is on the disk."""

    @property
    def deadline(self) -> float:
        oldest = next(iter(self._held.values()), None)
        return inf if oldest is None else oldest.since_s + self._s.pace.push_s

    def begin_anew(self) -> None:
        """Another leader, or none."""
        self._matched = None
        self._drop_held()
        self._unsynced.clear()

    def pushed(self, call: PushCall, ticket: object) -> None:
        """From the leader that this member follows."""
        match call.type:
            case "COMPARE":
                self._compare(call, ticket)
            case "TRUNCATE":
                self._truncate(call, ticket)
            case "APPEND":
                self._hold(call, ticket)
            case _:
                self._commit_to(call.commit)
                self._answer(Result.SUCCESS, call, ticket)

    # Where the logs part.

    def _compare(self, call: PushCall, ticket: object) -> None:
        self._drop_held()
        entry = call.entries[0]
        if not self._has(entry):
            self._answer(Result.INCONSISTENT_STATE, call, ticket)
            return
        self._matched = entry.index if self._matched is None else max(entry.index, self._matched)
        self._acknowledge(entry.index, call, ticket)

    def _truncate(self, call: PushCall, ticket: object) -> None:
        self._drop_held()
        entry, has_it = call.entries[0], self._has(call.entries[0])
        first = entry.index + 1 if has_it else entry.index
        if has_it and self._matched is not None:
            # What was compared in this term stays: a truncation that says otherwise was asked for before
            # that, and has come late.
            first = max(first, self._matched + 1)
        why = self._why_not_cut(first, entry)
        if why:
            self._s.complaint = f"{self._s.leader} asks for a truncation that this member refuses: {why}"
            self._answer(Result.INCONSISTENT_STATE, call, ticket)
            return
        self._cut(first, entry)
        if not has_it:
            self._write([entry])
        self._matched = max(entry.index, first - 1)
        self._s.complaint = ""
        self._acknowledge(entry.index, call, ticket)
        self._commit_to(call.commit)

    def _why_not_cut(self, first: Index, entry: LibraryEntry) -> str:
        s = self._s
        if first <= s.commit:
            return (
                f"entries from {first} on would be given up, and the group has decided on all up to "
                f"{s.commit}. RocketMQ's members may have lost them: compare the logs, and give this member "
                "an empty folder if theirs is the right one"
            )
        if self._matched is not None and first <= self._matched:
            return f"entry {first} is the leader's, as far as was compared in its term {s.term}"
        if entry.term > s.term:
            return f"entry {entry.index} is of term {entry.term}, and its leader leads in {s.term}"
        return ""

    def _cut(self, first: Index, entry: LibraryEntry) -> None:
        """Make room so that the entry, or what follows it, comes next."""
        s = self._s
        is_empty = s.end < s.ledger.first_index
        # A leader that has no entry in common with this member begins with its first one. What lies before
        # that here was not compared, and may not be what the group has decided on.
        is_doubtful = first == entry.index and s.commit < first - 1
        if first > s.end + 1 or (is_empty and entry.position) or (is_doubtful and not is_empty):
            s.actions.append(Empty(first, entry.position, -1))
            s.end_term = -1
        elif first <= s.end:
            s.actions.append(Truncate(first))
            s.end_term = s.ledger.term_at(first - 1)
        s.end = first - 1
        s.synced = min(s.synced, s.end)
        self._unsynced = deque(each for each in self._unsynced if each[0] < first)

    def _has(self, entry: LibraryEntry) -> bool:
        return entry.index <= self._s.end and self._s.entry(entry.index) == entry

    # Entries.

    def _hold(self, call: PushCall, ticket: object) -> None:
        s = self._s
        if self._matched is None:
            self._answer(Result.INCONSISTENT_STATE, call, ticket)
            return
        if call.last <= s.end:
            if all(map(self._has, call.entries)):
                self._matched = max(self._matched, call.last)
                self._acknowledge(call.last, call, ticket)
            else:
                self._answer(Result.INCONSISTENT_STATE, call, ticket)
            return
        size = sum(len(each.data) for each in call.entries)
        if call.first in self._held:
            self._answer(Result.REPEATED_PUSH, call, ticket)
        elif self._held_bytes + size > _HELD_MAX and call.first > s.end + 1:
            self._answer(Result.PUSH_REQUEST_IS_FULL, call, ticket)
        else:
            self._held[call.first] = _Held(call, ticket, s.now, size)
            self._held_bytes += size

    def drain(self) -> None:
        """Write all that follows the log now, many pushes at once."""
        s = self._s
        if self._matched != s.end or s.standing is not Standing.FOLLOWER:
            return  # Nothing is written behind what was not compared.
        entries, size, commit = list[LibraryEntry](), 0, -1
        done = list[_Held]()
        while held := self._next(s.end + 1 + len(entries), entries[-1].term if entries else s.end_term):
            done.append(held)
            commit = max(commit, held.call.commit)
            for entry in held.call.entries[max(0, s.end + 1 + len(entries) - held.call.first) :]:
                if entries and (entry.position != entries[-1].end or size > _RUN_MAX):
                    self._write(entries)
                    entries, size = [], 0
                entries.append(entry)
                size += len(entry.data)
        if entries:
            self._write(entries)
        for each in done:
            self._acknowledge(each.call.last, each.call, each.ticket)
        if done:
            self._commit_to(commit)

    def _next(self, index: Index, term: Term) -> _Held | None:
        """The push that goes on with this entry, if its entries may be written behind one of this term."""
        s = self._s
        held = self._held.get(index)
        if held is None:  # One that repeats some entries and goes on.
            inside = (each for each in self._held.values() if each.call.first < index <= each.call.last)
            held = next(inside, None)
        if held is None:
            return None
        self._take(held)
        call = held.call
        known = [each for each in call.entries if each.index <= s.end]
        terms = [term, *(each.term for each in call.entries if each.index >= index), s.term]
        if terms != sorted(terms) or not all(map(self._has, known)):
            self._answer(Result.INCONSISTENT_STATE, call, held.ticket)
            return None
        return held

    def _write(self, entries: list[LibraryEntry]) -> None:
        s = self._s
        s.actions.append(Write(run_of(entries)))
        s.end, s.end_term = entries[-1].index, entries[-1].term
        self._matched = s.end

    def tick(self) -> None:
        """Pushes that have waited too long for those before them: the leader has to compare again."""
        s = self._s
        late = [each for each in self._held.values() if s.now >= each.since_s + s.pace.push_s]
        if not late:
            return
        first = min(late, key=lambda each: each.call.first)
        self._take(first)
        self._answer(Result.INCONSISTENT_STATE, first.call, first.ticket)
        for held in (each for each in late if each is not first):  # The next one's turn comes if need be.
            del self._held[held.call.first]
            self._held[held.call.first] = replace(held, since_s=s.now)

    def _take(self, held: _Held) -> None:
        del self._held[held.call.first]
        self._held_bytes -= held.size

    def _drop_held(self) -> None:
        self._held.clear()
        self._held_bytes = 0

    # Answers.

    def _acknowledge(self, index: Index, call: PushCall, ticket: object) -> None:
        """Once this entry is on the disk."""
        s = self._s
        if index <= s.synced:
            self._answer(Result.SUCCESS, call, ticket)
        else:
            self._unsynced.append((index, call, ticket))

    def synced(self) -> None:
        synced, waiting = self._s.ledger.synced_index, self._unsynced
        self._unsynced = deque(each for each in waiting if each[0] > synced)
        for index, call, ticket in waiting:
            if index <= synced:
                self._answer(Result.SUCCESS, call, ticket)

    def _answer(self, code: Result, call: PushCall, ticket: object) -> None:
        s, place = self._s, (-1, 0)
        if call.entries:
            place = call.first, len(call.entries)
        first = s.ledger.first_index if s.end >= s.ledger.first_index else -1
        s.reply(ticket, PushReply(code, call.term, *place, first, s.end if first >= 0 else -1))

    def _commit_to(self, index: Index) -> None:
        """As far as the leader says, and the log is known to be its own."""
        s = self._s
        if self._matched is None:
            return
        known = min(index, self._matched)
        if known > s.commit:
            s.commit = known
            s.actions.append(Commit(known))
        is_whole = known == index and not s.ledger.is_damaged
        if not s.ballot.is_voter and is_whole and s.now >= s.trusts_from_s:
            s.save(replace(s.ballot, is_voter=True))
