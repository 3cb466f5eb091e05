"""Disks that fail on demand: full disks, failing syncs, and loss of power."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flaremq.base.errors import DiskFull, FileUnavailable, FlushFailed
from flaremq.model.layout import PAGE
from flaremq.store.files.coldfile import BLOCK, ColdFile
from flaremq.store.files.disk import Disk, DiskFile


class FaultyFile(DiskFile):
    """A real file that asks its disk before it reserves, writes or syncs.

    Nothing is really synced: the test machine stays on, and hundreds of syncs would take minutes.
    """

    def __init__(self, disk: FaultyDisk, path: Path, size: int, *, lasting: bool) -> None:
        super().__init__(path, size, lasting=lasting)
        self._disk = disk

    def reserve(self, at: int, size: int) -> None:
        self._disk.take(self.path, at, size)
        super().reserve(at, size)

    def write(self, at: int, data: bytes | memoryview) -> None:
        self._disk.take(self.path, at, len(data))
        self._disk.before_write(self.path, at, len(data))
        super().write(at, data)
        self._disk.written(self.path, at, len(data))

    def sync(self) -> None:
        self._disk.before_sync(self)
        self._disk.synced.append(self.path)

    def clear_from(self, at: int, *, keep_space: bool = False) -> None:
        super().clear_from(at, keep_space=keep_space)
        if not keep_space:
            self._disk.give_back(self.path, at)


class FaultyColdFile(ColdFile):
    """A real file, some of whose blocks cannot be read."""

    def __init__(self, disk: FaultyDisk, path: Path) -> None:
        super().__init__(path)
        self._disk = disk

    def _read_into(self, room: memoryview, at: int) -> int:
        if any(at <= block < at + len(room) for block in self._disk.worn.get(self.path, ())):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super()._read_into(room, at)


class FaultyDisk(Disk):
    """A real folder on a disk that is as full and as broken as a test wants.

    `free_bytes` is a budget: each byte reserved or written costs once, and deleted or cleared parts are
    returned. None means unlimited space.
    """

    def __init__(self, *, free_bytes: int | None = None) -> None:
        self.free_bytes = free_bytes
        self.ratio = 0.5
        """Used share of every folder that `ratios` does not name."""
        self.ratios: dict[Path, float] = {}
        self.partition = 1 << 40
        self.synced: list[Path] = []
        """Files that were synced, in order."""
        self.worn: dict[Path, set[int]] = {}
        """Blocks that cannot be read, by where they begin, until they are written as a whole."""
        self._taken: dict[Path, list[tuple[int, int]]] = {}
        self._next_failures: list[Exception] = []
        self._lasting_failure: Exception | None = None

    def fail_next_sync(self, error: Exception | None = None) -> None:
        """Each call fails one sync."""
        self._next_failures.append(error or FlushFailed("the disk of this test failed its next sync"))

    def fail_all_syncs(self, error: Exception | None = None) -> None:
        self._lasting_failure = error or FlushFailed("the disk of this test fails every sync")

    def wear_out(self, path: Path, at: int) -> None:
        """The block of this byte cannot be read any more. Maps still show it, as those of a real disk do as
        long as it is in memory."""
        self.worn.setdefault(path, set()).add(at // BLOCK * BLOCK)

    def before_write(self, path: Path, at: int, size: int) -> None:
        """A part of a block can only be written into the rest of it, so that must be read first."""
        worn = self.worn.get(path, set())
        for block in sorted(worn):
            if at <= block and block + BLOCK <= at + size:
                worn.discard(block)
            elif at < block + BLOCK and block < at + size:
                raise FileUnavailable(f"{path}: {os.strerror(errno.EIO)}: byte {block} cannot be read")

    def cold(self, path: Path) -> ColdFile:
        return FaultyColdFile(self, path)

    def repair_syncs(self) -> None:
        self._next_failures, self._lasting_failure = [], None

    def before_sync(self, file: DiskFile) -> None:  # noqa: ARG002
        if self._next_failures:
            raise self._next_failures.pop(0)
        if self._lasting_failure is not None:
            raise self._lasting_failure

    def sync_folder(self, folder: Path) -> None:
        folder.stat()  # Raises what a real disk would.

    def used_ratio(self, path: Path) -> float:
        return self.ratios.get(path, self.ratio)

    def partition_size(self, path: Path) -> int:  # noqa: ARG002
        return self.partition

    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        self.take(path, 0, size if reserved else 0)
        super().create(path, size, reserved=reserved)

    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        super().open(path, size).close()  # Raises what a real disk would.
        return FaultyFile(self, path, size, lasting=lasting)

    def replace(self, path: Path, data: bytes) -> None:
        self.take(path, 0, len(data))
        super().replace(path, data)

    def save(self, path: Path, backup: Path, data: bytes) -> None:
        self.take(path, 0, len(data))
        super().save(path, backup, data)

    def delete(self, path: Path) -> None:
        super().delete(path)
        self.give_back(path, 0)

    def delete_folder(self, folder: Path) -> None:
        super().delete_folder(folder)
        for path in [path for path in self._taken if path.is_relative_to(folder)]:
            self.give_back(path, 0)

    def take(self, path: Path, at: int, size: int) -> None:
        """Pay for the bytes of [at, at + size) that the file does not have yet, or raise DiskFull."""
        parts = self._taken.setdefault(path, [])
        merged = list(_merged([*parts, (at, at + size)]))
        cost = _length(merged) - _length(parts)
        if self.free_bytes is not None:
            if cost > self.free_bytes:
                raise DiskFull(f"{path}: no room for {cost} more bytes, {self.free_bytes} are free")
            self.free_bytes -= cost
        self._taken[path] = merged

    def written(self, path: Path, at: int, size: int) -> None:
        """Told of writes that did not go through a map."""

    def give_back(self, path: Path, at: int) -> None:
        parts = self._taken.pop(path, [])
        kept = [(begin, min(end, at)) for begin, end in parts if begin < at]
        if self.free_bytes is not None:
            self.free_bytes += _length(parts) - _length(kept)
        if kept:
            self._taken[path] = kept


class TroubledDisk(FaultyDisk):
    """Raises `error` from operations on files below a folder of this name, until it is healed.

    Operations are "create", "open", "reserve" (and write), "sync" (and that of a folder), "delete" and
    "ratio". `spared` of them succeed first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._trouble: tuple[Exception, str, frozenset[str]] | None = None
        self._spared = 0
        self.raised = 0
        """How often, since the trouble began."""

    def trouble(self, error: Exception, below: str, *operations: str, spared: int = 0) -> None:
        self.raised, self._spared = 0, spared
        self._trouble = error, below, frozenset(operations)

    def heal(self) -> None:
        self._trouble = None

    def _asked(self, operation: str, path: Path) -> None:
        if self._trouble is None:
            return
        error, below, operations = self._trouble
        if operation not in operations or below not in path.parts:
            return
        if self._spared:
            self._spared -= 1
            return
        self.raised += 1
        raise error

    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        self._asked("create", path)
        super().create(path, size, reserved=reserved)

    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        self._asked("open", path)
        return super().open(path, size, lasting=lasting)

    def take(self, path: Path, at: int, size: int) -> None:
        self._asked("reserve", path)
        super().take(path, at, size)

    def before_sync(self, file: DiskFile) -> None:
        self._asked("sync", file.path)
        super().before_sync(file)

    def sync_folder(self, folder: Path) -> None:
        self._asked("sync", folder)
        super().sync_folder(folder)

    def delete(self, path: Path) -> None:
        self._asked("delete", path)
        super().delete(path)

    def used_ratio(self, path: Path) -> float:
        self._asked("ratio", path)
        return super().used_ratio(path)


class PowerLossDisk(FaultyDisk):
    """Remembers what was synced, and can fall back to that.

    These survive for sure: the content of a file at its last sync, the names (and lengths) in a folder at its
    last sync, and whatever `replace` and `save` wrote. Everything newer survives, is lost, or is torn, page
    by page, at random. The sync of a file also saves its name and those of the folders above it, as ext4 and
    XFS do; with `strict_names` only syncs of folders save names, which is all that POSIX promises.
    """

    def __init__(self, *, free_bytes: int | None = None, strict_names: bool = False) -> None:
        super().__init__(free_bytes=free_bytes)
        self._strict_names = strict_names
        self._lock = threading.RLock()
        self._seen: set[Path] = set()  # Files that may exist after a failure.
        self._named: set[Path] = set()  # Those whose names are safe.
        self._content: dict[Path, bytes] = {}  # Their safe content; zeros if nothing is.
        self._new_folders: set[Path] = set()  # Folders whose names are not safe.

    def make_folder(self, folder: Path) -> None:
        with self._lock:
            self._new_folders |= {each for each in (folder, *folder.parents) if not each.exists()}
        super().make_folder(folder)

    def create(self, path: Path, size: int, *, reserved: bool = False) -> None:
        super().create(path, size, reserved=reserved)
        with self._lock:
            self._seen.add(path)
            self._content.pop(path, None)

    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        with self._lock:
            if path not in self._seen and path.exists():  # Older than this disk object: safe.
                self._save(path, path.read_bytes())
        return super().open(path, size, lasting=lasting)

    def replace(self, path: Path, data: bytes) -> None:
        super().replace(path, data)
        with self._lock:
            self._save(path, data)

    def save(self, path: Path, backup: Path, data: bytes) -> None:
        old = path.read_bytes() if path.exists() else None
        super().save(path, backup, data)
        with self._lock:
            self._save(path, data)
            if old is not None:
                self._save(backup, old)

    def before_sync(self, file: DiskFile) -> None:
        super().before_sync(file)
        with self._lock:
            if file.path.exists():
                # As it is before the sync: concurrent writes may be covered, or not.
                self._content[file.path] = bytes(file.view)
                if not self._strict_names:
                    self._named.add(file.path)
                    self._new_folders -= set(file.path.parents)

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        with self._lock:
            self._new_folders -= {each for each in self._new_folders if each.parent == folder}
            for path in [path for path in self._seen if path.parent == folder]:
                if path.exists():
                    self._named.add(path)
                    self._content.setdefault(path, bytes(path.stat().st_size))
                else:
                    self._forget(path)

    def lose_power(self, seed: int | None) -> None:
        """Bring the folder to a state that a power failure could leave; without a seed, to the worst.

        Open maps keep their old content, and what they write is lost.
        """
        dice = _Dice(seed)
        with self._lock:
            lost = {folder for folder in sorted(self._new_folders) if not dice.survives()}
            for path in sorted(self._seen):
                left = None if lost.intersection(path.parents) else self._after_failure(path, dice)
                path.unlink(missing_ok=True)  # A new file: old maps must not reach it.
                if left is None:
                    self._forget(path)
                else:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(left)
                    self._save(path, left)
            for folder in lost:
                shutil.rmtree(folder, ignore_errors=True)
            self._new_folders.clear()

    def _after_failure(self, path: Path, dice: _Dice) -> bytes | None:
        now = path.read_bytes() if path.exists() else None
        if path not in self._named and not (now is not None and dice.survives()):
            return None
        if now is None:  # Deleted, but its folder was not synced since.
            return None if dice.survives() else self._content.get(path, b"")
        return dice.mixed(self._content.get(path, b""), now)

    def _save(self, path: Path, content: bytes) -> None:
        self._seen.add(path)
        self._named.add(path)
        self._content[path] = content

    def _forget(self, path: Path) -> None:
        self._seen.discard(path)
        self._named.discard(path)
        self._content.pop(path, None)


class _Dice:
    """Decides what survives of unsynced data."""

    _OUTCOMES: Final = ("survives", "lost", "torn")

    def __init__(self, seed: int | None) -> None:
        self._random = random.Random(seed) if seed is not None else None

    def survives(self) -> bool:
        return self._random is not None and self._random.random() < 0.5

    def mixed(self, old: bytes, new: bytes) -> bytes:
        """Each page old, new, or partly both. The length is that of the new content."""
        old = old[: len(new)].ljust(len(new), b"\0")
        pages = range(0, len(new), PAGE)
        return b"".join(self._page(old[at : at + PAGE], new[at : at + PAGE]) for at in pages)

    def _page(self, old: bytes, new: bytes) -> bytes:
        if self._random is None or old == new:
            return old
        outcome = self._random.choice(self._OUTCOMES)
        if outcome == "torn":
            cut = self._random.randrange(len(new) + 1)
            first, second = (new, old) if self._random.random() < 0.5 else (old, new)
            return first[:cut] + second[cut:]
        return new if outcome == "survives" else old


def _merged(parts: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same bytes as sorted ranges that neither touch nor overlap."""
    last: tuple[int, int] | None = None
    for begin, end in sorted(part for part in parts if part[0] < part[1]):
        if last is not None and begin <= last[1]:
            last = (last[0], max(last[1], end))
        else:
            if last is not None:
                yield last
            last = (begin, end)
    if last is not None:
        yield last


def _length(parts: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in parts)
