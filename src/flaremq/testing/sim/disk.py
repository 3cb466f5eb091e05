"""The disk of a simulated machine: it remembers what was synced, fails on demand, and may end its node.

Files are real ones in memory, because the store writes through maps. A node may be killed, or lose its power,
before any single operation: that is where the orders lie that a crash can leave.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from flaremq.base.errors import FileUnavailable, FlushFailed
from flaremq.model.layout import PAGE
from flaremq.store.files.disk import DiskFile
from flaremq.testing.fakes.disk import FaultyDisk, PowerLossDisk
from flaremq.testing.sim.events import EventStream
from flaremq.testing.sim.loop import HERE, NodeKilled, SimLoop

_WHEEL: Final = 1 << 23
"""Only the timer wheel is larger. A crash makes it worthless anyway, so it is not remembered page by page."""


class SimDisk(PowerLossDisk):
    """Belongs to a machine, and outlives its nodes."""

    def __init__(self, machine: str, root: Path, loop: SimLoop, events: EventStream, *, strict: bool) -> None:
        super().__init__(strict_names=strict)
        self._machine = machine
        self._root = root
        self._loop = loop
        self._events = events
        self._modified_ms: dict[Path, int] = {}
        self._names: dict[Path, str] = {}
        self._dropped: dict[Path, tuple[bytes, bytes, set[int]]] = {}
        self._fuse: tuple[int, Callable[[], None]] | None = None
        self.read_only = False
        """Every write fails, as after an error that made the kernel mount it read-only."""
        self.sync_s = 0.0
        """How long those who flush wait for each sync."""

    def arm(self, operations: int, end: Callable[[], None]) -> None:
        """After so many operations, `end` is called, which kills the node in the middle of its work."""
        self._fuse = operations, end

    def disarm(self) -> None:
        self._fuse = None

    def _step(self, what: str, path: Path, *, writes: bool = True) -> None:
        node = HERE.get(self._loop.root)
        if node.dead:
            raise NodeKilled(self._machine)
        if self._fuse is not None:
            left, end = self._fuse
            self._fuse = None if left <= 0 else (left - 1, end)
            if left <= 0:
                end()
                raise NodeKilled(self._machine)
        self._events.add(self._machine, f"{what} {self._short(path)}")
        if writes and self.read_only:
            self._refuse(what, path)

    def _short(self, path: Path) -> str:
        found = self._names.get(path)
        if found is None:
            inside = path.is_relative_to(self._root)
            found = self._names[path] = path.relative_to(self._root).as_posix() if inside else "above"
        return found

    def _refuse(self, what: str, path: Path) -> NoReturn:
        self._events.faults["read-only write"] += 1
        if what == "sync":
            raise FlushFailed(f"{path}: fdatasync failed (Read-only file system)")
        raise FileUnavailable(f"{path}: Read-only file system")

    def _touched(self, path: Path) -> None:
        self._modified_ms[path] = self._loop.wall_ms(HERE.get(self._loop.root))

    # Operations.

    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        self._step("create", path)
        if size > _WHEEL:
            FaultyDisk.create(self, path, size, reserved=reserved)
            return
        super().create(path, size, reserved=reserved)
        self._touched(path)

    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        if size > _WHEEL:
            return FaultyDisk.open(self, path, size, lasting=lasting)
        return super().open(path, size, lasting=lasting)

    def take(self, path: Path, at: int, size: int) -> None:
        if self.read_only:
            self._refuse("write", path)
        super().take(path, at, size)

    def written(self, path: Path, at: int, size: int) -> None:
        if path in self._dropped:  # Changed or not, these pages are no longer clean.
            self._dropped[path][2].update(range(at // PAGE * PAGE, at + size, PAGE))

    def before_sync(self, file: DiskFile) -> None:
        self._step("sync", file.path)
        if file.size > _WHEEL:
            FaultyDisk.before_sync(self, file)
            return
        try:
            super().before_sync(file)
        except FlushFailed:
            # The kernel takes these pages for clean now, and writes them only if they are changed again.
            self._dropped[file.path] = self._content.get(file.path, b""), bytes(file.view), set()
            raise
        if file.path in self._dropped:
            self._content[file.path] = _without(*self._dropped[file.path], self._content[file.path])
        self._touched(file.path)

    def replace(self, path: Path, data: bytes) -> None:
        self._step("replace", path)
        super().replace(path, data)

    def save(self, path: Path, backup: Path, data: bytes) -> None:
        self._step("save", path)
        super().save(path, backup, data)

    def sync_folder(self, folder: Path) -> None:
        self._step("sync names", folder)
        super().sync_folder(folder)

    def delete(self, path: Path) -> None:
        self._step("delete", path)
        super().delete(path)

    def delete_folder(self, folder: Path) -> None:
        self._step("delete", folder)
        super().delete_folder(folder)

    def modified_ms(self, path: Path) -> int:
        return self._modified_ms.get(path, 0)

    def used_ratio(self, path: Path) -> float:
        if self.free_bytes is not None and self.free_bytes <= 0:
            return 0.99
        return super().used_ratio(path)

    # Ends.

    def let_go(self) -> None:
        """A process has ended: what it still writes through its old maps reaches no file."""
        self.disarm()
        for path in sorted(self._seen):
            if path.exists():
                data = path.read_bytes()
                path.unlink()
                path.write_bytes(data)

    def lose_all(self) -> None:
        """An empty disk takes its place."""
        self.disarm()
        shutil.rmtree(self._root, ignore_errors=True)
        for path in list(self._seen):
            self._forget(path)
        for noted in (self._new_folders, self._dropped, self.synced, self._taken, self._modified_ms):
            noted.clear()

    def lose_power_by(self, rng: random.Random) -> None:
        self.disarm()
        self.lose_power(rng.randrange(1 << 30))
        self._dropped.clear()
        self.synced.clear()


def _without(old: bytes, failed: bytes, again: set[int], now: bytes) -> bytes:
    """What a sync leaves on the disk: pages that an earlier one failed to write are missing, unless they
    have changed or been written again since."""
    old = old.ljust(len(now), b"\0")
    pages = (slice(at, at + PAGE) for at in range(0, len(now), PAGE))
    return b"".join(
        old[page] if now[page] == failed[page] and page.start not in again else now[page] for page in pages
    )
