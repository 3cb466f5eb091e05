"""What Spark does with rows of ours and of others, case by case: the work of `benches.spark`.

Runs in an environment of its own, so it needs nothing but pyspark and flaremq. First everything is made
ready, and the cases are told (`--prepare`); then each is measured (`--only NAME`) in a session of its own:
what the JVM learns of one case makes it slow at the next. The best round counts. Prints JSON lines.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from flaremq.arrow.batches import Decoder
from flaremq.arrow.storefolder import ArrowStore
from flaremq.spark.launch.plan import SessionPlan
from flaremq.spark.launch.session import opened_session
from flaremq.spark.pipelines.store.audit import audit
from flaremq.spark.pipelines.store.rebuild import rebuild
from flaremq.spark.schema import spark_schema

NINE = "topic,queueId,queueOffset,keys,tags,body,bornTimestamp,storeTimestamp,properties"
TWO = "queueOffset,body"


class Ready(DataSource):
    """Batches that are ready: what no Python source can be faster than, with these columns."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return spark_schema(tuple(NINE.split(",")))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return ReadyReader(Path(self.options["path"]), int(self.options["rows"]))


class ReadyReader(DataSourceReader):
    def __init__(self, store: Path, rows: int) -> None:
        self._store, self._rows = store, rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(each) for each in range(4)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        folder = ArrowStore(self._store)
        pieces = folder.log_pieces(tasks=4)
        some = list(itertools.islice(folder.read(pieces[0], Decoder(tuple(NINE.split(",")))), 1, 9))
        left = self._rows // 4
        for batch in itertools.cycle(some):
            if left <= 0:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows


class Bench:
    """The cases. The first rounds of each warm the JVM and count for nothing."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        self._spark, self._given = spark, given
        self._folder = Path(given.folder)
        self._cases: dict[str, tuple[Callable[[], Any], int]] = {}

    def add(self, name: str, work: Callable[[], Any], rows: int | None = None) -> None:
        self._cases[name] = work, rows or self._given.rows

    def tell(self) -> None:
        for name in self._cases:
            print(json.dumps({"case": name}), flush=True)

    def run(self, name: str) -> None:
        work, rows = self._cases[name]
        seconds = []
        for _ in range(self._given.warm + self._given.rounds):
            begun_s = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - begun_s)
        rate = rows / min(seconds[self._given.warm :])
        print(json.dumps({"case": name, "rows": rows, "rate": rate}), flush=True)

    def reads(self, name: str, make: Callable[[str], DataFrame]) -> None:
        for what, columns in (("nine columns", NINE), ("all columns", ""), ("two columns", TWO)):
            self.add(f"{name}, {what}", lambda columns=columns: _drain(make(columns)))  # type: ignore[misc]

    def store(self) -> None:
        def read(columns: str) -> DataFrame:
            reader = self._spark.read.format("rocketmq-store")
            return (reader.option("columns", columns) if columns else reader).load(self._given.store)

        self.reads("store files", read)
        parquet = str(self._folder / "parquet")
        if self._given.prepare:
            read(NINE).write.parquet(parquet)
        self.add("Parquet, nine columns", lambda: _drain(self._spark.read.parquet(parquet)))
        two = TWO.split(",")
        self.add("Parquet, two columns", lambda: _drain(self._spark.read.parquet(parquet).select(*two)))
        self._spark.dataSource.register(Ready)
        ready = self._spark.read.format("ready").option("rows", self._given.rows)
        self.add("ready batches, nine columns", lambda: _drain(ready.load(self._given.store)))
        self.add("audit", lambda: audit(self._spark, Path(self._given.store)))
        made = self._folder / "rebuilt"

        def rebuilt() -> None:
            shutil.rmtree(made, ignore_errors=True)
            rebuild(self._spark, Path(self._given.store), made)

        self.add("rebuild", rebuilt)

    def network(self) -> None:
        def read(columns: str) -> DataFrame:
            reader = self._spark.read.format("rocketmq").option("nameServer", self._given.namesrv)
            reader = reader.option("topic", self._given.topic)
            return (reader.option("columns", columns) if columns else reader).load()

        self.reads("network", read)
        self.add("stream, nine columns", self._stream)
        rows = self._given.rows // 5
        source = str(self._folder / "written")
        if self._given.prepare:
            read("body,keys,tags").limit(rows).write.parquet(source)
        writer = self._spark.read.parquet(source)
        self.add(
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

    def fill_kafka(self) -> None:
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

    def kafka(self) -> None:
        if self._given.prepare:
            self.fill_kafka()

        def read(*, headers: bool) -> DataFrame:
            return (
                self._spark.read.format("kafka")
                .option("kafka.bootstrap.servers", self._given.kafka)
                .option("subscribe", "Orders")
                .option("includeHeaders", str(headers).lower())
                .load()
            )

        self.add("Kafka source, with headers", lambda: _drain(read(headers=True)))
        self.add("Kafka source, without headers", lambda: _drain(read(headers=False)))


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("folder", "store", "rows-of", "namesrv", "topic", "kafka", "jars", "only"):
        parser.add_argument(f"--{name}", default="")
    for name, value in (("rows", 2_000_000), ("rounds", 5), ("warm", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--prepare", action="store_true")
    given = parser.parse_args(words)
    conf = {"spark.jars": given.jars} if given.jars else {}
    with opened_session(SessionPlan(master="local[2]", app_name="bench", conf=conf)) as spark:
        bench = Bench(spark, given)
        for wanted, cases in (
            (given.store, bench.store),
            (given.namesrv, bench.network),
            (given.kafka, bench.kafka),
        ):
            if wanted:
                cases()
        if given.prepare:
            bench.tell()
        else:
            bench.run(given.only)


if __name__ == "__main__":
    main(sys.argv[1:])
