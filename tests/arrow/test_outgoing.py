"""Rows that become texts by the column say what messages say that are made one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.arrow.outgoing import Outgoing, outgoing
from flaremq.base.errors import MessageIllegal, PropertiesTooLong
from flaremq.client.producer.packing import message_text
from flaremq.model import properties as names
from flaremq.model.message import Message
from flaremq.model.properties import encode_properties

MAP = pa.map_(pa.string(), pa.string())
words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12).filter(
    str.strip
)
keys = st.lists(words.map(lambda word: "".join(word.split())).filter(bool), max_size=3)
rows = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=20),
        "topic": st.sampled_from(["A", "B", None]),
        "keys": st.none() | keys,
        "tags": st.none() | st.just("") | words,
        "properties": st.none()
        | st.dictionaries(
            words.filter(lambda word: word not in {*names.RESERVED, names.SHARDING_KEY}),
            st.none() | words,
            max_size=3,
        ),
        "shardingKey": st.none() | words,
        "delayLevel": st.none() | st.integers(0, 18),
    }
)
SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("topic", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("tags", pa.string()),
        ("properties", MAP),
        ("shardingKey", pa.string()),
        ("delayLevel", pa.int32()),
    ]
)


def numbered(count: int) -> list[str]:
    return [f"{number:032X}" for number in range(count)]


def made(columns: dict[str, pa.Array], topic: str | None = "T") -> Outgoing:
    return outgoing(pa.RecordBatch.from_pydict(columns), topic, numbered)


def one(**values: pa.Array) -> Outgoing:
    return made({"body": pa.array([b"x"]), **values})


def properties(*maps: Any) -> pa.Array:
    return pa.array(maps, MAP)


def message(row: dict[str, Any]) -> Message:
    given = {name: value for name, value in (row["properties"] or {}).items() if value is not None}
    return Message(
        row["topic"] or "T",
        row["body"],
        keys=row["keys"] or (),
        tags=row["tags"],
        properties=given,
        sharding_key=row["shardingKey"],
        delay_level=row["delayLevel"] or 0,
    )


@given(st.lists(rows, max_size=8), st.integers(0, 3))
def test_a_text_is_that_of_the_message_with_the_same_fields(wanted: list[dict[str, Any]], begin: int) -> None:
    table = [
        {**row, "properties": None if row["properties"] is None else list(row["properties"].items())}
        for row in wanted
    ]
    batch = pa.RecordBatch.from_pylist(table, SCHEMA).slice(begin)
    found = outgoing(batch, "T", numbered)
    messages = [message(row) for row in wanted[begin:]]
    ids = numbered(len(messages))
    assert found.texts == [message_text(each, name) for each, name in zip(messages, ids, strict=True)]
    assert found.topics == [each.topic for each in messages]
    assert found.bodies == [each.body for each in messages]
    assert found.ids == ids
    assert (found.order_keys or [None] * len(messages)) == [each.sharding_key for each in messages]
    assert (found.alone or [False] * len(messages)) == [each.delay_level > 0 for each in messages]


@given(st.lists(st.none() | st.dictionaries(words, st.none() | words, max_size=4), min_size=1, max_size=6))
def test_maps_become_what_a_broker_stores(maps: list[dict[str, str | None] | None]) -> None:
    if any(name in names.RESERVED for each in maps if each for name in each):
        return
    column = properties(*[None if each is None else list(each.items()) for each in maps])
    found = made({"body": pa.array([b"x"] * len(maps)), "properties": column})
    ends = ("WAIT\x01true\x02UNIQ_KEY\x01" + name + "\x02" for name in numbered(len(maps)))
    assert [text.encode() for text in found.texts] == [
        encode_properties(each or {}) + end.encode() for each, end in zip(maps, ends, strict=True)
    ]


def test_keys_may_be_one_text_and_bodies_may_be_texts() -> None:
    found = made(
        {
            "body": pa.array(["grün", "b", "c", "d"]),
            "keys": pa.array(["k1 k2", "  k3 \t k4 ", None, ""]),
        }
    )
    assert found.bodies == ["grün".encode(), b"b", b"c", b"d"]
    assert [text.partition("WAIT")[0] for text in found.texts] == [
        "KEYS\x01k1 k2\x02",
        "KEYS\x01k3 k4\x02",
        "",
        "",
    ]
    large = made({"body": pa.array([b"x"], pa.large_binary()), "tags": pa.array(["t"], pa.large_string())})
    assert large.texts[0].startswith("TAGS\x01t\x02")


def test_a_time_of_delivery_is_milliseconds_and_keeps_a_message_out_of_batches() -> None:
    at = datetime(2026, 5, 1, 12, 30, 0, 123_999, tzinfo=UTC)
    ms = int(at.timestamp() * 1000)
    for column in (pa.array([at, None], pa.timestamp("us", tz="UTC")), pa.array([ms, None], pa.int64())):
        found = made({"body": pa.array([b"x", b"y"]), "deliverTimestamp": column})
        assert found.texts[0].startswith(f"TIMER_DELIVER_MS\x01{ms}\x02WAIT")
        assert found.texts[1].startswith("WAIT")
        assert found.alone == [True, False]


def test_a_row_may_bring_its_id_and_an_order_that_is_not_sent() -> None:
    own = "F" * 32
    found = made(
        {
            "body": pa.array([b"x", b"y"]),
            "msgId": pa.array([own, None]),
            "orderKey": pa.array(["o", "o"]),
            "shardingKey": pa.array([None, "s"]),
            "queueId": pa.array([1, None], pa.int32()),
            "brokerName": pa.array(["broker-a", None]),
        }
    )
    assert found.ids == [own, numbered(2)[1]]
    assert found.texts[0] == f"WAIT\x01true\x02UNIQ_KEY\x01{own}\x02"
    assert found.order_keys == ["o", "s"]
    assert found.queue_ids == [1, None]
    assert found.broker_names == ["broker-a", None]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"tags": pa.array(["a\x01b"])}, r"tags 'a\\x01b' contains"),
        ({"tags": pa.array(["  "])}, "tags '  ': expected a non-blank string"),
        ({"shardingKey": pa.array(["\x02"])}, "shardingKey"),
        ({"keys": pa.array([["a b"]])}, "key 'a b' contains a space"),
        ({"keys": pa.array([["a", ""]])}, "non-blank"),
        ({"keys": pa.array([["a", None]])}, "keys contain a null"),
        ({"properties": properties([("KEYS", "k")])}, "property 'KEYS' is reserved"),
        ({"properties": properties([("a", "b\x02")])}, "value of a property"),
        ({"properties": properties([("a\x01", "b")])}, "property name"),
        ({"properties": properties([("a", "")])}, "non-blank"),
        (
            {"properties": properties([("__SHARDINGKEY", "s")]), "shardingKey": pa.array(["t"])},
            "keep one of them",
        ),
        ({"delayLevel": pa.array([-1], pa.int32())}, "delayLevel -1"),
        ({"deliverTimestamp": pa.array([0], pa.int64())}, "deliverTimestamp 0"),
        (
            {"deliverTimestamp": pa.array([1], pa.int64()), "delayLevel": pa.array([3], pa.int32())},
            "both delayLevel and deliverTimestamp",
        ),
        ({"msgId": pa.array(["abc"])}, "msgId 'abc'"),
        ({"body": pa.array([None], pa.binary())}, "null body"),
        ({"body": pa.array([b""])}, "empty body"),
    ],
)
def test_what_a_message_would_refuse_is_refused(columns: dict[str, pa.Array], says: str) -> None:
    with pytest.raises(MessageIllegal, match=says):
        one(**columns)


def test_a_row_needs_a_topic_of_its_own_where_none_is_given_for_all() -> None:
    body = pa.array([b"x", b"y"])
    assert made({"body": body, "topic": pa.array(["Own", "Other"])}, None).topics == ["Own", "Other"]
    with pytest.raises(MessageIllegal, match="no topic"):
        made({"body": body, "topic": pa.array(["Own", None])}, None)


def test_properties_have_a_limit() -> None:
    with pytest.raises(PropertiesTooLong):
        one(properties=properties([("a", "x" * 40_000)]))


def test_an_empty_batch_is_nothing() -> None:
    found = made({"body": pa.array([], pa.binary())})
    assert found.texts == []
    assert found.bodies == []
    assert found.topics == []
