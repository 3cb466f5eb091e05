"""What a broker keeps of the groups that filter by expression, and the bit maps made from it.

    dispatch > [BitMapCalculator] > queue extension > selector

A bit map tells a group only of messages that were stored after its filter was born: what is older
was mapped without it. So a filter must go on being asked while its consumers are away. Java does so
until filterDataCleanTimeSpan has passed, and whoever holds the filters must too: a group that came
back to an old birth would take maps that never knew it for a refusal.
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
    """When its last consumer left; 0 while there are some."""
    client_version: int = 0
    """subVersion of the subscription that it was made from."""

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    def was_asked_at(self, store_ms: int) -> bool:
        """Whether it had a say in the bit map of a message stored then."""
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
        """InvalidExpression or Malformed if a part of it cannot be read; whether it is dead is computed."""
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

    `filters_of` gives the filters of all groups of a topic, dead ones too, and must not change a
    sequence that it has given out: the thread that registers filters is another one.
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
            # Bits of another size are passed over; their owner does not trust the map either.
            if self._bloom.owns(one.bits) and one.predicate.matches(decoded):
                bits |= one.bits.mask
        return bits.to_bytes(self._bloom.bit_count // 8, "little")
