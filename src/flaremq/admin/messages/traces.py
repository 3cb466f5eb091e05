"""The journey of one message, put together from the records in the trace topic.

Each client sends its records to any broker, so all brokers of the trace topic are asked. They search their
index, as for `mqadmin queryMsgTraceById`: the message's id is a key of each trace message about it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from flaremq.admin.documents import Document, failures_document
from flaremq.admin.values.messages import FoundMessage
from flaremq.admin.values.outcome import Answers
from flaremq.admin.values.trace import Journey, JourneyStep, StepKind
from flaremq.base.errors import FlareError, MessageNotFound, TopicNotFound
from flaremq.base.text import both
from flaremq.model.names import dlq_topic
from flaremq.protocol.tracerecord import (
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    ReturnCode,
    SubAfterRecord,
    SubBeforeRecord,
    TracedType,
    TraceRecord,
    message_ids,
    read_records,
)

R = TypeVar("R", bound=TraceRecord)

TRACES_MAX: Final = 64
"""How many trace messages of each broker are read, as in mqadmin."""

_CODES: Final = frozenset(map(int, ReturnCode))
_ORDER: Final = {kind: place for place, kind in enumerate(StepKind)}

Copies = Callable[[str, str], Awaitable[Answers[FoundMessage]]]
"""Finds messages of a topic by their unique id."""


class FoundRecord(NamedTuple):
    record: TraceRecord
    client: str
    """Address of the client that recorded it."""
    sent_ms: int
    """When the client sent the record."""


def records_of(message_id: str, topic: str | None, found: Sequence[FoundMessage]) -> list[FoundRecord]:
    """The records about a message, each once: a trace message may have been sent twice."""
    told: dict[TraceRecord, FoundRecord] = {}
    for message in found:
        for record in read_records(message.body):
            if message_id != record.message_id and message_id not in message_ids(record):
                continue
            if topic is None or getattr(record, "topic", topic) == topic:
                told.setdefault(
                    record,
                    FoundRecord(record, str(message.stored.born_host), message.stored.born_timestamp_ms),
                )
    return list(told.values())


def _topic(record: TraceRecord) -> str | None:
    """Deliveries do not name it."""
    return None if isinstance(record, SubBeforeRecord | SubAfterRecord) else record.topic


async def journey_of(
    message_id: str, topic: str | None, found: Answers[FoundMessage], copies: Copies, trace_topic: str
) -> Journey:
    """Raises MessageNotFound if there is no record."""
    told = records_of(message_id, topic, found)
    if not told:
        lost = f"; {', '.join(found.failed)} did not answer" if found.failed else ""
        raise MessageNotFound(
            f"message {message_id} has no trace in topic {trace_topic!r}: expected records of a producer or "
            f"consumer with trace=True, which come up to 5 s later{lost}"
        )
    steps = [*_sends(told), *_ends(told), *_recalls(told), *_deliveries(told)]
    letters, failed = await _dead_letters(message_id, steps, copies)
    sent = [each.record for each in told if isinstance(each.record, PubRecord | EndTransactionRecord)]
    keys = next((each.record.keys for each in told if each.record.keys), None)
    topics = [_topic(each.record) for each in told]
    return Journey(
        message_id=message_id,
        topic=next((name for name in topics if name), topic),
        tags=next((record.tags for record in sent if record.tags), None),
        keys=tuple((keys or "").split()),
        steps=tuple(sorted([*steps, *letters], key=_when)),
        records=tuple(each.record for each in told),
        failed={**found.failed, **failed},
    )


def _when(step: JourneyStep) -> tuple[int, int]:
    """Of two steps in one millisecond, a send is before the end of its transaction."""
    return step.at_ms, _ORDER[step.kind]


def _only(kind: type[R], told: Sequence[FoundRecord]) -> list[tuple[R, FoundRecord]]:
    return [(each.record, each) for each in told if isinstance(each.record, kind)]


def _sends(told: Sequence[FoundRecord]) -> list[JourneyStep]:
    return [
        JourneyStep(
            kind=StepKind.HALF if record.type == TracedType.HALF else StepKind.SEND,
            at_ms=record.timestamp_ms,
            group=record.group,
            client=record.client_host or found.client,
            success=record.success,
            took_ms=record.cost_ms,
            broker=record.store_host,
            detail="DELAY" if record.type == TracedType.DELAY else None,
            body_size=record.body_size,
        )
        for record, found in _only(PubRecord, told)
    ]


def _ends(told: Sequence[FoundRecord]) -> list[JourneyStep]:
    return [
        JourneyStep(
            kind=StepKind.END,
            at_ms=record.timestamp_ms,
            group=record.group,
            client=found.client,
            broker=record.store_host,
            detail=record.state,
            from_check=record.from_check,
        )
        for record, found in _only(EndTransactionRecord, told)
    ]


def _recalls(told: Sequence[FoundRecord]) -> list[JourneyStep]:
    return [
        JourneyStep(
            kind=StepKind.RECALL,
            at_ms=record.timestamp_ms,
            group=record.group,
            client=found.client,
            success=record.success,
        )
        for record, found in _only(RecallRecord, told)
    ]


def _deliveries(told: Sequence[FoundRecord]) -> list[JourneyStep]:
    """Begin and end of each delivery are two records; either may be missing."""
    ends = {record.request_id: (record, found) for record, found in _only(SubAfterRecord, told)}
    steps = []
    for before, found in _only(SubBeforeRecord, told):
        after, _ = ends.pop(before.request_id, (None, None))
        steps.append(_delivery(before, after, found))
    return steps + [_delivery(None, after, found) for after, found in ends.values()]


def _delivery(
    before: SubBeforeRecord | None, after: SubAfterRecord | None, found: FoundRecord
) -> JourneyStep:
    if before is not None:
        at_ms, group, attempt = before.timestamp_ms, before.group, before.retry_times + 1
    else:
        assert after is not None
        at_ms, group, attempt = (after.timestamp_ms or found.sent_ms) - after.cost_ms, after.group or "", None
    return JourneyStep(
        kind=StepKind.DELIVERY,
        at_ms=at_ms,
        group=group,
        client=found.client,
        success=None if after is None else after.success,
        took_ms=None if after is None else after.cost_ms,
        attempt=attempt,
        detail=None if after is None or after.success else _name(after.code),
    )


def _name(code: int) -> str:
    return ReturnCode(code).name if code in _CODES else str(code)


async def _dead_letters(
    message_id: str, steps: Sequence[JourneyStep], copies: Copies
) -> tuple[list[JourneyStep], dict[str, FlareError]]:
    """Looks into the dead-letter queues of groups whose last delivery failed: nothing else records it."""
    last = {step.group: step for step in sorted(steps, key=lambda step: step.at_ms) if step.attempt}
    letters: list[JourneyStep] = []
    failed: dict[str, FlareError] = {}
    for group in [group for group, step in last.items() if step.success is False]:
        try:
            found = await copies(dlq_topic(group), message_id)
        except TopicNotFound:
            continue
        except FlareError as error:
            failed[dlq_topic(group)] = error
            continue
        failed.update(found.failed)
        letters += [
            JourneyStep(kind=StepKind.DEAD_LETTER, at_ms=each.stored_ms, group=group, broker=each.broker)
            for each in found
        ]
    return letters, failed


def journey_document(journey: Journey) -> Document:
    return {
        "message_id": journey.message_id,
        "topic": journey.topic,
        "tags": journey.tags,
        "keys": list(journey.keys),
        "steps": [
            {
                "kind": step.kind.value,
                **both("at", step.at_ms),
                "group": step.group,
                "client": step.client,
                "success": step.success,
                "took_ms": step.took_ms,
                "attempt": step.attempt,
                "broker": step.broker,
                "detail": step.detail,
                "body_size": step.body_size,
                "from_check": step.from_check,
            }
            for step in journey.steps
        ],
        "failed": failures_document(journey.failed),
    }
