"""The format "rocketmq-store": the files of a store as a table, without its broker.

    spark.read.format("rocketmq-store").load("path/of/a/store")

The whole log is read in parallel by stretches of its files. Where only some topics are wanted their queues
lead to the records, so that nothing else is read. Beside a running broker only what it has confirmed is seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from flaremq.arrow.batches import Decoder
from flaremq.arrow.columnspec import Only
from flaremq.arrow.storefolder import Piece, QueuePiece, StoreFolder, Times, share
from flaremq.base.errors import ConfigError
from flaremq.base.localpath import local_path
from flaremq.spark.options import Given, cores, wanted_columns, wrong
from flaremq.spark.schema import columns_of, row_schema, spark_schema

NAMES: Final = (
    *("path", "logPath", "topic", "topics", "topicPattern", "via", "startingTimestamp", "endingTimestamp"),
    *("columns", "includeProperties", "brokerName", "onDamage", "tasks"),
)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What to read of a store folder."""

    folder: StoreFolder
    topics: tuple[str, ...]
    pattern: str | None
    via: str
    """log, queue, or auto: by queues if they are there and topics are named."""
    times: Times
    columns: tuple[str, ...]
    broker_name: str | None
    tasks: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StoreOptions:
        """Raises ConfigError, and UsageError where no store is."""
        given = Given(options, NAMES)
        root = given.text("path")
        if root is None:
            raise ConfigError("no path is given: name the folder of a store, as in load('/data/store')")
        skips = _choice(given, "onDamage", ("fail", "skip")) == "skip"
        logs = tuple(local_path(part) for part in given.words("logPath"))
        folder = StoreFolder(local_path(root), logs, skips)
        folder.check()
        name = given.one_of("topic", "topics", "topicPattern")
        options_ = cls(
            folder=folder,
            topics=given.words(name) if name in ("topic", "topics") else (),
            pattern=given.text("topicPattern"),
            via=_choice(given, "via", ("auto", "log", "queue")),
            times=_times(given),
            columns=wanted_columns(given),
            broker_name=given.text("brokerName"),
            tasks=given.number("tasks") or 2 * cores(),
        )
        options_._check()
        return options_

    def _check(self) -> None:
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                wanted = f"a regular expression (it is none: {error})"
                raise wrong("topicPattern", self.pattern, wanted, "order-.*") from None
        if self.via == "queue" and not self.names_topics:
            raise ConfigError("via=queue reads by queues: name topics, as in topic=Orders, or use via=log")

    @property
    def names_topics(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def pieces(self) -> list[Piece]:
        """All that is to be read. Asks the folder as it is now."""
        there = self.folder.queues(pattern=".*") if self.names_topics and self.via != "log" else []
        queues = [queue for queue in there if self._takes(queue[0])]
        missing = sorted(set(self.topics) - {topic for topic, _ in queues})
        if there or self.via == "queue":
            if missing or not queues:
                names = ", ".join(missing) or f"topics like {self.pattern}"
                near = get_close_matches(names, {topic for topic, _ in there}, 1)
                hint = f"did you mean {near[0]}?" if near else "via=log reads without queues"
                raise ConfigError(f"{self.folder.root}: there are no queues of {names}: {hint}")
            return list(self.folder.queue_pieces(queues))
        return list(self.folder.log_pieces(self.times, tasks=self.tasks))

    def _takes(self, topic: str) -> bool:
        return topic in self.topics or (
            self.pattern is not None and re.fullmatch(self.pattern, topic) is not None
        )

    def batches(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The rows of one piece."""
        only = Only(time_begin_ms=self.times.begin_ms, time_end_ms=self.times.end_ms)
        if isinstance(piece, QueuePiece):
            only = replace(only, topics=(piece.topic.encode(),), queue_id=piece.queue_id)
        elif self.topics:
            only = replace(only, topics=tuple(topic.encode() for topic in self.topics))
        if self.pattern is None or isinstance(piece, QueuePiece):
            yield from self.folder.read(piece, Decoder(columns, broker_name=self.broker_name, only=only))
            return
        # No queue says which topics there are, so the topic of each row must be looked at.
        with_topic = columns if "topic" in columns else (*columns, "topic")
        for batch in self.folder.read(piece, Decoder(with_topic, broker_name=self.broker_name, only=only)):
            topics = batch.column(with_topic.index("topic"))
            wanted = {topic for topic in topics.unique().to_pylist() if self._takes(topic)}
            found = batch.filter(pa.array([topic in wanted for topic in topics.to_pylist()]))
            yield found.select(list(columns))


@dataclass(frozen=True, slots=True)
class StorePartition(InputPartition):
    """What one task reads, in this order."""

    pieces: tuple[Piece, ...]


class StoreReader(DataSourceReader):
    """Holds no file: each process opens what it needs."""

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema)
        self._schema = row_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        # Spark asks for a partition without a value if there is none, so there is always one.
        tasks = share(self._options.pieces(), self._options.tasks)
        return [StorePartition(task) for task in tasks] or [StorePartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StorePartition)
        for piece in partition.pieces:
            for batch in self._options.batches(piece, self._columns):
                if batch.num_rows:
                    yield batch if batch.schema == self._schema else batch.cast(self._schema)


class RocketMQStore(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq-store"

    def schema(self) -> StructType:
        return spark_schema(StoreOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> StoreReader:
        return StoreReader(StoreOptions.of(self.options), schema)


def _choice(given: Given, name: str, allowed: tuple[str, ...]) -> str:
    """One of some words; the first is taken where none is given."""
    text = (given.text(name) or allowed[0]).lower()
    if text not in allowed:
        raise wrong(name, text, f"one of {', '.join(allowed)}", allowed[-1])
    return text


def _times(given: Given) -> Times:
    begin, end = given.time_ms("startingTimestamp"), given.time_ms("endingTimestamp")
    usual = Times()
    found = Times(usual.begin_ms if begin is None else begin, usual.end_ms if end is None else end)
    if found.begin_ms > found.end_ms:
        raise ConfigError(f"startingTimestamp={begin} is after endingTimestamp={end}: nothing can lie there")
    return found
