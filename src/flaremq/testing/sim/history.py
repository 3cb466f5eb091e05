"""What clients asked for and what they saw, with virtual times; values are unique.

A send ends as ok, or as unknown: it may or may not have happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

QueueName: TypeAlias = tuple[str, str, int]
"""Topic, broker and queue id."""


@dataclass(slots=True)
class SendOp:
    value: str
    kind: str
    """plain, once, delayed, timer, fifo, commit or rollback."""
    client: str
    began_s: float
    due_s: float = 0.0
    """The earliest true time at which it may be seen."""
    ended_s: float | None = None
    """When it was acknowledged."""
    queue: QueueName | None = None
    offset: int = -1


@dataclass(frozen=True, slots=True)
class ReadOp:
    value: str
    reader: str
    at_s: float
    queue: QueueName
    offset: int
    ok: bool = True
    """Whether the handler acknowledged it."""


@dataclass(slots=True)
class History:
    sends: dict[str, SendOp] = field(default_factory=dict)
    pulls: list[ReadOp] = field(default_factory=list)
    """Of pull consumers, in the order in which each saw them."""
    handled: list[ReadOp] = field(default_factory=list)
    """Of push consumers."""
    seeks: list[tuple[int, str, QueueName]] = field(default_factory=list)
    """Where a reader began anew: the length of `pulls` then, the reader, the queue."""
    topics: list[tuple[str, str]] = field(default_factory=list)
    """Topics whose creation was acknowledged: broker and name."""

    @property
    def acknowledged(self) -> dict[str, SendOp]:
        return {value: op for value, op in self.sends.items() if op.ended_s is not None}
