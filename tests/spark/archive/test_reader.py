"""Archives as tables, in all formats: written without brokers, read through Spark and by others."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.archive.archives import HOUR_US, QUERY, START_US, Filled, some_rows

from flaremq.arrow.schema import COLUMNS
from flaremq.base.errors import ConfigError, CorruptStore, StoreError, UsageError
from flaremq.spark.archive.identity import FORMATS, OWN
from flaremq.spark.archive.log import QueryBatch
from flaremq.spark.archive.partitions import DataFile, HourPartition
from flaremq.spark.archive.plain import PlainTable
from flaremq.spark.archive.reader import OPTIONAL_FORMATS, archived_files, opened_table, read_archive
from flaremq.spark.archive.staging import Stage, StagePlan
from flaremq.spark.pipelines.compact import bins, compact, vacuum
from flaremq.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable


@pytest.fixture(params=FORMATS)
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Filled:
    if request.param != "parquet":
        pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    return Filled(tmp_path / "an archive", request.param)


@pytest.fixture
def plain(tmp_path: Path) -> Filled:
    return Filled(tmp_path / "archive", "parquet")


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("queueOffset").collect())


def shown(folder: Path) -> list[Path]:
    return sorted(folder.glob("topic=*/day=*/hour=*/*.parquet"))


def test_rows_come_back_as_they_were_with_the_hour_in_which_they_were_stored(
    spark: SparkSession, filled: Filled
) -> None:
    late = some_rows([3], stored_us=START_US - 2 * HOUR_US)
    filled.add(some_rows(range(3), stored_us=[START_US, START_US + HOUR_US - 1, START_US + HOUR_US]), late)
    found = read_archive(spark, filled.folder)
    assert found.columns == [*COLUMNS, "day", "hour"]
    assert found.select(*COLUMNS).schema == spark_schema()
    rows = found.orderBy("queueOffset").collect()
    assert [row["hour"] for row in rows] == [13, 13, 14, 11]
    assert {row["day"] for row in rows} == {date(2026, 5, 1)}
    assert bytes(rows[2]["body"]) == b"00000002" and rows[2]["properties"] == {"a": "b"}
    assert rows[0]["keys"] is None and rows[0]["topic"] == "Orders"
    assert found.selectExpr("min(unix_micros(storeTimestamp))").collect()[0][0] == START_US - 2 * HOUR_US


def test_only_what_is_asked_for_is_read(spark: SparkSession, filled: Filled) -> None:
    filled.add(
        some_rows(range(10), stored_us=[START_US + n * HOUR_US // 2 for n in range(10)]),
        some_rows(range(100, 104), "%RETRY%a|b"),
        some_rows(range(200, 202), "2026"),
    )

    def read(**wanted: object) -> list[int]:
        return numbers(read_archive(spark, filled.folder, **wanted))  # type: ignore[arg-type]

    at = datetime(2026, 5, 1, 13, 30, tzinfo=UTC)
    assert read(topics=["Orders"], begin=at) == list(range(1, 10))
    assert read(topics=["Orders"], end=at) == [0]
    assert read(begin=at.replace(tzinfo=None), end=at.replace(hour=15, minute=0)) == [1, 2, 3]
    assert read(topics=["%RETRY%a|b", "2026"]) == [100, 101, 102, 103, 200, 201]
    assert read(topics=["Nothing"]) == []
    frame = read_archive(spark, filled.folder, begin=at, end=at.replace(hour=15, minute=0))
    assert {Path(each).parent.name for each in frame.inputFiles()} == {"hour=13", "hour=14"}
    assert {row[0] for row in read_archive(spark, filled.folder).select("topic").distinct().collect()} == {
        *("Orders", "%RETRY%a|b", "2026"),
    }


def test_a_batch_that_comes_again_is_not_added_again(filled: Filled) -> None:
    filled.add(some_rows(range(5)))
    files = filled.add(some_rows(range(5, 10)))
    assert not filled.replay(some_rows(range(5, 10)))
    with opened_table(filled.folder) as table:
        assert sum(file.rows for file in table.files()) == 10
        assert {file.path for file in files} < {file.path for file in table.files()}
        assert (table.last_batch(QUERY), table.last_batch("other")) == (1, -1)


def test_of_two_who_commit_a_batch_at_once_one_does(filled: Filled) -> None:
    staged = [filled.stage(some_rows(range(5))) for _ in range(4)]
    together = threading.Barrier(len(staged))

    def commit(files: tuple[DataFile, ...]) -> bool:
        with opened_table(filled.folder) as table:
            together.wait(60)
            return table.add(files, QueryBatch(QUERY, 0))

    with ThreadPoolExecutor(len(staged)) as pool:
        assert sorted(pool.map(commit, staged)) == [False, False, False, True]
    with opened_table(filled.folder) as table:
        assert [file.rows for file in table.files()] == [5]


def test_small_files_are_merged_and_who_reads_meanwhile_sees_every_row_once(
    spark: SparkSession, filled: Filled
) -> None:
    for batch in range(6):
        at = START_US + batch % 2 * HOUR_US
        filled.add(some_rows(range(batch * 10, batch * 10 + 10), stored_us=at))
    before = read_archive(spark, filled.folder)
    with opened_table(filled.folder) as table:
        held = table.files()
    result = compact(spark if filled.format == "parquet" else None, filled.folder)
    assert (result.files_before, result.files, result.rows) == (6, 2, 60)
    assert numbers(before) == numbers(read_archive(spark, filled.folder)) == list(range(60))
    filled.add(some_rows([60]))
    assert compact(None, filled.folder).files == 2
    if filled.format != "delta":
        with opened_table(filled.folder) as table:  # A merge of files that are no more changes nothing.
            assert not table.replace(held[:2], filled.stage(some_rows([0, 1])))
    assert vacuum(filled.folder, 0).files >= 8
    assert numbers(read_archive(spark, filled.folder)) == list(range(61))
    assert not filled.replay(some_rows([60]))


def test_files_of_dead_attempts_are_deleted_when_they_are_old_enough(filled: Filled) -> None:
    files = filled.add(some_rows(range(5)))
    filled.stage(some_rows(range(5, 10)))
    assert vacuum(filled.folder).files == 0
    assert vacuum(filled.folder, 0).files == 1
    assert vacuum(filled.folder, 0).files == 0
    base, found = archived_files(filled.folder)
    assert [file.path for file in found] == [file.path for file in files]
    assert all((base / file.path).exists() for file in found)


def test_others_read_a_plain_archive_as_a_folder_of_parquet_files(spark: SparkSession, plain: Filled) -> None:
    plain.add(some_rows(range(10)), some_rows(range(10, 15), "%DLQ%a"))
    plain.stage(some_rows(range(99)))  # Of nobody.
    (plain.folder / "_checkpoint").mkdir()
    (plain.folder / "_checkpoint" / "metadata").write_text("{}")
    for _ in range(2):
        found = spark.read.parquet(str(plain.folder))
        assert numbers(found) == list(range(15))
        assert found.where("topic = '%DLQ%a' and hour = 13").count() == 5
        table = ds.dataset(plain.folder, partitioning="hive").to_table()
        assert sorted(table.column("queueOffset").to_pylist()) == list(range(15))
        assert set(table.column("topic").to_pylist()) == {"Orders", "%DLQ%a"}
        assert len(list(plain.folder.rglob("*.parquet"))) == len(shown(plain.folder))
        plain.add()
        compact(None, plain.folder)


def test_who_lists_the_folder_during_merges_sees_files_before_or_after(plain: Filled) -> None:
    for batch in range(4):
        plain.add(some_rows(range(batch * 10, batch * 10 + 10)))
    stop, seen, wrong = threading.Event(), 0, list[list[int]]()

    def look() -> None:
        nonlocal seen
        while not stop.is_set():
            try:
                rows = [pq.ParquetFile(path).metadata.num_rows for path in shown(plain.folder)]
            except FileNotFoundError:
                continue  # Listed before and opened after: told, and not wrong.
            seen += 1
            if sum(rows) != 40:
                wrong.append(rows)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(8):
            compact(None, plain.folder)
            _, files = archived_files(plain.folder)
            assert len(files) == 1
            with opened_table(plain.folder) as table:  # And back to two files.
                rows = pq.read_table(plain.folder / "_data" / files[0].path, partitioning=None)
                parts = [Stage(StagePlan(str(plain.folder / "_data"), ".pq")) for _ in range(2)]
                for stage, half in zip(parts, (rows.slice(0, 20), rows.slice(20)), strict=True):
                    stage.add_to(files[0].part, half.combine_chunks().to_batches()[0])
                assert table.replace(files, [file for stage in parts for file in stage.finish()])
    finally:
        stop.set()
        looking.join()
    assert seen and not wrong


def test_a_listing_that_began_before_a_merge_ends_with_the_files_from_before(plain: Filled) -> None:
    for batch in range(3):
        plain.add(some_rows(range(batch * 10, batch * 10 + 10)))
    names = {path.name for path in shown(plain.folder)}
    with os.scandir(shown(plain.folder)[0].parent) as listing:  # Opened; its names are read below.
        assert compact(None, plain.folder).files
        assert {entry.name for entry in listing} == names
    assert len(shown(plain.folder)) == 1
    swapped = plain.folder / OWN / "swap"
    assert list(swapped.iterdir())
    vacuum(plain.folder, 0)
    assert not list(swapped.iterdir())


def test_what_a_process_that_died_has_not_shown_is_shown_by_the_next(plain: Filled) -> None:
    class Dying(PlainTable):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self._shown = None  # type: ignore[assignment]

    with pytest.raises(AttributeError):
        Dying(plain.folder).add(plain.stage(some_rows(range(5))), QueryBatch(QUERY, 0))
    assert shown(plain.folder) == [] and len(archived_files(plain.folder)[1]) == 1
    PlainTable(plain.folder).settle()
    assert len(shown(plain.folder)) == 1


def test_folders_are_changed_file_by_file_where_the_system_cannot_exchange_them(
    plain: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flaremq.spark.archive.publish._exchanged", lambda *_: False)
    for batch in range(3):
        plain.add(some_rows([batch]), some_rows([batch], "Others"))
    compact(None, plain.folder)
    assert [pq.ParquetFile(path).metadata.num_rows for path in shown(plain.folder)] == [3, 3]
    assert not list((plain.folder / OWN / "swap").iterdir())


def test_names_are_made_anew_where_nobody_knows_any_more_what_has_changed(plain: Filled) -> None:
    for batch in range(3):
        plain.add(some_rows([batch]))
    compact(None, plain.folder)
    (plain.folder / "_flaremq" / "shown").write_text("0")
    versions, state = plain.folder / "_flaremq" / "log", PlainTable(plain.folder)._log.state()
    for path in versions.iterdir():
        path.unlink()
    (versions / f"{state.version:020}.state").write_bytes(state.to_json())
    shown(plain.folder)[0].unlink()
    PlainTable(plain.folder).settle()
    assert [pq.ParquetFile(path).metadata.num_rows for path in shown(plain.folder)] == [3]


def test_a_file_that_is_gone_before_its_commit_is_no_part_of_the_archive(filled: Filled) -> None:
    files = filled.stage(some_rows(range(5)))
    base, _ = archived_files(filled.folder)
    (base / files[0].path).unlink()
    with opened_table(filled.folder) as table:
        with pytest.raises(CorruptStore, match="the driver and all executors must share this folder"):
            table.add(files, QueryBatch(QUERY, 0))
        assert table.files() == [] and table.last_batch(QUERY) == -1


def test_files_are_sorted_by_queue_in_row_groups_with_their_least_and_greatest(tmp_path: Path) -> None:
    stage = Stage(StagePlan(str(tmp_path), group_bytes=2000, held_bytes=4000, open_max=2))
    for begin in (40, 20, 0):
        stage.add(some_rows(reversed(range(begin, begin + 20))))
    for hour in range(5):
        stage.add(some_rows([hour], stored_us=START_US + hour * HOUR_US))
    files = stage.finish()
    assert sum(file.rows for file in files) == 65
    assert {file.part for file in files} == {
        HourPartition("Orders", date(2026, 5, 1), 13 + hour) for hour in range(5)
    }
    first = pq.ParquetFile(tmp_path / max(files, key=lambda file: file.rows).path)
    assert first.metadata.num_row_groups > 1 and "topic" not in first.schema_arrow.names
    group = first.metadata.row_group(0)
    column = next(
        group.column(at)
        for at in range(group.num_columns)
        if group.column(at).path_in_schema == "queueOffset"
    )
    offsets = first.read_row_group(0).column("queueOffset").to_pylist()
    assert (column.statistics.min, column.statistics.max) == (offsets[0], offsets[-1])
    assert offsets == sorted(offsets) and column.compression == "ZSTD"


def test_an_attempt_that_fails_leaves_nothing(tmp_path: Path) -> None:
    stage = Stage(StagePlan(str(tmp_path), group_bytes=1, open_max=2))
    for hour in range(4):
        stage.add(some_rows(range(3), stored_us=START_US + hour * HOUR_US))
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    stage.discard()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_merges_are_of_small_files_of_one_part_and_never_of_one_alone() -> None:
    def file(hour: int, name: str, size: int) -> DataFile:
        return DataFile(f"topic=T/day=2026-05-01/hour={hour}/{name}", 1, size)

    files = [file(1, name, 6) for name in "abc"] + [file(1, "d", 50), file(2, "a", 1)]
    found = bins([*files, *(file(3, name, 9) for name in "cab")], small_below=10, target=12)
    assert [[(each.part.hour, each.path[-1]) for each in merge] for merge in found] == [
        [(1, "a"), (1, "b")],
        [(3, "a"), (3, "b")],
    ]


@pytest.fixture
def without_delta() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "deltalake", None)
        patch.delitem(sys.modules, "flaremq.spark.archive.delta", raising=False)
        yield


@pytest.mark.usefixtures("without_delta")
def test_a_missing_package_is_named_with_the_command_that_brings_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\(deltalake\): run pip install '\.\[delta\]'"):
        Filled(tmp_path / "archive", "delta")


def test_wrong_folders_times_and_limits_are_told(spark: SparkSession, plain: Filled, tmp_path: Path) -> None:
    at = datetime(2026, 5, 1)
    with pytest.raises(
        UsageError, match="none does not exist: expected the folder that an archive was written to"
    ):
        read_archive(spark, tmp_path / "none")
    with pytest.raises(UsageError, match="is not an archive of FlareMQ"):
        compact(None, tmp_path)
    with pytest.raises(UsageError, match=r"is not before end=.*: exchange them"):
        read_archive(spark, plain.folder, begin=at, end=at)
    with pytest.raises(UsageError, match="expected a list of names"):
        read_archive(spark, plain.folder, topics="Orders")
    with pytest.raises(ConfigError, match="small_below=9, target=8: expected 0 < small_below <= target"):
        compact(None, plain.folder, small_below=9, target=8)
    with pytest.raises(UsageError, match="an age of -1 s: expected 0 or more"):
        vacuum(plain.folder, -1)
    with pytest.raises(ConfigError, match=r"format='orc': expected one of parquet, delta, iceberg"):
        Filled(tmp_path / "orc", "orc")
    with pytest.raises(ConfigError, match=r"cannot hold an archive in format delta: # %"):
        Filled(tmp_path / "a#%20", "delta")
    with pytest.raises(CorruptStore, match="is not a file of an archive"):
        HourPartition.of_path("topic=a/hour=3/day=2026-05-01/x")


def test_an_iceberg_table_is_vacuumed_while_somebody_adds_to_it(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from flaremq.spark.archive.iceberg import IcebergFormat

    filled = Filled(tmp_path / "archive", "iceberg")
    for number in range(3):
        filled.add(some_rows([number]))

    table = IcebergFormat(filled.folder)
    load = table._catalog.load_table

    def then_old(identifier: tuple[str, str]) -> IcebergTable:
        """A few times it is an old one before anything can be done with it."""
        found = load(identifier)
        if filled.batches < 8:
            filled.add(some_rows([filled.batches]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table._catalog, "load_table", then_old)
        table.vacuum(0.0)
    table.close()
    assert sum(file.rows for file in archived_files(filled.folder)[1]) == filled.batches == 8


def test_errors_of_a_format_are_told_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    filled = Filled(tmp_path / "archive", "delta")
    for path in (filled.folder / "_delta_log").iterdir():
        path.unlink()
    with pytest.raises(StoreError, match=r"archive \(delta\): \w+: "):
        archived_files(filled.folder)


@pytest.mark.parametrize("format_name", sorted(OPTIONAL_FORMATS))
def test_a_format_that_is_imported_on_first_use_can_be_found(format_name: str) -> None:
    module, name = OPTIONAL_FORMATS[format_name]
    assert isinstance(getattr(importlib.import_module(module), name), type)


def test_every_format_has_a_table() -> None:
    assert {"parquet", *OPTIONAL_FORMATS} == set(FORMATS)
