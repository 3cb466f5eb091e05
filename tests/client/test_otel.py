"""Spans of OpenTelemetry, and the trace context that messages carry wherever they go."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.client.consumer.tools import Seen, joined, quick
from tests.client.either import Either

from flaremq.base.errors import FlareError
from flaremq.client import sync
from flaremq.client.consumer.outcome import reject
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.otel import Telemetry
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.transaction import TransactionProducer
from flaremq.model.message import Message, MessageQueue
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "vendor=1"


class Spans:
    """A program's SDK, with the spans that it exports."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    async def one(self, name: str) -> ReadableSpan:
        async def is_there() -> bool:
            return bool(self.named(name))

        await eventually(f"{name!r} is exported", is_there)
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def hook(spans: Spans) -> Telemetry:
    return Telemetry(spans.provider)


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


@pytest.mark.parametrize("is_async", [True, False], ids=["async handler", "plain handler"])
async def test_one_trace_leads_from_the_send_to_the_handler(
    servers: EmbeddedThread, topic: str, spans: Spans, hook: Telemetry, is_async: bool
) -> None:
    current: list[Any] = []

    async def handle(message: ReceivedMessage) -> None:
        current.append(trace.get_current_span().get_span_context())

    def handle_plainly(message: ReceivedMessage) -> None:
        current.append(trace.get_current_span().get_span_context())

    consumer = PushConsumer(f"G-{topic}", servers.namesrv, settings=quick(), hooks=[hook])
    consumer.subscribe(topic, handle if is_async else handle_plainly)
    tracer = spans.provider.get_tracer("program")
    async with Producer("shop", servers.namesrv, hooks=[hook]) as producer:
        with tracer.start_as_current_span("order"):
            receipt = await producer.send(Message(topic, b"12345", tags="A", keys=["k"]))
        async with consumer:
            processed = await spans.one(f"process {topic}")
    (order,), (created,), (sent,) = (
        spans.named("order"),
        spans.named(f"create {topic}"),
        spans.named(f"send {topic}"),
    )
    assert {ids(span)[0] for span in (created, sent, processed)} == {ids(order)[0]}
    assert created.parent is not None and created.parent.span_id == ids(order)[1]
    for child in (sent, processed):
        assert child.parent is not None and child.parent.span_id == ids(created)[1]
    assert (created.kind, sent.kind, processed.kind) == (
        *(SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER),
    )
    assert [context.span_id for context in current] == [ids(processed)[1]]
    assert sent.attributes is not None and processed.attributes is not None
    for span in (sent, processed):
        assert span.attributes is not None
        assert span.attributes["messaging.system"] == "rocketmq"
        assert span.attributes["messaging.destination.name"] == topic
        assert span.attributes["messaging.message.id"] == receipt.message_id
        assert span.attributes["messaging.message.body.size"] == 5
        assert span.attributes["messaging.rocketmq.message.tag"] == "A"
        assert span.attributes["messaging.rocketmq.message.keys"] == ("k",)
    assert sent.attributes["server.port"] in [int(each.rpartition(":")[2]) for each in servers.addresses]
    assert processed.attributes["messaging.consumer.group.name"] == f"G-{topic}"


@pytest.mark.parametrize("kind", [Producer, sync.Producer], ids=["async", "blocking"])
async def test_every_way_to_send_carries_the_context(
    kind: Callable[..., Any], servers: EmbeddedThread, topic: str, spans: Spans, hook: Telemetry
) -> None:
    seen = Seen()
    async with Either(kind("shop", servers.namesrv, hooks=[hook])) as producer:
        await producer.send(Message(topic, b"single"))
        await producer.send_many([Message(topic, b"many-1"), Message(topic, b"many-2")])
        await producer.send_batch([Message(topic, b"batch-1"), Message(topic, b"batch-2")])
        await producer.send_oneway(Message(topic, b"oneway"))
        async with joined(servers, f"G-{topic}", topic, seen):
            await seen.count(6)
    created = {f"{ids(span)[0]:032x}-{ids(span)[1]:016x}" for span in spans.named(f"create {topic}")}
    assert {(message.get("traceparent") or "")[3:-3] for message in seen.messages} == created
    assert len(created) == 6
    (batch,) = [span for span in spans.named(f"send {topic}") if len(span.links) == 2]
    assert batch.attributes is not None and batch.attributes["messaging.batch.message_count"] == 2


async def test_a_message_keeps_the_context_that_it_was_given(
    servers: EmbeddedThread, topic: str, spans: Spans, hook: Telemetry
) -> None:
    async with Producer("shop", servers.namesrv, hooks=[hook]) as producer:
        await producer.send(Message(topic, b"x", properties={"traceparent": PARENT}))
    assert not spans.named(f"create {topic}")
    sent = await spans.one(f"send {topic}")
    assert sent.parent is not None and f"{sent.parent.span_id:016x}" == "b7ad6b7169203331"


async def test_what_fails_is_an_error_in_its_span(
    servers: EmbeddedThread, topic: str, spans: Spans, hook: Telemetry
) -> None:
    consumer = PushConsumer(f"G-{topic}", servers.namesrv, settings=quick(), hooks=[hook])

    @consumer.subscribe(topic)
    def handle(message: ReceivedMessage) -> None:
        raise reject("no order")

    async with Producer("shop", servers.namesrv, hooks=[hook]) as producer:
        await producer.send(Message(topic, b"x"))
        queue = (await producer.queues(topic))[0]
        with pytest.raises(FlareError):
            await producer.send(Message(topic, b"y"), to=MessageQueue(topic, queue.broker_name, 99))
        async with consumer:
            processed = await spans.one(f"process {topic}")
    good, bad = spans.named(f"send {topic}")
    assert [span.status.status_code for span in (good, bad, processed)] == [
        *(StatusCode.UNSET, StatusCode.ERROR, StatusCode.ERROR),
    ]
    assert processed.attributes is not None and processed.attributes["error.type"] == "Later"


async def test_a_message_that_is_read_by_iteration_has_a_span(
    servers: EmbeddedThread, topic: str, spans: Spans, hook: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer("shop", servers.namesrv, hooks=[hook]) as producer:
        await producer.send(Message(topic, b"x"))
    consumer = PushConsumer(f"G-{topic}", servers.namesrv, settings=quick(), hooks=[hook])
    consumer.subscribe(topic)
    async with consumer:
        async for message in consumer.messages():
            await asyncio.create_task(consumer.ack(message))  # In another context.
            break
    await spans.one(f"process {topic}")
    assert "detach" not in caplog.text


# The properties, wherever a message goes.


def carrier(message: ReceivedMessage) -> tuple[str | None, str | None]:
    return message.get("traceparent"), message.get("tracestate")


def a_traced(topic: str, body: bytes, **more: Any) -> Message:
    return Message(topic, body, properties={"traceparent": PARENT, "tracestate": STATE}, **more)


async def test_retries_and_dead_letters_keep_the_context(servers: EmbeddedThread, topic: str) -> None:
    group = f"G-{topic}"

    def fail(message: ReceivedMessage) -> None:
        if message.reconsume_times:
            raise reject("for good")
        raise RuntimeError("once more")

    seen, letters = Seen(fail), Seen()
    async with Producer("shop", servers.namesrv) as producer:
        await producer.send(a_traced(topic, b"x"))
        async with joined(servers, group, topic, seen):
            await seen.count(2)
        async with joined(servers, f"D-{topic}", f"%DLQ%{group}", letters):
            await letters.count(1)
    assert [carrier(message) for message in (*seen.messages, *letters.messages)] == [(PARENT, STATE)] * 3


async def test_delayed_and_committed_messages_keep_the_context(servers: EmbeddedThread, topic: str) -> None:
    seen = Seen()
    async with TransactionProducer("shop", servers.namesrv, checker=lambda _: None) as transactions:
        async with transactions.transaction(a_traced(topic, b"committed")):
            pass
        await transactions.producer.send(a_traced(topic, b"timer", delay_s=1))
        await transactions.producer.send(a_traced(topic, b"level", delay_level=1))
        async with joined(servers, f"G-{topic}", topic, seen):
            await seen.count(3)
    assert [carrier(message) for message in seen.messages] == [(PARENT, STATE)] * 3


# Without it.

WITHOUT = """
import sys
sys.modules["opentelemetry"] = None  # As if it were not installed.
from flaremq.client.otel import Telemetry
from flaremq.client.hooks import SendContext
from flaremq.model.message import Message
hook = Telemetry()
send = SendContext("g", [Message("T", b"x")], ["ID"], None, None, False, 0.0)
hook.before_send(send)
hook.after_send(send)
print(hook.is_active, hook.inject(Message("T", b"x")))
"""


def test_without_opentelemetry_the_hook_does_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False {}"


def test_importing_a_client_does_not_load_opentelemetry() -> None:
    code = "import sys, flaremq.client.sync, flaremq.client.otel; print('opentelemetry' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
