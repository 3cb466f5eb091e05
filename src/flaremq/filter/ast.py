"""A filter expression as a tree of plain values.

A condition is true, false or unknown. An operand is a text, a number, true, false or null. A condition may
stand in place of an operand, and a lone property in place of a condition: both are valid in RocketMQ, if
seldom what the author meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None
"""The value of an operand for one message. A number beyond 32 bits is a long in Java."""


class Comparison(Enum):
    EQUAL = "="
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="


class SearchAnchor(Enum):
    """Where in a text another one is searched."""

    ANYWHERE = "CONTAINS"
    START = "STARTSWITH"
    END = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """Always a text, or null."""

    name: str


@dataclass(frozen=True, slots=True)
class Negated:
    """Null unless the operand is a number."""

    operand: SyntaxNode


@dataclass(frozen=True, slots=True)
class Truth:
    """A property as a condition. Only a boolean can be true, and a property is a text: it is never true."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    operand: SyntaxNode


@dataclass(frozen=True, slots=True)
class All:
    """AND, of two or more."""

    parts: tuple[SyntaxNode, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """OR, of two or more."""

    parts: tuple[SyntaxNode, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    how: Comparison
    left: SyntaxNode
    right: SyntaxNode


@dataclass(frozen=True, slots=True)
class Between:
    """Not two comparisons, so that the operand is evaluated once, however deep it is."""

    operand: SyntaxNode
    low: SyntaxNode
    high: SyntaxNode
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In:
    operand: Property
    values: frozenset[str]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    place: SearchAnchor
    operand: SyntaxNode
    wanted: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: SyntaxNode


Condition: TypeAlias = Truth | Not | All | Some | Compare | Between | In | Search | IsNull
SyntaxNode: TypeAlias = Constant | Property | Negated | Condition


def is_condition(node: SyntaxNode) -> bool:
    """TRUE, FALSE and NULL are both: a value and a condition."""
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negated)


def inner(node: SyntaxNode) -> tuple[SyntaxNode, ...]:
    """The nodes directly below this one."""
    match node:
        case Constant() | Property():
            return ()
        case All(parts) | Some(parts):
            return parts
        case Compare(_, left, right):
            return left, right
        case Between(operand, low, high):
            return operand, low, high
        case _:
            return (node.operand,)


def property_names(node: SyntaxNode) -> frozenset[str]:
    """Every property in the expression."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Property):
            found.add(one.name)
        waiting.extend(inner(one))
    return frozenset(found)
