"""The ordinary sends of a turn, and the topics that they go to."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from flaremq.model.columns import Draft
from flaremq.protocol.bulk.columns import Send

# Globals are faster than class attributes, and these are read in every turn.
_DRAFT, _OFFSET, _SIZE = Draft.WIDTH, Draft.PHYSICAL_OFFSET, Draft.SIZE


@dataclass(slots=True, eq=False)
class TopicState:
    """A topic that ordinary sends go to."""

    name: str
    topic: bytes
    numbers: list[int]
    """The numbers of its queues in the table of next offsets."""
    queues: int
    count: int = 0
    """Messages stored since the last dispatch; `size` is their bytes."""
    size: int = 0


@dataclass(slots=True)
class SendRows:
    """Ordinary sends in the order of arrival. Made in every turn."""

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
        """Where the last of them ends in the log, once they are stored."""
        drafts, last = self.drafts, (self.count - 1) * _DRAFT
        return drafts[last + _OFFSET] + drafts[last + _SIZE]

    def by_topic(self) -> Iterable[tuple[TopicState, int, int]]:
        """For each topic, the number of messages and of bytes in the log."""
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
