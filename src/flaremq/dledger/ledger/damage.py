"""What of a member's log is known to be damaged, and is not repaired yet.

Such entries are decided on, and other members have them. Until they are here again, readers get an error in
their place and this member does not lead. The log itself stays as it is: nothing is cut off, and what lies
before and behind the damage is served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from flaremq.base.errors import CorruptStore
from flaremq.base.text import count
from flaremq.dledger.types import Index, Term


@dataclass(frozen=True, slots=True)
class LedgerDamage:
    """Entries that cannot be read, or are not what they should be."""

    first: Index
    last: Index
    position: int
    """Where the first one begins."""
    end: int
    """Where the log is sound again, or ends: behind the last one, or behind the end of its file."""
    previous_term: Term
    """Of the entry before them; -1 if that is not known."""
    next_term: Term
    """Of the entry behind them; -1 if that is not known."""
    why: str
    terms: tuple[Term, ...] = ()
    """Where the entry and the index only disagree about its term: what they say. One of them is right."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        which = f"entry {self.first}" if self.count == 1 else f"entries {self.first} to {self.last}"
        return f"{which} at {self.position}: {self.why}"

    def behind(self, index: Index, position: int, term: Term) -> LedgerDamage:
        """What is left of it when all before this entry is repaired."""
        return replace(self, first=index, position=position, previous_term=term)

    def packed(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def parse(cls, given: dict[str, Any]) -> LedgerDamage:
        return cls(**{**given, "terms": tuple(given["terms"])})


class KnownDamage:
    """All of one log. `found` is replaced and never changed, so any thread may look at it."""

    def __init__(self) -> None:
        self.found: tuple[LedgerDamage, ...] = ()
        """By position."""
        self.repaired = 0
        """Entries, since the start."""
        self.deleted_before: Index = 0
        """Another member has deleted all entries before this one. It needs them no more."""
        self._lock = threading.Lock()
        self._watchers: tuple[Callable[[], None], ...] = ()

    @property
    def entries(self) -> int:
        return sum(each.count for each in self.found)

    def __str__(self) -> str:
        """For an operator; empty without any."""
        found = self.found
        if not found:
            return ""
        more = f", and {count(len(found) - 1, 'more place')}" if len(found) > 1 else ""
        return f"{found[0]}{more}"

    @property
    def hinders(self) -> bool:
        """Whether this member had better not lead: others may need what is damaged here."""
        return any(each.last >= self.deleted_before for each in self.found)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in any thread when it has changed. Returns what ends that."""
        self._watchers = (*self._watchers, callback)

        def unwatch() -> None:
            self._watchers = tuple(each for each in self._watchers if each is not callback)

        return unwatch

    def add(self, damage: LedgerDamage) -> None:
        """Unless it is known."""
        with self._lock:
            if any(each.position <= damage.position < each.end for each in self.found):
                return
            self.found = tuple(sorted((*self.found, damage), key=lambda each: each.position))
        self._changed()

    def repair(self, damage: LedgerDamage, rest: LedgerDamage | None, entries: int) -> None:
        """Of this one, only the rest is left."""
        with self._lock:
            others = [each for each in self.found if each is not damage]
            left = [*others, rest] if rest is not None else others
            self.found = tuple(sorted(left, key=lambda each: each.position))
            self.repaired += entries
        self._changed()

    def forget_outside(self, begin: int, last: Index) -> None:
        """What is deleted, or given up, is not missed: the log begins there, and ends with that entry."""
        if all(each.end > begin and each.first <= last for each in self.found):
            return
        with self._lock:
            self.found = tuple(each for each in self.found if each.end > begin and each.first <= last)
        self._changed()

    def within(self, begin: int, end: int) -> LedgerDamage | None:
        """The first one that has a part in these bytes of the log."""
        return next((each for each in self.found if each.position < end and each.end > begin), None)

    def check(self, begin: int, end: int) -> None:
        """Raise CorruptStore if any of these bytes are damaged. A reader that was told that they are gone
        would go on behind them, and have lost messages without knowing."""
        damage = self.within(begin, end)
        if damage is not None:
            raise CorruptStore(
                f"what lies at offset {begin} is damaged here, and is copied from another member of the "
                f"group as soon as one can be reached: try again later ({damage})"
            )

    def _changed(self) -> None:
        for callback in self._watchers:
            callback()
