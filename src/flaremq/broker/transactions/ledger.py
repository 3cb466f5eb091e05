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
    since_ms: int
    """When the first one of its transaction was stored, of which this may be a copy."""
    immunity_ms: int
    """How long nobody is asked about it from then on."""
    checks: int = 0
    """How often a producer was asked."""


class HalfLedger:
    """Prepared messages by queue offset, in order."""

    ops_max = 4096
    """How many ops, or runs of them, are noted one by one. The longer one message is open, the longer are the
    oldest runs, and the more ops may be read once too often after a restart."""

    def __init__(self, half_offset: int = 0, op_offset: int = 0, half_end: int = 0) -> None:
        """Until `started`, what ends of the messages before `half_end` is noted in a byte each."""
        self._open: dict[int, Half] = {}
        self._by_key: dict[str, list[int]] = {}
        self._ahead: dict[int, Half] = {}  # Copies that are not noticed yet.
        self._ended_ahead: set[int] = set()  # Ended before they were noticed.
        self._outcomes = deque[dict[str, bool]]([{}], _GENERATIONS)  # By key: whether it was committed.
        self._ops: deque[tuple[int, int]] = deque()  # Behind each run, and the newest message that it names.
        self._at_start = bytearray(max(0, half_end - half_offset))
        self._at_start_from = half_offset
        self.noticed = half_offset
        """Queue offset of the next prepared message to be noticed."""
        self._op_offset = op_offset

    def __len__(self) -> int:
        return len(self._open) + len(self._ahead)

    def __iter__(self) -> Iterator[Half]:
        return iter([*self._open.values(), *self._ahead.values()])

    def __contains__(self, queue_offset: int) -> bool:
        """Whether this very message is open, and not only a copy of it."""
        return queue_offset in self._open or queue_offset in self._ahead

    def notice(self, queue_offset: int, half: Half | None) -> None:
        """The next message of the queue; None if it cannot be read."""
        self.noticed = queue_offset + 1
        copy = self._ahead.pop(queue_offset, None)
        if copy is not None:
            self._open[queue_offset] = copy
        elif self.is_known_ended(queue_offset):
            self._ended_ahead.discard(queue_offset)
        elif half is not None:
            self._open[queue_offset] = half
            self._by_key.setdefault(half.key, []).append(queue_offset)

    def renew(self, ended: Iterable[int], copy: Half) -> None:
        """A copy takes the place of others, at once: its queue entry may come later."""
        for queue_offset in ended:
            self._end(queue_offset)
        self._ahead[copy.queue_offset] = copy
        self._by_key.setdefault(copy.key, []).append(copy.queue_offset)

    def newest(self, key: str) -> Half | None:
        """The newest open message of a transaction."""
        copies = self._by_key.get(key)
        return (self._ahead.get(copies[-1]) or self._open[copies[-1]]) if copies else None

    def _skip(self) -> None:
        """The next to be noticed has ended; so have, perhaps, some behind it."""
        self.noticed += 1
        while self.is_known_ended(self.noticed):
            self._ended_ahead.discard(self.noticed)
            self.noticed += 1

    @property
    def ahead(self) -> int:
        """How many have ended behind one that was not noticed yet."""
        return len(self._ended_ahead)

    def is_known_ended(self, queue_offset: int) -> bool:
        """Whether a message that is still to be noticed has ended, and need not be read."""
        if self._at_start and self._is_ended_at_start(queue_offset):
            return True
        return queue_offset in self._ended_ahead

    def _is_ended_at_start(self, queue_offset: int) -> bool:
        at = queue_offset - self._at_start_from
        return 0 <= at < len(self._at_start) and bool(self._at_start[at])

    def started(self) -> None:
        """All ops that were there at the start are noted."""
        begin = self._at_start_from
        ended = (begin + at for at, byte in enumerate(self._at_start) if byte)
        self._ended_ahead.update(each for each in ended if each >= self.noticed)
        self._at_start = bytearray()

    def is_open(self, queue_offset: int, key: str) -> bool:
        if queue_offset >= self.noticed:
            return not self.is_known_ended(queue_offset)
        # A copy of it, which is made at each check, stands for it as well.
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
        known = [each for each in queue_offsets if each < self.noticed or each in self._ahead]
        self._ended_ahead.update(queue_offsets)
        self._ended_ahead.difference_update(known)
        for queue_offset in known:
            self._end(queue_offset)
        if self.noticed in self._ended_ahead:
            self._ended_ahead.discard(self.noticed)
            self._skip()
        self._remember(outcomes)

    def _end(self, queue_offset: int) -> None:
        half = self._open.pop(queue_offset, None) or self._ahead.get(queue_offset)
        if half is not None:
            if self._ahead.pop(queue_offset, None) is not None:
                self._ended_ahead.add(queue_offset)
            same = self._by_key[half.key]
            same.remove(queue_offset)
            if not same:
                del self._by_key[half.key]
        elif queue_offset == self.noticed:
            self._skip()
        elif queue_offset > self.noticed:
            at = queue_offset - self._at_start_from
            if at < len(self._at_start):
                self._at_start[at] = 1
            else:
                self._ended_ahead.add(queue_offset)

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
        self._thin()

    def ops(self, op_offsets: Sequence[int], named: Sequence[int]) -> None:
        """The same for many, each of which names one message."""
        self._ops.extend(zip([each + 1 for each in op_offsets], named, strict=True))
        self._thin()

    def _thin(self) -> None:
        """Make one run of each two, or every end behind one open message would be kept."""
        while len(self._ops) > self.ops_max:
            ops = list(self._ops)
            pairs = zip(ops[::2], ops[1::2], strict=False)
            runs = [(end, max(first, newest)) for (_, first), (end, newest) in pairs]
            self._ops = deque(runs + ops[len(runs) * 2 :])

    @property
    def half_offset(self) -> int:
        """The first message that is open, or the next that comes."""
        return next(iter(self._open), self.noticed)

    @property
    def op_offset(self) -> int:
        """The first op that names a message from `half_offset` on, or one a little before it."""
        first = self.half_offset
        while self._ops and self._ops[0][1] < first:
            self._op_offset = self._ops.popleft()[0]
        return self._op_offset
