"""What happens in a simulation, as a stream: a running hash of all of it, and the last thousand as text.

Two runs of one seed give the same hash, or something in the code asks the system for chance or time.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

KEPT: Final = 1000


class EventStream:
    """Each event is a moment, a node, what happened, and a number about it."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self._last: deque[tuple[float, str, str, int]] = deque(maxlen=KEPT)
        self.now_s: Callable[[], float] = lambda: 0.0
        self.count = 0
        self.faults: Counter[str] = Counter()
        """How often each kind of fault was met."""
        self.listener: Callable[[str], None] | None = None
        """Told of every event as text: for comparing two runs."""

    def add(self, node: str, what: str, number: int = 0) -> None:
        event = (self.now_s(), node, what, number)
        self.count += 1
        self._last.append(event)
        self._hash.update(f"{event[0]:.9f} {node} {what} {number}\n".encode())
        if self.listener is not None:
            self.listener(shown(event))

    def fault(self, kind: str, node: str, number: int = 0) -> None:
        self.faults[kind] += 1
        self.add(node, f"FAULT {kind}", number)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def last(self) -> list[str]:
        return [shown(event) for event in self._last]


def shown(event: tuple[float, str, str, int]) -> str:
    at_s, node, what, number = event
    return f"{at_s:12.6f}  {node:<12} {what} {number}"
