"""Selectors: whether a message matches a subscription.

    subscription > [selector] > store.reader > records

A selector is asked twice: about the queue entry and, if that does not settle it, about the record. There are
two kinds. A subscription to everything has no selector, and a reader that is given None takes every entry
without asking. So `codes` is None only for SQL92.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from flaremq.base.errors import InvalidExpression
from flaremq.filter.bloom import BloomFilter, is_hit
from flaremq.filter.groupfilter import SQL92, GroupFilter
from flaremq.filter.predicate import Predicate, compile_predicate
from flaremq.filter.tags import ALL, code_array, parse_tags, tags_code_of_entry
from flaremq.filter.tokens import shown
from flaremq.model import names
from flaremq.model.columns import Check, Fact, facts_table
from flaremq.model.properties import RETRY_TOPIC, decode_text, find_property
from flaremq.model.record import walk

TAG: Final = "TAG"

_POP_RETRY_SEPARATOR: Final = "+"
_EMPTY_ROW: Final = facts_table(1)


class Unit(Protocol):
    """What a filter needs of a queue extension."""

    @property
    def store_ms(self) -> int: ...
    @property
    def bit_map(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class TagSelector:
    """Matches messages whose tag has one of these hashes."""

    codes: array[int] = field(hash=False)

    def matches_entry(self, tags_code: int, unit: Unit | None) -> bool:  # noqa: ARG002
        return _holds(self.codes, tags_code_of_entry(tags_code))

    def matches_record(self, record: memoryview) -> bool:
        """Called if an entry did not decide, because the unit with the hash is lost.

        Java lets such a message through, and its consumer discards it.
        """
        facts = _facts_of(record)
        return facts is not None and _holds(self.codes, facts[Fact.TAGS_CODE])


@dataclass(frozen=True, slots=True)
class SqlSelector:
    """Matches messages whose properties satisfy an expression."""

    predicate: Predicate
    born_ms: int = 0
    """Bit maps count only for messages stored after this."""
    mask: int = 0
    """The bits of its group; 0 if it has none, and must check every record."""
    bit_map_size: int = 0
    """The size of the maps that the mask was made for, in bytes."""

    @property
    def codes(self) -> None:
        return None

    def matches_entry(self, tags_code: int, unit: Unit | None) -> bool:  # noqa: ARG002
        if not self.mask or unit is None or unit.store_ms <= self.born_ms:
            return True
        return len(unit.bit_map) != self.bit_map_size or is_hit(unit.bit_map, self.mask)

    def matches_record(self, record: memoryview) -> bool:
        properties = _properties_of(record)
        return properties is not None and self.predicate.matches_raw(properties)


FilterLookup: TypeAlias = Callable[[str, str], GroupFilter | None]
"""The kept filter of a topic and group."""


@dataclass(frozen=True, slots=True)
class RetrySelector:
    """Matches messages of a retry topic by the group's subscriptions to their original topics.

    Only with filterSupportRetry. Entries are checked as without it, and a message of a topic that the group
    does not filter matches.
    """

    own: SqlSelector
    group: str
    filter_of: FilterLookup

    @property
    def codes(self) -> None:
        return None

    def matches_entry(self, tags_code: int, unit: Unit | None) -> bool:
        return self.own.matches_entry(tags_code, unit)

    def matches_record(self, record: memoryview) -> bool:
        properties = _properties_of(record)
        if properties is None:
            return False
        origin = find_property(properties, RETRY_TOPIC.encode())
        found = None if origin is None else self.filter_of(decode_text(origin), self.group)
        return found is None or found.predicate.matches_raw(properties)


AnySelector: TypeAlias = TagSelector | SqlSelector | RetrySelector


def compile_selector(
    expression_type: str | None, text: str | None, codes: Collection[int] | None = None
) -> TagSelector | SqlSelector | None:
    """The selector of a subscription; None if it selects everything.

    `codes` are the hashes from a heartbeat (codeSet): Java's broker uses them, and only checks whether the
    text is `*`. Raises InvalidExpression if a text cannot be parsed.
    """
    if not expression_type or expression_type == TAG:
        return _tag_selector(text, codes)
    if expression_type != SQL92:
        raise InvalidExpression(f"expression type {shown(expression_type)}, expected {TAG} or {SQL92}")
    if not text:
        raise InvalidExpression("the expression is empty: use TRUE to select everything")
    return SqlSelector(compile_predicate(text))


def _tag_selector(text: str | None, codes: Collection[int] | None) -> TagSelector | None:
    if codes is not None:
        return None if text == ALL else TagSelector(code_array(map(tags_code_of_entry, codes)))
    found = parse_tags(text).codes()
    return None if found is None else TagSelector(found)


def group_selector(kept: GroupFilter, bloom: BloomFilter) -> SqlSelector:
    """The selector of a kept filter: it may use the bit maps calculated since the filter's birth."""
    if not bloom.owns(kept.bits):
        return SqlSelector(kept.predicate)
    return SqlSelector(kept.predicate, kept.born_ms, kept.bits.mask, kept.bits.bit_count // 8)


def retry_selector(own: AnySelector | None, topic: str, filter_of: FilterLookup) -> AnySelector | None:
    """With filterSupportRetry: the selector `own` of a subscription to `topic`, if that is a retry topic.

    Java's push consumers subscribe to their retry topic with `*`, so nothing changes for them.
    """
    if not isinstance(own, SqlSelector) or not names.is_retry(topic):
        return own
    return RetrySelector(own, _group_of(topic), filter_of)


def _group_of(topic: str) -> str:
    """The group of `%RETRY%group`, or of a pop consumer's `%RETRY%group+topic` (KeyBuilder.parseGroup)."""
    pieces = topic.removeprefix(names.RETRY_PREFIX).split(_POP_RETRY_SEPARATOR)
    return pieces[0] if len(pieces) == 2 else _POP_RETRY_SEPARATOR.join(pieces)


def _holds(codes: array[int], code: int) -> bool:
    at = bisect_left(codes, code)
    return at < len(codes) and codes[at] == code


def _facts_of(record: memoryview) -> array[int] | None:
    facts = _EMPTY_ROW[:]
    count, _, _ = walk(record, 0, len(record), 0, facts, Check.NOTHING)
    return facts if count else None


def _properties_of(record: memoryview) -> bytes | None:
    """None for bytes that are not a record."""
    facts = _facts_of(record)
    if facts is None:
        return None
    at = facts[Fact.PROPERTIES_AT]
    return bytes(record[at : at + facts[Fact.PROPERTIES_SIZE]])
