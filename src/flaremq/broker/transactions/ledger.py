"""Which prepared messages are open, and how far their queue and the queue of ops are done with.

An op names prepared messages that have ended, by their queue offsets. After a restart the queue of prepared
messages is read from the first that was open, and the queue of ops from the first that names one of those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_REMEMBERED: Final = 12_500
_GENERATIONS: Final = 9
"""Outcomes are forgotten by the generation: eight full ones are remembered, and the one that fills. To forget
one by one costs each end of a transaction more than all else that is noted about it."""


@dataclass(slots=True)
class Half:
    """An open transaction."""

    queue_offset: int
    physical_offset: int
    size: int
    key: str
    group: str
    stored_ms: int
    immunity_ms: int
    """How long nobody is asked about it."""
    checks: int = 0
    """How often a producer was asked."""


class HalfLedger:
    """Prepared messages by queue offset, in order."""

    def __init__(self, half_offset: int = 0, op_offset: int = 0) -> None:
        self._open: dict[int, Half] = {}
        self._by_key: dict[str, list[int]] = {}
        self._ended_ahead: set[int] = set()  # Ended before they were noticed.
        self._outcomes = deque[dict[str, bool]]([{}], _GENERATIONS)  # By key: whether it was committed.
        self._ops: deque[tuple[int, int]] = deque()  # Behind each op, and the newest message that it names.
        self.noticed = half_offset
        """Queue offset of the next prepared message to be noticed."""
        self._op_offset = op_offset

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Half]:
        return iter(list(self._open.values()))

    def notice(self, queue_offset: int, half: Half | None) -> None:
        """The next message of the queue; None if it cannot be read."""
        self.noticed = queue_offset + 1
        if queue_offset in self._ended_ahead:
            self._ended_ahead.discard(queue_offset)
        elif half is not None:
            self._open[queue_offset] = half
            self._by_key.setdefault(half.key, []).append(queue_offset)

    def _skip(self) -> None:
        """The next to be noticed has ended; so have, perhaps, some behind it."""
        self.noticed += 1
        while self.noticed in self._ended_ahead:
            self._ended_ahead.discard(self.noticed)
            self.noticed += 1

    @property
    def ahead(self) -> int:
        """How many have ended behind one that was not noticed yet."""
        return len(self._ended_ahead)

    def is_known_ended(self, queue_offset: int) -> bool:
        """Whether the next message to be noticed has ended, and need not be read."""
        return queue_offset in self._ended_ahead

    def is_open(self, queue_offset: int, key: str) -> bool:
        if queue_offset >= self.noticed:
            return queue_offset not in self._ended_ahead
        # A copy of it, which RocketMQ makes at each check, stands for it as well.
        return queue_offset in self._open or bool(self._by_key.get(key))

    def is_alone(self, queue_offset: int, key: str) -> bool:
        """Whether a message is open, and no copy of it is."""
        copies = self._by_key.get(key)
        return copies == [queue_offset] if copies else self.is_open(queue_offset, key)

    def outcome(self, key: str) -> bool | None:
        """Whether a transaction that has ended was committed; None if that is no longer known."""
        return next((each[key] for each in reversed(self._outcomes) if key in each), None)

    def all_of(self, queue_offset: int, key: str) -> list[int]:
        """The queue offsets of a message and of its copies, as far as they are open."""
        found = list(self._by_key.get(key, ()))
        return found if queue_offset in found else [*found, queue_offset]

    def end(self, queue_offsets: Iterable[int], key: str | None = None, *, committed: bool = False) -> None:
        for queue_offset in queue_offsets:
            self._end(queue_offset)
        if key is not None:
            self._remember({key: committed})

    def end_many(self, queue_offsets: Sequence[int], outcomes: dict[str, bool]) -> None:
        """The ends of messages that are alone: all of a turn at once, most of them not noticed yet."""
        known = [each for each in queue_offsets if each < self.noticed]
        for queue_offset in known:
            self._end(queue_offset)
        self._ended_ahead.update(queue_offsets)
        self._ended_ahead.difference_update(known)
        if self.noticed in self._ended_ahead:
            self._ended_ahead.discard(self.noticed)
            self._skip()
        self._remember(outcomes)

    def _end(self, queue_offset: int) -> None:
        half = self._open.pop(queue_offset, None)
        if half is not None:
            same = self._by_key[half.key]
            same.remove(queue_offset)
            if not same:
                del self._by_key[half.key]
        elif queue_offset > self.noticed:
            self._ended_ahead.add(queue_offset)
        elif queue_offset == self.noticed:
            self._skip()

    def _remember(self, outcomes: dict[str, bool]) -> None:
        self._outcomes[-1].update(outcomes)
        if len(self._outcomes[-1]) >= _REMEMBERED:
            self._outcomes.append({})

    def reopened(self, key: str) -> None:
        """A parked transaction is open again."""
        for each in self._outcomes:
            each.pop(key, None)

    def op(self, op_offset: int, newest: int) -> None:
        """An op that names prepared messages up to `newest` is stored."""
        self._ops.append((op_offset + 1, newest))

    def ops(self, op_offsets: Sequence[int], named: Sequence[int]) -> None:
        """The same for many, each of which names one message."""
        self._ops.extend(zip([each + 1 for each in op_offsets], named, strict=True))

    @property
    def half_offset(self) -> int:
        """The first message that is open, or the next that comes."""
        return next(iter(self._open), self.noticed)

    @property
    def op_offset(self) -> int:
        """The first op that names a message from `half_offset` on."""
        first = self.half_offset
        while self._ops and self._ops[0][1] < first:
            self._op_offset = self._ops.popleft()[0]
        return self._op_offset
