"""The tokens of a filter expression, as in SelectorParser.jj.

    text > [tokens] > parser > ast > evaluate

Reserved words are case-insensitive, property names are not. Two things are handled here that go unnoticed in
Java, whose parser stops reading at the first token that it cannot use: `0L` is a number, `007` is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from flaremq.base.errors import InvalidExpression
from flaremq.base.units import KiB

TEXT_LENGTH_MAX: Final = 16 * KiB
"""In characters. Java has no limit; here a longer text would block the event loop."""

_LONG_MAX: Final = 2**63 - 1
_LONG_DIGITS: Final = 19
_SHOWN_MAX: Final = 24


class TokenKind(Enum):
    """What a token is, in the words of an error message."""

    NAME = "a property"
    STRING = "a text in quotes"
    NUMBER = "a number"
    END = "the end"
    NOT = "NOT"
    AND = "AND"
    OR = "OR"
    BETWEEN = "BETWEEN"
    IN = "IN"
    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"
    IS = "IS"
    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"
    EQUAL = "="
    UNEQUAL = "<>"
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="
    OPEN = "("
    CLOSE = ")"
    COMMA = ","
    PLUS = "+"
    MINUS = "-"


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    text: str
    at: int
    """The character of the expression where it begins."""
    value: str | int | float = ""
    """The value of a name, a text or a number."""

    def __str__(self) -> str:
        return TokenKind.END.value if self.kind is TokenKind.END else shown(self.text)


_BY_TEXT: Final = {
    kind.value: kind for kind in TokenKind if kind.value.isupper() or not kind.value[0].isalpha()
}
_ENDS_A_VALUE: Final = frozenset(
    {
        TokenKind.NAME,
        TokenKind.STRING,
        TokenKind.NUMBER,
        TokenKind.TRUE,
        TokenKind.FALSE,
        TokenKind.NULL,
        TokenKind.CLOSE,
    }
)
_LINE_END: Final = re.compile(r"[\n\r]")
# No alternative can match the same characters in two ways, so none is ever tried twice.
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\n\r\f]+)
    |(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<float>[0-9]++(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<integer>(?:0|[1-9][0-9]*+)(?![0-9])[lL]?)
    |(?P<string>'[^']*(?:''[^']*)*')
    |(?P<comment>/\*|--)
    |(?P<sign><=|<>|>=|[=<>(),+-])""",
    re.VERBOSE,
)


def shown(text: str) -> str:
    """A part of the expression for an error, shortened so that it cannot flood a log."""
    return repr(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…")


def tokenize(text: str) -> Iterator[Token]:
    """One token after the other, END last. Raises InvalidExpression at a character that cannot begin one.

    Lazy: nothing is read after an error.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidExpression(
            f"expression of {len(text)} characters, the limit is {TEXT_LENGTH_MAX}: "
            "shorten it, or mark the messages with a property of their own",
            TEXT_LENGTH_MAX,
        )
    last_line_at = max(text.rfind("\n"), text.rfind("\r"))
    at, kind = 0, TokenKind.END
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(text, at)
        end, group = match.end(), match.lastgroup
        if group == "comment":
            end = _behind_comment(text, at, last_line_at, kind)
        if group != "blank" and (group != "comment" or end == at):
            token = _token(match)
            kind, end = token.kind, at + len(token.text)
            yield token
        at = end
    yield Token(TokenKind.END, "", len(text))


def _behind_comment(text: str, at: int, last_line_at: int, before: TokenKind) -> int:
    """The end of the comment that begins here; `at` if there is no comment."""
    if text[at] == "/":
        end = text.find("*/", at + 2)
        if end < 0:
            raise InvalidExpression(f"at character {at}: found a comment without end, expected '*/'", at)
        return end + 2
    # In Java only a line end makes a comment: `a > --5` is a value negated twice. Behind a value
    # that cannot be meant, and there Java stops reading, so that a last comment works too.
    line_end = _LINE_END.search(text, at) if at < last_line_at else None
    if line_end:
        return line_end.end()
    return len(text) if before in _ENDS_A_VALUE else at


def _token(piece: re.Match[str]) -> Token:
    found, at = piece[0], piece.start()
    match piece.lastgroup:
        case "word":
            return Token(_BY_TEXT.get(found.upper(), TokenKind.NAME), found, at, found)
        case "sign":
            return Token(_BY_TEXT[found], found, at)
        case "comment":  # Not a comment: two signs.
            return Token(TokenKind.MINUS, found[0], at)
        case "string":
            return Token(TokenKind.STRING, found, at, found[1:-1].replace("''", "'"))
        case _:
            return Token(TokenKind.NUMBER, found, at, _number(found, at))


def _unreadable(text: str, at: int) -> InvalidExpression:
    found, expected = shown(text[at]), "a property, a value or an operator"
    if text[at] == "'":
        found, expected = "a text without end", "a closing quote"
    elif text[at] == "0":
        found, expected = "a number with a zero in front", "one without"
    return InvalidExpression(f"at character {at}: found {found}, expected {expected}", at)


def _number(found: str, at: int) -> int | float:
    digits = found.rstrip("lL")
    if digits.isdecimal():
        value = int(digits) if len(digits) <= _LONG_DIGITS else _LONG_MAX + 1
        if value > _LONG_MAX:
            raise InvalidExpression(
                f"at character {at}: found {shown(found)}, expected a whole number up to {_LONG_MAX}", at
            )
        return value
    number = float(digits)
    if not 0 < number < math.inf:  # Java refuses 0.0 too: less than Double.MIN_VALUE.
        raise InvalidExpression(
            f"at character {at}: found {shown(found)}, expected a number that a double can hold, "
            "above zero: zero is written 0",
            at,
        )
    return number
