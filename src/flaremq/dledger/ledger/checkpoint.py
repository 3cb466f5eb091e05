"""How far a ledger is safe, on the disk: the small file `checkpoint` beside its entries.

    committedIndex    the group has decided on everything up to here, as far as this member knew
    endIndex          everything up to here was on the disk, with its units
    beginning         where the log begins if it has been begun anew: index, offset, and the term before it
    members           who belonged to the group, by the entries that say so, up to endIndex

The first two are DLedger's, which leaves lines alone that it does not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from flaremq.base.logs import fields, logger
from flaremq.store.files.disk import Disk

log = logger("dledger.checkpoint")
CHECKPOINT: Final = "checkpoint"
_COMMITTED: Final = "committedIndex"
_END: Final = "endIndex"
_BEGINNING: Final = "beginning"
_MEMBERS: Final = "members"


def ledger_folder(root: Path, self_id: str) -> Path:
    """Where a member keeps its ledger, below its storePathRootDir."""
    return root / f"dledger-{self_id}"


class Beginning(NamedTuple):
    """Where a log begins that does not begin at 0, and what its member must not forget of what was before."""

    first: int = 0
    position: int = 0
    previous_term: int = -1


FROM_ZERO: Final = Beginning()
Roster = Mapping[int, Mapping[str, str]]
"""Addresses of the members by their ids, by the index of the entry that says so."""


@dataclass(frozen=True, slots=True)
class LedgerSafety:
    """What the file says."""

    committed: int = -1
    end: int = -1
    beginning: Beginning = FROM_ZERO
    rosters: Roster = dataclasses.field(default_factory=dict)

    def packed(self) -> bytes:
        lines = [f"{_COMMITTED}={self.committed}", f"{_END}={self.end}"]
        if self.beginning != FROM_ZERO:
            lines.append(f"{_BEGINNING}={','.join(map(str, self.beginning))}")
        if self.rosters:
            named = {str(index): dict(members) for index, members in self.rosters.items()}
            lines.append(f"{_MEMBERS}={orjson.dumps(named).decode()}")
        return "".join(f"{line}\n" for line in lines).encode()


def lines_of(text: bytes) -> dict[str, str]:
    """Names and values of a file in Java's format of properties."""
    lines = text.decode("utf-8", "replace").splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def parse(text: bytes) -> LedgerSafety:
    """Raises ValueError if it is none."""
    given = lines_of(text)
    if _COMMITTED not in given or _END not in given:
        raise ValueError(f"it has no {_COMMITTED} or no {_END}")
    beginning = Beginning(*map(int, given[_BEGINNING].split(","))) if _BEGINNING in given else FROM_ZERO
    named = orjson.loads(given.get(_MEMBERS, "{}"))
    rosters = {int(index): dict(members) for index, members in named.items()}
    return LedgerSafety(int(given[_COMMITTED]), int(given[_END]), beginning, rosters)


class LedgerCheckpoint:
    """The file. What `save` has written is on the disk when it returns."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.path = folder / CHECKPOINT
        self._saved: LedgerSafety | None = None

    def load(self) -> LedgerSafety | None:
        """None if there is none, or none that can be read."""
        if not self._disk.exists(self.path):
            return None
        try:
            self._saved = parse(self._disk.read(self.path))
        except (ValueError, TypeError, AttributeError) as error:
            log.error("the checkpoint of a ledger cannot be read: %s", error, extra=fields(file=self.path))
        return self._saved

    def save(self, safety: LedgerSafety) -> None:
        """Free when nothing has changed."""
        if safety != self._saved:
            self._disk.replace(self.path, safety.packed())
            self._saved = safety
