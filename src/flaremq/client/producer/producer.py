"""Sending messages from an event loop.

async with Producer(group="orders", namesrv="127.0.0.1:9876") as producer:
    receipt = await producer.send(Message("Orders", b"...", tags="paid", keys=["o-17"]))
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Self, TypeVar

from flaremq.base.backoff import retry
from flaremq.base.errors import FlareError, Unreachable, UsageError
from flaremq.client.client import Client, client_of
from flaremq.client.errors import TRIED_ELSEWHERE, all_failed, error_for
from flaremq.client.hooks import RecallContext, SendHook, SendHooks
from flaremq.client.message import Recall, Receipt, ReceivedMessage, Reply, SendStatus
from flaremq.client.producer import requests
from flaremq.client.producer.balance import Balance, Health, QueueSelector
from flaremq.client.producer.numbering import Attempts, Numbering, number_of, pauses
from flaremq.client.producer.packing import (
    NOTHING,
    FrameMaker,
    PackedMessage,
    Packer,
    Parcel,
    Sender,
    receipt_of,
    shown,
)
from flaremq.client.producer.pipeline import InFlight, SendPipeline, StoredPosition, ask
from flaremq.client.producer.placement import QueuePlacement, SendTarget, target_of
from flaremq.client.settings import ClientSettings, ProducerSettings, Trace
from flaremq.client.trace import SendTracer, trace_dispatcher
from flaremq.model import sysflag
from flaremq.model.message import Message, MessageQueue
from flaremq.model.names import check_group, is_retry
from flaremq.model.timers import Handle
from flaremq.protocol.codes import STORED, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.connection import Connection

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Receipt | None)


class Producer:
    """Sends messages of one producer group. Any number of tasks may share it."""

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
        """Without a client it makes its own, for the NameServers at `namesrv`. Hooks observe every send, and
        `trace` records it in the trace topic.

        `producer_id`: messages are numbered under this id, and FlareMQ's brokers store each of them once,
        however often it is sent. No other producer may use the id at the same time.
        """
        check_group(group)
        self.group = group
        self.settings = settings or ProducerSettings()
        self.client, self._owns_client = client_of(namesrv, client)
        self._numbering = None if producer_id is None else Numbering(producer_id, self.client.clock)
        self.is_numbered = producer_id is not None
        self._packer = Packer(self.settings, self.client.message_ids, self.number)
        self._sender = Sender(group, self.settings.topic_queues)
        self._health = Health(self.client.clock) if self.settings.avoid_slow else None
        balance = Balance(self._health, self.client.rng)
        self._placement = QueuePlacement(self.client, balance, self.settings.topic_queues)
        self.frames = FrameMaker(self._sender, self._packer)
        self._traces = trace_dispatcher(trace, self.client, group, "PRODUCE", Producer)
        if self._traces is not None:
            hooks = [*hooks, SendTracer(self._traces)]
        self.hooks = SendHooks(hooks, group, self.client.clock) if hooks else None
        self._under_way: set[asyncio.Task[object]] = set()
        self._started = self._stopped = False

    # Life.

    async def start(self) -> None:
        """Idempotent. No server is contacted yet: the first send does that."""
        if self._stopped:
            raise UsageError(f"this producer of {self.group!r} was stopped: create a new one")
        await self.client.start()
        if not self._started:
            self._started = True
            self.client.add_producer(self.group)
            if self._traces is not None:
                await self._traces.start()

    async def stop(self) -> None:
        """Wait for sends in progress, then unregister."""
        if self._stopped:
            return
        self._stopped = True
        under_way = self._under_way - {asyncio.current_task()}
        if under_way:
            await asyncio.wait(under_way, timeout=self.settings.wait_at_stop_s)
        if self._traces is not None:
            await self._traces.stop()
        if self._started:
            await self.client.remove_producer(self.group)
        if self._owns_client:
            await self.client.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Sending.

    async def send(
        self,
        message: Message,
        *,
        to: MessageQueue | QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Send one message and wait until it is stored.

        `to` is a queue or a function that chooses one (`by_hash`). Without it, the message's sharding key
        chooses the queue, or queues take turns. A send to a chosen queue is not retried, because another
        queue would change the order. Raises SendFailed, or at once an error that no retry can help.
        """
        message = self.injected(message)
        return await self._sent(self._packer.pack(message), target_of(message, to), timeout_s, message)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        to: MessageQueue | QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Send many messages of one topic in one request, to one queue: all are stored or none.

        Use `split_batches` to make such batches of any number of messages.
        """
        messages = [self.injected(message) for message in messages]
        parcel = self._packer.pack_batch(messages)
        return await self._sent(parcel, target_of(messages[0], to), timeout_s, messages[0])

    async def send_oneway(self, message: Message, *, to: MessageQueue | QueueSelector | None = None) -> None:
        """Send without waiting for an answer; there is no receipt."""
        message = self.injected(message)
        parcel = self._packer.pack(message)
        deadline_s = self._now_s() + self.settings.timeout_s
        queue, address = await self.find(parcel, target_of(message, to), message, deadline_s)
        request = self._sender.request(parcel, queue, self.client.clock.now_ms(), is_oneway=True)
        written = self.client.caller.send_oneway(address, request, deadline_s - self._now_s())
        if self.hooks is not None:
            written = self._observed(written, parcel, queue, address, is_oneway=True)
        await written

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        to: MessageQueue | QueueSelector | None = None,
        window: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Receipt]:
        """Send any number of messages, many in flight at a time. Returns receipts in the same order.

        `window` is how many may wait for their answers at a time. Attempts and `timeout_s` are per message.
        Raises ManyFailed, with the result of each message, if any message was not stored.
        """
        self._check_started()
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            pipeline = SendPipeline(
                self, window or self.settings.window, timeout_s or self.settings.timeout_s
            )
            return await pipeline.run(messages, to)
        finally:
            self._under_way.discard(task)

    async def recall(self, sent: Receipt | str, *, timeout_s: float | None = None) -> Recall:
        """Cancel a message that waits for its moment, by its receipt or the recall handle in it.

        Only messages with `delay_s` or `deliver_at` can be cancelled, those with a delay level cannot.
        """
        self._check_started()
        text = sent if isinstance(sent, str) else sent.recall_handle
        if text is None:
            raise UsageError(
                "this receipt has no recall handle: only a message that was sent with delay_s or deliver_at, "
                "and whose moment was still to come, can be cancelled"
            )
        handle = Handle.parse(text)
        limit_s = self.settings.timeout_s if timeout_s is None else timeout_s
        deadline_s = self._now_s() + limit_s
        to = MessageQueue(handle.topic, handle.broker_name, 0)
        _, address = await self._placement.find(handle.topic, to, None, deadline_s)
        left_s = deadline_s - self._now_s()
        outcome, region = await self.client.api.recall(address, text, self.group, left_s)
        if self.hooks is not None:
            self.hooks.recalled(RecallContext(self.group, handle.topic, handle.unique_key, outcome, region))
        return outcome

    async def request(self, message: Message, timeout_s: float = 3.0) -> Reply:
        """Send a message and wait for the reply of the consumer that gets it.

        Raises SendFailed if the message was not stored, and NoReply if no reply came within the time.
        """

        async def send(known: Mapping[str, str]) -> bool:
            asked = self.injected(message)
            parcel = Parcel(
                asked.topic, asked.body, {**asked.property_map(), **known}, asked.flag, made_of=(asked,)
            )
            await self._sent(self._packer.pack_parcel(parcel), target_of(asked, None), timeout_s, asked)
            return True

        reply = await requests.request(self, message, timeout_s, send)
        assert reply is not None  # It was sent.
        return reply

    async def reply(self, message: ReceivedMessage, body: bytes, timeout_s: float | None = None) -> None:
        """Answer a message that was sent with `request`. Raises UsageError for any other, and NoRequester if
        the client that asked is gone."""
        await requests.reply(self, message, body, timeout_s)

    async def send_parcel(
        self, parcel: Parcel, timeout_s: float | None = None, to: MessageQueue | None = None
    ) -> Receipt:
        """Like `send`, for other parts of the client."""
        return await self._sent(self._packer.pack_parcel(parcel), to, timeout_s, None)

    async def send_half(
        self, message: Message, to: SendTarget, timeout_s: float | None, more: Mapping[str, str] = NOTHING
    ) -> Receipt:
        """Prepare a message for a transaction, with `more` properties. For TransactionProducer."""
        message = self.injected(message)
        parcel = self._packer.pack_half(message, self.group, more)
        return await self._sent(parcel, target_of(message, to), timeout_s, message)

    async def send_ready(
        self, messages: Sequence[PackedMessage], to: MessageQueue | None, timeout_s: float | None = None
    ) -> Receipt:
        """Send packed messages of one topic in one request to one queue.

        Without `to`, it is retried like any other send.
        """
        return await self._sent(self._packer.pack_ready(messages), to, timeout_s, None)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to now."""
        self._check_started()
        return (await self.client.routes.get_for_send(topic, self.settings.topic_queues)).writable

    def injected(self, message: Message) -> Message:
        """The message with the properties that hooks add."""
        return message if self.hooks is None else self.hooks.injected(message)

    # One message, and its attempts.

    async def _sent(
        self,
        parcel: Parcel,
        to: MessageQueue | QueueSelector | None,
        timeout_s: float | None,
        message: Message | None,
    ) -> Receipt:
        self._check_started()
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            limit_s = self.settings.timeout_s if timeout_s is None else timeout_s
            return await self._attempts(parcel, to, limit_s, message)
        finally:
            self._under_way.discard(task)

    async def _attempts(
        self,
        parcel: Parcel,
        to: MessageQueue | QueueSelector | None,
        limit_s: float,
        message: Message | PackedMessage | None,
        at: MessageQueue | None = None,
        earlier: Sequence[FlareError] = (),
    ) -> Receipt:
        """`at`: a numbered message may be in this queue already. `earlier`: how attempts for another one have
        failed before."""
        if parcel.number:
            until_safe = self.settings.retry_not_stored
            numbered = Attempts(self, parcel, limit_s, self.client, at=at, until_safe=until_safe)
            return await numbered.run(to, message, self.settings.attempts)
        deadline_s = self._now_s() + limit_s
        attempts = self.settings.attempts if to is None else 1
        failures = list(earlier)
        not_at: str | None = None
        for is_last in (*[False] * (attempts - 1), True):
            try:
                queue, address = await self.find(parcel, to, message, deadline_s, not_at)
            except FlareError as error:
                if not failures:
                    raise
                failures.append(error)  # Alone it would say that nothing can be stored.
                break
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                break
            # Another broker may still take it, so this one does not get all of the time.
            share_s = left_s / 2 if not is_last and self.has_other(parcel.topic) else left_s
            try:
                receipt = await self.attempt(parcel, queue, address, share_s)
            except FlareError as error:
                failures.append(error)
                if not self.may_go_on(error, queue, parcel.topic):
                    break
                if isinstance(error, Unreachable) and not is_last:
                    await self._placement.moved(queue, address, deadline_s)
            else:
                if receipt.status is SendStatus.OK or is_last or not self.settings.retry_not_stored:
                    return receipt
            not_at = queue.broker_name
        failed = all_failed(parcel, failures, limit_s)
        if not failures:
            self._unplaced(parcel, failed)
        raise failed

    async def attempt(self, parcel: Parcel, queue: MessageQueue, address: str, limit_s: float) -> Receipt:
        """One attempt, which hooks see. For the attempts of numbered messages too."""
        request = self._request(parcel, queue, address, limit_s)
        return await (request if self.hooks is None else self._observed(request, parcel, queue, address))

    async def find(
        self,
        parcel: Parcel,
        to: MessageQueue | QueueSelector | None,
        message: Message | PackedMessage | None,
        deadline_s: float,
        not_at: str | None = None,
    ) -> tuple[MessageQueue, str]:
        try:
            return await self._placement.find(parcel.topic, to, message, deadline_s, not_at)
        except FlareError as error:
            self._unplaced(parcel, error)
            raise

    def _unplaced(self, parcel: Parcel, error: FlareError) -> None:
        """No queue was found for an attempt."""
        if self.hooks is not None:
            messages, ids = shown(parcel)
            self.hooks.end(self.hooks.begin(messages, ids, None, None), error)

    async def _observed(
        self,
        request: Awaitable[R],
        parcel: Parcel,
        queue: MessageQueue,
        address: str,
        *,
        is_oneway: bool = False,
    ) -> R:
        """The same, with hooks."""
        hooks = self.hooks
        assert hooks is not None
        messages, ids = shown(parcel)
        is_half = sysflag.transaction_type(parcel.sys_flag) == sysflag.TRANSACTION_PREPARED
        send = hooks.begin(messages, ids, queue, address, is_oneway=is_oneway, is_half=is_half)
        try:
            outcome = await request
        except BaseException as error:
            hooks.end(send, error)
            raise
        hooks.end(send, outcome)
        return outcome

    async def _request(self, parcel: Parcel, queue: MessageQueue, address: str, limit_s: float) -> Receipt:
        began_s, born_ms = self._now_s(), self.client.clock.now_ms()
        answer: StoredPosition | Command
        if is_retry(parcel.topic) or parcel.is_reply:
            request = self._sender.request(parcel, queue, born_ms)
            answer = await self.client.caller.call(address, request, limit_s)
        else:
            caller = self.client.caller
            connection = caller.open_connection(address) or await caller.connected(address, limit_s)
            left_s = limit_s - (self._now_s() - began_s)
            answer = await ask(
                connection, lambda opaque: self.frames.parcel_frame(parcel, queue, born_ms, opaque), left_s
            )
        if self._health is not None:
            self._health.took(queue.broker_name, self._now_s() - began_s)
        if isinstance(answer, Command):
            return self.receipt(answer, queue, address, parcel.code, parcel.message_id)
        queue_id, queue_offset, offset_id, region = answer
        landed = queue if queue.queue_id == queue_id else replace(queue, queue_id=queue_id)
        return Receipt(parcel.message_id, landed, queue_offset, offset_id, region=region)

    def receipt(
        self, answer: Command, queue: MessageQueue, address: str, code: int, message_id: str
    ) -> Receipt:
        """The receipt in an answer to a send; raises the broker's error if nothing was stored."""
        if answer.code not in STORED:
            raise error_for(address, code, answer)
        return receipt_of(answer, queue, message_id)

    def may_go_on(self, error: FlareError, queue: MessageQueue, topic: str) -> bool:
        """Note a failed attempt. Returns whether another one makes sense."""
        if isinstance(error, Unreachable):
            if self._health is not None:
                self._health.failed(queue.broker_name)
            self.client.refresh_soon()
            return True
        if error.response_code not in TRIED_ELSEWHERE:
            return False
        if error.response_code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION):
            self.client.refresh_soon()  # The topic is the problem, not the broker.
        elif self._health is not None:
            self._health.failed(queue.broker_name)
        log.debug("a send to %s is retried at another broker: %s", topic, error)
        return True

    # For pipelines.

    def number(self, message: Message | PackedMessage | None) -> str:
        """PRODUCER_SEQ for a message: empty without a producer id."""
        return number_of(self._numbering, message)

    def next_ids(self, count: int) -> list[str]:
        return self.client.message_ids.take(count)

    def now_ms(self) -> int:
        return self.client.clock.now_ms()

    def placed_nowait(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None
    ) -> tuple[MessageQueue, Connection] | None:
        """The queue for a message and the connection to its broker; None if either is not ready."""
        place = self._placement.known(message, target_of(message, to))
        connection = None if place is None else self.client.caller.open_connection(place[1])
        return None if place is None or connection is None else (place[0], connection)

    async def placed(
        self, message: Message | PackedMessage, to: SendTarget
    ) -> tuple[MessageQueue, Connection]:
        """The same, but waits for both; skips one broker that cannot be reached."""
        to = target_of(message, to)
        deadline_s = self._now_s() + self.settings.timeout_s
        queue, address = await self._placement.find(message.topic, to, message, deadline_s)
        left_s = deadline_s - self._now_s()
        has_other = to is None and self._placement.has_other(message.topic)
        try:
            return queue, await self.client.caller.connected(address, left_s / 2 if has_other else left_s)
        except Unreachable as error:
            self.may_go_on(error, queue, message.topic)
            if to is not None:
                raise
        queue, address = await self._placement.find(
            message.topic, to, message, deadline_s, not_at=queue.broker_name
        )
        return queue, await self.client.caller.connected(address, deadline_s - self._now_s())

    async def placed_late(
        self, message: Message | PackedMessage, to: MessageQueue | QueueSelector | None
    ) -> tuple[MessageQueue, Connection]:
        """The same, but waits for a broker that is away for a moment."""
        return await retry(
            lambda: self.placed(message, to),
            pauses(self.client, self.settings.timeout_s),
            may_pass=lambda error: error.retriable,
            sleep=self.client.sleep,
        )

    def has_other(self, topic: str) -> bool:
        return self._placement.has_other(topic)

    async def again(
        self, in_flight: InFlight, to: SendTarget, error: FlareError, timeout_s: float
    ) -> Receipt:
        """Make another attempt for a message whose first one failed. Raises that error if another makes no
        sense or no time is left."""
        to = target_of(in_flight.message, to)
        may_go_on = self.may_go_on(error, in_flight.queue, in_flight.message.topic)
        is_safe = to is None or bool(in_flight.number)
        if not may_go_on or not is_safe or timeout_s <= 0:
            raise error
        return await self.resend(in_flight, to, timeout_s, (error,))

    async def resend(
        self, in_flight: InFlight, to: SendTarget, timeout_s: float, earlier: Sequence[FlareError] = ()
    ) -> Receipt:
        """A numbered message may be stored already: it goes to the same queue."""
        parcel = self._packer.pack(in_flight.message, in_flight.message_id, in_flight.number)
        at = in_flight.queue if in_flight.number else None
        to = target_of(in_flight.message, to)
        return await self._attempts(parcel, to, timeout_s, in_flight.message, at, earlier)

    def _now_s(self) -> float:
        return self.client.clock.monotonic_s()

    def _check_started(self) -> None:
        if not self._started or self._stopped:
            raise UsageError(
                f"the producer of {self.group!r} is not running: use `async with`, or call start() first"
            )
