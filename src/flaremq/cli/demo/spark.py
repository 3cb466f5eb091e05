"""The second half of `flaremq demo`: orders in Spark, archived, counted, sent again and audited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from flaremq.cli.pipelines.spark import Where, spark_for

_SHOWN = ("Topics", "Tags", "Keys")
"""The tables that fit an 80-column terminal; all tables are written to files."""


def can_run() -> bool:
    return all(find_spec(name) is not None for name in ("pyspark", "pyarrow"))


@dataclass(frozen=True, slots=True)
class Told:
    """The results, for the summary."""

    archived: int
    replayed: int
    audited: int
    deviations: int
    archive: Path
    stats: Path


class SparkHalf:
    def __init__(self, console: Console, folder: Path, namesrv: str, stores: dict[str, Path]) -> None:
        self._console, self._folder, self._namesrv, self._stores = console, folder, namesrv, stores

    def run(self, topic: str) -> Told:
        """Blocks. Stores are read while their brokers run."""
        self._console.print()
        with spark_for(Where(), "demo") as spark:
            self._console.print("  [green]✓[/] Spark is started, on this machine")
            archive, figures = self._folder / "archive", self._folder / "stats"
            archived = self._archive(spark, topic, archive)
            found = self._count(spark, archive, figures)
            replayed = self._replay(spark, archive, f"{topic}Again")
            audits = [self._audit(spark, name, store, archive) for name, store in self._stores.items()]
        for table in found:
            self._console.print()
            self._console.print(table)
        return Told(
            archived,
            replayed,
            sum(each.records for each in audits),
            sum(each.found for each in audits),
            archive,
            figures,
        )

    def _archive(self, spark: Any, topic: str, to: Path) -> int:
        from flaremq.spark.pipelines.archive import ArchivePlan, run_archive

        with self._step("orders are archived as Parquet, each exactly once") as facts:
            done = run_archive(spark, ArchivePlan(namesrv=self._namesrv, topics=(topic,), to=to))
            facts.append(f"{done.rows:,} messages in {done.files} files")
        return done.rows

    def _count(self, spark: Any, archive: Path, to: Path) -> list[Any]:
        from flaremq.spark.archive.reader import read_archive
        from flaremq.spark.pipelines.stats.plots import plot_stats
        from flaremq.spark.pipelines.stats.stats import StatsPlan, finer, stats
        from flaremq.spark.pipelines.stats.tables import write_stats
        from flaremq.spark.pipelines.stats.text import renderables

        with self._step("the archive is counted and plotted") as facts:
            plan, orders = StatsPlan(keys_max=5), read_archive(spark, archive)
            found = stats(spark, orders, plan)
            fine = finer(spark, orders, plan, found)
            pictures = [*write_stats(found, to), *plot_stats(found, to, fine)]
            facts.append(f"{found.messages:,} messages, {len(pictures)} tables and plots")
        return [table for table in renderables(found, 6) if str(table.title).startswith(_SHOWN)]

    def _replay(self, spark: Any, archive: Path, topic: str) -> int:
        from flaremq.spark.pipelines.replay import ReplayPlan, replay

        with self._step(f"paid orders are sent again to {topic}, in their original order") as facts:
            done = replay(
                spark, archive, ReplayPlan(namesrv=self._namesrv, topic=topic, where="tags = 'paid'")
            )
            facts.append(f"{done.count:,} messages")
        return done.count

    def _audit(self, spark: Any, name: str, store: Path, archive: Path) -> Any:
        from flaremq.spark.pipelines.store.audit import AuditedArchive, audit

        with self._step(
            f"the store of {name} is audited while its broker runs, and compared with the archive"
        ) as facts:
            found = audit(spark, store, against=AuditedArchive(archive, name))
            facts.append(f"{found.records:,} records, {found.archived:,} archived, {found.found} deviations")
            facts += found.findings[:5]
        return found

    @contextmanager
    def _step(self, what: str) -> Iterator[list[str]]:
        facts: list[str] = []
        begun_s = perf_counter()
        with self._console.status(what):
            yield facts
        self._console.print(f"  [green]✓[/] {what} ({perf_counter() - begun_s:.1f} s)")
        for fact in facts:
            self._console.print(f"    {fact}", style="dim", highlight=False)
