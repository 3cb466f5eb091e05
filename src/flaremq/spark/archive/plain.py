"""A plain archive: Parquet files and our own commit log, without Delta or Iceberg."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from flaremq.spark.archive.identity import OWN
from flaremq.spark.archive.log import ArchiveCommit, ArchiveLog, CommitVerdict, QueryBatch
from flaremq.spark.archive.partitions import DataFile
from flaremq.spark.archive.publish import PublishedFiles
from flaremq.spark.archive.table import DATA, Vacuumed, check_there, deleted, walked


class PlainTable:
    """Parquet files that are hidden until they are committed."""

    errors: tuple[type[Exception], ...] = ()

    def __init__(self, folder: Path) -> None:
        own = folder / OWN
        self._data = folder / DATA
        self._log = ArchiveLog(own / "log")
        self._shown = PublishedFiles(folder, self._data, own, self._log)

    def create(self) -> None:
        pass

    def close(self) -> None:
        pass

    def files(self) -> list[DataFile]:
        return list(self._log.state().files.values())

    def last_batch(self, query: str) -> int:
        return self._log.state().batches.get(query, -1)

    def add(self, files: Sequence[DataFile], batch: QueryBatch) -> bool:
        check_there(self._data, files)
        is_new = self._log.commit(ArchiveCommit(tuple(files), batch=batch)) is CommitVerdict.FITS
        self._shown.catch_up()
        return is_new

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> bool:
        check_there(self._data, added)
        commit = ArchiveCommit(tuple(added), tuple(file.path for file in removed))
        is_made = self._log.commit(commit) is CommitVerdict.FITS
        self._shown.catch_up()
        return is_made

    def optimize(self, target: int) -> bool:  # noqa: ARG002
        return False

    def settle(self) -> None:
        self._shown.catch_up()

    def vacuum(self, age_s: float) -> Vacuumed:
        """Delete removed files by the time of their removal, and files of failed attempts by their own."""
        self.settle()  # Links go before files, so that readers find no link to a missing file.
        self._shown.sweep(age_s)
        before_s, names = time.time() - age_s, list(walked(self._data))
        state = self._log.state()  # After listing files, so that it includes files committed meanwhile.
        due = [path for path, time_ms in state.removed.items() if time_ms <= before_s * 1000]
        orphans = [
            path
            for path, changed_s in names
            if path not in state.files and path not in state.removed and changed_s <= before_s
        ]
        done = deleted(self._data, [*due, *orphans])
        if due:
            self._log.commit(ArchiveCommit(forgotten=tuple(due)))
            self._shown.catch_up()
        return done
