"""The format "rocketmq-store": the files of a store as a table, without its broker.

    spark.read.format("rocketmq-store").load("path/of/a/store")

The whole log is read in parallel, in stretches of its files. If topics are named, their consume queues lead
to the records and nothing else is read. While the broker runs, only messages that it has confirmed are read.
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
from flaremq.arrow.storefolder import ArrowStore, Piece, QueuePiece, Times, share
from flaremq.base.errors import ConfigError, CorruptStore
from flaremq.base.localpath import local_path
from flaremq.base.units import cores
from flaremq.spark.options import OptionReader, wanted_columns, wrong
from flaremq.spark.schema import columns_of, row_schema, spark_schema

NAMES: Final = (
    *("path", "logPath", "topic", "topics", "topicPattern", "via", "startingTimestamp", "endingTimestamp"),
    *("columns", "includeProperties", "brokerName", "onDamage", "tasks"),
)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What to read of a store folder."""

    folder: ArrowStore
    topics: tuple[str, ...]
    pattern: str | None
    via: str
    """log, queue, or auto: by queues if topics are named and the store has queues."""
    times: Times
    columns: tuple[str, ...]
    broker_name: str | None
    tasks: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StoreOptions:
        """Raises ConfigError, or UsageError if there is no store at the path."""
        given = OptionReader(options, NAMES)
        root = given.text("path")
        if root is None:
            raise ConfigError(
                "path is not set: expected the folder of a store, for example load('/data/store')"
            )
        skips = _choice(given, "onDamage", ("fail", "skip")) == "skip"
        logs = tuple(local_path(part) for part in given.words("logPath"))
        folder = ArrowStore(local_path(root), logs, skips)
        folder.check()
        name = given.one_of("topic", "topics", "topicPattern")
        options_ = cls(
            folder=folder,
            topics=given.words(name) if name in ("topic", "topics") else (),
            pattern=given.pattern("topicPattern"),
            via=_choice(given, "via", ("auto", "log", "queue")),
            times=_times(given),
            columns=wanted_columns(given),
            broker_name=given.text("brokerName"),
            tasks=given.number("tasks") or 2 * cores(),
        )
        options_._check()
        return options_

    def _check(self) -> None:
        if self.via == "queue" and not self.names_topics:
            raise ConfigError("via=queue needs topics: name them, for example topic=Orders, or use via=log")

    @property
    def names_topics(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def takes(self, topic: str) -> bool:
        return topic in self.topics or (
            self.pattern is not None and re.fullmatch(self.pattern, topic) is not None
        )


@dataclass(frozen=True, slots=True)
class StorePartition(InputPartition):
    """The pieces that one task reads, in order."""

    pieces: tuple[Piece, ...]


class StoreReader(DataSourceReader):
    """Plans tasks and reads them. It holds no open file: each process opens what it needs."""

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema)
        self._schema = row_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        # For an empty list Spark would make a partition of None, so there is always one.
        tasks = share(self.pieces(), self._options.tasks)
        return [StorePartition(task) for task in tasks] or [StorePartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StorePartition)
        for piece in partition.pieces:
            try:
                for batch in self._batches(piece):
                    if batch.num_rows:
                        yield batch if batch.schema == self._schema else batch.cast(self._schema)
            except CorruptStore as error:
                way = (
                    "via=log reads without queues"
                    if isinstance(piece, QueuePiece)
                    else "onDamage=skip skips what cannot be read"
                )
                raise CorruptStore(f"{error}; {way}, and `flaremq store verify` shows all damage") from None

    def pieces(self) -> list[Piece]:
        """Everything to read, as the folder is now."""
        options, folder = self._options, self._options.folder
        there = folder.queues(pattern=".*") if options.names_topics and options.via != "log" else []
        queues = [queue for queue in there if options.takes(queue[0])]
        missing = sorted(set(options.topics) - {topic for topic, _ in queues})
        if there or options.via == "queue":
            if missing or not queues:
                names = ", ".join(missing) or f"topics matching {options.pattern}"
                near = get_close_matches(names, {topic for topic, _ in there}, 1)
                hint = f"did you mean {near[0]}?" if near else "via=log reads without queues"
                raise ConfigError(f"{folder.root} has no queues of {names}: {hint}")
            return list(folder.queue_pieces(queues))
        return list(folder.log_pieces(options.times, tasks=options.tasks))

    def _batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        options, columns = self._options, self._columns
        only = Only(time_begin_ms=options.times.begin_ms, time_end_ms=options.times.end_ms)
        if isinstance(piece, QueuePiece):
            only = replace(only, topics=(piece.topic.encode(),), queue_id=piece.queue_id)
        elif options.topics:
            only = replace(only, topics=tuple(topic.encode() for topic in options.topics))
        if options.pattern is None or isinstance(piece, QueuePiece):
            decoder = Decoder(columns, broker_name=options.broker_name, only=only)
            yield from options.folder.read(piece, decoder)
            return
        # Without queues there is no list of topics, so the topic of each row must be looked at.
        with_topic = columns if "topic" in columns else (*columns, "topic")
        decoder = Decoder(with_topic, broker_name=options.broker_name, only=only)
        for batch in options.folder.read(piece, decoder):
            topics = batch.column(with_topic.index("topic"))
            wanted = {topic for topic in topics.unique().to_pylist() if options.takes(topic)}
            found = batch.filter(pa.array([topic in wanted for topic in topics.to_pylist()]))
            yield found.select(list(columns))


class RocketMQStore(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq-store"

    def schema(self) -> StructType:
        return spark_schema(StoreOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> StoreReader:
        return StoreReader(StoreOptions.of(self.options), schema)


def _choice(given: OptionReader, name: str, allowed: tuple[str, ...]) -> str:
    """One of these words; the first is the default."""
    text = (given.text(name) or allowed[0]).lower()
    if text not in allowed:
        raise wrong(name, text, f"one of {', '.join(allowed)}", allowed[-1])
    return text


def _times(given: OptionReader) -> Times:
    begin, end = given.time_ms("startingTimestamp"), given.time_ms("endingTimestamp")
    usual = Times()
    found = Times(usual.begin_ms if begin is None else begin, usual.end_ms if end is None else end)
    if found.begin_ms > found.end_ms:
        raise ConfigError(f"startingTimestamp={begin} is after endingTimestamp={end}: exchange them")
    return found
