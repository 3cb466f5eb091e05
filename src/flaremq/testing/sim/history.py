"""What clients asked for and what they saw, with virtual times; values are unique.

A send ends as acknowledged, as refused (it has not happened), or as unknown: it may or may not have happened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

QueueName: TypeAlias = tuple[str, str, int]
"""Topic, broker and queue id."""
Content: TypeAlias = dict[QueueName, dict[int, str]]
"""What queues hold: queue offset to value."""


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
    is_refused: bool = False
    """Whether every attempt was answered with: nothing is stored."""
    queue: QueueName | None = None
    offset: int = -1
    """Of the queue."""
    place: int = -1
    """Its physical offset."""
    may_be_cancelled: bool = False
    """Whether its cancel was asked for."""
    cancelled_s: float | None = None
    """When its cancel was acknowledged."""


@dataclass(frozen=True, slots=True)
class ReadOp:
    value: str
    reader: str
    at_s: float
    queue: QueueName
    offset: int
    """Of the queue."""
    place: int = -1
    """Its physical offset."""
    ok: bool = True
    """Whether the handler acknowledged it."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset, as a broker had it at some moment."""

    group: str
    queue: QueueName
    offset: int
    """Of the queue."""
    pulled: int = 0
    """The length of `History.pulls` then."""
    handled: int = 0
    """The length of `History.handled` then."""


@dataclass(frozen=True, slots=True)
class Failover:
    """What a new leader, or a master that was started again, knew of a group's committed offset."""

    server: str
    at_s: float
    group: str
    queue: QueueName
    kept: int
    """What had been committed so long before that it must have been kept."""
    found: int


@dataclass(slots=True)
class History:
    sends: dict[str, SendOp] = field(default_factory=dict)
    """In the order in which each client began them."""
    pulls: list[ReadOp] = field(default_factory=list)
    """Of pull consumers, in the order in which each saw them."""
    handled: list[ReadOp] = field(default_factory=list)
    """Of push consumers."""
    seeks: list[tuple[int, str, QueueName]] = field(default_factory=list)
    """Where a reader began at the beginning of a queue: the length of `pulls` then, the reader, the queue."""
    topics: list[tuple[str, str]] = field(default_factory=list)
    """Topics whose creation was acknowledged: broker and name."""
    progress: list[CommittedOffset] = field(default_factory=list)
    failovers: list[Failover] = field(default_factory=list)
    readers: dict[str, str] = field(default_factory=dict)
    """Who reads now, by the client: one that is killed is followed by another one."""

    @property
    def acknowledged(self) -> dict[str, SendOp]:
        return {value: op for value, op in self.sends.items() if op.ended_s is not None}

    def unhandled(self) -> list[SendOp]:
        """Acknowledged messages that are still to be handled."""
        done = {read.value for read in self.handled if read.ok}
        return [
            op
            for value, op in self.acknowledged.items()
            if op.kind != "rollback" and not op.may_be_cancelled and value not in done
        ]

    def unseen(self) -> list[tuple[str, SendOp]]:
        """Acknowledged messages that a reader of today has not seen, with the reader."""
        seen: dict[str, set[str]] = {reader: set() for reader in self.readers.values()}
        topics = {(reader, queue) for _, reader, queue in self.seeks}
        for read in self.pulls:
            if read.reader in seen:
                seen[read.reader].add(read.value)
        return [
            (reader, op)
            for reader, values in seen.items()
            for value, op in self.acknowledged.items()
            if op.queue is not None and (reader, op.queue) in topics and value not in values
        ]

    def counts(self, content: Content) -> Counter[str]:
        """How often clients met what is allowed, and what nobody should meet too rarely to be tested."""
        there = Counter(value for values in content.values() for value in values.values())
        found = Counter(f"stored again ({self.sends[value].kind})" for value in there if there[value] > 1)
        for op in self.sends.values():
            found["refused"] += op.is_refused
            found["cancelled"] += op.cancelled_s is not None
            found["unknown"] += not op.is_refused and op.ended_s is None
        found["acknowledged"] = len(self.acknowledged)
        found["handled again"] = len(self.handled) - len({read.value for read in self.handled})
        found["offsets watched"] = len(self.progress)
        found["offsets after a failover"] = len(self.failovers)
        return +found
