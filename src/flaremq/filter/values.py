"""Values as Java reads and compares them: Integer.valueOf, Double.valueOf, Double.compareTo.

A property is a text. Compared with a number, it must be a number of the same Java class; compared with TRUE,
it is read as a boolean. A text that cannot be read so raises ValueError: RocketMQ's evaluation then ends in
an exception, and the message does not match, whatever the rest of the expression says.
"""

from __future__ import annotations

import math
import re
from typing import Final

from flaremq.filter.ast import Value

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_INT_DIGITS: Final = 10
_LONG_DIGITS: Final = 19
_ASCII_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's String.trim removes."""

_DIGITS: Final = re.compile(r"[^\D\U00010000-\U0010FFFF]+")  # Java compares single UTF-16 units.
# Possessive, so that a long text that is not a number is not retried from each of its digits.
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?"
)
_NAMED: Final = {
    **dict.fromkeys(("NaN", "+NaN", "-NaN"), math.nan),
    **dict.fromkeys(("Infinity", "+Infinity"), math.inf),
    "-Infinity": -math.inf,
}


def whole_number(text: str, like: int) -> int:
    """Like Integer.valueOf, or Long.valueOf next to a long: digits of any script, no blanks."""
    if len(text) < _INT_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    sign = text[0] if text.startswith(("+", "-")) else ""
    digits = text[len(sign) :]
    if len(digits) > _LONG_DIGITS:  # Leading zeros are allowed.
        digits = digits.lstrip("0") or "0"
    if len(digits) > _LONG_DIGITS or not _DIGITS.fullmatch(digits):
        raise ValueError(f"{text[:_LONG_DIGITS]!r} is not a whole number")
    value = int(sign + digits)
    # -2**31 is a long here: a literal too large for an int, negated.
    limit = _INT_MAX if -_INT_MAX <= like <= _INT_MAX else _LONG_MAX
    if not -limit - 1 <= value <= limit:
        raise ValueError(f"{text[:_LONG_DIGITS]!r} cannot be compared with {like}")
    return value


def floating(text: str) -> float:
    """Like Double.valueOf: blanks around it, a suffix, hexadecimal, NaN and Infinity are allowed."""
    bare = text.strip(_ASCII_BLANKS)
    match = _DECIMAL.fullmatch(bare)
    if match:
        return float(match[1])
    match = _HEXADECIMAL.fullmatch(bare)
    if match:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if bare.startswith("-") else math.inf
    if bare in _NAMED:
        return _NAMED[bare]
    raise ValueError(f"{text[:_LONG_DIGITS]!r} is not a number")


def order(left: Value, right: Value) -> int:
    """-1, 0 or 1: the order of two texts or numbers for <, <=, > and >=."""
    if isinstance(left, str) and isinstance(right, str):
        return order_of_doubles(floating(left), floating(right))
    return _order_of_numbers(*_alike(left, right))


def equal(left: Value, right: Value) -> bool:
    """Whether two values are equal for =; neither is NULL. Texts must be identical."""
    if isinstance(left, bool) or isinstance(right, bool):
        return _equal_booleans(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return _order_of_numbers(*_alike(left, right)) == 0


def _equal_booleans(left: Value, right: Value) -> bool:
    if isinstance(left, str):
        return (left.lower() == "true") == right
    if isinstance(right, str):
        # Java casts the wrong side and fails: only `a = TRUE` works, not `TRUE = a`.
        raise ValueError(f"{left} is not text")
    return isinstance(left, bool) and isinstance(right, bool) and left == right


def _alike(left: Value, right: Value) -> tuple[int | float, int | float]:
    """Two numbers of one Java class; a text is read as the class of the other side."""
    assert left is not None and right is not None
    if isinstance(left, str):
        assert not isinstance(right, str)
        left = whole_number(left, right) if isinstance(right, int) else floating(left)
    elif isinstance(right, str):
        right = whole_number(right, left) if isinstance(left, int) else floating(right)
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


def _order_of_numbers(left: int | float, right: int | float) -> int:
    if isinstance(left, float):
        return order_of_doubles(left, right)
    return (left > right) - (left < right)


def order_of_doubles(left: float, right: float) -> int:
    """-1, 0 or 1 by Double.compareTo: -0.0 is less than 0.0, and NaN is greater than all but itself."""
    if left == right == 0:
        left, right = math.copysign(1, left), math.copysign(1, right)
    if left == right:
        return 0
    if left < right:
        return -1
    return 1 if left > right else math.isnan(left) - math.isnan(right)
