"""`stats`: numbers about a store, topics or an archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flaremq.base.errors import UsageError
from flaremq.base.localpath import local_path
from flaremq.base.text import size
from flaremq.cli.connect import client_settings
from flaremq.cli.options import Json, Namesrv, Profile
from flaremq.cli.pipelines.spark import (
    Conf,
    Master,
    PythonEnv,
    Ship,
    Ui,
    Where,
    check_installed,
    spark_for,
    watched,
)
from flaremq.cli.render import Output, note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flaremq.spark.pipelines.stats.tables import StatsTables


def stats(
    store: Annotated[
        Path | None,
        typer.Argument(metavar="STORE", help="Folder of a store. Without it: --topic or --archive."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("-t", "--topic", metavar="TOPIC", help="Only this topic; repeatable."),
    ] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="Folder of an archive.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "-g",
            "--group",
            metavar="GROUP",
            help="Consumer group whose backlog to show; repeatable (default: all known groups).",
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Write Parquet files and plots to this folder.")
    ] = None,
    keys: Annotated[
        int,
        typer.Option(
            "--keys", min=0, metavar="N", help="How many of the most frequent keys to show; 0 for none."
        ),
    ] = 20,
    most: Annotated[
        int, typer.Option("--rows", min=1, metavar="N", help="How many rows of each table to show.")
    ] = 10,
    namesrv: Namesrv = None,
    profile: Profile = None,
    master: Master = "local[*]",
    conf: Conf = None,
    ui: Ui = False,
    ship: Ship = False,
    python_env: PythonEnv = None,
    json: Json = False,
) -> None:
    """Rates, sizes and latency by topic, queue, tag, producer and hour; top keys; backlog.

    For a store, an archive, or topics (--topic alone): `flaremq pipeline stats -t Orders`.
    """
    check_installed()
    if store is not None and archive is not None:
        raise UsageError(f"{store} and --archive {archive} exclude each other: give one of them")
    if store is None and archive is None and not topic:
        raise UsageError("nothing to count: expected the folder of a store, --archive DIR or --topic NAME")
    address = "" if store is not None or archive is not None else client_settings(namesrv, profile).namesrv
    source = StatsSource(store, archive, address, tuple(topic or ()), tuple(group or ()))
    source.check()
    to = None if to is None else local_path(to)
    if to is not None and to.exists() and not to.is_dir():
        raise UsageError(f"--to {to} is a file: expected a folder")
    from flaremq.spark.pipelines.stats import stats as counting

    with spark_for(Where(master, conf or [], ui, ship, python_env), "stats") as spark:
        with watched(spark, "counting"):
            frame, top = source.frames(spark, keys > 0)
            plan = counting.StatsPlan(keys_max=keys, offsets=source.offsets())
            found = counting.stats(spark, frame, plan, top)
            fine = None if to is None else counting.finer(spark, frame, plan, found)
        written = _written(found, fine, to) if to is not None else []
    _show(found, written, most, Output(json))


class StatsSource:
    """Where the messages to count are: a store, an archive, or topics."""

    def __init__(
        self,
        store: Path | None,
        archive: Path | None,
        namesrv: str,
        topics: tuple[str, ...],
        groups: tuple[str, ...],
    ) -> None:
        self._store = None if store is None else local_path(store)
        self._archive = None if archive is None else local_path(archive)
        self._namesrv = namesrv
        self._topics, self._groups = topics, groups

    def check(self) -> None:
        """Check before Spark starts, so that a wrong name is reported at once."""
        from flaremq.arrow.storefolder import ArrowStore
        from flaremq.spark.archive.identity import known_identity
        from flaremq.spark.read.batch import check_readable
        from flaremq.spark.read.options import ReadOptions

        if self._store is not None:
            ArrowStore(self._store).check()
        elif self._archive is not None:
            known_identity(self._archive)
        else:
            given = {"nameServer": self._namesrv, "topics": ",".join(self._topics)}
            check_readable(ReadOptions.of(given, streaming=False))

    def frames(self, spark: SparkSession, with_keys: bool) -> tuple[DataFrame, DataFrame | None]:
        """The messages, and the same messages with the columns for counting keys."""
        from flaremq.spark.archive.reader import read_archive
        from flaremq.spark.pipelines.stats.stats import COLUMNS_NEEDED, KEY_COLUMNS

        if self._archive is not None:
            return read_archive(spark, self._archive, topics=self._topics or None), None
        return (
            self._read(spark, COLUMNS_NEEDED),
            self._read(spark, KEY_COLUMNS) if with_keys else None,
        )

    def _read(self, spark: SparkSession, columns: tuple[str, ...]) -> DataFrame:
        from flaremq.spark.errors import planned

        topics = {"topics": ",".join(self._topics)} if self._topics else {}
        if self._store is not None:
            reader = spark.read.format("rocketmq-store").options(columns=",".join(columns), **topics)
            store = str(self._store)
            return planned(lambda: reader.load(store))
        reader = spark.read.format("rocketmq").option("nameServer", self._namesrv)
        return planned(reader.options(columns=",".join(columns), **topics).load)

    def offsets(self) -> dict[str, dict[str, int]]:
        """Offsets of consumer groups, from the brokers or the store."""
        from flaremq.spark.pipelines.stats.groupoffsets import offsets_of_brokers, offsets_of_store
        from flaremq.spark.read.options import Selection

        found = {}
        if self._store is not None:
            found = offsets_of_store(self._store, groups=self._groups)
        elif self._namesrv:
            found = offsets_of_brokers(self._namesrv, Selection(topics=self._topics), self._groups)
        return {group: dict(offsets) for group, offsets in found.items()}


def _written(found: StatsTables, fine: StatsTables | None, to: Path) -> list[Path]:
    from flaremq.spark.pipelines.stats.plots import plot_stats
    from flaremq.spark.pipelines.stats.tables import write_stats

    return [*write_stats(found, to), *plot_stats(found, to, fine)]


def _show(found: StatsTables, written: list[Path], most: int, out: Output) -> None:
    def for_people() -> None:
        from flaremq.spark.pipelines.stats.text import shown

        out.facts(
            [
                ("messages", f"{found.messages:,} ({size(found.bytes)} of bodies)"),
                (
                    "took",
                    f"{found.seconds:.1f} s, {found.messages / max(found.seconds, 1e-9):,.0f} per second",
                ),
            ]
        )
        for table in shown(found, most):
            typer.echo()
            out.table(table.columns, table.rows, table.title)
        for path in written:
            note(f"wrote {path}")

    tables = {name: table.to_pylist() for name, table in found.tables.items()}
    files = [str(path) for path in written]
    out.show({"messages": found.messages, "bytes": found.bytes, **tables, "files": files}, for_people)
