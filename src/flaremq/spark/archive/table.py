"""What an archive needs of a table format."""

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
    # Delta needs files below its own folder and takes partition columns from its log; Iceberg has a folder
    # for files, and takes these columns from the files.
    return StagePlan(str(folder)) if format_name == "delta" else StagePlan(str(folder / "data"), is_full=True)


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """Files that were deleted because the archive no longer needs them."""

    files: int = 0
    size: int = 0


class ArchiveTable(Protocol):
    """An archive in one of the formats. When a method returns, its changes are on the disk."""

    errors: tuple[type[Exception], ...]
    """Exceptions of the packages that implement the format."""

    def create(self) -> None:
        """Create the table, if it does not exist."""

    def files(self) -> list[DataFile]:
        """All files that are part of it, as of one moment."""

    def last_batch(self, query: str) -> int:
        """The last batch of a query that is part of it; -1 if none is."""

    def add(self, files: Sequence[DataFile], batch: QueryBatch) -> bool:
        """Add all files of a batch in one step. False, without a change, if it has the batch already."""

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> bool:
        """Replace files by others with the same rows, in one step. False if some of them are gone already."""

    def optimize(self, target: int) -> bool:
        """Merge small files, if the format can do it itself; else False."""

    def vacuum(self, age_s: float) -> Vacuumed:
        """Delete files that have not been part of it for that long."""

    def settle(self) -> None:
        """Finish what a process that died has left half done."""

    def close(self) -> None: ...


def check_there(base: Path, files: Iterable[DataFile]) -> None:
    """Before a commit: CorruptStore if a file that was written is missing or has another size."""
    for file in files:
        path = base / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            raise CorruptStore(
                f"{path} was written with {file.size} bytes and is missing: the driver and all executors "
                "must share this folder; its batch was not committed"
            )


def walked(base: Path) -> Iterator[tuple[str, float]]:
    """All files below a folder, each with the time of its last change."""
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
