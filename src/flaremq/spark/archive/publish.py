"""Published files of a plain archive: hard links under names that every reader of Parquet understands.

The files themselves are in _data, which readers ignore, and stay there for a day after they were merged.
Those that are part of the archive have a second name, a hard link, in the visible folders. The commit log
says which; the links follow a moment later, and if a process dies in between, the next one catches up.

A merge changes the names of a whole partition: its folder is exchanged for another in one step. A reader that
lists it sees the files before or those after, never both and never neither. A reader may have opened the old
folder just before the exchange and list it just after, so the old folder stays out of sight for a while.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from flaremq.base.errors import StoreError
from flaremq.base.files import replace_whole, sync_folder
from flaremq.spark.archive.log import ArchiveCommit, ArchiveLog, ArchiveState

HIDDEN_SUFFIX: Final = ".pq"
"""Not .parquet, so that a search for *.parquet in all folders finds every row once."""
SHOWN_SUFFIX: Final = ".parquet"
LISTING_S: Final = 300.0
"""How long the listing of one folder may take. For so long an exchanged folder keeps its names."""
_AT_CWD: Final = -100
_EXCHANGE: Final = 2  # RENAME_EXCHANGE of Linux.


class PublishedFiles:
    """The visible names below `root`, for files below `data`."""

    def __init__(self, root: Path, data: Path, own: Path, log: ArchiveLog) -> None:
        self._root = root
        self._data = data
        self._lock = own / "shown.lock"
        self._done = own / "shown"
        self._swap = own / "swap"
        self._log = log

    def catch_up(self) -> None:
        """Make the links match the log. One process at a time."""
        with locked(self._lock):
            done, state = self._version(), self._log.state()
            if done >= state.version:
                return
            commits = self._log.between(done, state.version)
            try:
                self._apply(state, commits)
            except OSError as error:
                raise StoreError(f"cannot publish files in {self._root}: {error}") from error
            replace_whole(self._done, str(state.version).encode())

    def _version(self) -> int:
        try:
            return int(self._done.read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def _apply(self, state: ArchiveState, commits: list[ArchiveCommit] | None) -> None:
        self._sweep(LISTING_S)
        if commits is None:  # The commits since then are no longer kept.
            changed = set(map(_folder, [*state.files, *state.removed]))
        else:
            changed = {_folder(path) for commit in commits for path in commit.removed}
        if changed:
            by_folder: dict[str, list[str]] = defaultdict(list)
            for path in state.files:
                by_folder[_folder(path)].append(path)
            for folder in sorted(changed):
                self._exchange(folder, by_folder.get(folder, ()))
        grown: dict[str, list[str]] = defaultdict(list)
        for commit in commits or ():
            for file in commit.added:
                if _folder(file.path) not in changed:
                    grown[_folder(file.path)].append(file.path)
        for folder, paths in sorted(grown.items()):
            self._fill(self._root / folder, paths)

    def _fill(self, into: Path, paths: Iterable[str]) -> None:
        into.mkdir(parents=True, exist_ok=True)
        for path in paths:
            name = PurePosixPath(path).name.removesuffix(HIDDEN_SUFFIX) + SHOWN_SUFFIX
            with contextlib.suppress(FileExistsError):
                os.link(self._data / path, into / name)
        sync_folder(into)

    def _exchange(self, folder: str, paths: Iterable[str]) -> None:
        new, place = self._swap / uuid.uuid4().hex, self._root / folder
        self._fill(new, paths)
        place.mkdir(parents=True, exist_ok=True)
        if _exchanged(new, place):
            os.utime(new)  # From now on it is the old one.
        else:
            # Rows are missing for a moment, which is better than rows that are there twice.
            for old in place.glob(f"*{SHOWN_SUFFIX}"):
                old.unlink()
            self._fill(place, paths)
            shutil.rmtree(new)
        sync_folder(place.parent)

    def sweep(self, age_s: float) -> None:
        """Delete folders that were exchanged at least `age_s` ago, and those of processes that died."""
        with locked(self._lock):
            self._sweep(age_s)

    def _sweep(self, age_s: float) -> None:
        before_s = time.time() - age_s
        with contextlib.suppress(FileNotFoundError):
            for old in self._swap.iterdir():
                if old.stat().st_mtime <= before_s:
                    shutil.rmtree(old, ignore_errors=True)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step. False if the system cannot do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _EXCHANGE) == 0)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock and hold it for the block. The system releases it if the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
