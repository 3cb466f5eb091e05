"""The compiled filters of groups that filter by expression, and the bit maps calculated from them.

    dispatch > [BitMapCalculator] > queue extension > selector

A bit map is valid for a group only if the message was stored after the group's filter was born: older ones
were calculated without it. So a filter must stay in use while its consumers are away. Java keeps it until
filterDataCleanTimeSpan has passed, and so must the owner of the filters: a group that came back with an old
birth time would take maps calculated without it for a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from flaremq.base.errors import Malformed
from flaremq.filter.bloom import BloomBits, BloomFilter
from flaremq.filter.predicate import Predicate, compile_predicate
from flaremq.model.columns import Bytes
from flaremq.model.jsonfields import Fields
from flaremq.model.properties import decode_properties

SQL92: Final = "SQL92"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """The filter of one group for one topic: ConsumerFilterData, a member of consumerFilter.json."""

    topic: str
    group: str
    predicate: Predicate
    bits: BloomBits
    born_ms: int
    dead_ms: int = 0
    """When its last consumer left; 0 while there are consumers."""
    client_version: int = 0
    """subVersion of the subscription that it was made from."""

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    def was_asked_at(self, store_ms: int) -> bool:
        """Whether it was part of the bit map of a message stored then."""
        return store_ms > self.born_ms

    def to_dict(self) -> dict[str, object]:
        return {
            "bloomFilterData": {"bitNum": self.bits.bit_count, "bitPos": list(self.bits.positions)},
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.predicate.text,
            "expressionType": SQL92,
            "topic": self.topic,
        }

    @classmethod
    def of(cls, fields: Fields) -> GroupFilter:
        """Raises InvalidExpression or Malformed if it cannot be read. `dead` is not read but computed."""
        if fields.text("expressionType") != SQL92:
            raise Malformed(f"expressionType is {fields.text('expressionType')!r}, expected {SQL92}")
        bloom = fields.inner("bloomFilterData")
        if bloom is None:
            raise Malformed("bloomFilterData is missing")
        return cls(
            topic=fields.text("topic"),
            group=fields.text("consumerGroup"),
            predicate=compile_predicate(fields.text("expression")),
            bits=BloomBits(bloom.integers("bitPos", ()), bloom.integer("bitNum", 0)),
            born_ms=fields.integer("bornTime", 0),
            dead_ms=fields.integer("deadTime", 0),
            client_version=fields.integer("clientVersion", 0),
        )


class BitMapCalculator:
    """A store.api.BitMapper. Runs in the dispatching thread.

    `filters_of` returns the filters of all groups of a topic, dead ones too, and must not change a sequence
    that it has returned: filters are registered in another thread.
    """

    def __init__(self, bloom: BloomFilter, filters_of: Callable[[bytes], Sequence[GroupFilter]]) -> None:
        self._bloom = bloom
        self._filters_of = filters_of

    def bit_map(self, topic: bytes, properties: Bytes) -> bytes:
        """Empty if no group filters this topic."""
        filters = self._filters_of(topic)
        if not filters:
            return b""
        decoded = decode_properties(bytes(properties))
        bits = 0
        for one in filters:
            # Bits of another size are skipped; their group does not use the map either.
            if self._bloom.owns(one.bits) and one.predicate.matches(decoded):
                bits |= one.bits.mask
        return bits.to_bytes(self._bloom.bit_count // 8, "little")
