"""Ordinary sends on their way through a turn, and what is known of the topics that they go to."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from flaremq.model.columns import Draft
from flaremq.protocol.bulk.columns import Send

# Globals are found faster than members of a class, and these are looked for in every turn.
_DRAFT, _OFFSET, _SIZE = Draft.WIDTH, Draft.PHYSICAL_OFFSET, Draft.SIZE


@dataclass(slots=True, eq=False)
class TopicState:
    """A topic that ordinary sends go to."""

    name: str
    topic: bytes
    numbers: list[int]
    """Of its queues, in the table of next offsets."""
    queues: int
    count: int = 0
    """Messages stored, and below their bytes, since the last dispatch."""
    size: int = 0


@dataclass(slots=True)
class SendRows:
    """Ordinary sends, one behind the other as they came. Made in every turn."""

    count: int
    drafts: array[int]
    sends: array[int]
    topics: Sequence[TopicState]
    """By target."""

    def part(self, first: int, last: int) -> SendRows:
        if last - first == self.count:
            return self
        return SendRows(
            last - first,
            self.drafts[first * Draft.WIDTH : last * Draft.WIDTH],
            self.sends[first * Send.WIDTH : last * Send.WIDTH],
            self.topics,
        )

    @property
    def end(self) -> int:
        """Behind the last of them in the log, once they are stored."""
        drafts, last = self.drafts, (self.count - 1) * _DRAFT
        return drafts[last + _OFFSET] + drafts[last + _SIZE]

    def by_topic(self) -> Iterable[tuple[TopicState, int, int]]:
        """Topic, how many messages, and how many bytes of the log they take."""
        topics = self.topics
        if len(topics) == 1 or len(set(topics)) == 1:
            return ((topics[0], self.count, self.end - self.drafts[_OFFSET]),)
        counts: dict[TopicState, list[int]] = {}
        sizes = self.drafts[Draft.SIZE :: Draft.WIDTH]
        for target, size in zip(self.sends[Send.TARGET :: Send.WIDTH], sizes, strict=True):
            count = counts.setdefault(self.topics[target], [0, 0])
            count[0] += 1
            count[1] += size
        return [(known, count, size) for known, (count, size) in counts.items()]


NONE: Final = SendRows(0, array("q"), array("q"), ())
