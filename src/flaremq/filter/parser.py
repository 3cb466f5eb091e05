"""From the text of a filter expression to its tree.

    text > tokens > [parser] > ast > evaluate

The grammar is SelectorParser.jj's, its levels from loose to tight:

    or          and ( OR and )*
    and         equality ( AND equality )*
    equality    comparison ( = | <> comparison, IS [NOT] NULL )*
    comparison  prefix ( < | <= | > | >= prefix, [NOT] BETWEEN prefix AND prefix, [NOT] IN (texts),
                         [NOT] CONTAINS | STARTSWITH | ENDSWITH text )*
    prefix      ( NOT | - | + )* ( value | property | "(" or ")" )

NOT binds tighter than everything else: `NOT a = 1` is `(NOT a) = 1`. The checks that Java makes while it
builds the tree (ComparisonExpression.java) are made here. One difference: Java does not require the end of
the text and ignores what follows a complete expression, so that `a = 1) AND b = 2` filters by `a` alone and
`a LIKE 'x%'` by nothing. Such a text is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

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
    is_condition,
)
from flaremq.filter.tokens import Token, TokenKind, shown, tokenize
from flaremq.filter.values import order

NESTING_MAX: Final = 64
"""Nested parentheses. Each takes up to eight Python frames here, of a thousand."""
DEPTH_MAX: Final = 200
"""Depth of the tree: one frame per node when a message is checked."""
NODES_MAX: Final = 2048
"""Nodes per tree: every message pays for every node. The texts of an IN are not nodes."""

_ORDERINGS: Final = (TokenKind.GREATER, TokenKind.GREATER_EQUAL, TokenKind.LESS, TokenKind.LESS_EQUAL)
_SEARCHES: Final = (TokenKind.CONTAINS, TokenKind.STARTSWITH, TokenKind.ENDSWITH)
_CONSTANTS: Final = {TokenKind.TRUE: True, TokenKind.FALSE: False, TokenKind.NULL: None}
_BEGINS_A_VALUE: Final = frozenset(
    {TokenKind.NAME, TokenKind.STRING, TokenKind.NUMBER, TokenKind.OPEN, *_CONSTANTS}
)
_AFTER_NOT: Final = "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH"


def parse(text: str) -> SyntaxNode:
    """The tree of an expression, with a condition at its root. Raises InvalidExpression with the place."""
    return _Parser(tokenize(text)).whole()


@dataclass(frozen=True, slots=True)
class _Part:
    """A subtree, where its text begins, and its depth."""

    node: SyntaxNode
    at: int
    depth: int = 1


class _Parser:
    def __init__(self, tokens: Iterator[Token]) -> None:
        self._tokens = tokens
        self._here = next(tokens)
        self._nesting = 0
        self._nodes = 0

    def whole(self) -> SyntaxNode:
        root = self._condition(self._or())
        if self._here.kind is not TokenKind.END:
            raise self._unexpected("a comparison, AND, OR or the end")
        return root.node

    def _or(self) -> _Part:
        parts = [self._and()]
        while self._took(TokenKind.OR):
            parts.append(self._and())
        return self._chain(Some, parts)

    def _and(self) -> _Part:
        parts = [self._equality()]
        while self._took(TokenKind.AND):
            parts.append(self._equality())
        return self._chain(All, parts)

    def _chain(self, kind: type[All | Some], parts: list[_Part]) -> _Part:
        """A run of ANDs or ORs is one node, evaluated from left to right, however long."""
        if len(parts) == 1:
            return parts[0]
        conditions = [self._condition(part) for part in parts]
        return self._made(kind(tuple(part.node for part in conditions)), parts[0].at, *conditions)

    def _condition(self, part: _Part) -> _Part:
        if isinstance(part.node, Property):
            return self._made(Truth(part.node), part.at, part)
        if not is_condition(part.node):
            raise _refused(part, "a condition: compare it with something")
        return part

    def _equality(self) -> _Part:
        left = self._comparison()
        while True:
            if self._took(TokenKind.IS):
                left = self._null_check(left)
            elif self._here.kind in (TokenKind.EQUAL, TokenKind.UNEQUAL):
                operator = self._next().kind
                left = self._equal(left, operator, self._comparison())
            else:
                return left

    def _null_check(self, left: _Part) -> _Part:
        negated = self._took(TokenKind.NOT)
        self._expect(TokenKind.NULL, "NULL" if negated else "NULL or NOT NULL")
        found = self._made(IsNull(left.node), left.at, left)
        return self._made(Not(found.node), left.at, found) if negated else found

    def _equal(self, left: _Part, operator: TokenKind, right: _Part) -> _Part:
        for side in (left, right):
            if side.node == Constant(None):
                raise _refused(side, f"a value or a property: IS NULL asks for it, not {operator.value}")
        # Only in this order, as in Java: 5 = TRUE is allowed, and never true.
        if _is_boolean(left.node) and isinstance(right.node, Constant) and not _is_boolean(right.node):
            raise _refused(right, "TRUE, FALSE or a property, as on the other side")
        found = self._made(Compare(Comparison.EQUAL, left.node, right.node), left.at, left, right)
        return self._made(Not(found.node), left.at, found) if operator is TokenKind.UNEQUAL else found

    def _comparison(self) -> _Part:
        left = self._prefixed()
        while True:
            if self._here.kind in _ORDERINGS:
                operator = self._next().kind
                left = self._ordered(left, operator, self._prefixed())
                continue
            negated = self._took(TokenKind.NOT)
            if self._took(TokenKind.BETWEEN):
                left = self._between(left, negated)
            elif self._took(TokenKind.IN):
                left = self._among(left, negated)
            elif self._here.kind in _SEARCHES:
                left = self._search(left, negated)
            elif negated:
                raise self._unexpected(_AFTER_NOT)
            else:
                return left

    def _ordered(self, left: _Part, operator: TokenKind, right: _Part) -> _Part:
        for side in (left, right):
            _check_ordered(side, operator.value)
        node = Compare(Comparison(operator.value), left.node, right.node)
        return self._made(node, left.at, left, right)

    def _search(self, operand: _Part, negated: bool) -> _Part:
        place = SearchAnchor(self._next().kind.value)
        wanted = str(self._expect(TokenKind.STRING, "a text in quotes").value)
        return self._made(Search(place, operand.node, wanted, negated), operand.at, operand)

    def _between(self, operand: _Part, negated: bool) -> _Part:
        low = self._prefixed()
        self._expect(TokenKind.AND, "AND")
        high = self._prefixed()
        for side in (operand, low, high):
            _check_ordered(side, "BETWEEN")
        if not negated:
            _check_range(low, high)
        node = Between(operand.node, low.node, high.node, negated)
        return self._made(node, operand.at, operand, low, high)

    def _among(self, operand: _Part, negated: bool) -> _Part:
        if not isinstance(operand.node, Property):
            raise _refused(operand, "a property before IN")
        self._expect(TokenKind.OPEN, "'('")
        values = []
        while True:
            values.append(str(self._expect(TokenKind.STRING, "a text in quotes").value))
            if not self._took(TokenKind.COMMA):
                break
        self._expect(TokenKind.CLOSE, "',' or ')'")
        return self._made(In(operand.node, frozenset(values), negated), operand.at, operand)

    def _prefixed(self) -> _Part:
        prefixes = []
        while self._here.kind in (TokenKind.NOT, TokenKind.MINUS, TokenKind.PLUS):
            prefixes.append(self._next())
            if len(prefixes) > DEPTH_MAX:
                raise _too_deep(prefixes[0].at, "operators", DEPTH_MAX)
        found = self._primary()
        for prefix in reversed(prefixes):
            if prefix.kind is TokenKind.NOT:
                operand = self._condition(found)
                found = self._made(Not(operand.node), prefix.at, operand)
            elif prefix.kind is TokenKind.MINUS:
                found = self._made(Negated(found.node), prefix.at, found)
        return found

    def _primary(self) -> _Part:
        if self._here.kind not in _BEGINS_A_VALUE:
            raise self._unexpected("a property, a value, NOT or '('")
        token = self._next()
        if token.kind is TokenKind.OPEN:
            return self._group(token)
        if token.kind is TokenKind.NAME:
            return self._made(Property(token.text), token.at)
        return self._made(Constant(_CONSTANTS.get(token.kind, token.value)), token.at)

    def _group(self, opened: Token) -> _Part:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise _too_deep(opened.at, "parentheses", NESTING_MAX)
        found = self._or()
        self._expect(TokenKind.CLOSE, "a comparison, AND, OR or ')'")
        self._nesting -= 1
        return _Part(found.node, opened.at, found.depth)

    def _made(self, node: SyntaxNode, at: int, *below: _Part) -> _Part:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise InvalidExpression(
                f"at character {at}: found node {NODES_MAX + 1}, the limit is {NODES_MAX}: "
                "many texts for one property are cheaper in an IN",
                at,
            )
        depth = 1 + max((part.depth for part in below), default=0)
        if depth > DEPTH_MAX:
            raise _too_deep(at, "operators", DEPTH_MAX)
        return _Part(node, at, depth)

    def _next(self) -> Token:
        token = self._here
        if token.kind is not TokenKind.END:
            self._here = next(self._tokens)
        return token

    def _took(self, kind: TokenKind) -> bool:
        if self._here.kind is not kind:
            return False
        self._next()
        return True

    def _expect(self, kind: TokenKind, expected: str) -> Token:
        if self._here.kind is not kind:
            raise self._unexpected(expected)
        return self._next()

    def _unexpected(self, expected: str) -> InvalidExpression:
        found = self._here
        return InvalidExpression(f"at character {found.at}: found {found}, expected {expected}", found.at)


def _check_ordered(part: _Part, operator: str) -> None:
    if isinstance(part.node, Constant):
        if isinstance(part.node.value, bool) or not isinstance(part.node.value, int | float):
            raise _refused(part, f"a number or a property, as {operator} compares numbers only")
    elif is_condition(part.node):
        raise _refused(part, f"a number or a property, as {operator} compares numbers only")


def _check_range(low: _Part, high: _Part) -> None:
    """Checked for plain numbers only: Java does not look through a minus sign."""
    if not isinstance(low.node, Constant) or not isinstance(high.node, Constant):
        return
    if order(low.node.value, high.node.value) > 0:
        raise _refused(high, f"a number not below {low.node.value}, where the range begins")


def _is_boolean(node: SyntaxNode) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, bool)


def _refused(part: _Part, expected: str) -> InvalidExpression:
    return InvalidExpression(
        f"at character {part.at}: found {_named(part.node)}, expected {expected}", part.at
    )


def _named(node: SyntaxNode) -> str:
    match node:
        case Constant(None):
            return "NULL"
        case Constant(value):
            return shown(value) if isinstance(value, str) else str(value).upper()
        case Property(name):
            return shown(name)
        case Negated():
            return "a negated value"
        case _:
            return "a condition"


def _too_deep(at: int, what: str, limit: int) -> InvalidExpression:
    return InvalidExpression(
        f"at character {at}: found level {limit + 1} of {what} within each other, the limit is {limit}: "
        "take out what changes nothing",
        at,
    )
