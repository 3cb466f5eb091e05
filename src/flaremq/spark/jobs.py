"""Two Spark jobs at a time, where one alone would leave processors idle."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Generic, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

T = TypeVar("T")
_AGAIN_S: Final = 0.2


class SparkJob(Generic[T]):
    """Work done in a separate thread, and its result."""

    def __init__(self, spark: SparkSession, work: Callable[[], T]) -> None:
        # In a local session a tag applies only to the thread that has set it.
        here = None if is_remote() else spark.sparkContext
        self._mark = spark.addTag if here is None else here.addJobTag
        self._cancel = spark.interruptTag if here is None else here.cancelJobsWithTag
        self._work = work
        self._tag = f"flaremq-{uuid.uuid4().hex}"
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._thread = InheritableThread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def give_up(self) -> None:
        """Cancel its jobs until it has ended: another job may begin after the first was cancelled."""
        while self._thread.is_alive():
            with suppress(Exception):  # Spark itself may be gone, and its jobs with it.
                self._cancel(self._tag)
            self._thread.join(_AGAIN_S)

    def join(self) -> None:
        self._thread.join()

    def result(self) -> T:
        """Wait for the result. Raises what the work raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._mark(self._tag)
            self._made.append(self._work())
        except BaseException as error:  # noqa: BLE001 - Raised by `result`.
            self._error = error


@contextmanager
def beside(spark: SparkSession, work: Callable[[], T]) -> Iterator[SparkJob[T]]:
    """Do `work` while the body of the `with` runs. Both have ended when it is left, even by an error."""
    job = SparkJob(spark, work)
    job.start()
    try:
        yield job
        job.join()
    finally:
        job.give_up()
