"""Spans for OpenTelemetry, and the W3C trace context that messages carry.

    telemetry = Telemetry()
    Producer("orders", "127.0.0.1:9876", hooks=[telemetry])
    PushConsumer("billing", "127.0.0.1:9876", hooks=[telemetry])

    create Orders        (producer)   its context travels in the properties traceparent and tracestate
      send Orders        (client)     one for each attempt
      process Orders     (consumer)   around the handler, which sees it as the current span

The properties are like any others: retries, delayed messages, dead letters and committed transactions keep
them, and clients of other languages can read them. A message that has a `traceparent` already keeps it.

Spans go to the OpenTelemetry API (`pip install '.[otel]'`), and from there to the SDK that your program
has set up. Where the API is not installed, this hook does nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flaremq.client.hooks import ConsumeContext, SendContext
from flaremq.client.message import ReceivedMessage
from flaremq.model.message import Message

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

TRACEPARENT: Final = "traceparent"
_SCOPE: Final = "flaremq"


class OpenSpan(NamedTuple):
    """A span around a handler call."""

    span: Span
    token: Any
    """Restores the context of before."""
    where: tuple[int, object]
    """The thread and task in which the context was set: it can be restored only there."""


class Telemetry:
    """A hook for producers and consumers. Any number of them may share it."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Spans go to the provider, by default to the one that the program has set."""
        self._sends: dict[SendContext, Span] = {}
        self._consumptions: dict[ConsumeContext, OpenSpan] = {}
        try:
            from opentelemetry import context, propagate, trace
        except ImportError:
            self.is_active = False
            return
        self.is_active = True
        """Whether the OpenTelemetry API is installed."""
        self._context = context
        self._propagate = propagate
        self._trace = trace
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)

    # Producers.

    def inject(self, message: Message) -> Mapping[str, str]:
        """Properties that tell consumers of the trace."""
        carrier: dict[str, str] = {}
        if not self.is_active or TRACEPARENT in message.properties:
            return carrier
        kind = self._trace.SpanKind.PRODUCER
        attributes = _about("create", message.topic)
        span = self._tracer.start_span(f"create {message.topic}", kind=kind, attributes=attributes)
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        span.end()
        return carrier

    def before_send(self, send: SendContext) -> None:
        if not self.is_active or not send.messages:
            return
        topic = send.messages[0].topic
        parent, links = self._origin([message.properties for message in send.messages])
        attributes = _about("send", topic) | _about_sent(send)
        kind = self._trace.SpanKind.CLIENT
        span = self._tracer.start_span(f"send {topic}", parent, kind, attributes, links)
        self._sends[send] = span

    def after_send(self, send: SendContext) -> None:
        span = self._sends.pop(send, None)
        if span is None:
            return
        if send.receipt is not None:
            span.set_attribute("messaging.rocketmq.status", send.receipt.status.name)
        self._end(span, send.error)

    # Consumers.

    def before_consume(self, consume: ConsumeContext) -> None:
        if not self.is_active:
            return
        first = consume.messages[0]
        parent, links = self._origin([message.properties for message in consume.messages])
        attributes = _about("process", first.topic) | _about_received(consume)
        kind = self._trace.SpanKind.CONSUMER
        span = self._tracer.start_span(f"process {first.topic}", parent, kind, attributes, links)
        token = self._context.attach(self._trace.set_span_in_context(span))
        self._consumptions[consume] = OpenSpan(span, token, _here())

    def after_consume(self, consume: ConsumeContext) -> None:
        opened = self._consumptions.pop(consume, None)
        if opened is None:
            return
        if opened.where == _here():  # A message that is read by iteration may be acknowledged elsewhere.
            self._context.detach(opened.token)
        self._end(opened.span, consume.error)

    def _origin(self, carriers: Sequence[Mapping[str, str]]) -> tuple[Context | None, list[Link]]:
        """Where messages come from: the parent of a single one, links to those of a batch."""
        if len(carriers) == 1:
            return self._propagate.extract(dict(carriers[0])), []
        return None, [*self._links(carriers)]

    def _links(self, carriers: Iterable[Mapping[str, str]]) -> Iterable[Link]:
        for carrier in carriers:
            origin = self._trace.get_current_span(
                self._propagate.extract(dict(carrier), self._context.Context())
            )
            if origin.get_span_context().is_valid:
                yield self._trace.Link(origin.get_span_context())

    def _end(self, span: Span, error: BaseException | None) -> None:
        if error is not None:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(self._trace.StatusCode.ERROR, str(error))
            span.record_exception(error)
        span.end()


def _here() -> tuple[int, object]:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), task


def _about(operation: str, topic: str) -> dict[str, str | int | list[str]]:
    """Attributes of OpenTelemetry's semantic conventions for messaging."""
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _about_sent(send: SendContext) -> dict[str, str | int | list[str]]:
    found = _about_messages(send.messages, send.message_ids)
    found["messaging.rocketmq.producer_group"] = send.group
    if send.queue is not None:
        found["messaging.destination.partition.id"] = str(send.queue.queue_id)
    if send.address is not None:
        host, _, port = send.address.rpartition(":")
        found |= {"server.address": host, "server.port": int(port)}
    if send.is_half:
        found["messaging.rocketmq.message.type"] = "transaction"
    return found


def _about_received(consume: ConsumeContext) -> dict[str, str | int | list[str]]:
    messages = consume.messages
    found = _about_messages(messages, [message.message_id for message in messages])
    found["messaging.consumer.group.name"] = consume.group
    found["messaging.destination.partition.id"] = str(consume.queue.queue_id)
    if messages[0].reconsume_times:
        found["messaging.rocketmq.reconsume_times"] = messages[0].reconsume_times
    return found


def _about_messages(
    messages: Sequence[Message | ReceivedMessage], ids: Sequence[str]
) -> dict[str, str | int | list[str]]:
    if len(messages) > 1:
        return {"messaging.batch.message_count": len(messages)}
    (message,) = messages
    found: dict[str, str | int | list[str]] = {
        "messaging.message.id": ids[0],
        "messaging.message.body.size": len(message.body),
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = list(message.keys)
    if message.sharding_key:
        found["messaging.rocketmq.message.group"] = message.sharding_key
    return found
