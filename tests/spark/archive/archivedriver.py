"""A driver of its own that fills an archive until its stdin ends, or once. Tests start it, and kill it.

python -m tests.spark.archive.archivedriver \\
    '{"namesrv": ..., "topic": ..., "to": ..., "master": ..., "once": false}'

Once, it prints how Spark reads the archive: {"rows": ..., "places": ..., "sum": ...}, the last of all bodies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.drivers import play, stdin_ended

from flaremq.spark.archive.reader import read_archive
from flaremq.spark.pipelines.archive import ArchivePlan, run_archive, start_archive


def run(spark: SparkSession, said: dict[str, Any]) -> None:
    plan = ArchivePlan(
        namesrv=said["namesrv"],
        topics=(said["topic"],),
        to=Path(said["to"]),
        format=said["format"],
        offsets_max=said["batch"],
        interval_s=0.0,
        options={"brokerTimeout": "120s", "minPartitions": "2"},
    )
    if said["once"]:
        run_archive(spark, plan)
        print(json.dumps(as_read(spark, plan.to)), flush=True)
        return
    ended = stdin_ended()
    with start_archive(spark, plan) as running:
        while not ended.is_set() and not running.wait(0.5):
            pass


def as_read(spark: SparkSession, folder: Path) -> dict[str, int]:
    found = read_archive(spark, folder).selectExpr(
        "count(*) AS rows",
        "count(DISTINCT brokerName, queueId, queueOffset) AS places",
        "sum(CAST(CAST(body AS STRING) AS BIGINT)) AS sum",
    )
    return found.first().asDict()  # type: ignore[union-attr]


if __name__ == "__main__":
    play(run)
