"""Partitions of an archive: a folder for each hour of each topic, named as Hive does.

    topic=Orders/day=2026-05-01/hour=13/part-0f3c....parquet

The hour is that of storeTimestamp, in UTC. Readers of Parquet take the three columns from the folder names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote, unquote

import pyarrow as pa

from flaremq.arrow.schema import COLUMNS, TYPES
from flaremq.base.errors import CorruptStore

PART_COLUMNS: Final = ("topic", "day", "hour")
DAY: Final = pa.date32()
HOUR: Final = pa.int32()
HOUR_US: Final = 3_600_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

FULL_SCHEMA: Final = pa.schema(
    [*(pa.field(name, TYPES[name]) for name in COLUMNS), pa.field("day", DAY), pa.field("hour", HOUR)]
)
"""All columns of an archive, in their order."""
FILE_SCHEMA: Final = pa.schema([each for each in FULL_SCHEMA if each.name not in PART_COLUMNS])
"""The columns in a file, if the others are in the names of its folders."""


@dataclass(frozen=True, slots=True, order=True)
class HourPartition:
    """An hour of a topic."""

    topic: str
    day: date
    hour: int

    @classmethod
    def of_hour(cls, topic: str, hours: int) -> HourPartition:
        """`hours` are counted from 1970."""
        begin = _EPOCH + timedelta(hours=hours)
        return cls(topic, begin.date(), begin.hour)

    @classmethod
    def of_path(cls, path: str) -> HourPartition:
        """The partition of a file, by its relative path."""
        try:
            topic, day, hour = (
                _after(name, f"{column}=")
                for name, column in zip(PurePosixPath(path).parts[:3], PART_COLUMNS, strict=True)
            )
            return cls(unquote(topic), date.fromisoformat(day), int(hour))
        except ValueError:
            raise CorruptStore(
                f"{path} is not a file of an archive: expected topic=.../day=.../hour=.../name; move it away"
            ) from None

    @property
    def path(self) -> str:
        return f"topic={quote(self.topic, safe='')}/day={self.day.isoformat()}/hour={self.hour}"

    @property
    def begin(self) -> datetime:
        return datetime(self.day.year, self.day.month, self.day.day, self.hour, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        return self.begin + timedelta(hours=1)


def _after(text: str, prefix: str) -> str:
    if not text.startswith(prefix):
        raise ValueError(text)
    return text.removeprefix(prefix)


@dataclass(frozen=True, slots=True, order=True)
class DataFile:
    """A file with rows of one partition. Its name is never used again."""

    path: str
    """Relative to the folder that holds the partitions, with slashes."""
    rows: int
    size: int

    @property
    def part(self) -> HourPartition:
        return HourPartition.of_path(self.path)


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Which partitions to read; the end is exclusive."""

    topics: frozenset[str] | None = None
    begin: datetime | None = None
    end: datetime | None = None

    def takes(self, part: HourPartition) -> bool:
        return (
            (self.topics is None or part.topic in self.topics)
            and (self.begin is None or part.end > self.begin)
            and (self.end is None or part.begin < self.end)
        )

    def chosen(self, files: Iterable[DataFile]) -> list[DataFile]:
        return [file for file in files if self.takes(file.part)]
