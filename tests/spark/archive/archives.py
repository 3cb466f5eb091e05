"""What tests of archives share: rows without a broker, tables of all formats, sinks that crash on demand."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from flaremq.arrow.schema import COLUMNS, TYPES
from flaremq.spark.archive.identity import made_identity
from flaremq.spark.archive.log import QueryBatch
from flaremq.spark.archive.partitions import DataFile
from flaremq.spark.archive.reader import opened_table
from flaremq.spark.archive.sink import ArchiveSink, ArchiveWriter
from flaremq.spark.archive.staging import Stage
from flaremq.spark.archive.table import stage_of

START_US = 1_777_640_400_000_000
"""2026-05-01 13:00 in UTC."""
HOUR_US = 3_600_000_000
QUERY = "q"


def some_rows(
    numbers: Iterable[int], topic: str | Sequence[str] = "Orders", stored_us: Iterable[int] | int = START_US
) -> pa.RecordBatch:
    """One for each number, which is its offset in queue 0; its body says it too."""
    offsets = list(numbers)
    topics = [topic] * len(offsets) if isinstance(topic, str) else list(topic)
    stored = [stored_us] * len(offsets) if isinstance(stored_us, int) else list(stored_us)
    same: dict[str, object] = {
        "brokerName": "broker-a",
        "queueId": 0,
        "physicalOffset": 1,
        "msgId": "m",
        "keys": None,
        "tags": "t",
        "properties": [("a", "b")],
        "bornTimestamp": 0,
        "bornHost": "h",
        "storeHost": "s",
        "sysFlag": 0,
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
    }
    columns = {name: pa.array([value] * len(offsets), TYPES[name]) for name, value in same.items()}
    columns["queueOffset"] = pa.array(offsets, TYPES["queueOffset"])
    columns["body"] = pa.array([b"%08d" % each for each in offsets], TYPES["body"])
    columns["topic"] = pa.array(topics, TYPES["topic"])
    columns["storeTimestamp"] = pa.array(stored, TYPES["storeTimestamp"])
    return pa.record_batch([columns[name] for name in COLUMNS], names=list(COLUMNS))


class Filled:
    """An archive without Spark and brokers: what a sink does, done by hand."""

    def __init__(self, folder: Path, format_name: str) -> None:
        self.folder = folder
        self.format = format_name
        self.batches = 0
        made_identity(folder, format_name)
        with opened_table(folder, format_name) as table:
            table.create()

    def stage(self, *batches: pa.RecordBatch) -> tuple[DataFile, ...]:
        stage = Stage(stage_of(self.format, self.folder))
        for batch in batches:
            stage.add(batch)
        return stage.finish()

    def add(self, *batches: pa.RecordBatch) -> tuple[DataFile, ...]:
        """As the next batch of a query."""
        files = self.stage(*batches)
        with opened_table(self.folder, self.format) as table:
            assert table.add(files, QueryBatch(QUERY, self.batches))
        self.batches += 1
        return files

    def replay(self, *batches: pa.RecordBatch) -> bool:
        """The last batch once more; whether it was added."""
        files = self.stage(*batches)
        with opened_table(self.folder, self.format) as table:
            return table.add(files, QueryBatch(QUERY, self.batches - 1))


class CrashingSink(ArchiveSink):
    """An archive's sink that fails where a file beside the archive says, once."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:  # noqa: N802
        return _CrashingWriter(Path(self.options["folder"]), self.options["run"])


class _CrashingWriter(ArchiveWriter):
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._crash("before", batchId)
        super().commit(messages, batchId)
        self._crash("after", batchId)
        self._crash("killed", batchId)

    def _crash(self, where: str, batch: int) -> None:
        order = crash_file(self._folder)
        if not order.exists() or order.read_text() != f"{where} {batch}":
            return
        order.unlink()
        if where == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError(f"batch {batch} fails on purpose, {where} its commit")


def crash_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.crash")
