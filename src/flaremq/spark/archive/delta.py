"""An archive as a Delta table: tasks write files, and one commit adds all files of a batch.

The commit holds the number of the batch as an application transaction, under the id of its query, so a second
commit of the same batch is recognised. Of two at the same time Delta accepts only one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from flaremq.base.errors import StoreError
from flaremq.spark.archive.log import QueryBatch
from flaremq.spark.archive.partitions import FULL_SCHEMA, PART_COLUMNS, DataFile
from flaremq.spark.archive.table import Vacuumed, check_there

_TRIES: Final = 20


class DeltaFormat:
    errors: tuple[type[Exception], ...] = (DeltaError,)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self) -> None:
        DeltaTable.create(self._folder, FULL_SCHEMA, mode="ignore", partition_by=list(PART_COLUMNS))

    def close(self) -> None:
        pass

    def settle(self) -> None:
        pass

    def files(self) -> list[DataFile]:
        found = pa.table(self._table().get_add_actions(flatten=True))
        return [
            DataFile(unquote(path), rows or 0, size)
            for path, rows, size in zip(
                *(found.column(name).to_pylist() for name in ("path", "num_records", "size_bytes")),
                strict=True,
            )
        ]

    def last_batch(self, query: str) -> int:
        return _last(self._table(), query)

    def add(self, files: Sequence[DataFile], batch: QueryBatch) -> bool:
        check_there(self._folder, files)
        actions = [_action(file) for file in files]
        mark = CommitProperties(app_transactions=[Transaction(batch.query, batch.number)])
        for _ in range(_TRIES):
            table = self._table()
            if _last(table, batch.query) >= batch.number:
                return False
            try:
                table.create_write_transaction(
                    list(actions), "append", table.schema(), list(PART_COLUMNS), commit_properties=mark
                )
            except CommitFailedError:
                continue  # Another writer has committed, perhaps this very batch.
            return True
        raise StoreError(f"{self._folder}: {_TRIES} attempts to commit lost to other writers: try again")

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> bool:  # noqa: ARG002
        raise AssertionError("Delta merges by itself")

    def optimize(self, target: int) -> bool:
        self._table().optimize.compact(target_size=target)
        return True

    def vacuum(self, age_s: float) -> Vacuumed:
        """Delete old files. Delta counts in whole hours, so the age is rounded up."""
        hours = math.ceil(age_s / 3600)
        table = self._table()
        due = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        paths = [self._folder / path for path in due]
        size = sum(path.stat().st_size for path in paths if path.is_file())
        if due:
            table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        return Vacuumed(len(due), size)

    def _table(self) -> DeltaTable:
        return DeltaTable(self._folder)


def _last(table: DeltaTable, query: str) -> int:
    found = table.transaction_version(query)
    return -1 if found is None else found


def _action(file: DataFile) -> AddAction:
    part = file.part
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={"topic": part.topic, "day": part.day.isoformat(), "hour": str(part.hour)},
        modification_time=round(time.time() * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
