"""Numbers as Java reads them out of a text, and the order it sees in them."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.filter.values import equal, floating, order, order_of_doubles, whole_number

INT, LONG = 5, 3_000_000_000


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-0", 0), ("+7", 7), ("007", 7), ("0" * 40 + "7", 7), ("-" + "0" * 40, 0),
     ("\u0665", 5), ("-\uff15", -5), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))],
)  # fmt: skip
def test_a_whole_number_may_have_a_sign_zeros_and_digits_of_any_script(text: str, number: int) -> None:
    assert whole_number(text, INT) == whole_number(text, LONG) == number


@pytest.mark.parametrize(
    "text",
    ["", "+", "-", "+-5", "5 ", " 5", "5L", "1_0", "1.0", "1e3", "0x5", "²", "\U0001d7d3", "x",
     "0" * 40 + "-5", "9223372036854775808", "-9223372036854775809", "9" * 5000],
)  # fmt: skip
def test_what_is_no_whole_number_of_java_is_refused(text: str) -> None:
    for like in (INT, LONG):
        with pytest.raises(ValueError, match=r"not a whole number|cannot be compared"):
            whole_number(text, like)


@pytest.mark.parametrize("text", ["2147483648", "-2147483649", "9223372036854775807"])
def test_a_long_does_not_fit_beside_an_int(text: str) -> None:
    assert whole_number(text, LONG) == int(text)
    assert whole_number(text, -(2**31)) == int(text)  # A long too: Java has no such int literal.
    with pytest.raises(ValueError, match="cannot be compared with 5"):
        whole_number(text, INT)


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), ("-5.", -5), ("+.5", 0.5), ("1e3", 1000), ("5f", 5), ("5.5D", 5.5), ("\x0b 5\n", 5),
     ("0x10p0", 16), ("-0x1.8p1d", -3), ("0x.8P1", 1), ("Infinity", math.inf), ("-Infinity", -math.inf),
     ("1e999", math.inf), ("-1e999", -math.inf), ("0x1p99999", math.inf),
     ("-0x1p99999", -math.inf), ("1e-999", 0)],
)  # fmt: skip
def test_a_double_may_look_as_in_java(text: str, number: float) -> None:
    assert floating(text) == number


@pytest.mark.parametrize("text", ["NaN", "+NaN", "-NaN", " NaN "])
def test_not_a_number_is_one_to_java(text: str) -> None:
    assert math.isnan(floating(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "1e",
        "e1",
        "1_0",
        "inf",
        "nan",
        "infinity",
        "0x10",
        "0xp1",
        "5ff",
        "\u00a05",
        "\u0665",
        "1,5",
        "--5",
        "NaNd",
    ],
)
def test_what_is_no_double_of_java_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        floating(text)


def test_doubles_have_a_total_order() -> None:
    rising = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
    for i, left in enumerate(rising):
        for j, right in enumerate(rising):
            assert order_of_doubles(left, right) == (i > j) - (i < j)


def test_a_text_is_read_as_what_stands_beside_it() -> None:
    assert order("10", 9) == 1
    assert order(9, "10") == -1
    assert order("9.5", 9.5) == 0
    assert order("10", "9") == 1  # Two texts: as doubles.
    assert order(3, 2.5) == 1
    assert order(2**53 + 1, float(2**53)) == 0  # A long becomes a double, and loses its last bit.
    for left, right in (("9.5", 9), (9, "9.5"), ("x", "9"), ("x", 1.5)):
        with pytest.raises(ValueError, match="no"):
            order(left, right)


def test_equality_takes_texts_by_the_letter_and_booleans_on_the_right() -> None:
    assert equal("x", "x") and not equal("1", "1.0")
    assert equal("1", 1) and equal(1.0, "1") and equal(1, 1.0) and not equal("2", 1)
    assert equal("TruE", True) and equal("x", False) and not equal("true", False)
    assert equal(True, True) and not equal(True, False)
    assert not equal(1, True) and not equal(True, 1)
    with pytest.raises(ValueError, match="True is not text"):
        equal(True, "true")


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long_is_read_back(number: int) -> None:
    assert whole_number(str(number), LONG) == number
    assert order(str(number), number if abs(number) > 2**31 else LONG) in (-1, 0, 1)


@given(st.floats(allow_nan=False))
def test_every_double_is_read_back(number: float) -> None:
    text = repr(number).replace("inf", "Infinity")
    assert order_of_doubles(floating(text), number) == 0
    assert equal(text, number)


@given(
    st.text(st.sampled_from("+-0159.eExXpPfFdDabNaInfinity_ \u00a0\u0665\x0b")),
    st.sampled_from([INT, LONG, 1.5]),
)
def test_any_text_beside_a_number_is_read_or_refused(text: str, number: float) -> None:
    with suppress(ValueError):
        assert order(text, number) == -order(number, text)
