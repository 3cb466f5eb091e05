"""The blocking clients: the same names and methods, without `await`.

    with Producer(group="orders", namesrv="127.0.0.1:9876") as producer:
        receipt = producer.send(Message("Orders", b"...", tags="paid", keys=["o-17"]))

Everything runs in the event loop of one thread per client; any number of threads may call. A forked
process may keep using a producer: the child connects again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from flaremq.client.blocking import SPELL_S, Blocking, LoopThread, blocking, inside
from flaremq.client.client import Client as AsyncClient
from flaremq.client.consumer.litepull import LitePullConsumer as AsyncLitePullConsumer
from flaremq.client.consumer.outcome import Later, reject
from flaremq.client.consumer.push import PushConsumer as AsyncPushConsumer
from flaremq.client.hooks import ConsumeContext, ConsumeHook, SendContext, SendHook
from flaremq.client.message import Decision, Recall, Receipt, ReceivedMessage, SendStatus
from flaremq.client.producer.balance import QueueSelector, by_hash
from flaremq.client.producer.packing import split_batches
from flaremq.client.producer.producer import Producer as AsyncProducer
from flaremq.client.producer.transaction import Checker, Transaction, decision_of
from flaremq.client.producer.transaction import TransactionProducer as AsyncTransactionProducer
from flaremq.client.settings import ClientSettings, ConsumerSettings, ProducerSettings, Trace
from flaremq.model.message import Message, MessageQueue

__all__ = [
    "Client",
    "ClientSettings",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumerSettings",
    "Decision",
    "Later",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PushConsumer",
    "Recall",
    "Receipt",
    "ReceivedMessage",
    "SendContext",
    "SendHook",
    "SendStatus",
    "Trace",
    "Transaction",
    "TransactionProducer",
    "by_hash",
    "reject",
    "split_batches",
]


F = TypeVar("F", bound=Callable[..., Any])


class Client(Blocking[AsyncClient]):
    """Connections and routes that producers and consumers share; most programs do not need it."""

    def __init__(self, namesrv: str | None = None, *, settings: ClientSettings | None = None) -> None:
        super().__init__(lambda: AsyncClient(namesrv, settings=settings), "flaremq-client")

    @property
    def client_id(self) -> str:
        return self._core.client_id


class Producer(Blocking[AsyncProducer]):
    __doc__ = AsyncProducer.__doc__

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        settings: ProducerSettings | None = None,
        client: Client | ClientSettings | None = None,
        hooks: Sequence[SendHook] = (),
        producer_id: str | None = None,
        trace: bool | Trace = False,
    ) -> None:
        super().__init__(
            lambda: AsyncProducer(
                group,
                namesrv,
                settings=settings,
                client=_core(client),
                hooks=hooks,
                producer_id=producer_id,
                trace=trace,
            ),
            f"flaremq-producer-{group}",
            _shared(client),
        )

    send = blocking(AsyncProducer.send)
    send_batch = blocking(AsyncProducer.send_batch)
    send_many = blocking(AsyncProducer.send_many)
    send_oneway = blocking(AsyncProducer.send_oneway)
    recall = blocking(AsyncProducer.recall)
    request = blocking(AsyncProducer.request)
    reply = blocking(AsyncProducer.reply)
    queues = blocking(AsyncProducer.queues)

    def send_async(
        self,
        message: Message,
        *,
        to: MessageQueue | QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Future[Receipt]:
        """Send without waiting. The future holds the receipt or the error, and takes callbacks."""
        thread, core = self._inside()
        return thread.submit(core.send(message, to=to, timeout_s=timeout_s))


class TransactionProducer(Blocking[AsyncTransactionProducer]):
    __doc__ = AsyncTransactionProducer.__doc__

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        checker: Checker,
        settings: ProducerSettings | None = None,
        client: Client | ClientSettings | None = None,
        hooks: Sequence[SendHook] = (),
        producer_id: str | None = None,
        trace: bool | Trace = False,
    ) -> None:
        """`checker` runs in a thread of its own, so it needs its own database connection."""
        super().__init__(
            lambda: AsyncTransactionProducer(
                group,
                namesrv,
                checker=checker,
                settings=settings,
                client=_core(client),
                hooks=hooks,
                producer_id=producer_id,
                trace=trace,
            ),
            f"flaremq-transactions-{group}",
            _shared(client),
        )

    prepare = blocking(AsyncTransactionProducer.prepare)
    request = blocking(AsyncTransactionProducer.request)
    end = blocking(AsyncTransactionProducer.end)

    def send(
        self,
        message: Message,
        step: Callable[[Transaction], Decision | bool | None],
        *,
        to: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> Decision:
        """Prepare a message, run your own step in this thread, and end the transaction as the step says.

        If the step raises, it may have succeeded all the same: the broker asks the checker, seconds later.
        """
        transaction = self.prepare(message, to=to, timeout_s=timeout_s)
        transaction.decision = Decision.UNKNOWN
        try:
            transaction.decision = decision_of(step(transaction))
        finally:
            self.end(transaction)
        return transaction.decision

    def send_batch(
        self,
        messages: Sequence[Message],
        step: Callable[[list[Transaction]], Decision | bool | None],
        *,
        timeout_s: float | None = None,
    ) -> Decision:
        """Prepare several messages, run your own step once, in this thread, and end all of them as it says.

        To brokers each is a transaction of its own: consumers may see one a little before another, and after
        a crash the checker is asked about each.
        """
        transactions: list[Transaction] = []
        decision = Decision.ROLLBACK
        try:
            for message in messages:
                prepared = self.prepare(message, timeout_s=timeout_s)
                transactions.append(prepared)  # Also if the next one fails.
            decision = Decision.UNKNOWN
            decision = decision_of(step(transactions))
        finally:
            for transaction in transactions:
                transaction.decision = decision
                self.end(transaction)
        return decision

    @contextmanager
    def transaction(
        self, message: Message, *, to: MessageQueue | None = None, timeout_s: float | None = None
    ) -> Iterator[Transaction]:
        """The same as a block: its end commits, unless `roll_back` was called in it."""
        transaction = self.prepare(message, to=to, timeout_s=timeout_s)
        try:
            yield transaction
        except BaseException:
            transaction.decision = Decision.UNKNOWN
            raise
        finally:
            self.end(transaction)


class PushConsumer(Blocking[AsyncPushConsumer]):
    __doc__ = AsyncPushConsumer.__doc__

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
        self._subscribed: dict[str, tuple[Callable[..., Any] | None, str | None, str | None]] = {}
        self._asked_to_stop = threading.Event()

        def make() -> AsyncPushConsumer:
            made = AsyncPushConsumer(
                group, namesrv, settings=settings, client=_core(client), hooks=hooks, trace=trace
            )
            for topic, (handler, tags, sql) in self._subscribed.items():
                made.subscribe(topic, handler, tags=tags, sql=sql)
            return made

        super().__init__(make, f"flaremq-consumer-{group}", _shared(client))

    def subscribe(
        self,
        topic: str,
        handler: Callable[..., Any] | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
    ) -> Callable[[F], F]:
        """Consume a topic: all messages, or those that match `tags` ("a || b") or an SQL expression.

        Give the handler here, or use the result as a decorator. It runs in threads, several at a time unless
        the consumer is orderly. Without a handler, read the topic by `for message in consumer`.
        """
        self._subscribe(topic, handler, tags, sql)

        def decorate(function: F) -> F:
            self._subscribe(topic, function, tags, sql)
            return function

        return decorate

    def _subscribe(
        self, topic: str, handler: Callable[..., Any] | None, tags: str | None, sql: str | None
    ) -> None:
        self._subscribed[topic] = handler, tags, sql

        self._apply(lambda core: core.subscribe(topic, handler, tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        self._subscribed.pop(topic, None)
        self._apply(lambda core: core.unsubscribe(topic))

    def suspend(self) -> None:
        """Pause: pull no more and start no handler. The queues stay assigned."""
        self._apply(lambda core: core.suspend())

    def resume(self) -> None:
        self._apply(lambda core: core.resume())

    def run(self) -> None:
        """Consume until SIGINT, SIGTERM or a `stop` by another thread, then stop cleanly."""
        self._asked_to_stop.clear()
        with _signals() as heard:
            self.start()
            try:
                # With a limit: a signal just before the wait would otherwise not end it.
                while not heard and not self._asked_to_stop.wait(SPELL_S):
                    pass
            finally:
                self.stop()

    def stop(self) -> None:
        self._asked_to_stop.set()
        super().stop()

    commit = blocking(AsyncPushConsumer.commit)
    ack = blocking(AsyncPushConsumer.ack)
    retry = blocking(AsyncPushConsumer.retry)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages of topics without a handler. Asking for the next message acknowledges the last one."""
        return self._read(AsyncPushConsumer.__aiter__)

    def messages(self) -> Iterator[ReceivedMessage]:
        """Like iterating, but you call `ack` or `retry` for each message yourself, in any order."""
        return self._read(AsyncPushConsumer.messages)

    def _read(
        self, begin: Callable[[AsyncPushConsumer], AsyncIterator[ReceivedMessage]]
    ) -> Iterator[ReceivedMessage]:
        thread, _ = self._inside()
        return each(thread, self._apply(begin))

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues assigned to this consumer now."""
        return self._core.assignment if self.is_running else frozenset()


class LitePullConsumer(Blocking[AsyncLitePullConsumer]):
    __doc__ = AsyncLitePullConsumer.__doc__

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        settings: ConsumerSettings | None = None,
        client: Client | ClientSettings | None = None,
        trace: bool | Trace = False,
    ) -> None:
        self._subscribed: dict[str, tuple[str | None, str | None]] = {}

        def make() -> AsyncLitePullConsumer:
            made = AsyncLitePullConsumer(group, namesrv, settings=settings, client=_core(client), trace=trace)
            for topic, (tags, sql) in self._subscribed.items():
                made.subscribe(topic, tags=tags, sql=sql)
            return made

        super().__init__(make, f"flaremq-consumer-{group}", _shared(client))

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Share the queues of a topic with the group: all messages, or those that match tags or SQL."""
        self._apply(lambda core: core.subscribe(topic, tags=tags, sql=sql))
        self._subscribed[topic] = tags, sql

    def unsubscribe(self, topic: str) -> None:
        self._apply(lambda core: core.unsubscribe(topic))
        self._subscribed.pop(topic, None)

    assign = blocking(AsyncLitePullConsumer.assign)
    queues = blocking(AsyncLitePullConsumer.queues)
    poll = blocking(AsyncLitePullConsumer.poll)
    commit = blocking(AsyncLitePullConsumer.commit)
    committed = blocking(AsyncLitePullConsumer.committed)
    seek = blocking(AsyncLitePullConsumer.seek)
    seek_to_begin = blocking(AsyncLitePullConsumer.seek_to_begin)
    seek_to_end = blocking(AsyncLitePullConsumer.seek_to_end)
    seek_to_time = blocking(AsyncLitePullConsumer.seek_to_time)
    begin_offset = blocking(AsyncLitePullConsumer.begin_offset)
    end_offset = blocking(AsyncLitePullConsumer.end_offset)
    offset_for_time = blocking(AsyncLitePullConsumer.offset_for_time)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll returns from it."""
        return self._apply(lambda core: core.position(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and return nothing from these queues until `resume`."""
        self._apply(lambda core: core.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._apply(lambda core: core.resume(queues))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages one by one; asking for the next acknowledges the last. Ends when the consumer stops."""
        thread, core = self._inside()
        return each(thread, core)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues assigned to this consumer now."""
        return self._core.assignment if self.is_running else frozenset()


PullConsumer = LitePullConsumer


def each(thread: LoopThread, messages: AsyncIterator[ReceivedMessage]) -> Iterator[ReceivedMessage]:
    """Read an async iterator from a blocking program."""

    async def next_one() -> ReceivedMessage | None:
        return await anext(messages, None)

    while (message := thread.run(next_one())) is not None:
        yield message


def _core(client: Client | ClientSettings | None) -> AsyncClient | ClientSettings | None:
    return inside(client)[1] if isinstance(client, Client) else client


def _shared(client: Client | ClientSettings | None) -> Client | None:
    return client if isinstance(client, Client) else None


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM while the block runs, if this is the main thread.

    They are only noted: a signal handler may run while a lock is held.
    """
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = {
        number: signal.signal(number, lambda number, _: heard.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
