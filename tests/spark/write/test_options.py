"""The options and columns of writing: what is understood, and what is refused before anything is sent."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flaremq.base.errors import ConfigError, InvalidName, UsageError
from flaremq.spark.write.options import COLUMNS, WriteOptions, check_columns
from flaremq.spark.write.sender import RateLimit

BASIC = {"nameServer": "127.0.0.1:9876"}


TEXT = StringType()
TYPES: dict[str, DataType] = {
    "string": TEXT,
    "binary": BinaryType(),
    "short": ShortType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(TEXT),
    "array<int>": ArrayType(IntegerType()),
    "map<string,string>": MapType(TEXT, TEXT),
    "map<string,int>": MapType(TEXT, IntegerType()),
}


def options(**given: str) -> WriteOptions:
    return WriteOptions.of({**BASIC, **given}, streaming=False)


def of_stream(**given: str) -> WriteOptions:
    return WriteOptions.of({**BASIC, **given}, streaming=True)


def schema(text: str) -> StructType:
    """Spark's own reader of such texts wants a session."""
    pairs = (column.split(" ") for column in text.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def test_all_options_have_their_place() -> None:
    said = options(
        TOPIC="Out",
        producerGroup="g",
        delivery="idempotent",
        writeId="w",
        ordered="false",
        window="7",
        timeout="2s",
        compressAbove="1KiB",
        maxMessageSize="2MiB",
        ratePerTask="50",
    )
    assert (said.topic, said.group, said.is_idempotent, said.write_id) == ("Out", "g", True, "w")
    assert (said.ordered, said.window, said.rate_per_task) == (False, 7, 50)
    assert said.producer.timeout_s == 2
    assert said.producer.compress_over == 1025
    assert said.producer.message_size_max == 2 << 20


def test_options_that_are_not_set_have_their_defaults() -> None:
    said = options()
    assert (said.topic, said.group, said.is_idempotent, said.ordered) == (None, "flaremq-spark", False, None)
    stream = of_stream(checkpointLocation="/c", delivery="idempotent")
    assert stream.is_idempotent and stream.write_id is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topik": "T"}, "did you mean topic?"),
        ({"delivery": "exactly-once"}, "expected at-least-once or idempotent"),
        ({"delivery": "idempotent"}, "needs a writeId"),
        ({"writeId": "w"}, "only delivery=idempotent uses it"),
        ({"window": "0"}, "window='0'"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"ordered": "yes"}, "true or false"),
        ({"checkpointLocation": "/c"}, "unknown option"),
        ({"ratePerTask": "-1"}, "ratePerTask='-1'"),
    ],
)
def test_a_wrong_option_is_refused_with_what_was_expected(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options(**given)
    assert says in str(caught.value)


def test_a_stream_brings_an_id_of_its_own() -> None:
    with pytest.raises(ConfigError, match="a stream uses its query id"):
        of_stream(delivery="idempotent", writeId="w")


def test_names_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(InvalidName):
        options(topic="a b")
    with pytest.raises(InvalidName):
        options(producerGroup="a b")


@pytest.mark.parametrize(
    ("columns", "given", "says"),
    [
        ("body binary, boddy string", {"topic": "T"}, "did you mean body?"),
        ("body binary, storeHost string", {"topic": "T"}, "Use select"),
        ("body int", {"topic": "T"}, "column body is int: expected binary or string"),
        ("tags string", {"topic": "T"}, "no column body"),
        ("body string", {}, "topic is not set"),
        ("body string, keys array<int>", {"topic": "T"}, "keys is array<int>"),
        ("body string, properties map<string,int>", {"topic": "T"}, "map<string,string>"),
        ("body string, properties string", {"topic": "T"}, "map<string,string>"),
        ("body string, queueId bigint", {"topic": "T"}, "expected int"),
        ("body string, deliverTimestamp string", {"topic": "T"}, "timestamp, or bigint"),
        ("body string, brokerName string", {"topic": "T"}, "without queueId"),
        ("body string, msgId string", {"topic": "T"}, "only allowed with delivery=idempotent"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(columns: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_columns(schema(columns), options(**given))
    assert says in str(caught.value)


def test_every_column_can_be_written_in_each_of_its_types() -> None:
    every = "topic string, tags string, properties map<string,string>, shardingKey string, orderKey string"
    more = "brokerName string, delayLevel int, msgId string"
    said = options(delivery="idempotent", writeId="w")
    first = schema(f"body string, keys string, queueId int, deliverTimestamp bigint, {every}, {more}")
    other = schema(
        f"body binary, keys array<string>, queueId short, deliverTimestamp timestamp, {every}, {more}"
    )
    for each in (first, other):
        check_columns(each, said)
        assert set(each.fieldNames()) == set(COLUMNS)


def test_a_pace_spreads_messages_and_saves_nothing_up() -> None:
    pace = RateLimit(100)
    assert pace.wait_s(10, 5.0) == 0
    assert pace.wait_s(10, 5.0) == pytest.approx(0.1)
    assert pace.wait_s(10, 5.05) == pytest.approx(0.15)
    assert pace.wait_s(10, 60.0) == 0
    assert pace.wait_s(1, 60.0) == pytest.approx(0.1)
