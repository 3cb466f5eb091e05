"""Choosing a queue: in turn, by a key or by the program, and away from failing brokers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from flaremq.base.clock import Clock
from flaremq.base.errors import UsageError
from flaremq.model.message import Message, MessageQueue
from flaremq.model.tags import java_hash

QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses one of the queues for a message."""

_AWAY_MS: Final = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000))
"""How long a send took, and how long its broker is then avoided. Java's values."""
_FAILED_MS: Final = 10_000
"""The time that a failed send counts as."""


def by_hash(key: str) -> QueueSelector:
    """Always the same queue for the same key while the topic has the same queues, as in Java."""
    code = java_hash(key)

    def select(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
        return queues[abs(int(math.fmod(code, len(queues))))]  # Java's remainder truncates towards zero.

    return select


def by_number(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Always the same queue for the same number while the topic has the same queues."""
    return queues[(message.sequence or 0) % len(queues)]


class Health:
    """Which brokers to avoid, and until when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[str, float] = {}

    def took(self, broker_name: str, elapsed_s: float) -> None:
        """A send was answered after this time."""
        if elapsed_s < 0.55 and broker_name not in self._until_s:  # Nearly always.
            return
        self._note(broker_name, elapsed_s * 1000)

    def failed(self, broker_name: str) -> None:
        self._note(broker_name, _FAILED_MS)

    def _note(self, broker_name: str, elapsed_ms: float) -> None:
        away_ms = next((away for least, away in _AWAY_MS if elapsed_ms >= least), 0)
        if away_ms:
            self._until_s[broker_name] = self._clock.monotonic_s() + away_ms / 1000
        else:
            self._until_s.pop(broker_name, None)

    def is_good(self, broker_name: str) -> bool:
        until_s = self._until_s.get(broker_name)
        return until_s is None or until_s <= self._clock.monotonic_s()

    @property
    def all_good(self) -> bool:
        """Whether no broker is avoided, which is the usual case."""
        return not self._until_s


class Balance:
    """Queues in turn, from a random one, so that producers do not all begin with the same queue."""

    def __init__(self, health: Health | None, rng: random.Random) -> None:
        self._health = health
        self._rng = rng
        self._next: dict[str, int] = {}

    def choose(self, queues: Sequence[MessageQueue], not_at: str | None = None) -> MessageQueue:
        """The next queue of a good broker other than `not_at`, where the last attempt failed.

        If there is no good broker, the next queue.
        """
        topic, count = queues[0].topic, len(queues)
        at = self._next.get(topic)
        if at is None:
            at = self._rng.randrange(count)
        self._next[topic] = at + 1
        health = self._health
        if not_at is None and (health is None or health.all_good):
            return queues[at % count]
        others = [queues[(at + step) % count] for step in range(count)]
        elsewhere = [queue for queue in others if queue.broker_name != not_at] or others
        good = [queue for queue in elsewhere if health is None or health.is_good(queue.broker_name)]
        return (good or elsewhere)[0]


def chosen_by(selector: QueueSelector, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue that a program's own selector returns; UsageError if it is not one of the given queues."""
    queue = selector(queues, message)
    if queue not in queues:
        raise UsageError(
            f"the selector returned {queue!r}: expected one of the queues of {message.topic!r} it was given"
        )
    return queue
