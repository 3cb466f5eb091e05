"""Three values and no more: what AND, OR and NOT make of true, false and unknown."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.filter.ast import All, Constant, Not, Some, SyntaxNode
from flaremq.filter.evaluate import evaluation
from flaremq.filter.predicate import compile_predicate
from flaremq.model.properties import decode_properties, encode_properties

KLEENE = {False: 0, None: 1, True: 2}
VALUES = tuple(KLEENE)


def value_of(node: SyntaxNode) -> bool | None:
    value = evaluation(node)({})
    assert value is None or isinstance(value, bool)
    return value


@pytest.mark.parametrize("values", [*product(VALUES, repeat=2), *product(VALUES, repeat=3)])
def test_and_takes_the_least_and_or_the_greatest(values: tuple[bool | None, ...]) -> None:
    parts: tuple[SyntaxNode, ...] = tuple(map(Constant, values))
    assert value_of(All(parts)) is min(values, key=KLEENE.__getitem__)
    assert value_of(Some(parts)) is max(values, key=KLEENE.__getitem__)
    denied = tuple(map(Not, parts))
    assert value_of(Not(All(parts))) is value_of(Some(denied))
    assert value_of(Not(Some(parts))) is value_of(All(denied))


def test_what_is_settled_is_not_asked_again() -> None:
    """A comparison that fails ends everything, but only if it is reached."""
    assert compile_predicate("FALSE AND a > 1").evaluate({"a": "x"}) is False
    assert compile_predicate("TRUE OR a > 1").evaluate({"a": "x"}) is True
    for text in ("a > 1 OR TRUE", "b > 1 AND a > 1", "NOT (a > 1)", "(a > 1) IS NULL"):
        with pytest.raises(ValueError, match="not a whole number"):
            compile_predicate(text).evaluate({"a": "x"})
        assert not compile_predicate(text).matches({"a": "x"})


def test_a_missing_property_makes_a_comparison_unknown_and_its_denial_too() -> None:
    for text in ("a > 1", "a = 1", "a = 'x'", "a IN ('x')", "a BETWEEN 1 AND 2", "a = TRUE", "a"):
        assert compile_predicate(text).evaluate({}) is None
        assert compile_predicate(f"NOT ({text})").evaluate({}) is None
        assert compile_predicate(f"({text}) OR TRUE").evaluate({}) is True
        assert compile_predicate(f"({text}) AND FALSE").evaluate({}) is False


def test_a_search_is_never_unknown() -> None:
    for text in ("a CONTAINS 'x'", "a NOT CONTAINS 'x'", "a STARTSWITH 'x'", "a NOT ENDSWITH 'x'"):
        assert compile_predicate(text).evaluate({}) is False


def test_equality_is_not_the_same_both_ways_when_one_side_is_missing() -> None:
    equality, difference = compile_predicate("a = b"), compile_predicate("a <> b")
    assert equality.evaluate({}) is True
    assert equality.evaluate({"b": "1"}) is None
    assert equality.evaluate({"a": "1"}) is False
    assert difference.evaluate({"a": "1"}) is True


@given(
    st.sampled_from(["=", "<>", ">", ">=", "<", "<="]),
    st.integers(-(2**31) + 1, 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
)
def test_a_property_compares_with_a_number_as_numbers_do(sign: str, constant: int, number: int) -> None:
    expected = {
        "=": number == constant,
        "<>": number != constant,
        ">": number > constant,
        ">=": number >= constant,
        "<": number < constant,
        "<=": number <= constant,
    }
    properties = {"a": str(number)}
    assert compile_predicate(f"a {sign} {constant}").evaluate(properties) is expected[sign]
    # Negated twice it is the same number, but no constant any more: the long way agrees with the quick one.
    assert compile_predicate(f"a {sign} - -{abs(constant)}").evaluate(properties) is (
        compile_predicate(f"a {sign} {abs(constant)}").evaluate(properties)
    )


@given(st.integers(), st.integers(), st.integers())
def test_between_is_two_comparisons(number: int, low: int, high: int) -> None:
    properties = {"a": str(number), "low": str(low), "high": str(high)}
    within = compile_predicate("a BETWEEN low AND high")
    assert within.evaluate(properties) is compile_predicate("a >= low AND a <= high").evaluate(properties)
    without = compile_predicate("a NOT BETWEEN low AND high")
    assert without.evaluate(properties) is compile_predicate("a < low OR a > high").evaluate(properties)


NAMES = st.sampled_from(["a", "b", "c", "d", "ab", "é"])
TEXTS = st.text(st.sampled_from("abé😀1 \ufffd"), min_size=1, max_size=4)


@given(
    st.dictionaries(NAMES, TEXTS),
    st.sampled_from(["a = 'a'", "a = b OR b = c", "a = 'a' OR b = c AND d = 'é'"]),
)
def test_properties_are_found_in_the_bytes_of_a_record(properties: dict[str, str], text: str) -> None:
    predicate = compile_predicate(text)
    assert predicate.matches_raw(encode_properties(properties)) is predicate.matches(properties)


@given(st.lists(st.sampled_from([b"a", b"b", b"\x01", b"\x02", b"\xff", b"\xed\xa0", b"1"])).map(b"".join))
def test_any_bytes_are_read_as_the_decoder_reads_them(raw: bytes) -> None:
    for text in ("a IS NULL", "a CONTAINS '1'", "a = '1' OR b = '1'"):
        predicate = compile_predicate(text)
        assert predicate.matches_raw(raw) is predicate.matches(decode_properties(raw))


def test_an_expression_is_read_once() -> None:
    assert compile_predicate("a = 1") is compile_predicate("a = 1")
    assert compile_predicate("a = 1 AND B > a").names == {"a", "B"}
