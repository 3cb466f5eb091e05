"""Texts that Spark really raised, kept in `texts/`, and a few that it raises now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flaremq.base.errors import (
    BodyTooLarge,
    CallTimeout,
    ConnectFailed,
    FlareError,
    InvalidName,
    SparkFailed,
    UsageError,
)
from flaremq.spark.errors import planned, spark_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = Path(__file__).parent / "texts"


def from_text(name: str) -> FlareError:
    return spark_error(Exception((TEXTS / f"{name}.txt").read_text()))


@pytest.mark.parametrize("path", sorted(TEXTS.glob("*.txt")), ids=lambda path: path.stem)
def test_whatever_spark_says_becomes_one_line_without_frames(path: Path) -> None:
    line = str(from_text(path.stem))
    assert line
    assert "\n" not in line
    for noise in ("Traceback", "SQLSTATE", "\tat ", "org.apache", "runId", ".py", "flaremq.base"):
        assert noise not in line


@pytest.mark.parametrize("name", ["latest-flare", "stream-flare"])
def test_our_own_error_comes_back_as_what_it_was(name: str) -> None:
    error = from_text(name)
    assert type(error) is InvalidName
    assert isinstance(error, UsageError)
    assert str(error) == "topic 'a b': a blank is not allowed, rename it"


def test_of_a_chain_the_last_error_counts() -> None:
    error = from_text("read-chain")
    assert type(error) is CallTimeout
    assert error.retriable
    both = (
        "Traceback (most recent call last):\n  File ...\nflaremq.base.errors.ConnectFailed: refused\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n  File ...\nflaremq.base.errors.CallTimeout: too late\n"
    )
    assert str(spark_error(Exception(both))) == "too late"


def test_an_error_that_is_made_of_numbers_keeps_its_class_and_its_words() -> None:
    error = from_text("schema-arguments")
    assert type(error) is BodyTooLarge
    assert str(error).startswith("body of 9 bytes, limit is 4")


@pytest.mark.parametrize("name", ["commit-value", "other-value", "stream-value"])
def test_an_error_of_somebody_else_in_a_worker_is_named_with_its_class(name: str) -> None:
    """Of a stream reader that cannot be made Spark shows a failure of its own last."""
    error = from_text(name)
    assert type(error) is SparkFailed
    assert str(error) == "ValueError: not a number: 'seven'"


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("table", "The table or view `nowhere` cannot be found."),
        ("parse", "Syntax error at or near 'selec'."),
        ("format", "Failed to find the data source: nosuch."),
        ("path", "Path does not exist: file:/no/such/place."),
    ],
)
def test_spark_speaks_for_itself_without_its_frames_and_plans(name: str, begins: str) -> None:
    error = from_text(name)
    assert type(error) is SparkFailed
    assert str(error).startswith(begins)
    assert "UnresolvedRelation" not in str(error)


def test_a_class_that_we_do_not_have_is_not_invented() -> None:
    error = spark_error(Exception("flaremq.base.errors.Newer: of a newer version"))
    assert type(error) is SparkFailed
    assert str(error) == "Newer: of a newer version"


def test_our_own_errors_pass_and_are_found_behind_others() -> None:
    ours = ConnectFailed("nobody there")
    assert spark_error(ours) is ours
    other = RuntimeError("something else")
    other.__cause__ = ours
    assert type(spark_error(other)) is ConnectFailed


@pytest.mark.parametrize(
    "raised",
    [
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(104, "Connection reset by peer"),
        Exception("Answer from Java side is empty"),
        Exception("Error while sending or receiving"),
    ],
)
def test_a_jvm_that_was_killed_is_told_as_such(raised: Exception) -> None:
    error = spark_error(raised)
    assert type(error) is SparkFailed
    assert str(error).startswith("the JVM in which Spark runs is gone")


def test_an_exception_without_words_has_at_least_its_name() -> None:
    assert str(spark_error(RuntimeError())) == "RuntimeError"


def test_a_very_long_text_is_cut() -> None:
    assert len(str(spark_error(Exception("word " * 1000)))) <= 600


def test_errors_of_a_running_session_are_read_too(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    from tests.spark.sources import Failing

    spark.dataSource.register(Failing)

    def read(where: str, how: str) -> Callable[[], object]:
        return lambda: spark.read.format("failing").options(where=where, how=how).load().collect()

    cases: list[tuple[Callable[[], object], type[FlareError], str]] = [
        (read("schema", "flare"), InvalidName, "topic 'a b'"),
        (read("partitions", "chain"), CallTimeout, "no answer from"),
        (read("read", "arguments"), BodyTooLarge, "body of 9 bytes"),
        (lambda: spark.sql("select * from nowhere"), SparkFailed, "The table or view"),
    ]
    for call, kind, begins in cases:
        with pytest.raises(Exception, match=r".") as raised:
            call()
        error = spark_error(raised.value)
        assert type(error) is kind
        assert str(error).startswith(begins)
    assert capfd.readouterr() == ("", "")


def test_what_only_plans_is_tried_again_once_if_a_worker_was_late() -> None:
    late = RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")
    outcomes: list[Exception | int] = [late, 7, late, late, ValueError("x")]

    def make() -> int:
        found = outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert planned(make) == 7
    with pytest.raises(RuntimeError, match="failed to connect back"):
        planned(make)
    with pytest.raises(ValueError, match="x"):
        planned(make)
    assert outcomes == []
