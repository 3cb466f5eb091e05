"""Selectors: what a subscription lets through, by the entry and by the record, and in a real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from flaremq.base.errors import InvalidExpression
from flaremq.filter.bloom import BloomBits, BloomFilter
from flaremq.filter.groupfilter import BitMapCalculator, GroupFilter
from flaremq.filter.predicate import compile_predicate
from flaremq.filter.selector import SqlSelector, TagSelector, compile_selector, group_selector, retry_selector
from flaremq.model.record import decode_many
from flaremq.store.api import Selector
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, a_message, records_of, small_settings

TOPIC = "TopicTest"
TAG_A, TAG_B = 2598919, 2598920
BLOOM = BloomFilter()


@dataclass(frozen=True, slots=True)
class AUnit:
    """What lies in a queue extension."""

    bit_map: bytes = b""
    store_ms: int = 101
    tags_code: int = 0


def a_record(properties: bytes) -> memoryview:
    return memoryview(records_of([a_message(properties=properties)])).toreadonly()


def wanted(expression_type: str | None, text: str) -> Selector:
    selector = compile_selector(expression_type, text)
    assert selector is not None
    return selector


def a_filter(expression: str, group: str = "GroupA", topic: str = TOPIC) -> GroupFilter:
    return GroupFilter(
        topic=topic,
        group=group,
        predicate=compile_predicate(expression),
        bits=BLOOM.bits_of(group, topic),
        born_ms=100,
    )


@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
@pytest.mark.parametrize("text", [None, "", "*"])
def test_who_wants_everything_has_no_selector(expression_type: str | None, text: str | None) -> None:
    assert compile_selector(expression_type, text) is None


@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
def test_tags_are_decided_by_their_codes(expression_type: str | None) -> None:
    selector = wanted(expression_type, "TagB || TagA")
    assert selector.codes is not None
    assert list(selector.codes) == [TAG_A, TAG_B]
    assert selector.matches_entry(TAG_A, None)
    assert selector.matches_entry(TAG_B, AUnit())
    assert not selector.matches_entry(0, None)
    assert not selector.matches_entry(TAG_A + 100, None)


def test_a_record_tells_its_tag_when_the_entry_cannot() -> None:
    selector = wanted("TAG", "TagA")
    assert selector.matches_record(a_record(b"TAGS\x01TagA\x02"))
    assert not selector.matches_record(a_record(b"TAGS\x01TagB\x02"))
    assert not selector.matches_record(a_record(b""))
    assert not selector.matches_record(memoryview(b"no record"))


def test_a_blank_subscription_wants_nothing() -> None:
    selector = wanted("TAG", " ")
    assert selector.codes is not None and len(selector.codes) == 0
    assert not selector.matches_entry(0, None)


def test_the_codes_of_a_heartbeat_count_and_not_its_text() -> None:
    given = compile_selector("TAG", "TagB", codes=[TAG_A, 7, 7, -5 & 0xFFFF_FFFF])
    assert isinstance(given, TagSelector)
    assert list(given.codes) == [-5, 7, TAG_A]
    assert compile_selector("TAG", "*", codes=[7]) is None
    nothing = compile_selector("TAG", "", codes=[])
    assert nothing is not None and not nothing.matches_entry(0, None)


@pytest.mark.parametrize(
    ("expression_type", "text", "message"),
    [
        ("SQL92", "a >", "at character 3"),
        ("SQL92", "", "the expression is empty"),
        ("SQL92", None, "the expression is empty"),
        ("TAG", "||", "expected a tag"),
        ("sql92", "a > 3", "expression type 'sql92', expected TAG or SQL92"),
    ],
)
def test_what_cannot_be_read_is_refused(expression_type: str, text: str | None, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        compile_selector(expression_type, text)


def test_an_expression_without_a_group_looks_at_every_record() -> None:
    selector = wanted("SQL92", "a > 3")
    assert selector.codes is None
    assert selector.matches_entry(TAG_A, AUnit(bytes(14)))
    assert selector.matches_record(a_record(b"a\x014\x02"))
    assert not selector.matches_record(a_record(b"a\x013\x02"))
    assert not selector.matches_record(a_record(b""))
    assert not selector.matches_record(memoryview(b"no record"))


def test_a_bit_map_younger_than_the_filter_decides() -> None:
    selector: Selector = group_selector(a_filter("a > 3"), BLOOM)
    hit = bytes.fromhex("0000020000000000400000000002")
    assert selector.matches_entry(0, AUnit(hit))
    assert selector.matches_entry(0, AUnit(b"\xff" * 14))
    assert not selector.matches_entry(0, AUnit(bytes(14)))
    assert not selector.matches_entry(0, AUnit(bytes.fromhex("0000020000000000400000000000")))


@pytest.mark.parametrize(
    "unit",
    [
        None,
        AUnit(),
        AUnit(bytes(13)),
        AUnit(bytes(27)),
        AUnit(bytes(14), store_ms=100),
        AUnit(bytes(14), store_ms=0),
    ],
)
def test_a_map_that_is_missing_strange_or_too_old_decides_nothing(unit: AUnit | None) -> None:
    assert group_selector(a_filter("a > 3"), BLOOM).matches_entry(0, unit)


def test_bits_of_another_size_decide_nothing() -> None:
    kept = GroupFilter(
        topic=TOPIC,
        group="GroupA",
        predicate=compile_predicate("a > 3"),
        bits=BloomBits((1, 2, 3), 216),
        born_ms=100,
    )
    selector = group_selector(kept, BLOOM)
    assert selector == SqlSelector(kept.predicate)
    assert selector.matches_entry(0, AUnit(bytes(27)))


FILTERS = {
    (TOPIC, "GroupA"): a_filter("a > 3"),
    ("Other", "GroupA"): a_filter("b = 'x'", topic="Other"),
    (TOPIC, "GroupB"): a_filter("FALSE", group="GroupB"),
}


def filter_of(topic: str, group: str) -> GroupFilter | None:
    return FILTERS.get((topic, group))


@pytest.mark.parametrize(
    ("properties", "matches"),
    [
        (b"RETRY_TOPIC\x01TopicTest\x02a\x014\x02", True),
        (b"RETRY_TOPIC\x01TopicTest\x02a\x013\x02", False),
        (b"RETRY_TOPIC\x01Other\x02b\x01x\x02", True),
        (b"RETRY_TOPIC\x01Other\x02a\x014\x02", False),
        (b"RETRY_TOPIC\x01Unfiltered\x02", True),
        (b"a\x013\x02", True),
        (b"", True),
    ],
)
@pytest.mark.parametrize("topic", ["%RETRY%GroupA", "%RETRY%GroupA+TopicTest"])
def test_a_retried_message_is_judged_by_the_filter_of_its_first_topic(
    topic: str, properties: bytes, matches: bool
) -> None:
    selector = retry_selector(compile_selector("SQL92", "FALSE"), topic, filter_of)
    assert selector is not None and selector.codes is None
    assert selector.matches_entry(0, None)
    assert selector.matches_record(a_record(properties)) is matches
    assert not selector.matches_record(memoryview(b"no record"))


def test_other_topics_and_tags_are_not_judged_by_another_filter() -> None:
    own = compile_selector("SQL92", "a > 3")
    tags = compile_selector("TAG", "TagA")
    assert retry_selector(own, TOPIC, filter_of) is own
    assert retry_selector(tags, "%RETRY%GroupA", filter_of) is tags
    assert retry_selector(None, "%RETRY%GroupA", filter_of) is None


def bodies(store: MessageStore, selector: Selector | None) -> list[bytes]:
    result = store.get(TOPIC.encode(), 0, 0, selector=selector)
    return [message.body for message in decode_many(result.gathered())]


@pytest.mark.parametrize("ext", [False, True])
def test_the_store_reads_what_a_selector_wants(tmp_path: Path, ext: bool) -> None:
    kept = a_filter("a > 2")

    def filters_of(topic: bytes) -> Sequence[GroupFilter]:
        return [kept]

    settings = small_settings(tmp_path, ext_enabled=ext, ext_bit_map_length=BLOOM.bit_count)
    mapper = BitMapCalculator(BLOOM, filters_of)
    with MessageStore(settings, clock=ManualClock(NOW_MS), bit_mapper=mapper) as store:
        for i in range(6):
            properties = f"TAGS\x01Tag{'AB'[i % 2]}\x02a\x01{i}\x02".encode()
            store.put(a_message(str(i).encode(), properties=properties), wait=False)
        store.dispatch()
        assert bodies(store, compile_selector("TAG", "*")) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert bodies(store, compile_selector("TAG", "TagB")) == [b"1", b"3", b"5"]
        assert bodies(store, compile_selector("SQL92", "a BETWEEN 1 AND 3")) == [b"1", b"2", b"3"]
        assert bodies(store, group_selector(kept, BLOOM)) == [b"3", b"4", b"5"]


def test_in_the_store_a_bit_map_saves_a_look_at_the_record(tmp_path: Path) -> None:
    """The map was made for `a > 2`; that it decides shows in a selector that would want more."""
    kept = a_filter("a > 2")
    settings = small_settings(tmp_path, ext_enabled=True, ext_bit_map_length=BLOOM.bit_count)
    mapper = BitMapCalculator(BLOOM, lambda _: [kept])
    with MessageStore(settings, clock=ManualClock(NOW_MS), bit_mapper=mapper) as store:
        for i in range(4):
            store.put(a_message(str(i).encode(), properties=f"a\x01{i}\x02".encode()), wait=False)
        store.dispatch()
        greedy = a_filter("TRUE")
        assert bodies(store, group_selector(greedy, BLOOM)) == [b"3"]
        assert bodies(store, compile_selector("SQL92", "TRUE")) == [b"0", b"1", b"2", b"3"]
