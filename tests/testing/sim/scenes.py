"""What scenarios of the plain simulator share: clients, waits, and a look at parts of running brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from tests.broker.replicas.pairs import replication

from flaremq import Message, Producer, PushConsumer
from flaremq.base.errors import FlareError
from flaremq.client.message import Receipt, ReceivedMessage, SendStatus
from flaremq.client.settings import ConsumerSettings, ProducerSettings
from flaremq.ha.states import FollowState
from flaremq.model.message import MessageQueue
from flaremq.model.record import decode_many
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.servers.together import Broker
from flaremq.testing.sim.world import Machine, Simulation

F = TypeVar("F")

EAGER: Final = ConsumerSettings(
    start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, commit_s=1.0, rebalance_s=1.0, poll_s=3.0,
    pull_timeout_s=6.0, suspend_s=0.2,
)  # fmt: skip


def part_of(broker: Broker, kind: type[F]) -> F:
    """The one feature of this class."""
    made = broker.composition
    assert made is not None
    (found,) = (each for each in (*made.inner, *made.outer) if isinstance(each, kind))
    return found


def committed(broker: Broker, group: str, topic: str) -> dict[int, int]:
    """By queue."""
    return dict(broker.tables.offsets.all().get((topic, group), {}))


def log_bytes(sim: Simulation, machine: Machine) -> bytes:
    """All that the log of a running broker holds."""
    log, found = sim.running[machine.name].store.log, bytearray()
    at = log.begin
    while at < log.readable_end:
        size = min(log.readable_end - at, log.file_size - at % log.file_size)
        found += log.slice(at, size) or b""
        at += size
    return bytes(found)


def bodies(sim: Simulation, machine: Machine, queue_id: int = 0, topic: str = "Orders") -> list[bytes]:
    """Of all messages that a broker shows in a queue, in their order."""
    store, found = sim.running[machine.name].store, list[bytes]()
    offset = store.min_offset(topic.encode(), queue_id)
    while offset < store.max_offset(topic.encode(), queue_id):
        result = store.get(topic.encode(), queue_id, offset, 32)
        assert result.next_offset > offset, f"nothing can be read from {offset} on"
        found += [message.body for message in decode_many(result.gathered())]
        offset = result.next_offset
    return found


def queue_of(name: str, queue_id: int = 0, topic: str = "Orders") -> MessageQueue:
    return MessageQueue(topic, name, queue_id)


async def until(sim: Simulation, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    limit_s += sim.loop.now_s
    while not condition():
        assert sim.loop.now_s < limit_s, "it does not come true"
        await sim.passes(0.05)


async def followed(sim: Simulation, master: Machine, slave: Machine) -> None:
    """Until the slave is connected to this master."""
    await until(sim, lambda: replication(sim.running[master.name]).is_followed_by(slave.ip))


def slave_state(sim: Simulation, slave: Machine) -> tuple[FollowState, str]:
    """What a slave says of itself, and why."""
    follower = replication(sim.running[slave.name]).slave
    assert follower is not None
    status = follower.status()
    return status.state, status.why


@dataclass(frozen=True, slots=True)
class Handled:
    """A message, and when a consumer was given it."""

    value: str
    at_s: float
    queue: MessageQueue
    offset: int

    @classmethod
    def into(cls, found: list[Handled], sim: Simulation) -> Callable[[ReceivedMessage], Awaitable[None]]:
        """A handler that takes down what it is given."""

        async def handle(message: ReceivedMessage) -> None:
            found.append(cls(message.body.decode(), sim.loop.now_s, message.queue, message.queue_offset))

        return handle


async def sent(
    sim: Simulation, machine: Machine, messages: Sequence[Message], to: MessageQueue | None = None
) -> list[int]:
    """Send each until it is answered, by a producer whose messages are stored once: well, as nothing else is
    meant to come. Returns their queue offsets."""
    found, name = [], f"{machine.name}-{len(machine.at_end)}"
    settings = ProducerSettings(timeout_s=5.0, compress_over=1 << 20)
    async with (
        sim.client(machine, refresh_s=2.0) as client,
        Producer(name, settings=settings, client=client, producer_id=name) as producer,
    ):
        for message in messages:
            receipt: Receipt | None = None
            while receipt is None:
                with suppress(FlareError):
                    receipt = await producer.send(message, to=to or queue_of("broker-a"))
                await sim.passes(0.01)
            assert receipt.status is SendStatus.OK
            found.append(receipt.queue_offset)
    return found


@asynccontextmanager
async def consuming(sim: Simulation, machine: Machine, group: str = "all") -> AsyncIterator[list[Handled]]:
    """What a group is given meanwhile."""
    found, closing = list[Handled](), asyncio.Event()

    async def program() -> None:
        async with sim.client(machine, heartbeat_s=2.0, refresh_s=2.0) as client:
            consumer = PushConsumer(group, settings=EAGER, client=client)
            consumer.subscribe("Orders")(Handled.into(found, sim))
            async with consumer:
                await closing.wait()

    work = asyncio.create_task(machine.do(program()))
    yield found
    closing.set()
    await work


async def members(sim: Simulation, machine: Machine, name: str = "broker-a") -> dict[int, str]:
    """The registered addresses of a broker, by id, as the NameServer has them."""
    async with sim.client(machine, refresh_s=2.0) as client:
        cluster = await client.api.cluster()
    return dict(cluster.broker_addr_table[name].broker_addrs)


class Asking:
    """Sends several at a time, and takes down what became of each, and how long it took."""

    def __init__(self, sim: Simulation, machine: Machine) -> None:
        self._sim = sim
        self._machine = machine
        self.answers: list[tuple[SendStatus, float]] = []
        self.acknowledged: list[bytes] = []

    async def send(self, name: str, count: int = 5, every_s: float = 0.0) -> list[tuple[SendStatus, float]]:
        """Each is sent so much later than the one before, whether that was answered or not."""
        await self._machine.do(self._send([f"{name} {number}".encode() for number in range(count)], every_s))
        found, self.answers = self.answers, []
        return found

    async def _send(self, values: list[bytes], every_s: float) -> None:
        settings = ProducerSettings(timeout_s=10.0, attempts=1, compress_over=1 << 20)
        async with (
            self._sim.client(self._machine) as client,
            Producer("p", settings=settings, client=client) as producer,
        ):
            await asyncio.gather(
                *(self._one(producer, value, number * every_s) for number, value in enumerate(values))
            )

    async def _one(self, producer: Producer, value: bytes, after_s: float) -> None:
        await self._sim.passes(after_s)
        began_s = self._sim.loop.now_s
        receipt = await producer.send(Message("Orders", value), to=queue_of("broker-a"))
        if receipt.status is SendStatus.OK:
            self.acknowledged.append(value)
        self.answers.append((receipt.status, self._sim.loop.now_s - began_s))
