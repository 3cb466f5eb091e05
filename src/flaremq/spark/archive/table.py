"""What an archive needs of a table format, and the one that is only files and our commit log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from flaremq.base.errors import CorruptStore
from flaremq.spark.archive.log import QueryBatch
from flaremq.spark.archive.partitions import DataFile
from flaremq.spark.archive.publish import HIDDEN_SUFFIX
from flaremq.spark.archive.staging import StagePlan

DATA: Final = "_data"


def stage_of(format_name: str, folder: Path) -> StagePlan:
    """Where and how tasks write files that may become part of an archive."""
    if format_name == "parquet":
        return StagePlan(str(folder / DATA), HIDDEN_SUFFIX)
    # Delta wants files below its own folder and takes columns of parts from its log; Iceberg has a folder for
    # files, and takes them from the files.
    return StagePlan(str(folder)) if format_name == "delta" else StagePlan(str(folder / "data"), is_full=True)


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What was deleted because no version of the archive needs it."""

    files: int = 0
    size: int = 0


class ArchiveTable(Protocol):
    """An archive in one of the formats. What it says it has done is on the disk."""

    errors: tuple[type[Exception], ...]
    """What the packages that it is made of raise."""

    def create(self) -> None:
        """Make it, if it is not there."""

    def files(self) -> list[DataFile]:
        """All that are part of it now, as of one moment."""

    def last_batch(self, query: str) -> int:
        """The last batch of a query that is part of it; -1 if none is."""

    def add(self, files: Sequence[DataFile], batch: QueryBatch) -> bool:
        """All files of a batch in one step. False, and nothing done, if it has the batch already."""

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> bool:
        """Files with the same rows for others, in one step. False if some of the others are gone already."""

    def optimize(self, target: int) -> bool:
        """Merge small files the way the format does it. False if that is left to us."""

    def vacuum(self, age_s: float) -> Vacuumed:
        """Delete files that are no part of it, and have not been for so long."""

    def settle(self) -> None:
        """Finish what a process that died has left half done."""

    def close(self) -> None: ...


def check_there(base: Path, files: Iterable[DataFile]) -> None:
    """CorruptStore for a file that was written and is missing, before it is committed."""
    for file in files:
        path = base / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            raise CorruptStore(
                f"{path} was written with {file.size} bytes and is missing: the driver and all executors "
                "must share this folder; its batch was not committed"
            )


def walked(base: Path) -> Iterator[tuple[str, float]]:
    """All files below a folder, and when they were changed."""
    for folder, _, names in os.walk(base):
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):
                yield path.relative_to(base).as_posix(), path.stat().st_mtime


def deleted(base: Path, paths: Iterable[str]) -> Vacuumed:
    count = size = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            size += (base / path).stat().st_size
            (base / path).unlink()
            count += 1
    return Vacuumed(count, size)
