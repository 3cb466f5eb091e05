"""Consumers that are quick to start, to look and to give up, and what tests ask of servers about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from flaremq.client.client import Client
from flaremq.client.consumer.base import Consumer
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import Receipt, ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ConsumerSettings
from flaremq.model.message import Message, MessageQueue
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import WireClient


class Servers(Protocol):
    """Where they are, whatever they are."""

    @property
    def namesrv(self) -> str: ...
    @property
    def addresses(self) -> list[str]: ...


FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

QUICK = ConsumerSettings(
    start_from=FIRST,
    poll_s=1.0,
    pull_timeout_s=5.0,
    commit_s=0.2,
    rebalance_s=0.5,
    error_delay_s=0.05,
    suspend_s=0.02,
    wait_at_stop_s=5.0,
)

C = TypeVar("C", bound=Consumer)


class Seen:
    """A handler that keeps what it gets, and waits for as much as a test wants."""

    def __init__(self, act: Callable[[ReceivedMessage], Any] | None = None) -> None:
        self.messages: list[ReceivedMessage] = []
        self._act = act

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        if self._act is not None:
            found = self._act(message)
            if asyncio.iscoroutine(found):
                await found

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def count(self, wanted: int, limit_s: float = 20.0) -> None:
        async def are_there() -> bool:
            return len(self.messages) >= wanted

        try:
            await eventually(f"{wanted} messages came", are_there, limit_s)
        except TimeoutError:
            raise AssertionError(f"{len(self.messages)} of {wanted}: {sorted(self.bodies)}") from None

    async def all_of(self, wanted: Iterable[bytes], limit_s: float = 30.0) -> None:
        """At least once each."""
        missing = set(wanted)

        async def none_is_missing() -> bool:
            missing.difference_update(self.bodies)
            return not missing

        await eventually(f"all came: {len(missing)}", none_is_missing, limit_s)


def quick(**changes: Any) -> ConsumerSettings:
    return replace(QUICK, **changes)


def a_client(servers: Servers, **changes: Any) -> Client:
    usual = {"refresh_s": 0.5, "heartbeat_s": 0.5, "timeout_s": 5.0}
    return Client(settings=ClientSettings(namesrv=servers.namesrv, **{**usual, **changes}))


@asynccontextmanager
async def joined(
    servers: Servers, group: str, topic: str, handler: Callable[..., Any] | None, **changes: Any
) -> AsyncIterator[PushConsumer]:
    """A running consumer of one topic. `tags` and `sql` go into its subscription."""
    wishes = {name: changes.pop(name) for name in ("tags", "sql") if name in changes}
    async with a_client(servers) as client:
        consumer = PushConsumer(group, settings=quick(**changes), client=client)
        consumer.subscribe(topic, handler, **wishes)
        async with consumer:
            yield consumer


@asynccontextmanager
async def a_topic(servers: Servers, topic: str, queues: int = 4) -> AsyncIterator[Producer]:
    """A new topic on every broker, and a producer for it."""
    async with WireClient() as wire, a_client(servers) as client:
        for address in servers.addresses:
            await wire.create_topic(address, topic, queues)
        async with Producer("PID_tests", client=client) as producer:
            await eventually(
                "the topic has a route", lambda: has_route(client, topic, len(servers.addresses))
            )
            yield producer


async def has_route(client: Client, topic: str, brokers: int) -> bool:
    route = await client.routes.refresh(topic)
    return route is not None and len({queue.broker_name for queue in route.writable}) == brokers


async def send(producer: Producer, topic: str, bodies: Iterable[bytes], **fields: Any) -> list[Receipt]:
    return [await producer.send(Message(topic, body, **fields)) for body in bodies]


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


async def committed(servers: Servers, group: str, queue: MessageQueue) -> int | None:
    """As the broker has it."""
    address = dict(zip(("broker-a", "broker-b"), servers.addresses, strict=False))[queue.broker_name]
    async with WireClient() as wire:
        return await wire.committed(address, group, queue.topic, queue.queue_id)


async def stored(servers: Servers, group: str, queue: MessageQueue, offset: int) -> None:
    """Wait until the broker has this offset."""

    async def is_so() -> bool:
        return await committed(servers, group, queue) == offset

    await eventually(f"{offset} is stored for {queue}", is_so)


async def owned(consumer: Consumer, topic: str, count: int) -> None:
    async def has_so_many() -> bool:
        return len([queue for queue in consumer.assignment if queue.topic == topic]) == count

    await eventually(f"a consumer has {count} queues", has_so_many)
