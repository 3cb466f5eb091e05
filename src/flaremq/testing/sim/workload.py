"""What clients do in a run: each sends messages of every kind, consumes in two groups, and reads queues.

Everything they ask for and see goes into the history.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from flaremq.base.errors import CallTimeout, ConnectionLost, FlareError, SendFailed, Unreachable
from flaremq.client.client import Client
from flaremq.client.consumer.litepull import LitePullConsumer
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import Decision, Recall, Receipt, ReceivedMessage, SendStatus
from flaremq.client.producer.producer import Producer
from flaremq.client.producer.transaction import Transaction, TransactionProducer
from flaremq.client.settings import ConsumerSettings, ProducerSettings
from flaremq.model.message import Message, MessageQueue
from flaremq.model.msgid import decode_offset_id
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.headers.topic import CreateTopicRequestHeader
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.history import History, QueueName, ReadOp, SendOp
from flaremq.testing.sim.plan import Plan
from flaremq.testing.sim.world import Machine, Simulation

PLAIN, FIFO, LATER = "Plain", "Fifo", "Later"
TOPICS: Final = (PLAIN, FIFO, LATER)
QUEUES: Final = 2
DELAYS: Final = "1s 3s 5s 10s"
_DELAYS_S: Final = (1, 3, 5, 10)
_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Shopper:
    """One client machine and all that it does."""

    def __init__(self, sim: Simulation, machine: Machine, plan: Plan, history: History) -> None:
        self._sim = sim
        self._machine = machine
        self._plan = plan
        self._history = history
        self._rng = machine.sim.rng(f"{machine.name}/workload")
        self._named = 0
        self._failing: dict[str, int] = {}
        self._last_fifo: MessageQueue | None = None
        self._cancel_rng = machine.sim.rng(f"{machine.name}/cancels")
        self._to_cancel: list[tuple[float, SendOp, str]] = []
        """When, and by which handle."""
        self.stopping = asyncio.Event()
        self.has_sent = False
        """Whether the last send has ended, in one way or another."""

    async def run(self) -> None:
        """Send everything that was not sent before, and go on consuming until `stopping` is set."""
        async with self._sim.client(self._machine, refresh_s=5.0, heartbeat_s=5.0) as client:
            await self._topics(client)
            consumers = [self._consumer(client, PLAIN), self._consumer(client, FIFO, orderly=True)]
            for consumer in consumers:
                await _until_done(consumer.start)
            reader = asyncio.create_task(self._read(client))
            try:
                await self._send(client)
                if reader.done():
                    reader.result()
            finally:
                reader.cancel()
                for consumer in consumers:
                    await consumer.stop()

    async def _topics(self, client: Client) -> None:
        for name in self._sim.names:
            for topic in TOPICS:
                await _until_done(lambda topic=topic, name=name: self._create(client, topic, name))
                self._history.topics.append((name, topic))

    async def _create(self, client: Client, topic: str, name: str) -> None:
        """At a broker, or at the leader of a group: the others refuse."""
        header = CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=QUEUES, write_queue_nums=QUEUES,
            perm=6, topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        machines = [each for each in self._sim.brokers if each.name == name]
        refused: FlareError | None = None
        for machine in machines or [each for each in self._sim.members if each.name.startswith(f"{name}-")]:
            address = f"{machine.ip}:10911"
            try:
                await client.api.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
                return
            except FlareError as error:
                refused = error
        assert refused is not None
        raise refused

    # Consuming.

    def _consumer(self, client: Client, topic: str, *, orderly: bool = False) -> PushConsumer:
        settings = ConsumerSettings(
            orderly=orderly, start_from=_FIRST, commit_s=1.0, rebalance_s=3.0, poll_s=3.0,
            pull_timeout_s=6.0, suspend_s=0.2, concurrency=4,
        )  # fmt: skip
        consumer = PushConsumer(f"group-{topic}", settings=settings, client=client)
        for each in (topic,) if orderly else (topic, LATER):
            consumer.subscribe(each)(self._handle)
        return consumer

    async def _handle(self, message: ReceivedMessage) -> None:
        value = message.body.decode()
        if self._rng.random() < 0.2:
            await asyncio.sleep(self._rng.random() * 0.1)
        left = self._failing.setdefault(value, 1 if self._rng.random() < 0.05 else 0)
        self._failing[value] = left - 1
        queue = _name(message.queue)
        places = message.queue_offset, message.physical_offset
        read = ReadOp(value, self._machine.name, self._now_s(), queue, *places, ok=left <= 0)
        self._history.handled.append(read)
        if left > 0:
            raise ValueError(f"{value} is to be tried again")

    async def _read(self, client: Client) -> None:
        """Read every queue of one topic from its beginning, as a pull consumer does."""
        name = f"reader-{self._machine.name}-{self._machine.lives}"
        settings = ConsumerSettings(start_from=_FIRST, poll_s=3.0, pull_timeout_s=6.0)
        async with LitePullConsumer(name, settings=settings, client=client) as consumer:
            queues: tuple[MessageQueue, ...] = ()
            while len(queues) < QUEUES * len(self._sim.names):
                with suppress(FlareError):
                    queues = await consumer.queues(PLAIN)
                await asyncio.sleep(0.5)
            await consumer.assign(queues)
            for queue in queues:
                self._history.seeks.append((len(self._history.pulls), name, _name(queue)))
            self._history.readers[self._machine.name] = name
            while True:
                for message in await consumer.poll(timeout_s=2.0):
                    value, places = message.body.decode(), (message.queue_offset, message.physical_offset)
                    read = ReadOp(value, name, self._now_s(), _name(message.queue), *places)
                    self._history.pulls.append(read)

    # Sending.

    async def _send(self, client: Client) -> None:
        settings = ProducerSettings(timeout_s=4.0)
        group, life = f"producers-{self._machine.name}", f"{self._machine.name}-{self._machine.lives}"
        plain = Producer(group, settings=settings, client=client)
        once = Producer(f"{group}-once", settings=settings, client=client, producer_id=life)
        halves = TransactionProducer(f"{group}-tx", settings=settings, client=client, checker=self._decide,
                                     producer_id=f"{life}-tx")  # fmt: skip
        async with plain, once, halves:
            due_s = self._now_s()  # What the faults hold up is made up for, at the latest when all is healed.
            pace_s = max(0.0, self._plan.length_s - due_s) / max(1, self._plan.sends - self._named)
            while self._named < self._plan.sends:
                due_s += self._rng.random() * 2 * pace_s
                await asyncio.sleep(max(0.0, due_s - self._now_s()))
                await self._cancel(plain)
                kind = self._rng.choice(
                    ["plain", "plain", "once", "fifo", "fifo", "delayed", "commit", "rollback"]
                    + ["timer"] * self._plan.timers
                )
                await self._one(kind, plain, once, halves)
            self.has_sent = True
            while not self.stopping.is_set():  # Brokers ask about transactions until the end.
                await asyncio.sleep(1.0)

    async def _one(self, kind: str, plain: Producer, once: Producer, halves: TransactionProducer) -> None:
        self._named += 1
        value = f"{kind}-{self._machine.name}-{self._named}".ljust(self._rng.choice([30, 30, 900, 3000]), ".")
        op = self._history.sends[value] = SendOp(value, kind, self._machine.name, self._now_s())
        self._sim.events.add(self._machine.name, f"send {kind}", self._named)
        try:
            if kind in ("commit", "rollback"):
                decision = await halves.send(Message(LATER, value.encode()), self._step)
                if decision is not Decision.COMMIT:
                    return
            else:
                receipt = await self._sent(op, plain, once)
                if receipt is None:
                    return
        except (FlareError, OSError) as error:
            op.is_refused = _is_refusal(error)
            became = "refused" if op.is_refused else "unknown"
            self._sim.events.add(self._machine.name, f"{became} {kind} {type(error).__name__}", self._named)
            return
        op.ended_s = self._now_s()
        self._sim.events.add(self._machine.name, f"stored {kind}", self._named)

    async def _sent(self, op: SendOp, plain: Producer, once: Producer) -> Receipt | None:
        if op.kind == "delayed":
            level = self._rng.randrange(len(_DELAYS_S))
            op.due_s = op.began_s + _DELAYS_S[level]
            message = Message(LATER, op.value.encode(), delay_level=level + 1)
        elif op.kind == "timer":
            delay_s = self._rng.randrange(1, 15)
            op.due_s = op.began_s + delay_s
            message = Message(LATER, op.value.encode(), delay_s=delay_s)
        else:
            message = Message(FIFO if op.kind == "fifo" else PLAIN, op.value.encode())
        target = await self._fifo_queue(plain) if op.kind == "fifo" else None
        # What may be cancelled has a number: a second copy of a send without an answer would come.
        is_to_cancel = op.kind == "timer" and self._cancel_rng.random() < 0.4
        receipt = await (once if op.kind == "once" or is_to_cancel else plain).send(message, to=target)
        if receipt.status is not SendStatus.OK:
            return None
        self._check_copy(op, receipt)
        if op.kind in ("plain", "once", "fifo"):
            op.queue, op.offset = _name(receipt.queue), receipt.queue_offset
            op.place = decode_offset_id(receipt.offset_id).physical_offset
        if is_to_cancel and receipt.recall_handle is not None:
            at_s = self._now_s() + self._cancel_rng.random() * (op.due_s - op.began_s)
            self._to_cancel.append((at_s, op, receipt.recall_handle))
        return receipt

    async def _cancel(self, producer: Producer) -> None:
        """Cancel the messages whose moment for that has come."""
        for each in [each for each in self._to_cancel if each[0] <= self._now_s()]:
            self._to_cancel.remove(each)
            _, op, handle = each
            op.may_be_cancelled = True
            with suppress(FlareError):
                outcome = await producer.recall(handle)
                op.may_be_cancelled = outcome is Recall.CANCELLED
                op.cancelled_s = self._now_s() if op.may_be_cancelled else None
                self._sim.events.add(self._machine.name, f"cancel: {outcome.value}")

    def _check_copy(self, op: SendOp, receipt: Receipt) -> None:
        """A SYNC_MASTER has promised that slaves have the message. One that is dead now may have had it."""
        name = receipt.queue.broker_name
        if self._sim.members:
            self._check_majority(op, receipt)
            return
        slaves = [each for each in self._sim.slaves if self._sim.master_of(each).name == name]
        if self._plan.role != "SYNC_MASTER" or not slaves:
            return
        place = decode_offset_id(receipt.offset_id).physical_offset
        stores = [self._sim.running[each.name].store for each in slaves if each.lives]
        if any(store.report is None for store in stores):  # One is just starting: what it has is not known.
            return
        syncs = self._plan.flush == "SYNC_FLUSH"
        have = sum((store.flushed.value if syncs else store.log.end) > place for store in stores)
        if have + len(slaves) - len(stores) < self._plan.copies:
            raise Violated("no copy", f"{op.value} was acknowledged, and {have} slaves have got it")

    def _check_majority(self, op: SendOp, receipt: Receipt) -> None:
        """A majority has it on the disk, those among them that are dead now, or have lost that disk since.
        While members come or go, that is one of any members that somebody counts by."""
        place, sim = decode_offset_id(receipt.offset_id).physical_offset, self._sim
        machines = sim.members_of(receipt.queue.broker_name)
        stores = {each.name.rpartition("-")[2]: (each.name, sim.store_of(each)) for each in machines}
        has, counted = set[str](), set[tuple[str, ...]]()
        for member, (name, store) in stores.items():
            if store is None or store.report is None:
                return  # One is just starting: what it has is not known.
            if max(store.log.flushed.value, sim.lost.get(name, 0)) > place:
                has.add(member)
            running = sim.running_members[name]
            if running.takes_part:
                counted.add(running.node.status().membership.ids)
        if counted and not any(len(has.intersection(ids)) > len(ids) // 2 for ids in counted):
            raise Violated(
                "no majority", f"{op.value} was acknowledged, and {len(has)} of {len(stores)} members have it"
            )

    async def _fifo_queue(self, producer: Producer) -> MessageQueue:
        """Ordered messages of one client go to one queue."""
        if self._last_fifo is None:
            self._last_fifo = self._rng.choice(await producer.queues(FIFO))
        return self._last_fifo

    def _step_of(self, value: str) -> Decision:
        return Decision.COMMIT if value.startswith("commit") else Decision.ROLLBACK

    async def _step(self, transaction: Transaction) -> Decision:
        if self._rng.random() < 0.2:
            return Decision.UNKNOWN
        return self._step_of(transaction.message.body.decode())

    async def _decide(self, message: ReceivedMessage) -> Decision:
        return self._step_of(message.body.decode())

    def _now_s(self) -> float:
        return self._sim.loop.now_s


def _name(queue: MessageQueue) -> QueueName:
    return queue.topic, queue.broker_name, queue.queue_id


def _is_refusal(error: FlareError | OSError) -> bool:
    """Whether nothing can have been stored: each attempt was answered so, or found no connection."""
    attempts = error.attempts if isinstance(error, SendFailed) else (error,)
    return bool(attempts) and all(map(_stored_nothing, attempts))


def _stored_nothing(error: FlareError | OSError) -> bool:
    if isinstance(error, Unreachable):
        return not isinstance(error, ConnectionLost | CallTimeout)
    code = error.response_code if isinstance(error, FlareError) else None
    return code is not None and code != ResponseCode.SYSTEM_ERROR


async def _until_done(work: object) -> None:
    while True:
        try:
            await work()  # type: ignore[operator]
            return
        except (FlareError, OSError):
            await asyncio.sleep(1.0)
