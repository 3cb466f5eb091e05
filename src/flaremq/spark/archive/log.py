"""The commit log of an archive: which files are part of it, version by version.

    log/00000000000000000007.json      what version 7 added and removed
    log/00000000000000000100.state     everything that holds as of version 100

The problem
-----------
Spark runs a batch again when it does not know whether the batch has ended: after a crash of the driver, a
lost task, a restart from the checkpoint. Each run writes new Parquet files. A reader that lists the folder
would count some messages twice, and would see half of a batch that is still being written. So files count
only when a commit names them, and a batch is committed once.

How it works
------------
A version is a file. It is written under another name, synced, and linked to its own: a link fails if the
name exists, so of several writers exactly one makes version 8. The others read what it did, and decide
again. There is one order of all commits, and a reader sees a commit whole or not at all.

Every commit is checked against the state that it follows. A batch whose number is not above the last one of
its query is in the archive already, and is refused; so is a merge of files that are no longer part of it.
After every hundredth version the whole state is written down, so that a reader starts from there.

An example
----------
    7   add part-a, part-b      query q, batch 3
    8   add part-c              query q, batch 4       the driver is killed before Spark notes batch 4
    -   batch 4 comes again with part-d: refused; part-d belongs to no version
    9   add big, remove part-a, part-b                    a merge of small files

A reader of version 8 sees part-a, part-b and part-c; of version 9, big and part-c: the same messages.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from flaremq.base.errors import CorruptStore, StoreError
from flaremq.base.files import create_whole
from flaremq.spark.archive.partitions import DataFile

_EVERY: Final = 100
"""A state is written down after each multiple of this many versions."""
_TRIES: Final = 1000
"""Attempts to commit, each lost to a quicker writer, before giving up."""


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """A batch of a streaming query. Its number only grows."""

    query: str
    number: int


@dataclass(frozen=True, slots=True)
class ArchiveCommit:
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    """Files that the added ones replace."""
    forgotten: tuple[str, ...] = ()
    """Removed files that were deleted from the disk, and need not be remembered."""
    batch: QueryBatch | None = None
    time_ms: int = 0

    def to_json(self) -> bytes:
        found: dict[str, Any] = {"time": self.time_ms, "add": [_listed(file) for file in self.added]}
        if self.removed:
            found["remove"] = self.removed
        if self.forgotten:
            found["forget"] = self.forgotten
        if self.batch is not None:
            found |= {"query": self.batch.query, "batch": self.batch.number}
        return json.dumps(found, separators=(",", ":")).encode()

    @classmethod
    def of_json(cls, data: bytes) -> ArchiveCommit:
        found = json.loads(data)
        return cls(
            tuple(DataFile(*each) for each in found["add"]),
            tuple(found.get("remove", ())),
            tuple(found.get("forget", ())),
            QueryBatch(found["query"], found["batch"]) if "query" in found else None,
            found["time"],
        )


class CommitVerdict(Enum):
    """Whether a commit can follow a state."""

    FITS = "it can be made"
    REPEATED = "its batch is in the archive already"
    STALE = "a file that it removes is gone already"


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """The archive as of a version. It never changes; a commit makes another."""

    version: int = 0
    files: Mapping[str, DataFile] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    """Files that are no longer part of it, and when they were removed."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """The last batch of each query."""

    def judge(self, commit: ArchiveCommit) -> CommitVerdict:
        if commit.batch is not None and commit.batch.number <= self.batches.get(commit.batch.query, -1):
            return CommitVerdict.REPEATED
        if not all(path in self.files for path in commit.removed):
            return CommitVerdict.STALE
        return CommitVerdict.FITS

    def after(self, commit: ArchiveCommit) -> ArchiveState:
        files, removed, batches = dict(self.files), dict(self.removed), dict(self.batches)
        for path in commit.removed:
            del files[path]
            removed[path] = commit.time_ms
        for path in commit.forgotten:
            removed.pop(path, None)
        files |= {file.path: file for file in commit.added}
        if commit.batch is not None:
            batches[commit.batch.query] = commit.batch.number
        return ArchiveState(self.version + 1, files, removed, batches)

    def to_json(self) -> bytes:
        found = {
            "version": self.version,
            "files": [_listed(file) for file in self.files.values()],
            "removed": self.removed,
            "batches": self.batches,
        }
        return json.dumps(found, separators=(",", ":")).encode()

    @classmethod
    def of_json(cls, data: bytes) -> ArchiveState:
        found = json.loads(data)
        files = (DataFile(*each) for each in found["files"])
        return cls(found["version"], {file.path: file for file in files}, found["removed"], found["batches"])


def _listed(file: DataFile) -> list[object]:
    return [file.path, file.rows, file.size]


class ArchiveLog:
    """The versions in a folder. Any number of processes may read and commit at once."""

    def __init__(self, folder: Path, *, every: int = _EVERY, now_s: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._every = every
        self._now_s = now_s

    def state(self) -> ArchiveState:
        """The state of the newest version."""
        return self._read(ArchiveState())

    def commit(self, commit: ArchiveCommit) -> CommitVerdict:
        """Make a commit, or say why not. It is on the disk when this returns."""
        commit = ArchiveCommit(
            commit.added, commit.removed, commit.forgotten, commit.batch, round(self._now_s() * 1000)
        )
        state = ArchiveState()
        for _ in range(_TRIES):
            state = self._read(state)
            verdict = state.judge(commit)
            if verdict is not CommitVerdict.FITS:
                return verdict
            path = self._version(state.version + 1)
            if not create_whole(path, commit.to_json()):
                continue
            if self._is_part_of_the_log(commit, state.version + 1):
                self._sum_up(state.after(commit))
                return verdict
            path.unlink(missing_ok=True)
        raise StoreError(f"{self._folder}: {_TRIES} attempts to commit lost to other writers: try again")

    def between(self, begin: int, end: int) -> list[ArchiveCommit] | None:
        """The commits after version `begin` up to version `end`; None if they are no longer kept."""
        try:
            return [
                ArchiveCommit.of_json(self._version(each).read_bytes()) for each in range(begin + 1, end + 1)
            ]
        except FileNotFoundError:
            return None

    def _is_part_of_the_log(self, commit: ArchiveCommit, version: int) -> bool:
        """Whether readers will see the commit.

        A process that slept between reading and writing may have reused the number of a version that has
        been deleted since. Then a later state exists, which does not include the commit.
        """
        later = self._newest_state(ArchiveState())
        if later.version < version or not commit.added:
            return True
        return all(file.path in later.files or file.path in later.removed for file in commit.added)

    def _version(self, number: int) -> Path:
        return self._folder / f"{number:020}.json"

    def _state(self, number: int) -> Path:
        return self._folder / f"{number:020}.state"

    def _read(self, known: ArchiveState) -> ArchiveState:
        """The newest state, starting from a known one or from the newest .state file."""
        while True:
            try:
                state = self._newest_state(known)
                while True:
                    try:
                        data = self._version(state.version + 1).read_bytes()
                    except FileNotFoundError:
                        break
                    state = state.after(ArchiveCommit.of_json(data))
                if self._is_newest(state):
                    return state
                # Versions were deleted while we read them: there is a newer state to start from.
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptStore(
                    f"cannot read {self._folder} ({error}): restore it from a copy of the archive"
                ) from error

    def _newest_state(self, known: ArchiveState) -> ArchiveState:
        numbers = self._states()
        if not numbers or numbers[-1] <= known.version:
            return known
        return ArchiveState.of_json(self._state(numbers[-1]).read_bytes())

    def _is_newest(self, state: ArchiveState) -> bool:
        numbers = self._states()
        return not numbers or numbers[-1] <= state.version

    def _states(self) -> list[int]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - A log can have very many versions.
        except FileNotFoundError:
            return []
        return sorted(int(name[:20]) for name in names if name.endswith(".state") and name[:20].isdigit())

    def _sum_up(self, state: ArchiveState) -> None:
        """Write the state after every hundredth version; delete versions that the one before it includes."""
        if state.version % self._every:
            return
        create_whole(self._state(state.version), state.to_json())
        old = [each for each in self._states() if each <= state.version - 2 * self._every]
        for number in old:
            self._state(number).unlink(missing_ok=True)
        keep_from = state.version - self._every
        for number in range(keep_from, 0, -1):
            try:
                self._version(number).unlink()
            except FileNotFoundError:
                break
