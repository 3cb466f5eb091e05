"""Options: what is said is understood or refused, and a refusal says what was meant."""

from __future__ import annotations

import pickle

import pytest

from flaremq.arrow.schema import COLUMNS
from flaremq.base.errors import ConfigError, UsageError
from flaremq.model.message import MessageQueue
from flaremq.spark.read.bounds import BoundKind
from flaremq.spark.read.options import NAMES, ReadOptions
from flaremq.spark.storesource import StoreOptions
from flaremq.spark.write.options import WriteOptions

SERVER = {"nameServer": "127.0.0.1:9876"}


def read(streaming: bool | None = False, **options: str) -> ReadOptions:
    return ReadOptions.of({**SERVER, "topic": "Orders", **options}, streaming=streaming)


def selected(**options: str) -> ReadOptions:
    return ReadOptions.of({**SERVER, **options}, streaming=False)


def test_a_topic_is_enough() -> None:
    options = read()
    assert options.selection.topics == ("Orders",)
    assert (options.starting.kind, options.ending.kind) == (BoundKind.EARLIEST, BoundKind.LATEST)
    assert options.columns == COLUMNS
    assert options.fail_on_data_loss
    assert options.broker_timeout_s == 60
    assert options.shape.tasks >= 2
    assert read(streaming=True).starting.kind is BoundKind.LATEST


def test_names_are_read_in_any_case_as_spark_gives_them() -> None:
    lower = ReadOptions.of({"nameserver": "a:1", "TOPICS": "A, B,A", "failondataloss": "FALSE"})
    assert lower.selection.topics == ("A", "B")
    assert not lower.fail_on_data_loss


def test_options_travel_to_other_processes() -> None:
    options = read(startingOffsets='{"Orders@broker-a:0": 5}', tags="a || b")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("topc", "topic"),
        ("namesrv", "nameServer"),
        ("startingoffset", "startingOffsets"),
        ("maxoffsetspertriger", "maxOffsetsPerTrigger"),
        ("failOnDataLos", "failOnDataLoss"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{name}': did you mean {near}"):
        read(False, **{name: "x"})


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [
        ("subscribe", "topic"),
        ("subscribePattern", "topicPattern"),
        ("kafka.bootstrap.servers", "nameServer"),
        ("Kafka.Group.Id", "group"),
        ("startingOffsetsByTimestamp", "startingTimestamp"),
    ],
)
def test_an_option_of_kafkas_is_an_error_that_names_ours(kafkas: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown option '{kafkas}': did you mean {ours}\? .*Kafka's"):
        read(False, **{kafkas: "x"})


def test_writing_and_reading_stores_name_their_own_options_for_kafkas() -> None:
    with pytest.raises(ConfigError, match="did you mean producerGroup"):
        WriteOptions.of({"kafka.group.id": "g"}, streaming=False)
    with pytest.raises(ConfigError, match="did you mean topic"):
        StoreOptions.of({"subscribe": "Orders"})
    with pytest.raises(ConfigError, match=r"unknown option 'kafka.bootstrap.servers': expected one of"):
        StoreOptions.of({"kafka.bootstrap.servers": "x"})


def test_an_option_that_is_near_to_none_lists_them_all() -> None:
    with pytest.raises(ConfigError, match="unknown option 'zzz': expected one of") as caught:
        read(zzz="1")
    assert all(name in str(caught.value) for name in NAMES)


def test_a_path_is_no_topic() -> None:
    with pytest.raises(ConfigError, match="reads topics, not files"):
        read(path="/data/orders")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"maxOffsetsPerTrigger": "many"},
            "expected a whole number of at least 1, for example maxOffsetsPerTrigger=",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "of at least 1"),
        ({"maxBytesPerTrigger": "5 apples"}, "for example maxBytesPerTrigger=64MiB"),
        ({"brokerTimeout": "soon"}, "for example brokerTimeout=15m"),
        ({"brokerTimeout": "0s"}, "greater than 0"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"startingOffsets": "first"}, "earliest, latest, group or JSON"),
        ({"startingOffsets": "time"}, "earliest, latest, group or JSON"),
        ({"startingOffsets": '{"Orders": 1}'}, "is not a queue"),
        ({"startingOffsets": '{"Orders@b:0": -3}'}, "an object of queues and offsets"),
        ({"startingOffsets": '{"Orders@b:0": "5"}'}, "an object of queues and offsets"),
        ({"startingOffsets": "{broken"}, "expected JSON (Expecting property name"),
        ({"startingOffsets": "group"}, "group is not set"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "exclude each other"),
        ({"startingTimestamp": "yesterday"}, "for example startingTimestamp=2026"),
        ({"tags": "||"}, "tags separated by ||"),
        ({"tags": "a", "sql": "b = 1"}, "tags and sql are set, and they exclude"),
        ({"columns": "bdy"}, "did you mean 'body'"),
        ({"columns": "properties", "includeProperties": "false"}, "remove one"),
        ({"topic": "A,B"}, "use the option topics"),
        ({"topics": "A"}, "topic and topics are set, and they exclude"),
        ({"topic": ""}, "topic is empty"),
        ({"topic": "no blanks"}, "' ' is not allowed"),
        ({"group": "no blanks"}, "' ' is not allowed"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            "is greater than maxOffsetsPerTrigger=5",
        ),
        ({"maxTriggerDelay": "5m"}, "nothing to wait for"),
        ({"nameServer": "somewhere"}, "host:port"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_was_expected(options: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(None, **options)
    assert says in str(caught.value)


def test_a_stream_has_no_end_and_a_batch_no_triggers() -> None:
    with pytest.raises(ConfigError, match="endingOffsets is set, but a stream has no end"):
        read(streaming=True, endingOffsets="latest")
    with pytest.raises(ConfigError, match="endingTimestamp is set, but a stream has no end"):
        read(streaming=True, endingTimestamp="5")
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger is set, but applies only to streams"):
        read(streaming=False, maxOffsetsPerTrigger="5")


def test_something_to_read_must_be_named() -> None:
    with pytest.raises(ConfigError, match="set one of topic, topics, topicPattern, queues"):
        selected()


def test_the_environment_may_name_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("FLAREMQ_NAMESRV", "10.0.0.1:9876")
    assert ReadOptions.of({"topic": "T"}).name_server == "10.0.0.1:9876"
    monkeypatch.delenv("FLAREMQ_NAMESRV")
    with pytest.raises(ConfigError, match="nameServer is not set"):
        ReadOptions.of({"topic": "T"})


def test_queues_are_named_in_two_ways() -> None:
    wanted = (MessageQueue("A", "broker-a", 0), MessageQueue("A", "broker-a", 1), MessageQueue("B", "b:1", 3))
    as_object = selected(queues='{"A": {"broker-a": [1, 0]}, "B": {"b:1": [3]}}')
    as_list = selected(queues='["A@broker-a:0", "B@b:1:3", "A@broker-a:1"]')
    assert as_object.selection.queues == as_list.selection.queues == wanted
    for wrong in ('["A"]', "5", '{"A": [1]}', '{"A": {"b": ["0"]}}', "[]", "{"):
        with pytest.raises(ConfigError, match="queues"):
            selected(queues=wrong)


def test_a_pattern_takes_whole_names() -> None:
    selection = selected(topicPattern="order-.*").selection
    assert selection.takes(MessageQueue("order-eu", "b", 0))
    assert not selection.takes(MessageQueue("reorder-eu", "b", 0))
    with pytest.raises(ConfigError, match="a regular expression"):
        selected(topicPattern="(")


def test_times_are_milliseconds_or_iso() -> None:
    assert read(startingTimestamp="1767225600000").starting.time_ms == 1_767_225_600_000
    for text in ("2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00"):
        assert read(startingTimestamp=text).starting.time_ms == 1_767_225_600_000
    assert read(endingTimestamp="2026-01-01").ending.kind is BoundKind.TIME


def test_limits_have_units() -> None:
    options = read(
        streaming=True,
        maxOffsetsPerTrigger="500",
        maxBytesPerTrigger="2MiB",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="90s",
        brokerTimeout="5s",
    )
    limits = options.limits
    assert (limits.offsets_max, limits.bytes_max, limits.offsets_min) == (500, 2 << 20, 10)
    assert (limits.delay_s, options.broker_timeout_s) == (90, 5)


def test_columns_keep_their_order_and_properties_can_be_left_out() -> None:
    assert read(columns="body, queueOffset").columns == ("body", "queueOffset")
    assert "properties" not in read(includeProperties="false").columns


def test_tags_are_told_apart_and_a_star_is_no_filter() -> None:
    assert read(tags=" a||b || a ").filter.tags == ("a", "b")
    assert not read(tags="*").filter.is_set
    assert read(sql="price > 5").filter.sql == "price > 5"
