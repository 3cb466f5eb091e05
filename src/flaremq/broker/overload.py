"""Refusing sends before any work is done for them, fairly by topic.

The number of sends that a broker has accepted and not yet answered is limited. Up to half the limit, no
send is refused. Above that, each topic may use its share of the limit, and one that would exceed its share
is refused: a flood of one topic does not shut the others out.
"""

from __future__ import annotations

from collections import Counter


class Overload:
    """Counts the sends that wait for their answer, by topic."""

    def __init__(self, limit: int, name: str = "sendThreadPoolQueueCapacity") -> None:
        self.limit = limit
        self._name = name
        self._held: Counter[bytes] = Counter()
        self.held = 0

    def admits(self, topic: bytes, count: int) -> bool:
        """Whether `count` more sends to a topic may be accepted now."""
        if self.held + count <= self.limit // 2:
            return True
        if self.held + count > self.limit:
            return False
        topics = len(self._held) + (topic not in self._held)
        return self._held[topic] + count <= self.limit // topics

    def hold(self, topic: bytes, count: int) -> None:
        self._held[topic] += count
        self.held += count

    def release(self, topic: bytes, count: int) -> None:
        self.held -= count
        left = self._held[topic] - count
        if left:
            self._held[topic] = left
        else:
            del self._held[topic]

    def remark(self, topic: bytes) -> str:
        """Why a send was refused, in the words that RocketMQ's tools look for."""
        return (
            f"[OVERLOAD]system busy, start flow control for a while: {self.held} sends wait to be safe, "
            f"{self._held[topic]} of them to {topic.decode('utf-8', 'replace')}, limit is {self.limit} "
            f"({self._name}), shared by {max(1, len(self._held))} topics"
        )


def late_remark(age_ms: int, waiting: int) -> str:
    """Why a request that waited too long was refused, in the words that RocketMQ's tools look for."""
    return (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        f"{age_ms}ms, size of queue: {waiting}"
    )
