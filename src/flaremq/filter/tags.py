"""Subscriptions by tag: `TagA || TagB`, or `*` or an empty text for every message.

A broker compares hashes, which is all that a queue entry contains; a consumer compares the texts, because two
tags may share a hash. Parsing follows Java (FilterAPI.buildSubscriptionData): `*` means everything only when
it stands alone, and a blank text means nothing at all.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from flaremq.base.errors import InvalidExpression
from flaremq.filter.tokens import TEXT_LENGTH_MAX
from flaremq.model.tags import java_hash

ALL: Final = "*"
SEPARATOR: Final = "||"

_ASCII_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's String.trim removes."""


@dataclass(frozen=True, slots=True)
class TagSet:
    """The tags of a subscription; None stands for all tags."""

    tags: frozenset[str] | None

    def codes(self) -> array[int] | None:
        """The hashes of the tags for a broker, in order."""
        return None if self.tags is None else code_array(map(java_hash, self.tags))

    def matches(self, tag: str | None) -> bool:
        """The consumer's check, by text. A message without a tag matches no subscription that names one."""
        return self.tags is None or tag in self.tags


def parse_tags(text: str | None) -> TagSet:
    if not text or text == ALL:
        return TagSet(None)
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidExpression(
            f"tags of {len(text)} characters, the limit is {TEXT_LENGTH_MAX}: name fewer, or subscribe to *",
            TEXT_LENGTH_MAX,
        )
    pieces = text.split(SEPARATOR)
    if not any(pieces):
        raise InvalidExpression(f"at character 0: found {text[:8]!r}, expected a tag or *")
    bare = (piece.strip(_ASCII_BLANKS) for piece in pieces)
    return TagSet(frozenset(piece for piece in bare if piece))


def code_array(codes: Iterable[int]) -> array[int]:
    """Each code once, smallest first, as the store expects them."""
    return array("q", sorted(set(codes)))


def tags_code_of_entry(stored: int) -> int:
    """The hash in the 64 bits of a queue entry: Java keeps the lower half, with its sign."""
    return (stored + 2**31 & 0xFFFF_FFFF) - 2**31
