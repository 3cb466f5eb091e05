"""An archive as an Iceberg table, in a catalog that is a SQLite file inside the archive.

A snapshot adds the files of a batch, and the same transaction stores the number of the batch as a table
property. PyIceberg would retry a transaction that lost against another one. Here it must not, because the
other one may be the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from sqlalchemy.exc import SQLAlchemyError

from flaremq.base.errors import StoreError
from flaremq.spark.archive.identity import OWN
from flaremq.spark.archive.log import QueryBatch
from flaremq.spark.archive.partitions import FULL_SCHEMA, PART_COLUMNS, DataFile
from flaremq.spark.archive.table import Vacuumed, check_there, deleted, stage_of, walked

T = TypeVar("T")

CATALOG: Final = "archive"
IDENTIFIER: Final = ("flaremq", "archive")
_BATCH: Final = "flaremq.batch."
_TRIES: Final = 20
_PROPERTIES: Final = {"commit.retry.num-retries": "0"}


class IcebergFormat:
    errors: tuple[type[Exception], ...] = (
        *(CommitFailedException, NoSuchTableError, ValidationError, ValidationException),
        SQLAlchemyError,
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._base = Path(stage_of("iceberg", folder).base)
        (folder / OWN).mkdir(parents=True, exist_ok=True)
        self._catalog = SqlCatalog(
            CATALOG, uri=f"sqlite:///{folder / OWN / 'catalog.db'}", warehouse=str(folder)
        )

    def create(self) -> None:
        self._catalog.create_namespace_if_not_exists(IDENTIFIER[0])
        if self._catalog.table_exists(IDENTIFIER):
            return
        try:
            with (
                self._catalog.create_table_transaction(
                    IDENTIFIER, FULL_SCHEMA, location=str(self._folder), properties=_PROPERTIES
                ) as change,
                change.update_spec() as spec,
            ):
                for name in PART_COLUMNS:
                    spec.add_identity(name)
        except TableAlreadyExistsError:
            pass

    def close(self) -> None:
        self._catalog.close()

    def settle(self) -> None:
        pass

    def files(self) -> list[DataFile]:
        return [
            DataFile(
                self._relative(task.file.file_path), task.file.record_count, task.file.file_size_in_bytes
            )
            for task in self._table().scan().plan_files()
        ]

    def last_batch(self, query: str) -> int:
        return _last(self._table(), query)

    def add(self, files: Sequence[DataFile], batch: QueryBatch) -> bool:
        check_there(self._base, files)
        paths = [str(self._base / file.path) for file in files]

        def change(transaction: Transaction, table: IcebergTable) -> bool:
            if _last(table, batch.query) >= batch.number:
                return False
            transaction.add_files(paths, check_duplicate_files=False)
            transaction.set_properties({_BATCH + batch.query: str(batch.number)})
            return True

        return self._change(change)

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> bool:
        check_there(self._base, added)
        gone, paths = {file.path for file in removed}, [str(self._base / file.path) for file in added]

        def change(transaction: Transaction, table: IcebergTable) -> bool:
            tasks = table.scan().plan_files()
            old = [task.file for task in tasks if self._relative(task.file.file_path) in gone]
            if len(old) != len(gone):
                return False
            with transaction.update_snapshot().overwrite() as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                for path in paths:
                    snapshot.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))
            return True

        return self._change(change)

    def _change(self, change: Callable[[Transaction, IcebergTable], bool]) -> bool:
        def changed(table: IcebergTable) -> bool:
            transaction = table.transaction()
            if not change(transaction, table):
                return False
            transaction.commit_transaction()
            return True

        return self._tried(changed)

    def _tried(self, commit: Callable[[IcebergTable], T]) -> T:
        for _ in range(_TRIES):
            try:
                return commit(self._table())
            except CommitFailedException:
                continue  # Another writer has committed: decide again on the new state.
        raise StoreError(f"{self._folder}: {_TRIES} attempts to commit lost to other writers: try again")

    def optimize(self, target: int) -> bool:  # noqa: ARG002
        return False

    def vacuum(self, age_s: float) -> Vacuumed:
        """Expire old snapshots, then delete old files that no snapshot has."""
        limit = datetime.now(UTC) - timedelta(seconds=age_s)
        names = list(walked(self._base))
        self._tried(lambda table: table.maintenance.expire_snapshots().older_than(limit).commit())
        kept = {
            self._relative(path) for path in self._table().inspect.all_files().column("file_path").to_pylist()
        }
        due = [path for path, changed_s in names if path not in kept and changed_s <= limit.timestamp()]
        return deleted(self._base, due)

    def _relative(self, path: str) -> str:
        return Path(path.removeprefix("file://")).relative_to(self._base).as_posix()

    def _table(self) -> IcebergTable:
        return self._catalog.load_table(IDENTIFIER)


def _last(table: IcebergTable, query: str) -> int:
    return int(table.properties.get(_BATCH + query, "-1"))
