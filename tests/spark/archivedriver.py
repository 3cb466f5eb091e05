"""A driver of its own that fills an archive until its stdin ends, or once. Tests start it, and kill it.

python -m tests.spark.archivedriver '{"namesrv": ..., "topic": ..., "to": ..., "master": ..., "once": false}'

Once, it prints how Spark reads the archive: {"rows": ..., "places": ..., "sum": ...}, the last of all bodies.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flaremq.base.errors import FlareError
from flaremq.spark.pipelines.archive import ArchivePlan, archive, start_archive
from flaremq.spark.plan import SessionPlan
from flaremq.spark.session import opened_session
from flaremq.spark.tables import read_archive


def stdin_ended() -> threading.Event:
    ended = threading.Event()

    def read() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


def session_of(said: dict[str, Any]) -> SessionPlan:
    return SessionPlan(master=said["master"], jvm_options=("-XX:TieredStopAtLevel=1",))


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
        archive(spark, plan)
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


def main() -> int:
    said = json.loads(sys.argv[1])
    try:
        with opened_session(session_of(said)) as spark:
            run(spark, said)
    except FlareError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # A thread may still be reading our stdin.
