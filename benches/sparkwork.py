"""What Spark does with rows of ours and of others, measured in one session: the work of `benches.spark`.

Runs in an environment of its own, so it needs nothing but pyspark and flaremq. Prints one JSON line per case.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from flaremq.spark.pipelines.audit import audit
from flaremq.spark.pipelines.rebuild import rebuild
from flaremq.spark.plan import SessionPlan
from flaremq.spark.session import opened_session

NINE = "topic,queueId,queueOffset,keys,tags,body,bornTimestamp,storeTimestamp,properties"
TWO = "queueOffset,body"


class Bench:
    """The cases, each of them some rounds long. The first rounds warm the JVM and count for nothing."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        self._spark, self._given = spark, given
        self._folder = Path(tempfile.mkdtemp(prefix="flaremq-sparkbench-", dir="."))

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def measure(self, name: str, work: Callable[[], Any], rows: int | None = None) -> None:
        rows = rows or self._given.rows
        seconds = []
        for _ in range(self._given.warm + self._given.rounds):
            begun_s = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - begun_s)
        best = min(seconds[self._given.warm :])
        print(json.dumps({"case": name, "rows": rows, "rate": rows / best}), flush=True)

    def reads(self, name: str, make: Callable[[str], DataFrame]) -> None:
        for what, columns in (("nine columns", NINE), ("all columns", ""), ("two columns", TWO)):
            self.measure(f"{name}, {what}", lambda columns=columns: _drain(make(columns)))  # type: ignore[misc]

    def store(self) -> None:
        def read(columns: str) -> DataFrame:
            reader = self._spark.read.format("rocketmq-store")
            return (reader.option("columns", columns) if columns else reader).load(self._given.store)

        self.reads("store files", read)
        parquet = str(self._folder / "parquet")
        read(NINE).write.parquet(parquet)
        self.measure("Parquet, nine columns", lambda: _drain(self._spark.read.parquet(parquet)))
        self.measure(
            "Parquet, two columns", lambda: _drain(self._spark.read.parquet(parquet).select(*TWO.split(",")))
        )
        self.measure("audit", lambda: audit(self._spark, Path(self._given.store)))
        made = self._folder / "rebuilt"

        def rebuilt() -> None:
            shutil.rmtree(made, ignore_errors=True)
            rebuild(self._spark, Path(self._given.store), made)

        self.measure("rebuild", rebuilt)

    def network(self) -> None:
        def read(columns: str) -> DataFrame:
            reader = self._spark.read.format("rocketmq").option("nameServer", self._given.namesrv)
            reader = reader.option("topic", self._given.topic)
            return (reader.option("columns", columns) if columns else reader).load()

        self.reads("network", read)
        self.measure("stream, nine columns", self._stream)
        rows = self._given.rows // 5
        source = str(self._folder / "written")
        read("body,keys,tags").limit(rows).write.parquet(source)
        writer = self._spark.read.parquet(source)
        self.measure(
            "write",
            lambda: (
                writer.write.format("rocketmq")
                .option("nameServer", self._given.namesrv)
                .option("topic", "Written")
                .mode("append")
                .save()
            ),
            rows,
        )

    def _stream(self) -> None:
        checkpoint = tempfile.mkdtemp(dir=self._folder)
        source = (
            self._spark.readStream.format("rocketmq")
            .option("nameServer", self._given.namesrv)
            .option("topic", self._given.topic)
            .option("columns", NINE)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            source.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def kafka(self) -> None:
        rows = self._spark.read.format("rocketmq-store").option("columns", NINE).load(self._given.rows_of)
        self._spark.conf.set("spark.sql.shuffle.partitions", 4)
        (
            rows.selectExpr(
                "keys as key",
                "body as value",
                "array(struct('TAGS' as key, cast(tags as binary) as value), "
                "struct('region' as key, cast(properties['region'] as binary) as value)) as headers",
            )
            .write.format("kafka")
            .option("kafka.bootstrap.servers", self._given.kafka)
            .option("includeHeaders", "true")
            .option("topic", "Orders")
            .save()
        )

        def read(*, headers: bool) -> DataFrame:
            return (
                self._spark.read.format("kafka")
                .option("kafka.bootstrap.servers", self._given.kafka)
                .option("subscribe", "Orders")
                .option("includeHeaders", str(headers).lower())
                .load()
            )

        self.measure("Kafka source, with headers", lambda: _drain(read(headers=True)))
        self.measure("Kafka source, without headers", lambda: _drain(read(headers=False)))


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("store", "rows-of", "namesrv", "topic", "kafka", "jars"):
        parser.add_argument(f"--{name}", default="")
    for name, value in (("rows", 1_000_000), ("rounds", 3), ("warm", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args(words)
    conf = {"spark.jars": given.jars} if given.jars else {}
    with opened_session(SessionPlan(master="local[2]", app_name="bench", conf=conf)) as spark:
        bench = Bench(spark, given)
        try:
            for wanted, work in (
                (given.store, bench.store),
                (given.namesrv, bench.network),
                (given.kafka, bench.kafka),
            ):
                if wanted:
                    work()
        finally:
            bench.close()


if __name__ == "__main__":
    main(sys.argv[1:])
