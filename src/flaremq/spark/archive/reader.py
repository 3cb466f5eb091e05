"""Archives as DataFrames: opened in any of the formats, and read as of one moment.

    read_archive(spark, Path("/archive/orders"), topics=["Orders"], begin=datetime(2026, 5, 1))

A DataFrame reads the files that were part of the archive when it was made. It stays valid while others add to
the archive and merge its files, because merged files stay on the disk for a day (see `vacuum`).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - The usual name.
from pyspark.sql.types import DateType, IntegerType, StringType, StructType

from flaremq.arrow.schema import COLUMNS
from flaremq.base.errors import ConfigError, StoreError, UsageError
from flaremq.base.localpath import local_path
from flaremq.model.names import check_topic
from flaremq.spark.archive.identity import known_identity
from flaremq.spark.archive.partitions import PART_COLUMNS, DataFile, PartitionFilter
from flaremq.spark.archive.plain import PlainTable
from flaremq.spark.archive.table import ArchiveTable, stage_of
from flaremq.spark.schema import spark_schema

OPTIONAL_FORMATS: Final = {
    "delta": ("flaremq.spark.archive.delta", "DeltaFormat"),
    "iceberg": ("flaremq.spark.archive.iceberg", "IcebergFormat"),
}
"""Table formats that need an extra package: the module and class of each, imported on first use."""
_SCHEMA: Final[StructType] = (
    spark_schema([name for name in COLUMNS if name not in PART_COLUMNS])
    .add("topic", StringType())
    .add("day", DateType())
    .add("hour", IntegerType())
)


@contextlib.contextmanager
def opened_table(folder: Path, format_name: str | None = None) -> Iterator[ArchiveTable]:
    """The archive in a folder. ConfigError if the packages that its format needs are not installed.

    Errors of those packages inside the block become StoreErrors.
    """
    found = format_name or known_identity(folder).format
    table = PlainTable(folder) if found == "parquet" else _loaded(found, folder)
    try:
        yield table
    except table.errors as error:
        first = str(error).strip().partition("\n")[0]
        raise StoreError(f"{folder} ({found}): {type(error).__name__}: {first}") from error
    finally:
        table.close()


def _loaded(format_name: str, folder: Path) -> ArchiveTable:
    module, name = OPTIONAL_FORMATS[format_name]
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"format {format_name} needs a package that is not installed ({error.name}): "
            f"run pip install '.[{format_name}]' in FlareMQ's source folder"
        ) from error
    table: ArchiveTable = getattr(found, name)(folder)
    return table


def read_archive(
    spark: SparkSession,
    folder: Path,
    *,
    topics: Sequence[str] | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """Messages that were stored at `begin` or later and before `end`. A time without a zone is UTC.

    The columns are those of a message, and `day` and `hour`. Only files of the requested hours are read.
    """
    wanted = partition_filter(topics, begin, end)
    base, files = archived_files(folder, wanted)
    names = [*COLUMNS, "day", "hour"]
    if not files:
        return spark.createDataFrame([], _SCHEMA).select(*names)
    reader = spark.read.schema(_SCHEMA).option("basePath", str(base))
    found = reader.parquet(*(str(base / file.path) for file in files)).select(*names)
    if wanted.begin is not None:
        found = found.where(F.col("storeTimestamp") >= F.lit(wanted.begin))
    if wanted.end is not None:
        found = found.where(F.col("storeTimestamp") < F.lit(wanted.end))
    return found


def archived_files(folder: Path, wanted: PartitionFilter | None = None) -> tuple[Path, list[DataFile]]:
    """The folder that the paths are relative to, and the files that are part of an archive now.

    For reading without Spark: every message exactly once, as of one moment.
    """
    folder = local_path(folder)
    identity = known_identity(folder)
    with opened_table(folder, identity.format) as table:
        files = sorted((wanted or PartitionFilter()).chosen(table.files()))
    return Path(stage_of(identity.format, folder).base), files


def partition_filter(
    topics: Sequence[str] | None, begin: datetime | None, end: datetime | None
) -> PartitionFilter:
    """The filter for these topics and times. Raises UsageError for invalid ones."""
    if topics is not None:
        if isinstance(topics, str) or not topics:
            raise UsageError(f"topics={topics!r}: expected a list of names, or None for all topics")
        for topic in topics:
            check_topic(topic)
    first, last = (_in_utc(each) for each in (begin, end))
    if first is not None and last is not None and first >= last:
        raise UsageError(f"begin={first.isoformat()} is not before end={last.isoformat()}: exchange them")
    return PartitionFilter(None if topics is None else frozenset(topics), first, last)


def _in_utc(time: datetime | None) -> datetime | None:
    if time is None:
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
