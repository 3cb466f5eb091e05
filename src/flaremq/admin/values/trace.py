"""Values about the journey of one message, as its trace records tell it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from flaremq.admin.values.outcome import Failed
from flaremq.protocol.tracerecord import TraceRecord


class StepKind(Enum):
    SEND = "send"
    """An attempt to send it."""
    HALF = "half"
    """It was prepared by a transaction: no consumer sees it yet."""
    END = "transaction end"
    RECALL = "recall"
    DELIVERY = "delivery"
    """A consumer got it."""
    DEAD_LETTER = "dead letter"
    """It is in the dead-letter queue of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JourneyStep:
    """One thing that happened to a message."""

    kind: StepKind
    at_ms: int
    """When it began."""
    group: str
    """Of the producer or the consumer."""
    client: str | None = None
    """Address of the client that recorded it."""
    success: bool | None = None
    """None if a delivery began and its end is not recorded (yet)."""
    took_ms: int | None = None
    attempt: int | None = None
    """Of a delivery, from 1 on."""
    broker: str | None = None
    """Address of the broker, or its name for a dead letter."""
    detail: str | None = None
    """DELAY for a delayed send; how a handler failed (EXCEPTION); how a transaction ended (COMMIT_MESSAGE)"""
    body_size: int | None = None
    from_check: bool = False
    """The end of a transaction that the broker had asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """All that is known about the journey of a message, in the order of time."""

    message_id: str
    topic: str | None
    """None if only deliveries are recorded, which do not name it."""
    tags: str | None
    keys: tuple[str, ...]
    steps: tuple[JourneyStep, ...]
    records: tuple[TraceRecord, ...] = field(repr=False)
    failed: Failed = field(default_factory=dict)
    """Brokers that did not answer: they may have more steps."""
