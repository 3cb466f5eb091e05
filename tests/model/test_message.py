import copy
import math
import pickle
import re
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from flaremq.base.errors import MessageIllegal, PropertiesTooLong
from flaremq.model.message import Host, Message, MessageQueue, StoredMessage
from flaremq.model.properties import decode_properties

STORED = StoredMessage(
    topic="TopicTest",
    queue_id=3,
    flag=0,
    queue_offset=12,
    physical_offset=4096,
    sys_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    born_host=Host("10.0.0.1", 54321),
    store_timestamp_ms=1_700_000_000_005,
    store_host=Host("10.0.0.2", 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"hello",
    raw_properties=b"TAGS\x01TagA\x02KEYS\x01k1  k2 \x02UNIQ_KEY\x01ABC\x02",
    body_crc=907060870,
    size=168,
)


def test_a_plain_message_carries_nothing_but_that_it_waits() -> None:
    message = Message("T", b"hello")
    assert message.encoded_properties() == b"WAIT\x01true\x02"
    assert (message.flag, message.keys, message.tags) == (0, (), None)


def test_fields_become_properties() -> None:
    message = Message(
        "T",
        b"",
        tags="TagA",
        keys=["k1", "k2"],
        properties={"colour": "red"},
        delay_level=3,
        wait_store=False,
        sharding_key="order-1",
    )
    assert decode_properties(message.encoded_properties()) == {
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "colour": "red",
        "DELAY": "3",
        "WAIT": "false",
        "__SHARDINGKEY": "order-1",
    }


def test_an_empty_tag_is_none() -> None:
    assert b"TAGS" not in Message("T", b"", tags="", sharding_key="").encoded_properties()


def test_a_message_does_not_change_when_its_parts_do() -> None:
    keys, properties = ["k"], {"a": "1"}
    message = Message("T", b"", keys=keys, properties=properties)
    keys.append("other")
    properties["b"] = "2"
    assert (message.keys, dict(message.properties)) == (("k",), {"a": "1"})
    with pytest.raises(TypeError):
        message.properties["b"] = "2"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        message.topic = "U"  # type: ignore[misc]


def test_equal_messages_are_equal_and_hash_alike() -> None:
    first, second = (Message("T", b"", properties={"a": "1"}) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != replace(first, body=b"x")


def test_a_message_can_be_pickled_and_copied() -> None:
    message = Message("T", b"x", tags="a", keys=["k"], properties={"a": "1"}, delay_level=1)
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"topic": ""}, "name of a topic"),
        ({"topic": " "}, "name of a topic"),
        ({"topic": None}, "name of a topic"),
        ({"body": "text"}, "body is str, expected bytes"),
        ({"body": bytearray(b"x")}, "body is bytearray"),
        ({"body": None}, "body is NoneType"),
        ({"keys": "one"}, r"keys=\['one'\]"),
        ({"keys": ["two words"]}, "whitespace, which separates keys"),
        ({"keys": ["a\tb"]}, "whitespace"),
        ({"keys": [""]}, "non-blank"),
        ({"keys": [7]}, "key 7"),
        ({"keys": ["a\x02"]}, "separate properties"),
        ({"tags": "a\x01b"}, "tags .* separate properties"),
        ({"tags": " "}, "tags ' '"),
        ({"sharding_key": "\x02x"}, "sharding_key"),
        ({"properties": {"TAGS": "x"}}, "'TAGS' is reserved"),
        ({"properties": {"UNIQ_KEY": "x"}}, "is reserved"),
        ({"properties": {"": "x"}}, "property name ''"),
        ({"properties": {"a\x01": "x"}}, "property name"),
        ({"properties": {"a": "x\x02y"}}, "value of property 'a'"),
        ({"properties": {"a": ""}}, "value of property 'a' ''"),
        ({"properties": {"a": 1}}, "value of property 'a' 1"),
        ({"properties": {"__SHARDINGKEY": "x"}, "sharding_key": "y"}, "give only one of them"),
        ({"flag": 2**31}, "32-bit number"),
        ({"delay_level": -1}, "a level of at least 1"),
    ],
)
def test_a_message_that_cannot_be_is_refused_with_a_reason(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(MessageIllegal, match=complaint):
        Message(**{"topic": "T", "body": b"", **wrong})


def test_properties_have_a_limit() -> None:
    fits = 32767 - len(b"a\x01\x02WAIT\x01true\x02")
    assert len(Message("T", b"", properties={"a": "x" * fits}).encoded_properties()) == 32767
    with pytest.raises(PropertiesTooLong, match="32768 bytes, limit is 32767"):
        Message("T", b"", properties={"a": "x" * (fits + 1)}).encoded_properties()


def test_a_stored_message_tells_what_its_properties_say() -> None:
    assert STORED.tags == "TagA"
    assert STORED.keys == ("k1", "k2")
    assert STORED.unique_key == "ABC"
    assert STORED.properties == {"TAGS": "TagA", "KEYS": "k1  k2 ", "UNIQ_KEY": "ABC"}
    assert STORED.get("TAGS") == "TagA"


def test_a_stored_message_without_properties_has_none() -> None:
    bare = replace(STORED, raw_properties=b"")
    assert (bare.tags, bare.keys, bare.unique_key, bare.properties, bare.get("x")) == (
        None,
        (),
        None,
        {},
        None,
    )


def test_the_message_id_says_where_it_lies() -> None:
    assert STORED.message_id == "0A00000200002A9F0000000000001000"


def test_a_stored_message_is_a_value() -> None:
    assert replace(STORED) == STORED
    assert hash(STORED) == hash(replace(STORED))
    assert pickle.loads(pickle.dumps(STORED)) == STORED
    with pytest.raises(FrozenInstanceError):
        STORED.body = b""  # type: ignore[misc]


def test_queues_are_ordered_by_topic_broker_and_number() -> None:
    queues = [
        MessageQueue("a", "b", 10),
        MessageQueue("b", "a", 0),
        MessageQueue("a", "b", 2),
        MessageQueue("a", "a", 11),
    ]
    assert sorted(queues) == [queues[3], queues[2], queues[0], queues[1]]
    assert len({MessageQueue("a", "b", 1), MessageQueue("a", "b", 1)}) == 1


def test_a_queue_is_shown_as_java_shows_it() -> None:
    assert str(MessageQueue("T", "broker-a", 0)) == "MessageQueue [topic=T, brokerName=broker-a, queueId=0]"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delay_s": -1}, "delay_s -1: expected a number of seconds"),
        ({"delay_s": math.nan}, "delay_s nan"),
        ({"delay_s": "5"}, "delay_s '5'"),
        ({"delay_s": True}, "delay_s True"),
        ({"deliver_at": 1e15}, "deliver_at 1000000000000000.0"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),
        ({"delay_s": 5, "delay_level": 3}, "delay_level and delay_s are both given"),
        ({"delay_s": 5, "deliver_at": 1e9}, "delay_s and deliver_at are both given"),
    ],
)
def test_a_moment_that_makes_no_sense_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(MessageIllegal, match=re.escape(words)):
        Message("T", b"x", **given)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"delay_s": 0.0001}, ("TIMER_DELAY_MS", "1")),
        ({"delay_s": 2.5}, ("TIMER_DELAY_MS", "2500")),
        ({"deliver_at": 1700000000.123}, ("TIMER_DELIVER_MS", "1700000000123")),
        ({"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, ("TIMER_DELIVER_MS", "1893456000000")),
        ({"delay_level": 3}, ("DELAY", "3")),
    ],
)
def test_a_moment_becomes_the_property_that_asks_for_it(
    given: dict[str, Any], asked: tuple[str, str]
) -> None:
    message = Message("T", b"x", **given)
    assert message.waits == asked
    assert message.property_map()[asked[0]] == asked[1]
    assert pickle.loads(pickle.dumps(message)) == message
