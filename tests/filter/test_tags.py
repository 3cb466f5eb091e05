"""Subscriptions by tag, as FilterAPI reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import InvalidExpression
from flaremq.filter.tags import code_array, parse_tags, tags_code_of_entry
from flaremq.filter.tokens import TEXT_LENGTH_MAX
from flaremq.model.tags import java_hash


@pytest.mark.parametrize("text", [None, "", "*"])
def test_everything_is_a_star_or_nothing_at_all(text: str | None) -> None:
    everything = parse_tags(text)
    assert everything.tags is None
    assert everything.codes() is None
    assert everything.matches("TagA") and everything.matches(None)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA || TagB", {"TagA", "TagB"}),
        ("TagA||TagB||TagA||", {"TagA", "TagB"}),
        ("|| \tTagA\n", {"TagA"}),
        ("TagA || *", {"TagA", "*"}),
        (" * ", {"*"}),
        ("|||", {"|"}),
        ("Tag|A", {"Tag|A"}),
        ("\u00a0A", {"\u00a0A"}),
        (" ", set()),
        (" || ", set()),
    ],
)
def test_tags_stand_between_bars_without_the_blanks_around_them(text: str, tags: set[str]) -> None:
    assert parse_tags(text).tags == frozenset(tags)


@pytest.mark.parametrize("text", ["||", "||||"])
def test_bars_alone_are_refused(text: str) -> None:
    with pytest.raises(InvalidExpression, match="expected a tag") as caught:
        parse_tags(text)
    assert caught.value.response_code == 23


def test_too_long_a_list_is_refused() -> None:
    parse_tags("x" * TEXT_LENGTH_MAX)
    with pytest.raises(InvalidExpression, match="limit is"):
        parse_tags("x" * (TEXT_LENGTH_MAX + 1))


def test_codes_are_the_hashes_in_order() -> None:
    codes = parse_tags("TagB || TagA || 中文 || 😀").codes()
    assert codes is not None
    assert codes.typecode == "q"
    assert list(codes) == [646394, 1772899, 2598919, 2598920]


def test_two_tags_with_one_hash_are_told_apart_by_their_text() -> None:
    wanted = parse_tags("AaAa")
    assert java_hash("AaAa") == java_hash("BBBB")
    assert wanted.codes() == parse_tags("BBBB").codes()
    assert wanted.matches("AaAa")
    assert not wanted.matches("BBBB")
    assert not wanted.matches(None)


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_hash_survives_its_place_in_the_entry(code: int) -> None:
    assert tags_code_of_entry(code) == code
    assert tags_code_of_entry(code & 0xFFFF_FFFF) == code
    assert tags_code_of_entry(code + (7 << 32)) == code


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_a_code_array_is_sorted_and_holds_each_code_once(codes: list[int]) -> None:
    assert list(code_array(codes)) == sorted(set(codes))
