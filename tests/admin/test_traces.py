"""The journey of a message, from the records of all its producers and consumers."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.consumer.tools import quick

from flaremq.admin.admin import Admin
from flaremq.admin.messages.traces import records_of
from flaremq.admin.values.messages import FoundMessage, TimeRange
from flaremq.admin.values.trace import Journey, StepKind
from flaremq.base.errors import MessageNotFound
from flaremq.client.consumer.outcome import reject
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.transaction import TransactionProducer
from flaremq.client.settings import Trace
from flaremq.model.host import Host
from flaremq.model.message import Message, StoredMessage
from flaremq.protocol.tracerecord import PubRecord, SubAfterRecord
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded

SOON = Trace(interval_s=0.05)


async def journey(admin: Admin, message_id: str, steps: int) -> Journey:
    """Once it has so many steps."""
    found: list[Journey] = []

    async def is_there() -> bool:
        try:
            found.append(await admin.messages.trace(message_id))
        except MessageNotFound:
            return False
        return len(found[-1].steps) >= steps

    await eventually(f"the journey has {steps} steps", is_there)
    return found[-1]


async def test_a_journey_from_its_send_to_the_dead_letter(admin: Admin, servers: Embedded) -> None:
    async with Producer("shop", servers.namesrv, trace=SOON) as producer:
        receipt = await producer.send(Message("Orders", b"12345", tags="A", keys=["k"]))
    seen = asyncio.Event()
    consumer = PushConsumer("billing", servers.namesrv, settings=quick(), trace=SOON)

    @consumer.subscribe("Orders")
    async def handle(message: ReceivedMessage) -> None:
        seen.set()
        raise reject("no order")

    async with consumer:
        await seen.wait()
    found = await journey(admin, receipt.message_id, 3)
    sent, delivered, letter = found.steps
    assert (found.topic, found.tags, found.keys, found.failed) == ("Orders", "A", ("k",), {})
    assert (sent.kind, sent.group, sent.success, sent.body_size) == (StepKind.SEND, "shop", True, 5)
    assert sent.broker in servers.addresses and sent.client and sent.client.startswith("127.0.0.1:")
    assert (delivered.kind, delivered.group, delivered.attempt) == (StepKind.DELIVERY, "billing", 1)
    assert (delivered.success, delivered.detail) == (False, "FAILED")
    assert (letter.kind, letter.group) == (StepKind.DEAD_LETTER, "billing")
    assert letter.broker in ("broker-a", "broker-b"), (
        "it is sent as a new message, to any broker with its topic"
    )
    assert sent.at_ms <= delivered.at_ms <= letter.at_ms


async def test_transactions_and_recalls_are_steps(admin: Admin, servers: Embedded) -> None:
    async with TransactionProducer(
        "shop", servers.namesrv, checker=lambda _: None, trace=SOON
    ) as transactions:
        async with transactions.transaction(Message("Orders", b"x")) as transaction:
            pass
        late = await transactions.producer.send(Message("Orders", b"x", delay_s=3600))
        await transactions.producer.recall(late)
    half, end = (await journey(admin, transaction.id, 2)).steps
    assert (half.kind, end.kind, end.detail) == (StepKind.HALF, StepKind.END, "COMMIT_MESSAGE")
    sent, recall = (await journey(admin, late.message_id, 2)).steps
    assert (sent.detail, recall.kind, recall.success) == ("DELAY", StepKind.RECALL, True)


async def test_a_message_without_trace_is_said_to_have_none(admin: Admin, servers: Embedded) -> None:
    with pytest.raises(MessageNotFound, match="'RMQ_SYS_TRACE_TOPIC' does not exist; producers"):
        await admin.messages.trace("7F" * 16)
    async with Producer("shop", servers.namesrv, trace=SOON) as producer:
        receipt = await producer.send(Message("Orders", b"x"))
    await journey(admin, receipt.message_id, 1)
    with pytest.raises(MessageNotFound, match="has no trace in topic 'RMQ_SYS_TRACE_TOPIC': exp"):
        await admin.messages.trace("7F" * 16)
    with pytest.raises(MessageNotFound, match="has no trace"):
        await admin.messages.trace(receipt.message_id, topic="Other")
    with pytest.raises(MessageNotFound, match="has no trace"):
        await admin.messages.trace(receipt.message_id, within=TimeRange(0, 1))


def found(*records: PubRecord | SubAfterRecord) -> FoundMessage:
    body = "".join(record.text() for record in records).encode()
    host = Host("10.0.0.1", 5)
    stored = StoredMessage("T", 0, 0, 0, 0, 0, 77, host, 0, host, 0, 0, body, b"", 0, 0)
    return FoundMessage("a", stored)


def test_a_record_that_was_stored_twice_counts_once_and_others_not_at_all() -> None:
    pub = PubRecord(1, "r", "g", "T", "A,B", None, None, None, 1, 1, 0, None, True)
    (one,) = records_of("B", None, [found(pub), found(pub, pub._replace(message_id="C"))])
    assert (one.record, one.client, one.sent_ms) == (pub, "10.0.0.1:5", 77)
    assert records_of("A,B", "T", [found(pub)]) and not records_of("B", "Other", [found(pub)])
