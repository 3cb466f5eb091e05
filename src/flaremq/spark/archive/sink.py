"""A stream written to an archive: tasks write files, and the driver commits all files of a batch at once.

Spark runs a batch again if it does not know whether it was committed. The archive knows: it has the number of
its last batch, written in the same step as the files. So however often a batch is run, it counts once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flaremq.base.errors import FlareError, UsageError
from flaremq.spark.archive.identity import known_identity
from flaremq.spark.archive.lease import check_run
from flaremq.spark.archive.log import QueryBatch
from flaremq.spark.archive.partitions import DataFile
from flaremq.spark.archive.reader import opened_table
from flaremq.spark.archive.staging import Stage, StagePlan
from flaremq.spark.archive.table import stage_of

log = logging.getLogger(__name__)

NAME: Final = "flaremq-archive"


@dataclass
class Staged(WriterCommitMessage):
    """The files that a task has written, and its query."""

    query: str
    files: tuple[DataFile, ...]


class ArchiveSink(DataSource):
    """Internal: use `start_archive`, which prepares the archive."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:  # noqa: N802, ARG002
        if overwrite:
            raise UsageError("an archive can only be appended to: use outputMode('append')")
        return ArchiveWriter(Path(self.options["folder"]), self.options["run"])


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Writes and commits batches. It is sent to the executors, so it holds values only."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = folder
        self._run = run
        self._stage = stage_of(known_identity(folder).format, folder)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        assert query is not None
        stage = Stage(self._stage)
        try:
            for batch in iterator:
                stage.add(batch)
            return Staged(query, stage.finish())
        except BaseException:
            stage.discard()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        files = [file for each in staged for file in each.files]
        if not files:
            return
        identity = known_identity(self._folder)
        query = staged[0].query
        if query != identity.query:
            raise UsageError(
                f"{self._folder} is written by another query ({identity.query}): use another folder"
            )
        check_run(self._folder, self._run)
        with opened_table(self._folder, identity.format) as table:
            is_new = table.add(files, QueryBatch(query, batchId))
        if not is_new:
            log.info("batch %d is in the archive already", batchId)
            _delete(self._stage, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete files that are certainly not part of the archive; a later vacuum finds the others."""
        staged = _staged(messages)
        files = [file for each in staged for file in each.files]
        if not files:
            return
        with contextlib.suppress(FlareError), opened_table(self._folder) as table:
            if table.last_batch(staged[0].query) < batchId:
                _delete(self._stage, files)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """Messages of the tasks that succeeded; None stands for a task that failed."""
    return [each for each in messages if isinstance(each, Staged)]


def _delete(plan: StagePlan, files: Sequence[DataFile]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            (Path(plan.base) / file.path).unlink()
