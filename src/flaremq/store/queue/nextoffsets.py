"""The next logical offset of every queue: what an append gives to the message it stores.

Rebuilt at start from the queues themselves, so it can never run ahead of the log.
"""

from __future__ import annotations

from array import array


class QueueOffsets:
    """Queues are numbered as they are first seen; `next` is the table that encoders count in."""

    def __init__(self) -> None:
        self.next: array[int] = array("q")
        self._numbers: dict[tuple[bytes, int], int] = {}

    def number(self, topic: bytes, queue_id: int) -> int:
        """The queue's place in `next`, for Draft.QUEUE."""
        key = (topic, queue_id)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.next)
            self.next.append(0)
        return number

    def get(self, topic: bytes, queue_id: int) -> int:
        number = self._numbers.get((topic, queue_id))
        return 0 if number is None else self.next[number]

    def set(self, topic: bytes, queue_id: int, queue_offset: int) -> None:
        self.next[self.number(topic, queue_id)] = queue_offset

    def reset(self) -> None:
        """All queues begin at 0 again; numbers that were handed out stay good."""
        for number in range(len(self.next)):
            self.next[number] = 0
