"""Selectors of consumers: by tag or expression, from requests or heartbeats, and what is kept of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.clients import Desk, desk

from flaremq.base.errors import FilterDataMissing, FilterDataOld, InvalidExpression, UsageError
from flaremq.base.units import DAY_MS
from flaremq.broker.tables.filters import Filters
from flaremq.filter.selector import RetrySelector, SqlSelector, TagSelector
from flaremq.model.tags import java_hash
from flaremq.protocol.bodies.group import SubscriptionData


def sql(text: str = "a > 1", version: int = 1, topic: str = "T") -> SubscriptionData:
    return SubscriptionData.of(topic, text, "SQL92", sub_version=version)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path, calculate_bit_maps=True) as made:
        yield made


@pytest.fixture
def filters(made: Desk) -> Filters:
    return made.filters


@pytest.mark.parametrize("text", [None, "", "*"])
@pytest.mark.parametrize("kind", [None, "", "TAG"])
def test_request_for_everything_has_no_selector(filters: Filters, kind: str | None, text: str | None) -> None:
    assert filters.of_request(kind, text) is None


def test_selector_of_a_text_is_made_once(filters: Filters) -> None:
    found = filters.of_request("TAG", "a || b")
    assert isinstance(found, TagSelector)
    assert set(found.codes) == {java_hash("a"), java_hash("b")}
    assert filters.of_request("TAG", "a || b") is found
    assert isinstance(filters.of_request("SQL92", "a > 1"), SqlSelector)
    assert filters.of_request("SQL92", "a > 1") is filters.of_request("SQL92", "a > 1")


def test_cache_of_selectors_has_a_limit(filters: Filters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flaremq.broker.tables.filters._CACHED_MAX", 2)
    first = filters.of_request("TAG", "a")
    for tag in "bcd":
        filters.of_request("TAG", tag)
    assert filters.of_request("TAG", "a") is not first


@pytest.mark.parametrize(
    ("kind", "text"), [("SQL92", "a >"), ("SQL92", ""), ("XML", "a"), ("TAG", "x" * 70_000)]
)
def test_text_that_cannot_be_read_is_refused(filters: Filters, kind: str, text: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        filters.of_request(kind, text)
    assert caught.value.response_code == 23


def test_expressions_are_refused_where_they_are_switched_off(tmp_path: Path) -> None:
    with desk(tmp_path, property_filter=False) as made:
        with pytest.raises(UsageError, match="enablePropertyFilter") as caught:
            made.filters.of_request("SQL92", "a > 1")
        assert caught.value.response_code == 1
        made.filters.register("g", [sql()])
        with pytest.raises(UsageError, match="enablePropertyFilter"):
            made.filters.of_subscription("g", "T", sql())


def test_heartbeat_by_tags_selects_by_their_codes(filters: Filters) -> None:
    said = SubscriptionData.of("T", "a||b")
    found = filters.of_subscription("g", "T", said)
    assert isinstance(found, TagSelector) and set(found.codes) == {java_hash("a"), java_hash("b")}
    assert filters.of_subscription("g", "T", said) is found
    newer = SubscriptionData.of("T", "c", sub_version=2)
    other = filters.of_subscription("g", "T", newer)
    assert isinstance(other, TagSelector) and set(other.codes) == {java_hash("c")}


@pytest.mark.parametrize("text", ["*", ""])
def test_heartbeat_for_everything_has_no_selector(filters: Filters, text: str) -> None:
    assert filters.of_subscription("g", "T", SubscriptionData(topic="T", sub_string=text)) is None


def test_expression_of_a_group_must_be_known_and_new_enough(filters: Filters) -> None:
    with pytest.raises(FilterDataMissing) as missing:
        filters.of_subscription("g", "T", sql())
    assert missing.value.response_code == 27
    filters.register("g", [sql(version=1)])
    found = filters.of_subscription("g", "T", sql(version=1))
    assert isinstance(found, SqlSelector) and found.mask
    assert filters.of_subscription("g", "T", sql(version=1)) is found
    with pytest.raises(FilterDataOld) as old:
        filters.of_subscription("g", "T", sql(version=2))
    assert old.value.response_code == 28


def test_expression_that_cannot_be_read_leaves_its_group_without_one(filters: Filters) -> None:
    filters.register("g", [sql(version=1)])
    filters.register("g", [sql("a >", version=2)])
    with pytest.raises(FilterDataMissing):
        filters.of_subscription("g", "T", sql("a >", version=2))


def test_other_expression_is_born_anew_and_a_newer_version_is_not(made: Desk) -> None:
    filters = made.filters
    filters.register("g", [sql(version=1)])
    born_ms = made.clock.now_ms()
    made.clock.advance_ms(10)
    filters.register("g", [sql(version=2)])
    kept = filters.get("T", "g")
    assert kept is not None and (kept.born_ms, kept.client_version) == (born_ms, 2)
    filters.register("g", [sql("b > 1", version=2)])  # As old as what is known: an older member.
    assert filters.get("T", "g") is kept
    filters.register("g", [sql("b > 1", version=3)])
    kept = filters.get("T", "g")
    assert kept is not None and kept.born_ms == born_ms + 10 and kept.predicate.text == "b > 1"


def test_group_that_left_is_kept_for_a_day_and_lives_again_when_it_comes_back(made: Desk) -> None:
    filters = made.filters
    filters.register("g", [sql()])
    made.clock.advance_ms(1000)
    filters.unregister("g")
    kept = filters.get("T", "g")
    assert kept is not None and kept.is_dead
    filters.register("g", [sql()])
    kept = filters.get("T", "g")
    assert kept is not None and not kept.is_dead and kept.born_ms == made.clock.now_ms() - 1000
    filters.unregister("g")
    filters.expire(made.clock.now_ms() + DAY_MS - 1)
    assert filters.get("T", "g") is not None
    filters.expire(made.clock.now_ms() + DAY_MS)
    assert filters.get("T", "g") is None


def test_topic_that_a_group_no_longer_filters_is_dead(filters: Filters) -> None:
    filters.register("g", [sql(topic="T"), sql(topic="U")])
    filters.register("g", [sql(topic="T"), SubscriptionData.of("U", "a")])
    alive, dead = filters.get("T", "g"), filters.get("U", "g")
    assert alive is not None and not alive.is_dead
    assert dead is not None and dead.is_dead
    filters.register("h", [SubscriptionData.of("T")])  # Nothing to keep.
    assert filters.get("T", "h") is None


def test_bit_map_has_the_bits_of_those_who_want_a_message(filters: Filters) -> None:
    mapper = filters.bit_mapper(lambda: filters)
    assert mapper is not None
    assert mapper.bit_map(b"T", b"a\x015\x02") == b""
    filters.register("g", [sql("a > 1")])
    filters.register("h", [sql("a > 9")])
    bits = mapper.bit_map(b"T", b"a\x015\x02")
    assert len(bits) * 8 == filters.bit_map_length
    mine, other = filters.get("T", "g"), filters.get("T", "h")
    assert mine is not None and other is not None
    assert int.from_bytes(bits, "little") == mine.bits.mask
    assert mine.bits.mask != other.bits.mask


def test_bit_maps_are_not_made_unless_asked_for(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        assert made.filters.bit_mapper(lambda: made.filters) is None


def test_retries_are_filtered_like_their_topic_where_that_is_wished(tmp_path: Path) -> None:
    with desk(tmp_path, filter_retries=True) as made:
        assert isinstance(made.filters.of_request("SQL92", "a > 1", "%RETRY%g"), RetrySelector)
        assert isinstance(made.filters.of_request("SQL92", "a > 1", "T"), SqlSelector)
    with desk(tmp_path) as made:
        assert isinstance(made.filters.of_request("SQL92", "a > 1", "%RETRY%g"), SqlSelector)


async def test_filters_outlive_the_broker_as_dead_ones(tmp_path: Path) -> None:
    with desk(tmp_path) as made:
        made.filters.register("g", [sql()])
        born_ms = made.clock.now_ms()
        await made.filters.save()
    data = json.loads((tmp_path / "config" / "consumerFilter.json").read_bytes())
    kept = data["filterDataByTopic"]["T"]
    assert kept["topic"] == "T"
    assert kept["groupFilterData"]["g"] == {
        "bloomFilterData": kept["groupFilterData"]["g"]["bloomFilterData"],
        "bornTime": born_ms,
        "clientVersion": 1,
        "consumerGroup": "g",
        "dead": False,
        "deadTime": 0,
        "expression": "a > 1",
        "expressionType": "SQL92",
        "topic": "T",
    }
    with desk(tmp_path) as made:
        made.clock.advance_ms(60_000)
        made.filters.load()
        loaded = made.filters.get("T", "g")
        assert loaded is not None and (loaded.born_ms, loaded.dead_ms) == (born_ms, born_ms + 30_000)
    with desk(tmp_path, bloom_consumers=500) as made:
        made.filters.load()  # Its bits are drawn for maps of another size.
        assert made.filters.get("T", "g") is None


def test_kept_filter_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    broken = {"groupFilterData": {"g": {"topic": "T", "expression": "a >"}, "h": 5}, "topic": "T"}
    (tmp_path / "config" / "consumerFilter.json").write_text(json.dumps({"filterDataByTopic": {"T": broken}}))
    with desk(tmp_path) as made:
        made.filters.load()
        assert made.filters.get("T", "g") is None
