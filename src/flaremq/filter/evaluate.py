"""Evaluates an expression for a message: true, false or unknown.

    text > tokens > parser > ast > [evaluate]

A tree is compiled to functions once, and not walked again for every message. NOT, AND and OR are those of
SQL: a comparison with a missing property is unknown, and a message matches only if the result is true. Where
RocketMQ's evaluation fails, a function raises ValueError (values.py), and the message does not match:
`a > 1 OR TRUE` does not match a = 'x'.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

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
    Value,
)
from flaremq.filter.values import equal, order, whole_number

Properties: TypeAlias = Mapping[str, str]
Evaluation: TypeAlias = Callable[[Properties], Value]

_OPERATORS: Final[Mapping[Comparison, Callable[[int, int], bool]]] = {
    Comparison.EQUAL: operator.eq,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_EQUAL: operator.ge,
    Comparison.LESS: operator.lt,
    Comparison.LESS_EQUAL: operator.le,
}
_ORDERS: Final = {
    Comparison.GREATER: (1,),
    Comparison.GREATER_EQUAL: (0, 1),
    Comparison.LESS: (-1,),
    Comparison.LESS_EQUAL: (-1, 0),
}


def evaluation(node: SyntaxNode) -> Evaluation:
    """A function from the properties of a message to the value of this tree."""
    match node:
        case Constant(value):
            return lambda _: value
        case Property(name):
            return lambda properties: properties.get(name)
        case Truth(operand):
            return _truth(operand.name)
        case Negated(operand):
            return _negated(evaluation(operand))
        case Not(operand):
            return _not(evaluation(operand))
        case All(parts):
            return _all(tuple(map(evaluation, parts)))
        case Some(parts):
            return _some(tuple(map(evaluation, parts)))
        case Compare():
            return _compare(node)
        case Between():
            return _between(node)
        case In(operand, values, negated):
            return _in(operand.name, values, negated)
        case Search():
            return _search(node)
        case IsNull(operand):
            return _is_null(evaluation(operand))


def _truth(name: str) -> Evaluation:
    return lambda properties: None if properties.get(name) is None else False


def _negated(operand: Evaluation) -> Evaluation:
    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return -value

    return evaluate


def _not(operand: Evaluation) -> Evaluation:
    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _all(parts: tuple[Evaluation, ...]) -> Evaluation:
    def evaluate(properties: Properties) -> Value:
        unknown = False
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            unknown |= value is None
        return None if unknown else True

    return evaluate


def _some(parts: tuple[Evaluation, ...]) -> Evaluation:
    def evaluate(properties: Properties) -> Value:
        unknown = False
        for part in parts:
            value = part(properties)
            if value is True:
                return True
            unknown |= value is None
        return None if unknown else False

    return evaluate


def _compare(node: Compare) -> Evaluation:
    if isinstance(node.left, Property) and isinstance(node.right, Constant):
        quick = _beside_constant(node.left.name, node.how, node.right.value)
        if quick:
            return quick
    left, right = evaluation(node.left), evaluation(node.right)
    if node.how is Comparison.EQUAL:
        return _equal(left, right)
    return _ordered(left, right, _ORDERS[node.how])


def _beside_constant(name: str, how: Comparison, constant: Value) -> Evaluation | None:
    """A shortcut for the most common comparisons, with the same result."""
    if isinstance(constant, int) and not isinstance(constant, bool):
        number, holds = constant, _OPERATORS[how]

        def with_number(properties: Properties) -> Value:
            text = properties.get(name)
            return None if text is None else holds(whole_number(text, number), number)

        return with_number
    if isinstance(constant, str) and how is Comparison.EQUAL:

        def with_text(properties: Properties) -> Value:
            text = properties.get(name)
            return None if text is None else text == constant

        return with_text
    return None


def _equal(left: Evaluation, right: Evaluation) -> Evaluation:
    def evaluate(properties: Properties) -> Value:
        one, other = left(properties), right(properties)
        if one is None:  # Two missing values are equal; one missing value equals nothing.
            return True if other is None else None
        return False if other is None else equal(one, other)

    return evaluate


def _ordered(left: Evaluation, right: Evaluation, wanted: tuple[int, ...]) -> Evaluation:
    def evaluate(properties: Properties) -> Value:
        one = left(properties)
        if one is None:
            return None
        other = right(properties)
        return None if other is None else order(one, other) in wanted

    return evaluate


def _between(node: Between) -> Evaluation:
    """Two comparisons; the second is made only if the first does not decide."""
    operand, low, high = evaluation(node.operand), evaluation(node.low), evaluation(node.high)
    negated = node.negated

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        if value is None:
            return None
        bound = low(properties)
        if bound is not None and order(value, bound) < 0:
            return negated
        unknown = bound is None
        bound = high(properties)
        if bound is not None and order(value, bound) > 0:
            return negated
        return None if unknown or bound is None else not negated

    return evaluate


def _in(name: str, values: frozenset[str], negated: bool) -> Evaluation:
    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else (value in values) is not negated

    return evaluate


def _search(node: Search) -> Evaluation:
    """Never unknown: for a value that is missing or not a text, false even if negated."""
    if not node.wanted:
        return lambda _: False
    operand, wanted, negated = evaluation(node.operand), node.wanted, node.negated
    found = _FINDERS[node.place]

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return isinstance(value, str) and found(value, wanted) is not negated

    return evaluate


_FINDERS: Final[Mapping[SearchAnchor, Callable[[str, str], bool]]] = {
    SearchAnchor.ANYWHERE: str.__contains__,
    SearchAnchor.START: str.startswith,
    SearchAnchor.END: str.endswith,
}


def _is_null(operand: Evaluation) -> Evaluation:
    return lambda properties: operand(properties) is None
