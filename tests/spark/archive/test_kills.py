"""An archive whose driver, workers, executors and broker are killed in turn: every message is in it, once.

FLAREMQ_KILL_MESSAGES, FLAREMQ_KILL_ROUNDS   make it longer (see kills.py)
FLAREMQ_KILL_FORMAT                          parquet, or delta or iceberg
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.spark.kills import MESSAGES, QUEUES, TIMEOUT_S, TOPIC, Place, Run, check_same, wanted

from flaremq.base.errors import FlareError
from flaremq.spark.archive.reader import archived_files
from flaremq.spark.launch.java import Java
from flaremq.spark.pipelines.compact import compact

FORMAT = wanted("FORMAT", "parquet")
VERSIONS = {"parquet": "_flaremq/log", "delta": "_delta_log", "iceberg": "metadata"}
"""Folders that get another file with every commit."""
COLUMNS = ["queueId", "queueOffset", "body"]
LOOKS_MAX = 40


class Archiving(Run):
    module = "tests.spark.archive.archivedriver"

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    def said(self) -> dict[str, object]:
        self._known: tuple[int, int] = (0, 0)
        return {"topic": TOPIC, "to": str(self.archive), "format": FORMAT}

    def done(self) -> int:
        """Rows of the archive, which is only opened when there is something new in it."""
        with suppress(FlareError, FileNotFoundError):
            version = self._version()
            if version != self._known[0]:
                self._known = version, sum(file.rows for file in archived_files(self.archive)[1])
        return self._known[1]

    def _version(self) -> int:
        """Whatever grows or changes with each commit: old versions are deleted now and then."""
        return hash(tuple(sorted(os.listdir(self.archive / VERSIONS[FORMAT]))))  # noqa: PTH208

    async def moment(self) -> None:
        """Just after a commit, of which Spark may not know yet; or some time after it, in the next batch."""
        looks = self.rng.choice((0, self.rng.randrange(LOOKS_MAX)))

        async def is_so() -> bool:
            nonlocal looks
            looks -= 1
            return looks < 0

        await self.until("it was looked at some times", is_so)

    def between(self) -> None:
        compact(None, self.archive)


def places(rows: Iterator[pa.Table]) -> dict[Place, int]:
    """Numbers by where they lay in the topic. No place is there twice."""
    found: dict[Place, int] = {}
    for table in rows:
        for queue, offset, body in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True):
            assert (queue, offset) not in found, f"offset {offset} of queue {queue} is there twice"
            found[queue, offset] = int(body)
    return found


def read_by_us(folder: Path) -> Iterator[pa.Table]:
    base, files = archived_files(folder)
    for file in files:
        yield pq.ParquetFile(base / file.path).read(columns=COLUMNS)


def read_by_others(folder: Path) -> pa.Table:
    """As anybody reads such a table who does not know us."""
    if FORMAT == "delta":
        from deltalake import DeltaTable

        return DeltaTable(folder).to_pyarrow_table(columns=COLUMNS)
    if FORMAT == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("archive", uri=f"sqlite:///{folder}/_flaremq/catalog.db", warehouse=str(folder))
        try:
            scan = catalog.load_table("flaremq.archive").scan(selected_fields=tuple(COLUMNS))
            return scan.to_arrow()
        finally:
            catalog.close()
    return ds.dataset(folder, partitioning="hive").to_table(columns=COLUMNS)


def check(folder: Path, acknowledged: dict[Place, int], by_spark: dict[str, Any]) -> None:
    """Every queue from its first to its last message without a gap, each once, whoever reads it."""
    found = places(read_by_us(folder))
    assert not acknowledged.items() - found.items()
    for queue in range(QUEUES):
        offsets = {offset for each, offset in found if each == queue}
        check_same(offsets, set(range(len(offsets))))
    check_same(places(iter([read_by_others(folder)])).items(), found.items())
    assert by_spark == {"rows": len(found), "places": len(found), "sum": sum(found.values())}


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("master", "victims"),
    [
        ("local[2]", ["driver", "broker", "worker", "jvm"]),
        ("local-cluster[2,1,1024]", ["executor", "driver", "worker", "broker", "jvm"]),
    ],
)
def test_every_message_is_archived_once_whatever_is_killed(
    java: Java, tmp_path: Path, master: str, victims: list[str]
) -> None:
    with Archiving(tmp_path, master) as run:
        by_spark = asyncio.run(run.play(victims))
        check(run.archive, run.sender.acknowledged, by_spark)
        assert len(run.sender.acknowledged) >= MESSAGES
        assert run.driver.starts > 2
