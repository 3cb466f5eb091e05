"""Writers of batches and streams: each task sends its rows and returns when all of them are stored.

Messages cannot be taken back: if a task fails, Spark runs it again, and it sends all its rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flaremq.arrow.outgoing import outgoing
from flaremq.base.errors import UsageError
from flaremq.client.client import Client
from flaremq.client.producer.producer import Producer
from flaremq.spark.write.ids import derived_ids
from flaremq.spark.write.options import WriteOptions, check_columns
from flaremq.spark.write.sender import TaskSender, producer_of

log = logging.getLogger(__name__)

_ROWS_MAX = 1 << 16  # Rows at a time: there are no more ids for one moment.


@dataclass
class Written(WriterCommitMessage):
    """What a task has sent."""

    count: int


class RowWriter:
    """Sends the rows of a task. It is sent to the executors, so it holds values only."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UsageError(
                "a topic cannot be overwritten, only appended to: use mode('append'), "
                "and outputMode('append') or outputMode('update') in a stream"
            )
        check_columns(schema, options)
        self._options = options

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        return Written(send_rows(self._options, batches, WriteTask.of(context, self._options)))


@dataclass(frozen=True)
class WriteTask:
    """Which part of which write a task sends: the same when it is run again, even after a restart."""

    scope: str
    """Query and batch of a stream; writeId of a batch write."""
    number: int

    @classmethod
    def of(cls, context: TaskContext, options: WriteOptions) -> WriteTask:
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        scope = f"{query}/{batch}" if options.write_id is None else options.write_id
        return cls(scope, context.partitionId())


def send_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch], part: WriteTask) -> int:
    """Send all rows and wait until all are stored. Returns their number. Raises FlareError."""
    cluster, producer = producer_of(options)
    ids = Ids(f"{part.scope}/{part.number}" if options.is_idempotent else None, cluster.client)
    sending = cluster.run(_begun(producer, options, str(part.number)))
    under_way: Future[None] | None = None
    try:
        for batch in _pieces(batches):
            rows = outgoing(batch, options.topic, ids.take)
            if under_way is not None:  # The last batch was sent while this one was prepared.
                under_way.result()
            under_way = cluster.portal.submit(sending.feed(rows))
        if under_way is not None:
            under_way.result()
        cluster.run(sending.finish())
    finally:
        if under_way is not None:
            under_way.cancel()
        cluster.run(sending.aclose())
    return ids.count


class Ids:
    """The ids of a task's messages: new ones, or derived ones that are the same in a repeat."""

    def __init__(self, derived_from: str | None, client: Client) -> None:
        self._derived_from = derived_from
        self._client = client
        self.count = 0

    def take(self, count: int) -> list[str]:
        first, self.count = self.count, self.count + count
        if self._derived_from is None:
            return self._client.message_ids.take(count)
        return derived_ids(self._derived_from, first, count)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for at in range(0, batch.num_rows, _ROWS_MAX):
            yield batch if batch.num_rows <= _ROWS_MAX else batch.slice(at, _ROWS_MAX)


async def _begun(producer: Producer, options: WriteOptions, task: str) -> TaskSender:
    return TaskSender(producer, options, task)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, rows: RowWriter) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._rows.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("wrote %d messages", counted(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning(
            "a write failed after its finished tasks had sent %d messages, which stay", counted(messages)
        )


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, rows: RowWriter) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._rows.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        log.info("batch %d: wrote %d messages", batchId, counted(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        log.warning(
            "batch %d failed after its finished tasks had sent %d messages, which stay and are sent again",
            batchId,
            counted(messages),
        )


def counted(messages: Sequence[WriterCommitMessage | None]) -> int:
    """Messages sent by all tasks. None stands for a task that failed."""
    return sum(each.count for each in messages if isinstance(each, Written))
