"""Jobs beside each other: both end together, whatever happens to one of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from flaremq.spark.jobs import SparkJob, beside


def forever(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while True:
        threading.Event().wait(0.05)
        yield pa.RecordBatch.from_pydict({"id": pa.array([0], pa.int64())})


def test_what_is_done_beside_is_there_afterwards(spark: SparkSession) -> None:
    with beside(spark, lambda: spark.range(7).count()) as other:
        here = spark.range(5).count()
    assert (here, other.result()) == (5, 7)


def test_an_error_beside_is_raised_where_its_result_is_wanted(spark: SparkSession) -> None:
    with beside(spark, lambda: spark.sql("SELECT raise_error('so be it')").collect()) as other:
        assert spark.range(5).count() == 5
    with pytest.raises(Exception, match="so be it"):
        other.result()


def test_an_error_here_ends_what_is_done_beside(spark: SparkSession) -> None:
    begun = threading.Event()

    def endless() -> int:
        begun.set()
        return spark.range(1, numPartitions=1).mapInArrow(forever, "id long").count()

    others: list[SparkJob[int]] = []

    def fail() -> None:
        with beside(spark, endless) as other:
            others.append(other)
            assert begun.wait(60)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(Exception, match=r"(?i)cancel"):
        others[0].result()


def test_what_begins_only_after_it_was_given_up_never_runs(spark: SparkSession) -> None:
    may_begin = threading.Event()

    def late() -> int:
        assert may_begin.wait(60)
        return spark.range(1, numPartitions=1).mapInArrow(forever, "id long").count()

    def give_up() -> None:
        with beside(spark, late):
            threading.Timer(0.2, may_begin.set).start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        give_up()
