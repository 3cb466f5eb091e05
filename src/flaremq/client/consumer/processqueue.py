"""The messages of one queue that are pulled and not yet consumed.

    pull > [put ... waiting ... take > run > done] > the offset that may be stored

Messages are handed out in runs of neighbours, because work per message is done a hundred thousand times a
second. Runs end in any order; the offset that may be stored is that of the first message that is not
consumed, so a crash repeats messages and never skips one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from flaremq.client.message import ReceivedMessage
from flaremq.model.message import MessageQueue
from flaremq.model.names import is_retry

LOCK_VALID_S: Final = 30.0
"""How long a lock is valid here after it was granted. Brokers keep it twice as long."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much of a queue may be held here before pulling pauses."""

    count_max: int
    size_max: int
    span_max: int | None
    """Offsets between the first and the last message; None for orderly consumers."""


class MessageRun:
    """Neighbouring messages of a queue that one worker has.

    `todo` holds the messages that the worker has not begun: another thread may take them away, for other
    workers.
    """

    __slots__ = ("_left", "began_s", "messages", "now", "queue", "todo")

    def __init__(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self.queue = queue
        self.messages = messages
        self.todo: deque[ReceivedMessage] = deque(messages)
        self.now: Sequence[ReceivedMessage] = ()
        """The messages that the handler has at this moment."""
        self.began_s = 0.0
        """When the handler got them."""
        self._left: dict[int, ReceivedMessage] | None = None  # None: all of them, the usual case.

    def __len__(self) -> int:
        return len(self.messages) if self._left is None else len(self._left)

    @property
    def left(self) -> list[ReceivedMessage]:
        """Messages that are not consumed yet, in order."""
        return list(self.messages if self._left is None else self._left.values())

    @property
    def first_offset(self) -> int:
        """The offset of the first message that is not consumed."""
        return self.messages[0].queue_offset if self._left is None else next(iter(self._left))

    def has(self, message: ReceivedMessage) -> bool:
        return self._left is None or message.queue_offset in self._left

    def forget(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Remove these messages. Returns those that were still left."""
        left = self._left
        if left is None:
            left = self._left = {each.queue_offset: each for each in self.messages}
        return [each for each in messages if left.pop(each.queue_offset, None) is not None]

    def finish(self) -> list[ReceivedMessage]:
        """Remove and return all messages that are left."""
        gone = self.messages if self._left is None else list(self._left.values())
        self._left = {}
        return gone

    def unbegun(self) -> list[ReceivedMessage]:
        """Take away the messages that the worker has not begun. It may pop some meanwhile and keep them."""
        rest: list[ReceivedMessage] = []
        while self.todo:
            try:
                rest.append(self.todo.pop())
            except IndexError:
                break
        rest.reverse()
        return rest

    def rewind(self) -> None:
        """Start over with all messages that are left."""
        self.todo = deque(self.left)
        self.now = ()


class ProcessQueue:
    """A queue assigned to us. Only the event loop's thread uses it, except for `todo` of its runs.

    Invariants:
      Q1  `commit_offset` is never above the offset of a message that is here and not consumed.
      Q2  without messages here it is `next_offset`, where the next pull begins.
      Q3  `count` and `size` are those of all messages that are here, waiting or in runs.
    """

    def __init__(self, queue: MessageQueue, start_offset: int) -> None:
        self.queue = queue
        self.is_retry = is_retry(queue.topic)
        self.next_offset = start_offset
        self.count = 0
        self.size = 0
        self.dropped = False
        """No longer ours: the outcomes of its runs do not matter."""
        self.paused = False
        self.is_answered = False
        """A broker has confirmed `next_offset`: from then on it is worth storing."""
        self.kept_offset: int | None = None
        """The offset to store instead, while messages that were taken are not yet acknowledged."""
        self.locked = False
        self.locked_s = 0.0
        self.locked_ms = 0
        self.pulled_s = 0.0
        self.pulled_ms = 0
        self.consumed_ms = 0
        self.is_listed = False
        """Among the queues that wait for a worker."""
        self.on_room: Callable[[], None] = lambda: None
        """Called whenever messages have left the queue."""
        self._waiting: deque[ReceivedMessage] = deque()
        self._returned: deque[MessageRun] = deque()
        self._runs: set[MessageRun] = set()

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Add the messages of a pull; the next pull begins at `next_offset`."""
        self.is_answered = True
        self.next_offset = next_offset
        if messages:
            self._waiting.extend(messages)
            self.count += len(messages)
            self.size += sum([each.size for each in messages])

    def peek(self) -> ReceivedMessage | None:
        """The first message that `take` would return."""
        if self._returned:
            return self._returned[0].todo[0]
        return self._waiting[0] if self._waiting else None

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to take."""
        return bool(self._returned or self._waiting)

    def take(self, count_max: int) -> MessageRun | None:
        """The next messages, or a run that was handed back; None if nothing waits."""
        if self._returned:
            return self._returned.popleft()
        waiting = self._waiting
        if not waiting:
            return None
        count = min(count_max, len(waiting))
        run = MessageRun(self, [waiting.popleft() for _ in range(count)])
        self._runs.add(run)
        return run

    def done(self, run: MessageRun, messages: Sequence[ReceivedMessage] | None = None) -> None:
        """These messages of the run are consumed; by default all that are left. Idempotent."""
        if run not in self._runs:
            return
        gone = run.finish() if messages is None else run.forget(messages)
        if not len(run):
            self._runs.discard(run)
        self.count -= len(gone)
        self.size -= sum([each.size for each in gone])
        if gone:
            self.on_room()

    def hand_back(self, run: MessageRun) -> None:
        """The messages left in the run are the next to be taken."""
        if run in self._runs and len(run):
            run.rewind()
            self._returned.append(run)

    def part(self, run: MessageRun, messages: Iterable[ReceivedMessage]) -> MessageRun | None:
        """Move these messages of a run to a new run, which ends separately; None if none of them is left."""
        if run not in self._runs:
            return None
        parted = run.forget(messages)
        if not len(run):
            self._runs.discard(run)
        if not parted:
            return None
        other = MessageRun(self, parted)
        self._runs.add(other)
        return other

    # Progress.

    @property
    def first_offset(self) -> int | None:
        """The smallest offset that is not consumed."""
        firsts = [run.first_offset for run in self._runs]
        if self._waiting:
            firsts.append(self._waiting[0].queue_offset)
        return min(firsts, default=None)

    @property
    def last_offset(self) -> int:
        """The offset of the last waiting message, or else the one before `next_offset`."""
        return self._waiting[-1].queue_offset if self._waiting else self.next_offset - 1

    @property
    def commit_offset(self) -> int:
        if self.kept_offset is not None:
            return self.kept_offset
        first = self.first_offset
        return self.next_offset if first is None else first

    @property
    def position(self) -> int:
        """The offset of the first message that no worker has taken yet."""
        if self._returned:
            return min(run.first_offset for run in self._returned)
        return self._waiting[0].queue_offset if self._waiting else self.next_offset

    def excess(self, limits: QueueLimits) -> str | None:
        """Which limit is exceeded, if any."""
        if self.count >= limits.count_max:
            return f"{self.count} messages wait, limit is {limits.count_max}"
        if self.size >= limits.size_max:
            return f"{self.size} bytes wait, limit is {limits.size_max}"
        if limits.span_max is not None and self.count:
            span = self.next_offset - (self.first_offset or 0)
            if span > limits.span_max:
                return f"the first and the last that wait are {span} apart, limit is {limits.span_max}"
        return None

    # Locks of orderly consumers.

    def lock(self, now_s: float, now_ms: int) -> None:
        self.locked, self.locked_s, self.locked_ms = True, now_s, now_ms

    def is_locked(self, now_s: float) -> bool:
        """Locked, and recently enough that no other member can have the lock."""
        return self.locked and now_s - self.locked_s < LOCK_VALID_S
