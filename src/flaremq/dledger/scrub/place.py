"""How far a scrub is: the small file `scrub` in the folder of a member's ledger.

It is a note and no promise. One that is lost, or cannot be read, costs a pass that begins anew, and damage
that is found a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from flaremq.base.logs import fields, logger
from flaremq.dledger.ledger.damage import LedgerDamage
from flaremq.dledger.types import Index, Term
from flaremq.store.files.disk import Disk

log = logger("dledger.scrub")
SCRUB: Final = "scrub"


@dataclass(frozen=True, slots=True)
class ScrubPlace:
    """What comes next in the present pass."""

    began_ms: int
    """When the pass began, by the clock on the wall: it outlives the process."""
    index: Index
    position: int
    """Where that entry begins, or the blank that ends the file before it."""
    term: Term
    """Of the entry before it; -1 if that is not known."""
    last: Index
    """The pass ends with this one, which was decided on when it began."""
    end: int
    """Behind that one."""

    @property
    def is_over(self) -> bool:
        return self.index > self.last


class ScrubNote:
    """The file."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.path = folder / SCRUB
        self._saved = b""

    def load(self) -> tuple[ScrubPlace | None, tuple[LedgerDamage, ...]]:
        if not self._disk.exists(self.path):
            return None, ()
        try:
            given: dict[str, Any] = orjson.loads(self._disk.read(self.path))
            return ScrubPlace(**given["place"]), tuple(map(LedgerDamage.parse, given["damage"]))
        except (ValueError, TypeError, KeyError) as error:
            log.warning(
                "a scrub begins anew, its note cannot be read: %s", error, extra=fields(file=self.path)
            )
            return None, ()

    def save(self, place: ScrubPlace, damage: Sequence[LedgerDamage]) -> None:
        """Durable when it returns. Free when nothing has changed."""
        said = {"place": asdict(place), "damage": [each.packed() for each in damage]}
        packed = orjson.dumps(said, option=orjson.OPT_INDENT_2)
        if packed != self._saved:
            self._disk.replace(self.path, packed)
            self._saved = packed
