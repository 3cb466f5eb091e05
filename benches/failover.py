"""How soon consumers read on at the slave of a master that is killed.

A consumer works slowly through a backlog that the slave has too. Its master is frozen, so that nothing is
under way any more, and then killed with SIGKILL: what comes next comes from the slave. Measured is the time
from there to the next message, with the default settings of the consumer but for its slowness. Consumers
refresh their routes every 30 s, so the rounds kill at moments that are spread evenly over as long.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from benches.wire import NotMeasured, Side
from tests.java.clients import JavaClients
from tests.java.peers import Peers, Server
from tests.java.toolchain import Toolchain

from flaremq.client.message import ReceivedMessage
from flaremq.client.settings import ConsumerSettings
from flaremq.client.sync import PushConsumer
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import RefusedByServer, Want, WireClient

TOPIC = "Failover"
BACKLOG = 1000
"""A reader takes one message in 50 ms, and so never comes to the end of it."""
BEGUN = 5
JAVA = "5.3.3"
OURS = ConsumerSettings(
    start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, pull_batch=1, pull_interval_s=0.05
)
JAVAS: Mapping[str, Any] = {
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "pullBatchSize": 1,
    "pullInterval": 50,
    "heartbeatBrokerInterval": 30_000,
}
LIMIT_S = 80.0
QUIET_S = 0.5
REFRESH_S = 30.0
LEARNT_S = 150.0


class Reader(Protocol):
    def until(self, count: int, limit_s: float) -> int:
        """How many messages there are, once there are so many or the time is up."""
        ...


class OurReader:
    """Notes what a consumer of FlareMQ gets."""

    def __init__(self) -> None:
        self._count = 0
        self._came = threading.Condition()

    def __call__(self, _message: ReceivedMessage) -> None:
        with self._came:
            self._count += 1
            self._came.notify_all()

    def until(self, count: int, limit_s: float) -> int:
        with self._came:
            self._came.wait_for(lambda: self._count >= count, limit_s)
            return self._count


Begin = Callable[[str, str], Any]
"""A context in which a reader runs, given the NameServer and a group."""


@contextmanager
def ours(namesrv: str, group: str) -> Iterator[Reader]:
    reader = OurReader()
    consumer = PushConsumer(group, namesrv, settings=OURS)
    consumer.subscribe(TOPIC, reader)
    with consumer:
        yield reader


class JavaReader:
    def __init__(self, java: JavaClients, group: str) -> None:
        self._consumer = java.push(TOPIC, group, **JAVAS)

    def until(self, count: int, limit_s: float) -> int:
        return len(self._consumer.received(count, round(limit_s * 1000)))


def javas(toolchain: Toolchain) -> Begin:
    @contextmanager
    def begin(namesrv: str, group: str) -> Iterator[Reader]:
        with JavaClients(toolchain, JAVA) as java:
            java.namesrv = namesrv
            yield JavaReader(java, group)

    return begin


def measure(
    side: Side, begin: Begin, rounds: int, options: Mapping[str, object], spread_s: float = REFRESH_S
) -> list[float]:
    """Seconds of each round: the master is killed, and comes back before the next one."""
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
    try:
        with Peers(root) as peers:
            namesrv = peers.namesrv(side.namesrv).address
            of_slave = {**options, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}
            master = peers.broker(side.broker, namesrv, "broker-a", {**options, "slaveReadEnable": True})
            slave = peers.broker(side.broker, namesrv, "broker-a", of_slave)
            asyncio.run(_filled(master, slave))
            took_s = []
            for number in range(rounds):
                asyncio.run(_is_named(namesrv, master))
                with begin(namesrv, f"failover-{number}") as reader:
                    took_s.append(_round(reader, master, spread_s * (number + 0.5) / rounds))
                master = peers.again(master, side.broker)
            return took_s
    except TimeoutError as late:
        raise NotMeasured(f"{side.name}: {late}") from None
    finally:
        shutil.rmtree(root)


async def _filled(master: Server, slave: Server) -> None:
    """Until the slave has all messages, and knows the topic: RocketMQ's asks for new ones once a minute."""
    async with WireClient() as wire:
        for _ in range(BACKLOG):
            await wire.send(master.address, TOPIC, 0, b"x" * 100)

        async def has_all() -> bool:
            try:
                pulled = await wire.pull(slave.address, Want(topic=TOPIC, queue_id=0, offset=BACKLOG - 1))
            except RefusedByServer:
                return False
            return bool(pulled.messages)

        await eventually("the slave has topic and messages", has_all, LEARNT_S)


async def _is_named(namesrv: str, master: Server) -> None:
    async def is_named() -> bool:
        route = await wire.route(namesrv, TOPIC)
        return route is not None and master.address in route.broker_datas[0].broker_addrs.values()

    async with WireClient() as wire:
        await eventually("the NameServer knows the master", is_named, LIMIT_S)


def _round(reader: Reader, master: Server, after_s: float) -> float:
    if reader.until(BEGUN, LIMIT_S) < BEGUN:
        raise NotMeasured("a consumer did not begin")
    reader.until(BACKLOG, after_s)
    os.kill(master.pid, signal.SIGSTOP)
    before = reader.until(BACKLOG, QUIET_S)
    if before >= BACKLOG:
        raise NotMeasured("a consumer read the whole backlog before its master was killed")
    began_s = time.monotonic()
    master.kill()
    if reader.until(before + 1, LIMIT_S) <= before:
        raise NotMeasured(f"a consumer did not read on within {LIMIT_S:g} s")
    return time.monotonic() - began_s


def table(results: Mapping[str, list[float]]) -> Iterator[str]:
    yield f"{'reads on at the slave after':<28}{'rounds':>8}{'median s':>10}{'worst s':>10}"
    for name, took_s in results.items():
        yield f"{name:<28}{len(took_s):>8}{statistics.median(took_s):>10.2f}{max(took_s):>10.2f}"
