"""An index in a folder with a clock that stands still, for tests of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.store.facts import FactRows

from flaremq.store.index.index import Index, IndexShape
from flaremq.testing.clock import START_MS, ManualClock
from flaremq.testing.fakes.disk import FaultyDisk

SHAPE: Final = IndexShape(slots=10, entries_max=5)  # Four entries a file.
ALWAYS: Final = (0, 1 << 62)


class IndexRig:
    """The index, its clock, and the times that it reported as sealed."""

    def __init__(self, folder: Path, disk: FaultyDisk | None = None) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.disk = disk or FaultyDisk()
        self.sealed_ms: list[int] = []
        self.index = self.fresh()

    def fresh(self, later: Callable[[Callable[[], None]], None] = lambda task: task()) -> Index:
        sealed = self.sealed_ms.append
        return Index(self.disk, self.clock, self.folder, SHAPE, sealed=sealed, later=later)

    def again(self, *, clean: bool = True) -> Index:
        """Stop and start anew."""
        if clean:
            self.index.flush()
        self.index.close()
        self.index = self.fresh()
        self.index.load(clean=clean)
        return self.index

    def put(self, first: int, last: int, key: bytes = b"a") -> None:
        table = records(first, last, key)
        self.index.put_many(table.facts, len(table), table.log)

    def found(self, key: str = "a", limit: int = 64, span: tuple[int, int] = ALWAYS) -> list[int]:
        return self.index.query("TopicTest", key, limit, *span)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


def records(first: int, last: int, key: bytes = b"a") -> FactRows:
    """A record every hundred bytes and every second."""
    table = FactRows()
    for n in range(first, last):
        table.add(100 * n, START_MS + 1000 * n, keys=key)
    return table
