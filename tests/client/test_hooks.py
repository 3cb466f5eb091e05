"""Hooks around sends and handler calls."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.client.consumer.tools import a_client, a_topic, numbered, quick, send
from tests.client.either import Either

from flaremq.base.errors import ConnectionLost, FlareError, ManyFailed, MessageIllegal, NoNameServer
from flaremq.client import sync
from flaremq.client.consumer.outcome import Later
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.hooks import ConsumeContext, ConsumeHooks, SendContext, SendHooks
from flaremq.client.message import Receipt, ReceivedMessage
from flaremq.client.producer.packing import PackedMessage, Parcel, message_text
from flaremq.client.producer.pipeline import SendPipeline
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ProducerSettings
from flaremq.model.message import Message, MessageQueue
from flaremq.remoting.ports import free_port
from flaremq.testing.clock import ManualClock
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded, EmbeddedThread


@dataclass
class Sends:
    """A hook that keeps what it sees."""

    begun: list[SendContext] = field(default_factory=list)
    ended: list[SendContext] = field(default_factory=list)

    def before_send(self, send: SendContext) -> None:
        assert send.receipt is None and send.error is None
        self.begun.append(send)

    def after_send(self, send: SendContext) -> None:
        assert any(send is each for each in self.begun)
        self.ended.append(send)


@dataclass
class Consumptions:
    begun: list[ConsumeContext] = field(default_factory=list)
    ended: list[ConsumeContext] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def before_consume(self, consume: ConsumeContext) -> None:
        self.threads.add(threading.current_thread().name)
        self.begun.append(consume)

    def after_consume(self, consume: ConsumeContext) -> None:
        assert any(consume is each for each in self.begun)
        self.ended.append(consume)

    async def count(self, wanted: int) -> None:
        async def are_there() -> bool:
            return sum(len(each.messages) for each in self.ended) >= wanted

        await eventually(f"{wanted} messages were handled", are_there)

    def outcomes(self) -> list[tuple[bytes, str]]:
        return [(each.messages[0].body, type(each.error).__name__) for each in self.ended]


class Broken:
    """A hook whose every call fails."""

    def __init__(self, error: Callable[[], BaseException] = lambda: RuntimeError("no")) -> None:
        self._error = error
        self.called = 0

    def _fail(self) -> None:
        self.called += 1
        raise self._error()

    def before_send(self, send: SendContext) -> None:
        self._fail()

    def after_send(self, send: SendContext) -> None:
        self._fail()

    def before_consume(self, consume: ConsumeContext) -> None:
        self._fail()

    def after_consume(self, consume: ConsumeContext) -> None:
        self._fail()


# Sends.


@pytest.fixture(params=[Producer, sync.Producer], ids=["async", "blocking"])
def make(request: pytest.FixtureRequest, servers: EmbeddedThread) -> Callable[..., Any]:
    def made(*hooks: Any) -> Either:
        return Either(request.param("PID_hooks", servers.namesrv, hooks=hooks))

    return made


async def test_a_send_is_observed_with_its_message_queue_and_receipt(
    make: Callable[..., Any], topic: str
) -> None:
    hook, message = Sends(), Message(topic, b"x", keys=["k"])
    async with make(hook) as producer:
        receipt = await producer.send(message)
    (seen,) = hook.ended
    assert seen.messages == [message] and seen.messages[0] is message
    assert (seen.group, seen.message_ids) == ("PID_hooks", [receipt.message_id])
    assert (seen.receipt, seen.error, seen.is_oneway) == (receipt, None, False)
    assert seen.queue == receipt.queue and seen.address
    assert 0 < seen.took_s < 30


async def test_a_batch_is_one_attempt_with_all_its_messages(make: Callable[..., Any], topic: str) -> None:
    hook, messages = Sends(), [Message(topic, body) for body in numbered(5)]
    async with make(hook) as producer:
        receipt = await producer.send_batch(messages)
    (seen,) = hook.ended
    assert seen.messages == messages and seen.receipt == receipt
    assert ",".join(seen.message_ids) == receipt.message_id


async def test_send_many_makes_an_attempt_for_each_message(make: Callable[..., Any], topic: str) -> None:
    hook, messages = Sends(), [Message(topic, body) for body in numbered(300)]
    async with make(hook) as producer:
        receipts = await producer.send_many(messages)
    assert [each.messages[0] for each in hook.begun] == messages
    seen = {each.message_ids[0]: each for each in hook.ended}
    assert [seen[receipt.message_id].receipt for receipt in receipts] == receipts
    assert len(hook.ended) == 300


async def test_a_one_way_send_ends_with_neither_receipt_nor_error(
    make: Callable[..., Any], topic: str
) -> None:
    hook, message = Sends(), Message(topic, b"x")
    async with make(hook) as producer:
        await producer.send_oneway(message)
    (seen,) = hook.ended
    assert (seen.messages, seen.receipt, seen.error, seen.is_oneway) == ([message], None, None, True)


async def test_messages_of_a_sharding_key_are_observed_in_one_queue(
    make: Callable[..., Any], topic: str
) -> None:
    hook = Sends()
    async with make(hook) as producer:
        for body in numbered(4):
            await producer.send(Message(topic, body, sharding_key="o-17"))
    assert len({each.queue for each in hook.ended}) == 1
    assert [each.messages[0].body for each in hook.begun] == numbered(4)


async def test_packed_messages_are_shown_as_the_messages_they_were_made_of(
    servers: EmbeddedThread, topic: str
) -> None:
    message = Message(
        topic, b"x", tags="t", keys=["a", "b"], properties={"p": "q"}, sharding_key="s", wait_store=False
    )
    packed = PackedMessage(topic, b"x", message_text(message, "0" * 32), "0" * 32)
    hook = Sends()
    async with Producer("PID_hooks", servers.namesrv, hooks=[hook]) as producer:
        await producer.send_ready([packed], None)
        pipeline = SendPipeline(producer, 8, 3.0)
        await pipeline.feed([packed])
        await pipeline.finish()
    assert [each.messages for each in hook.ended] == [[message], [message]]
    assert [each.message_ids for each in hook.ended] == [["0" * 32]] * 2


class LosesTheFirst(Producer):
    """Its first request meets a connection that is lost."""

    lost = False

    async def _request(self, parcel: Parcel, queue: MessageQueue, address: str, limit_s: float) -> Receipt:
        if not self.lost:
            self.lost = True
            raise ConnectionLost(f"the connection to {address} was lost")
        return await super()._request(parcel, queue, address, limit_s)


async def test_every_attempt_of_a_retried_send_is_observed(servers: EmbeddedThread, topic: str) -> None:
    hook = Sends()
    async with a_topic(servers, topic), LosesTheFirst("PID", servers.namesrv, hooks=[hook]) as producer:
        receipt = await producer.send(Message(topic, b"x"))
    first, second = hook.ended
    assert isinstance(first.error, ConnectionLost) and first.receipt is None
    assert second.error is None and second.receipt == receipt
    assert first.message_ids == second.message_ids == [receipt.message_id]
    assert first.address != second.address


async def test_messages_of_send_many_whose_broker_dies_are_observed_to_their_end(tmp_path: Path) -> None:
    hook, settings = Sends(), ProducerSettings(timeout_s=0.5)
    async with (
        Embedded(tmp_path) as servers,
        Producer("PID", servers.namesrv, settings=settings, hooks=[hook]) as producer,
    ):
        await producer.send(Message("T", b"x"))
        await servers.stop("broker-a")
        with pytest.raises(ManyFailed):
            await producer.send_many([Message("T", body) for body in numbered(10)])
    assert len(hook.begun) == len(hook.ended)
    assert all(each.error is not None for each in hook.ended[1:])
    assert {each.messages[0].body for each in hook.ended[1:]} == set(numbered(10))


@pytest.mark.parametrize("many", [False, True])
async def test_a_send_that_finds_no_queue_is_observed_without_one(many: bool) -> None:
    hook, message = Sends(), Message("T", b"x")
    settings = ProducerSettings(timeout_s=0.2)
    async with Producer("PID", f"127.0.0.1:{free_port()}", settings=settings, hooks=[hook]) as producer:
        with pytest.raises(FlareError):
            await (producer.send_many([message]) if many else producer.send(message))
    (seen,) = hook.ended
    assert seen.queue is None and isinstance(seen.error, NoNameServer) and seen.messages == [message]


async def test_a_message_that_is_refused_before_it_is_sent_is_not_observed(
    servers: EmbeddedThread, topic: str
) -> None:
    hook = Sends()
    async with Producer("PID_hooks", servers.namesrv, hooks=[hook]) as producer:
        with pytest.raises(MessageIllegal):
            await producer.send(Message(topic, b""))
        with pytest.raises(ManyFailed):
            await producer.send_many([Message(topic, b""), Message(topic, b"x")])
    assert [each.messages[0].body for each in hook.ended] == [b"x"]


async def test_a_cancelled_send_many_ends_what_it_began(servers: EmbeddedThread, topic: str) -> None:
    began = asyncio.Event()

    class Began(Sends):
        def before_send(self, send: SendContext) -> None:
            super().before_send(send)
            began.set()

    hook = Began()
    async with Producer("PID_hooks", servers.namesrv, hooks=[hook]) as producer:
        await producer.send(Message(topic, b"first"))
        began.clear()
        task = asyncio.ensure_future(producer.send_many([Message(topic, body) for body in numbered(20)]))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(hook.ended) == len(hook.begun)
        assert isinstance(hook.ended[-1].error, asyncio.CancelledError)


async def test_hooks_nest_in_the_order_in_which_they_are_given() -> None:
    order: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self._name = name

        def before_send(self, _send: SendContext) -> None:
            order.append(f"before {self._name}")

        def after_send(self, _send: SendContext) -> None:
            order.append(f"after {self._name}")

    hooks = SendHooks([Named("a"), Named("b")], "G", ManualClock())
    hooks.end(hooks.begin([], [], None, None), None)
    assert order == ["before a", "before b", "after b", "after a"]


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
async def test_a_hook_that_raises_harms_no_send(
    servers: EmbeddedThread, topic: str, error: type[BaseException]
) -> None:
    broken, hook = Broken(lambda: error("no")), Sends()
    async with Producer("PID_hooks", servers.namesrv, hooks=[broken, hook]) as producer:
        await producer.send(Message(topic, b"x"))
        await producer.send_oneway(Message(topic, b"x"))
        await producer.send_many([Message(topic, b"x")] * 10)
    assert broken.called == 24 and len(hook.ended) == 12


def test_a_hook_that_keeps_failing_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    hooks = SendHooks([Broken()], "G", clock)
    with caplog.at_level(logging.WARNING, "flaremq"):
        for _ in range(100):
            hooks.begin([], [], None, None)
        clock.advance_ms(61_000)
        hooks.begin([], [], None, None)
    first, later = caplog.messages
    assert first == "hook Broken.before_send failed: RuntimeError: no"
    assert later == "hook Broken.before_send failed: RuntimeError: no (99 more since it was last logged)"


def test_how_long_an_attempt_took_is_by_the_clients_clock() -> None:
    clock = ManualClock()
    sends, consumes = SendHooks([], "G", clock), ConsumeHooks([], "G", clock)
    send, consume = sends.begin([], [], None, None), consumes.begin([])
    clock.advance_ms(1_500)
    sends.end(send, None)
    consumes.end(consume, None)
    assert (send.took_s, consume.took_s) == (1.5, 1.5)


async def test_without_hooks_nothing_is_kept_per_message(servers: EmbeddedThread, topic: str) -> None:
    async with Producer("PID_hooks", servers.namesrv) as producer:
        assert producer.hooks is None
        pipeline = SendPipeline(producer, 64, 3.0)
        await pipeline.feed([Message(topic, body) for body in numbered(64)])
        assert pipeline._observed == {}
        await pipeline.finish()


# Handlers.


def consumer_of(servers: EmbeddedThread, topic: str, hooks: list[Any], **changes: Any) -> PushConsumer:
    return PushConsumer(f"G-{topic}", servers.namesrv, settings=quick(**changes), hooks=hooks)


@pytest.mark.parametrize("changes", [{}, {"orderly": True}, {"broadcasting": True}], ids=str)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_every_handler_call_is_observed(
    servers: EmbeddedThread, topic: str, tmp_path: Path, changes: dict[str, Any], is_async: bool
) -> None:
    hook = Consumptions()

    def plain(_message: ReceivedMessage) -> None:
        return None

    async def handler(_message: ReceivedMessage) -> None:
        return None

    async with a_topic(servers, topic) as producer:
        await send(producer, topic, numbered(20))
        consumer = consumer_of(servers, topic, [hook], offsets_folder=tmp_path, **changes)
        consumer.subscribe(topic, handler if is_async else plain)
        async with consumer:
            await hook.count(20)
    assert sorted(hook.outcomes()) == sorted((body, "NoneType") for body in numbered(20))
    first = hook.ended[0]
    assert first.group == f"G-{topic}" and first.queue == first.messages[0].queue and first.took_s >= 0
    own = {threading.current_thread().name}
    assert hook.threads == own if is_async else not hook.threads & own


async def test_what_a_handler_raises_or_returns_is_its_outcome(servers: EmbeddedThread, topic: str) -> None:
    hook = Consumptions()

    async def handler(message: ReceivedMessage) -> Later | None:
        if message.body == b"m0":
            raise ValueError("no")
        return Later() if message.body == b"m1" else None

    async with a_topic(servers, topic) as producer:
        consumer = consumer_of(servers, topic, [hook])
        consumer.subscribe(topic, handler)
        async with consumer:
            await send(producer, topic, numbered(3))

            async def all_came() -> bool:
                return len({body for body, _ in hook.outcomes()}) == 3

            await eventually("all came", all_came)
    assert sorted(set(hook.outcomes())) == [(b"m0", "ValueError"), (b"m1", "Later"), (b"m2", "NoneType")]


async def test_a_batch_of_a_handler_is_observed_as_one_call(servers: EmbeddedThread, topic: str) -> None:
    hook, sizes = Consumptions(), []

    def handler(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    async with a_topic(servers, topic, 1) as producer:
        await send(producer, topic, numbered(20))
        consumer = consumer_of(servers, topic, [hook], batch_max=8)
        consumer.subscribe(topic, handler)
        async with consumer:
            await hook.count(20)
    assert sorted(len(each.messages) for each in hook.ended) == sorted(sizes)


async def test_an_async_handler_sees_context_variables_of_its_hooks(
    servers: EmbeddedThread, topic: str
) -> None:
    span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")
    seen: list[str] = []

    class Spans(Consumptions):
        def before_consume(self, consume: ConsumeContext) -> None:
            super().before_consume(consume)
            span.set(consume.messages[0].message_id)

    async def handler(message: ReceivedMessage) -> None:
        assert span.get() == message.message_id
        seen.append(span.get())

    hook = Spans()
    async with a_topic(servers, topic) as producer:
        consumer = consumer_of(servers, topic, [hook])
        consumer.subscribe(topic, handler)
        async with consumer:
            await send(producer, topic, numbered(5))
            await hook.count(5)
    assert len(seen) == 5


async def test_iterated_messages_are_observed_until_they_are_acknowledged(
    servers: EmbeddedThread, topic: str
) -> None:
    hook = Consumptions()
    async with a_topic(servers, topic, 1) as producer:
        await send(producer, topic, numbered(3))
        consumer = consumer_of(servers, topic, [hook])
        consumer.subscribe(topic)
        async with consumer:
            loop = aiter(consumer)
            first, second = await anext(loop), await anext(loop)
            assert hook.outcomes() == [(first.body, "NoneType")]
            await anext(aiter(consumer))
            assert hook.outcomes()[1:] == [(second.body, "Later")]
            third = await anext(consumer.messages())
            await consumer.retry(third)
            assert hook.outcomes()[2:] == [(third.body, "Later")]
            assert len(hook.begun) == len(hook.ended) + 1


async def test_a_message_that_is_out_when_the_consumer_stops_ends_then(
    servers: EmbeddedThread, topic: str
) -> None:
    hook = Consumptions()
    async with a_topic(servers, topic) as producer:
        await send(producer, topic, numbered(1))
        consumer = consumer_of(servers, topic, [hook])
        consumer.subscribe(topic)
        async with consumer:
            await anext(consumer.messages())
            assert not hook.ended
    assert hook.outcomes() == [(b"m0", "Later")]


async def test_a_hook_that_raises_harms_no_delivery(servers: EmbeddedThread, topic: str) -> None:
    broken, hook = Broken(), Consumptions()
    handled: list[bytes] = []

    def handler(message: ReceivedMessage) -> None:
        handled.append(message.body)

    async with a_topic(servers, topic) as producer:
        consumer = consumer_of(servers, topic, [broken, hook])
        consumer.subscribe(topic, handler)
        async with consumer:
            await send(producer, topic, numbered(10))
            await hook.count(10)
    assert sorted(handled) == sorted(numbered(10)) and broken.called == 20
    assert all(each.error is None for each in hook.ended)


async def test_a_blocking_consumer_takes_hooks_too(servers: EmbeddedThread, topic: str) -> None:
    hook = Consumptions()
    async with a_topic(servers, topic) as producer:
        consumer = sync.PushConsumer(f"G-{topic}", servers.namesrv, settings=quick(), hooks=[hook])
        consumer.subscribe(topic, lambda message: message.body)
        await asyncio.to_thread(consumer.start)
        try:
            await send(producer, topic, numbered(5))
            await hook.count(5)
        finally:
            await asyncio.to_thread(consumer.stop)
    assert sorted(hook.outcomes()) == [(body, "NoneType") for body in numbered(5)]


async def test_a_handler_without_hooks_is_called_as_it_is(servers: EmbeddedThread, topic: str) -> None:
    def handler(_message: ReceivedMessage) -> None: ...

    async with a_client(servers) as client:
        consumer = PushConsumer(f"G-{topic}", client=client)
        consumer.subscribe(topic, handler)
        callee = consumer._handlers[topic]
        assert callee is not None and callee.handler is handler


# Properties that hooks add.


class Stamps(Sends):
    """A hook that adds properties."""

    def __init__(self, **added: str) -> None:
        super().__init__()
        self.added = added

    def inject(self, message: Message) -> dict[str, str]:
        return self.added


async def test_a_hook_may_add_properties_but_change_none(make: Callable[..., Any], topic: str) -> None:
    first, second = Stamps(a="1", own="not mine"), Stamps(b="2")
    async with make(first, second) as producer:
        await producer.send(Message(topic, b"x", properties={"own": "mine"}))
        await producer.send_many([Message(topic, b"y", properties={"own": "mine"})])
    for each in first.ended:
        assert dict(each.messages[0].properties) == {"a": "1", "b": "2", "own": "mine"}


async def test_properties_that_cannot_be_added_do_not_fail_the_send(
    make: Callable[..., Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Stamps(KEYS="reserved")
    async with make(hook) as producer:
        await producer.send(Message(topic, b"x"))
    assert dict(hook.ended[0].messages[0].properties) == {}
    assert "property 'KEYS' is reserved" in caplog.text


# Hooks that only see outcomes.


@dataclass
class Outcomes(Sends):
    """A hook that needs no contexts for `send_many`."""

    seen: list[tuple[bytes, str, str | None, object]] = field(default_factory=list)
    error: Exception | None = None

    def outcome(
        self, message: Message, message_id: str, address: str | None, took_s: float, outcome: object
    ) -> None:
        assert took_s >= 0
        self.seen.append((message.body, message_id, address, outcome))
        if self.error is not None:
            raise self.error


async def test_a_hook_for_outcomes_alone_sees_each_message_of_send_many(
    make: Callable[..., Any], servers: EmbeddedThread, topic: str
) -> None:
    hook = Outcomes()
    async with make(hook) as producer:
        receipts = await producer.send_many([Message(topic, b"%d" % n) for n in range(100)])
    by_id = {message_id: (body, outcome) for body, message_id, _, outcome in hook.seen}
    assert by_id == {receipt.message_id: (b"%d" % n, receipt) for n, receipt in enumerate(receipts)}
    assert {address for _, _, address, _ in hook.seen} <= set(servers.addresses)
    assert not hook.begun


async def test_it_sees_failures_and_its_own_failure_goes_no_further(
    make: Callable[..., Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Outcomes(error=RuntimeError("no"))
    async with make(hook) as producer:
        await producer.send_many([Message(topic, b"x")])
        queue = (await producer.queues(topic))[0]
        with pytest.raises(ManyFailed):
            await producer.send_many([Message(topic, b"y")], to=MessageQueue(topic, queue.broker_name, 99))
    assert [type(outcome).__name__ for *_, outcome in hook.seen] == ["Receipt", "InvalidParameter"]
    assert "RuntimeError: no" in caplog.text


async def test_beside_another_hook_it_is_an_ordinary_one(make: Callable[..., Any], topic: str) -> None:
    hook, other = Outcomes(), Sends()
    async with make(hook, other) as producer:
        await producer.send_many([Message(topic, b"x")] * 3)
    assert (len(hook.ended), len(other.ended), hook.seen) == (3, 3, [])
