"""Filters that a broker keeps: their file, and the bit maps of the messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from flaremq.base.errors import InvalidExpression, Malformed
from flaremq.filter.bloom import BloomBits, BloomFilter
from flaremq.filter.groupfilter import BitMapCalculator, GroupFilter
from flaremq.filter.predicate import compile_predicate
from flaremq.model.jsonfields import Fields
from flaremq.model.properties import encode_properties
from flaremq.store.api import BitMapper

BLOOM = BloomFilter()
ROW = (
    '{"bloomFilterData":{"bitNum":112,"bitPos":[105,17,70]},"bornTime":1700000000000,"clientVersion":7,'
    '"consumerGroup":"GroupA","dead":true,"deadTime":1700000000000,"expression":"a > 3",'
    '"expressionType":"SQL92","topic":"TopicTest"}'
)


def a_filter(group: str, expression: str, **other: Any) -> GroupFilter:
    given: dict[str, Any] = {"bits": BLOOM.bits_of(group, "TopicTest"), "born_ms": 100, **other}
    return GroupFilter(topic="TopicTest", group=group, predicate=compile_predicate(expression), **given)


def mapper(*filters: GroupFilter) -> BitMapper:
    def filters_of(topic: bytes) -> Sequence[GroupFilter]:
        return filters if topic == b"TopicTest" else ()

    return BitMapCalculator(BLOOM, filters_of)


def bits_of(bit_map: bytes) -> set[int]:
    return {bit for bit in range(8 * len(bit_map)) if bit_map[bit // 8] >> bit % 8 & 1}


def test_a_map_holds_the_bits_of_the_groups_that_want_the_message() -> None:
    calculator = mapper(a_filter("GroupA", "a > 3"), a_filter("GroupB", "a > 5"))
    assert calculator.bit_map(b"TopicTest", b"a\x014\x02").hex() == "0000020000000000400000000002"
    assert bits_of(calculator.bit_map(b"TopicTest", b"a\x016\x02")) == {105, 17, 70, 20, 108, 93}
    assert calculator.bit_map(b"TopicTest", memoryview(b"a\x011\x02")) == bytes(14)


@pytest.mark.parametrize("properties", [{}, {"a": "x"}, {"a": "3.5"}])
def test_unknown_and_failed_set_no_bit(properties: dict[str, str]) -> None:
    calculator = mapper(a_filter("GroupA", "a > 3 OR FALSE"), a_filter("GroupB", "b IS NULL"))
    found = calculator.bit_map(b"TopicTest", encode_properties(properties))
    assert bits_of(found) == {20, 108, 93}


def test_a_topic_that_nobody_filters_has_no_map() -> None:
    calculator = mapper(a_filter("GroupA", "TRUE"))
    assert calculator.bit_map(b"Other", b"a\x014\x02") == b""


def test_a_dead_filter_goes_on_being_asked() -> None:
    """Its group may come back, and will then trust the maps made since its birth."""
    dead = a_filter("GroupA", "TRUE", dead_ms=200)
    assert dead.is_dead
    assert bits_of(mapper(dead).bit_map(b"TopicTest", b"")) == {105, 17, 70}


def test_bits_of_another_size_are_passed_over() -> None:
    stranger = a_filter("GroupA", "TRUE", bits=BloomBits((200, 201, 202), 216))
    assert mapper(stranger).bit_map(b"TopicTest", b"") == bytes(14)


def test_only_younger_messages_were_mapped_with_a_filter() -> None:
    kept = a_filter("GroupA", "TRUE")
    assert not kept.is_dead
    assert [kept.was_asked_at(store_ms) for store_ms in (99, 100, 101)] == [False, False, True]


def test_a_filter_is_written_as_java_writes_it() -> None:
    kept = a_filter("GroupA", "a > 3", born_ms=1_700_000_000_000, dead_ms=1_700_000_000_000, client_version=7)
    assert json.dumps(kept.to_dict(), separators=(",", ":")) == ROW
    assert GroupFilter.of(Fields("a filter", json.loads(ROW))) == kept


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"expression": "a >"}, InvalidExpression),
        ({"expression": None}, Malformed),
        ({"expressionType": "TAG"}, Malformed),
        ({"bloomFilterData": None}, Malformed),
        ({"bloomFilterData": {"bitNum": 112, "bitPos": [112]}}, Malformed),
        ({"bornTime": "soon"}, Malformed),
        ({"topic": 5}, Malformed),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(change: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        GroupFilter.of(Fields("a filter", {**json.loads(ROW), **change}))
