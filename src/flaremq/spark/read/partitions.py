"""Queue ranges packed into tasks: large ones are split, small ones share a task.

A task costs Spark some 40 ms, in which 10,000 to 20,000 messages can be read. So small queues do not get a
task each, and unless options ask for more, there are no more tasks than are worth that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from flaremq.model.queuekey import queue_of
from flaremq.spark.read.options import Partitioning

TASK_ROWS: Final = 16_384
"""A task with fewer rows than this costs more than it saves."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets [begin, end) of one queue. Read again, it gives the same rows."""

    topic: str
    broker: str
    queue: int
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin

    @property
    def key(self) -> str:
        return f"{self.topic}@{self.broker}:{self.queue}"


def ranges(begin: Mapping[str, int], end: Mapping[str, int]) -> list[QueueRange]:
    """Ranges of all queues that are in both. One that is only in `end` is new, and read in the next batch."""
    found = []
    for key, last in end.items():
        first = begin.get(key, last)
        if first < last:
            queue = queue_of(key)
            found.append(QueueRange(queue.topic, queue.broker_name, queue.queue_id, first, last))
    return found


def pack(whole: Iterable[QueueRange], shape: Partitioning) -> list[tuple[QueueRange, ...]]:
    """Tasks of about equal size. Ranges of one broker are adjacent, and each queue stays in order."""
    rest = deque(sorted((each for each in whole if each.rows > 0), key=_by_broker))
    total = sum(each.rows for each in rest)
    count = _count(total, shape)
    tasks: list[tuple[QueueRange, ...]] = []
    for left in range(count, 0, -1):
        room = -(-total // left)
        total -= room
        task: list[QueueRange] = []
        while room:
            first = rest.popleft()
            part = replace(first, end=min(first.end, first.begin + room))
            if part.end < first.end:
                rest.appendleft(replace(first, begin=part.end))
            task.append(part)
            room -= part.rows
        tasks.append(tuple(task))
    return tasks


def _by_broker(each: QueueRange) -> tuple[str, str, int, int]:
    return each.broker, each.topic, each.queue, each.begin


def _count(total: int, shape: Partitioning) -> int:
    worth = min(shape.tasks, -(-total // TASK_ROWS))
    needed = 1 if shape.rows_max is None else -(-total // shape.rows_max)
    return min(total, max(worth, needed, shape.partitions_min))
