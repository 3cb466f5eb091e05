"""From text to tree: the grammar, the errors, and texts that want to hurt."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import InvalidExpression
from flaremq.filter.ast import (
    All,
    Between,
    Compare,
    Comparison,
    Constant,
    In,
    IsNull,
    Negated,
    Not,
    Property,
    Search,
    SearchAnchor,
    Some,
    SyntaxNode,
    Truth,
    property_names,
)
from flaremq.filter.parser import DEPTH_MAX, NESTING_MAX, NODES_MAX, parse
from flaremq.filter.predicate import compile_predicate
from flaremq.filter.tokens import TEXT_LENGTH_MAX

A, B = Property("a"), Property("b")
IS_ONE = Compare(Comparison.EQUAL, A, Constant(1))


def above(name: str, number: int) -> Compare:
    return Compare(Comparison.GREATER, Property(name), Constant(number))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", IS_ONE),
        ("a <> 1", Not(IS_ONE)),
        ("a > 1 OR a > 2 OR a > 3", Some((above("a", 1), above("a", 2), above("a", 3)))),
        ("a > 1 OR a > 2 AND b > 3", Some((above("a", 1), All((above("a", 2), above("b", 3)))))),
        ("(a > 1 OR a > 2) AND b > 3", All((Some((above("a", 1), above("a", 2))), above("b", 3)))),
        ("a BETWEEN 1 AND 2 AND b", All((Between(A, Constant(1), Constant(2)), Truth(B)))),
        ("a NOT BETWEEN b AND 2", Between(A, B, Constant(2), negated=True)),
        ("a IN ('x', 'it''s', 'x')", In(A, frozenset({"x", "it's"}))),
        ("a not in ('x')", In(A, frozenset({"x"}), negated=True)),
        ("a Contains 'x'", Search(SearchAnchor.ANYWHERE, A, "x")),
        ("a NOT STARTSWITH 'x'", Search(SearchAnchor.START, A, "x", negated=True)),
        ("a ENDSWITH ''", Search(SearchAnchor.END, A, "")),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("a > -5", Compare(Comparison.GREATER, A, Negated(Constant(5)))),
        ("a > --5", Compare(Comparison.GREATER, A, Negated(Negated(Constant(5))))),
        ("a > +5", above("a", 5)),
        ("a > 0L", above("a", 0)),
        ("NULL", Constant(None)),
        ("a", Truth(A)),
    ],
)
def test_a_text_means_its_tree(text: str, tree: SyntaxNode) -> None:
    assert parse(text) == tree


def test_not_binds_tighter_than_a_comparison() -> None:
    assert parse("NOT a = 1") == Compare(Comparison.EQUAL, Not(Truth(A)), Constant(1))
    assert parse("NOT (a = 1)") == Not(IS_ONE)


@pytest.mark.parametrize(
    "text",
    [
        "a/* b */=\t1",
        "a -- the one\n = 1",
        "a -- the one\r = 1",
        "\r\na\f=\n1 -- and don't ask",
        "a = 1 /* **/",
        "--\na=1",
    ],
)
def test_blanks_and_comments_mean_nothing(text: str) -> None:
    assert parse(text) == IS_ONE


def test_reserved_words_are_such_in_any_case_and_names_are_as_they_are() -> None:
    assert property_names(parse("nOt (A iS nUlL) aNd $a_1 = tRuE oR Nota = 1")) == {"A", "$a_1", "Nota"}


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("", 0, "found the end, expected a property, a value, NOT or '('"),
        ("a >", 3, "found the end, expected a property, a value, NOT or '('"),
        ("a = = 1", 4, "found '=', expected a property"),
        ("a != 1", 2, "found '!', expected a property, a value or an operator"),
        ("a LIKE 'x%'", 2, "found 'LIKE', expected a comparison, AND, OR or the end"),
        ("a = 1) AND b = 2", 5, "found ')', expected a comparison, AND, OR or the end"),
        ("(a = 1", 6, "found the end, expected a comparison, AND, OR or ')'"),
        ("a = 007", 4, "found a number with a zero in front, expected one without"),
        ("a = 'x", 4, "found a text without end, expected a closing quote"),
        ("a = 1 /* x", 6, "found a comment without end, expected '*/'"),
        ("a NOT 5", 6, "found '5', expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"),
        ("a IS 5", 5, "found '5', expected NULL or NOT NULL"),
        ("a IS NOT 5", 9, "found '5', expected NULL"),
        ("a IN 'x'", 5, "found 'x', expected '('".replace("'x'", "\"'x'\"")),
        ("a IN ('x' 'y')", 10, "expected ',' or ')'"),
        ("a IN (1)", 6, "found '1', expected a text in quotes"),
        ("a CONTAINS b", 11, "found 'b', expected a text in quotes"),
        ("a BETWEEN 1 OR 2", 12, "found 'OR', expected AND"),
        ("a BETWEEN 9 AND 1", 16, "found 1, expected a number not below 9"),
        ("b AND 5", 6, "found 5, expected a condition: compare it with something"),
        ("-a", 0, "found a negated value, expected a condition"),
        ("a > 'x'", 4, "found 'x', expected a number or a property, as > compares numbers only"),
        ("a > 1 > 2", 0, "found a condition, expected a number or a property"),
        ("b OR a < TRUE", 9, "found TRUE, expected a number or a property"),
        ("a = NULL", 4, "found NULL, expected a value or a property: IS NULL asks for it, not ="),
        ("TRUE = 5", 7, "found 5, expected TRUE, FALSE or a property"),
        ("5 IN ('x')", 0, "found 5, expected a property before IN"),
        ("a > 0.0", 4, "found '0.0', expected a number that a double can hold, above zero"),
        ("a > 9223372036854775808", 4, "expected a whole number up to 9223372036854775807"),
        ("a > 1e309", 4, "found '1e309', expected a number that a double can hold"),
    ],
)
def test_an_error_names_the_place_and_what_was_expected(text: str, at: int, message: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse(text)
    assert str(caught.value).startswith(f"at character {at}: ")
    assert message in str(caught.value)
    assert caught.value.at == at
    assert caught.value.response_code == 23


LONG = TEXT_LENGTH_MAX


@pytest.mark.parametrize(
    "text",
    [
        "(" * LONG,
        "NOT " * (LONG // 4),
        "-" * LONG,
        "+" * (LONG - 1) + "a",
        "0" * LONG,
        "9" * LONG,
        "a > " + "9" * (LONG - 4),
        "a > 0." + "0" * (LONG - 7) + "1",
        "'" * LONG,
        "'" + "x''" * (LONG // 3 - 1),
        "/*" * (LONG // 2),
        "--" * (LONG // 2),
        "a" + "=a" * (LONG // 2 - 1),
        "a" + " IS NULL" * (LONG // 8 - 1),
        "a" + " CONTAINS 'x'" * (LONG // 13 - 1),
        "a" + " OR a" * (LONG // 5 - 1),
        "a" * (LONG + 1),
    ],
    ids=lambda text: text[:12],
)
def test_a_text_that_wants_to_hurt_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse(text)
    assert len(str(caught.value)) < 200


def test_limits_can_be_reached_and_not_passed() -> None:
    def nested(levels: int) -> str:
        return "(" * levels + "a" + ")" * levels

    def alternatives(nodes: int) -> str:
        return " OR ".join(["a"] * ((nodes - 1) // 2))  # A property and its truth, each time.

    parse(nested(NESTING_MAX))
    parse(alternatives(NODES_MAX))
    parse("NOT " * (DEPTH_MAX - 2) + "a")
    parse("a" * TEXT_LENGTH_MAX)
    parse("a IN (" + ", ".join(["'x'"] * 3000) + ")")
    for text in (nested(NESTING_MAX + 1), alternatives(NODES_MAX + 2), "NOT " * (DEPTH_MAX - 1) + "a"):
        with pytest.raises(InvalidExpression, match="limit is"):
            parse(text)


@pytest.mark.parametrize(
    "opening", ["(", "NOT (", "a OR b AND c = (", "a OR b AND c BETWEEN 1 AND -(", "a IS NULL = NOT ("]
)
def test_the_deepest_expression_leaves_python_room(opening: str) -> None:
    """A caller may already be deep in calls: half of the frames must do."""
    text = opening * NESTING_MAX + "a = 1" + ")" * NESTING_MAX

    def deeper(levels: int) -> bool:
        if levels:
            return deeper(levels - 1)
        return refusal(text) is not None or compile_predicate(text).matches({"a": "1"})

    assert deeper(sys.getrecursionlimit() // 2 - 150) in (True, False)


def test_a_range_in_a_range_in_a_range_costs_no_more_than_its_text() -> None:
    """In Java every level asks for its operand twice: fifty of them would never end."""
    text = "-(" * 50 + "a BETWEEN 1 AND 2" + ") BETWEEN 1 AND 2" * 50
    assert compile_predicate(text).evaluate({"a": "1"}) is None


WORDS = st.sampled_from(
    [
        *("a", "b", "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS"),
        *(
            "STARTSWITH",
            "ENDSWITH",
            "=",
            "<>",
            ">",
            ">=",
            "<",
            "<=",
            "(",
            ")",
            ",",
            "+",
            "-",
            "--",
            "/*",
            "*/",
        ),
        *("1", "0", "007", "5L", "1.5", "1e3", ".5", "'x'", "''", "'", "'it''s'", ";", "é", "😀", "\n"),
    ]
)


def refusal(text: str) -> InvalidExpression | None:
    try:
        parse(text)
    except InvalidExpression as error:
        return error
    return None


@given(st.lists(WORDS, max_size=25).map(" ".join) | st.lists(WORDS, max_size=25).map("".join) | st.text())
def test_any_text_gives_a_tree_or_an_error_with_a_place(text: str) -> None:
    error = refusal(text)
    if error:
        assert 0 <= error.at <= len(text)
    else:
        assert compile_predicate(text).matches({"a": "1", "b": "x"}) in (True, False)


NAMES = st.sampled_from(["a", "b", "Price", "_x", "$y"]).map(Property)
NUMBERS = (st.integers(0, 2**63 - 1) | st.floats(1e-300, 1e300)).map(Constant)
TEXTS = st.text(max_size=5)
ORDERED = st.recursive(NAMES | NUMBERS, lambda below: below.map(Negated), max_leaves=3)
ORDERINGS = st.sampled_from([how for how in Comparison if how is not Comparison.EQUAL])
LEAVES = (
    NAMES.map(Truth)
    | st.builds(Compare, ORDERINGS, ORDERED, ORDERED)
    | st.builds(Compare, st.just(Comparison.EQUAL), NAMES, NAMES | NUMBERS | TEXTS.map(Constant))
    | st.builds(Between, ORDERED, NAMES, ORDERED, st.booleans())
    | st.builds(In, NAMES, st.frozensets(TEXTS, min_size=1, max_size=4), st.booleans())
    | st.builds(Search, st.sampled_from(SearchAnchor), NAMES | TEXTS.map(Constant), TEXTS, st.booleans())
    | st.builds(IsNull, NAMES)
)


def of_conditions(below: st.SearchStrategy[SyntaxNode]) -> st.SearchStrategy[SyntaxNode]:
    parts = st.lists(below, min_size=2, max_size=4).map(tuple)
    return (
        parts.map(All)
        | parts.map(Some)
        | below.map(Not)
        | below.map(IsNull)
        | st.builds(Compare, st.just(Comparison.EQUAL), below, below)
    )


TREES: st.SearchStrategy[SyntaxNode] = st.recursive(LEAVES, of_conditions, max_leaves=12)


def written(node: SyntaxNode) -> str:
    """The text of a tree, with all the parentheses it could need."""
    match node:
        case Constant(str(text)):
            return "'" + text.replace("'", "''") + "'"
        case Constant(value):
            return str(value)
        case Property(name):
            return name
        case Truth(operand):
            return operand.name
        case Negated(operand):
            return f"- {written(operand)}"  # Two that touch begin a comment, if a line ends behind them.
        case Not(operand):
            return f"NOT ({written(operand)})"
        case IsNull(operand):
            return f"({written(operand)}) IS NULL"
        case All(parts):
            return " AND ".join(f"({written(part)})" for part in parts)
        case Some(parts):
            return " OR ".join(f"({written(part)})" for part in parts)
        case Compare(how, left, right):
            return f"({written(left)}) {how.value} ({written(right)})"
        case Between(operand, low, high, negated):
            return f"{written(operand)} {'NOT ' * negated}BETWEEN {written(low)} AND {written(high)}"
        case In(operand, values, negated):
            listed = ", ".join(written(Constant(value)) for value in sorted(values))
            return f"{operand.name} {'NOT ' * negated}IN ({listed})"
        case Search(place, operand, wanted, negated):
            return f"{written(operand)} {'NOT ' * negated}{place.value} {written(Constant(wanted))}"


@given(TREES)
def test_what_is_read_is_what_was_written(tree: SyntaxNode) -> None:
    text = written(tree)
    error = refusal(text)
    if error:
        assert "limit is" in str(error)
    else:
        assert written(parse(text)) == text
