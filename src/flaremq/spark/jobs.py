"""Two jobs of Spark at a time, where one alone would leave processors idle."""

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
        # Tags of a session that is here are known to the thread that gave them, and to no other.
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
        """Cancel its jobs, again and again: one may begin only now. Returns when it has ended."""
        while self._thread.is_alive():
            with suppress(Exception):  # Spark itself may be gone: then so are its jobs.
                self._cancel(self._tag)
            self._thread.join(_AGAIN_S)

    def join(self) -> None:
        self._thread.join()

    def result(self) -> T:
        """Once it has ended; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._mark(self._tag)
            self._made.append(self._work())
        except BaseException as error:  # noqa: BLE001 - Whoever asks for the result is told.
            self._error = error


@contextmanager
def beside(spark: SparkSession, work: Callable[[], T]) -> Iterator[SparkJob[T]]:
    """Do `work` while the body of the `with` runs. Both have ended when it is left, also by an error."""
    aside = SparkJob(spark, work)
    aside.start()
    try:
        yield aside
        aside.join()
    finally:
        aside.give_up()
