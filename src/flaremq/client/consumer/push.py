"""Consuming messages in an event loop, with handlers or in your own loop.

    consumer = PushConsumer(group="billing", namesrv="127.0.0.1:9876")

    @consumer.subscribe("Orders", tags="paid || refunded")
    async def bill(message: ReceivedMessage) -> None:
        ...

    await consumer.run()

A handler returns to acknowledge its message, or raises to have it redelivered later. Every message is
delivered at least once: after a crash, or when queues move to another member, some are delivered twice.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from flaremq.base.errors import UsageError
from flaremq.client.client import Client, client_of
from flaremq.client.consumer.base import Consumer
from flaremq.client.consumer.concurrent import Concurrent
from flaremq.client.consumer.delivery import Delivery
from flaremq.client.consumer.iterate import MessageIterator, MessageReader
from flaremq.client.consumer.member import GroupMember
from flaremq.client.consumer.orderly import Orderly
from flaremq.client.consumer.outcome import Later
from flaremq.client.consumer.pull import PUSH
from flaremq.client.consumer.runninginfo import directly
from flaremq.client.consumer.sendback import Returns
from flaremq.client.consumer.workers import Callee
from flaremq.client.hooks import ConsumeHook, ConsumeHooks
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ConsumerSettings, Trace
from flaremq.client.trace import ConsumeTracer, trace_dispatcher
from flaremq.model.names import check_group, retry_topic
from flaremq.protocol.bodies.group import ConsumeMessageDirectlyResult

F = TypeVar("F", bound=Callable[..., Any])


class PushConsumer(Consumer):
    """One member of a consumer group that calls your handlers, concurrently or in order."""

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        settings: ConsumerSettings | None = None,
        client: Client | ClientSettings | None = None,
        hooks: Sequence[ConsumeHook] = (),
        trace: bool | Trace = False,
    ) -> None:
        """Without a client it makes its own, for the NameServers at `namesrv`. Hooks observe every handler
        call, and `trace` records it in the trace topic."""
        check_group(group)
        settings = settings or ConsumerSettings()
        used, is_own = client_of(namesrv, client, broadcasting=settings.broadcasting)
        if not settings.auto_commit:
            raise UsageError(
                "auto_commit=False is for pull consumers: push consumers commit what handlers acknowledge"
            )
        member = GroupMember(used, group, settings)
        traces = trace_dispatcher(trace, used, group, "CONSUME", Producer)
        if traces is not None:
            hooks = [*hooks, ConsumeTracer(traces, Later, settings.consume_timeout_s)]
        self._hooks = ConsumeHooks(hooks, group, used.clock) if hooks else None
        self._handlers: dict[str, Callee | None] = {}
        self._returns = Returns(member)
        discipline = Orderly if member.settings.orderly else Concurrent
        self._delivery = Delivery(member, self._handlers, self._returns, discipline)
        self._reader = MessageReader(self._delivery, self._hooks)
        super().__init__(member, self._delivery, PUSH, owns_client=is_own, traces=traces)

    # Subscriptions.

    def subscribe(
        self,
        topic: str,
        handler: Callable[..., Any] | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
    ) -> Callable[[F], F]:
        """Consume a topic: all messages, or those that match `tags` ("a || b") or an SQL expression.

        Give the handler here, or use the result as a decorator. Without a handler, read the topic by
        `async for message in consumer`. An async handler runs in the event loop, a plain function in a
        thread. A handler gets one message, or a list if `batch_max` is above 1.
        """
        self._member.subscribe(topic, tags, sql)
        self._handlers[topic] = None if handler is None else Callee(handler, self._hooks)
        self._subscribed()

        def decorate(function: F) -> F:
            self._handlers[topic] = Callee(function, self._hooks)
            self._subscribed()
            return function

        return decorate

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic.

        All members of a group should have the same subscriptions: brokers assign queues to every member of
        the group, so this consumer's share of the topic stays unread while other members subscribe to it.
        """
        self._member.unsubscribe(topic)
        self._handlers.pop(topic, None)
        self._subscribed()

    def _subscribed(self) -> None:
        if self._started:
            self._delivery.reconsider()
        super()._subscribed()

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """Subscribed topics and their expressions."""
        return {topic: self._member.subscriptions[topic].sub_string for topic in self._handlers}

    # Life.

    def _prepare(self) -> None:
        if not self._handlers:
            raise UsageError(f"the consumer of {self.group!r} has no subscription: call subscribe() first")
        if self._member.is_clustering:
            self._member.subscribe(retry_topic(self.group))

    def _begin(self) -> None:
        self._delivery.start()

    async def _finish(self) -> None:
        try:
            await self._delivery.close(self.settings.wait_at_stop_s)
        finally:
            self._reader.close()
            await self._returns.close()

    async def run(self) -> None:
        """Consume until SIGINT, SIGTERM or cancellation, then stop cleanly. A signal that comes while it
        starts, when messages may already be handled, stops it once it has."""
        asked = asyncio.Event()
        with ExitStack() as watched:
            for number in (signal.SIGINT, signal.SIGTERM):
                watched.enter_context(_heard(number, asked))
            await self.start()
            try:
                await asked.wait()
            finally:
                watched.close()  # Who does not want to wait for the stop can end it as any other program.
                await self.stop()

    def suspend(self) -> None:
        """Pause: pull no more and start no handler. The queues stay assigned."""
        self._assignment.suspend(True)
        self._delivery.rest(True)

    def resume(self) -> None:
        self._assignment.suspend(False)
        self._delivery.rest(False)

    # Without handlers.

    def __aiter__(self) -> MessageIterator:
        """Messages of topics without a handler, one by one.

        Asking for the next message acknowledges the last one. A message whose loop ends early, by `break`
        or an exception, is not acknowledged and will be redelivered.
        """
        return self._reader.read()

    def messages(self) -> MessageIterator:
        """Like iterating, but you call `ack` or `retry` for each message yourself, in any order."""
        return self._reader.read_explicitly()

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a message."""
        self._reader.end(message)

    async def retry(self, message: ReceivedMessage, *, delay_level: int = 0) -> None:
        """Have a message redelivered later; level -1 sends it to the dead-letter queue."""
        self._reader.end(message, Later("retry() was called", delay_level=delay_level))

    async def commit(self) -> None:
        """Store offsets now, instead of within `commit_s`."""
        self._check_running()
        await self._assignment.commit(sure=True)

    async def consume_directly(self, record: bytes, broker_name: str) -> ConsumeMessageDirectlyResult:
        return await directly(self._member, self._delivery, record, broker_name)


@contextmanager
def _heard(number: signal.Signals, asked: asyncio.Event) -> Iterator[None]:
    """Whether a signal asks to stop, where that can be heard: in the main thread of Unix."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, asked.set)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
