"""Masters and slaves of either kind: the same log, byte for byte, and readers that miss nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.cli.commands import flaremq
from tests.client.consumer.tools import Seen, a_topic, has_route, joined
from tests.java import clients
from tests.java.clients import Draft, JavaClients, Queue
from tests.java.jvm import JavaStoreError
from tests.java.peers import Apache, Flare, Kind, Options, PeerFailed, Peers, Server
from tests.java.toolchain import Toolchain

from flaremq.client.message import SendStatus
from flaremq.client.producer import producer as ours
from flaremq.client.settings import ProducerSettings
from flaremq.client.sync import Producer
from flaremq.model.message import Message
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.codes import RequestCode
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import RefusedByServer, Want, WireClient

pytestmark = pytest.mark.java

SMALL: Options = {
    "autoCreateTopicEnable": True,
    "mappedFileSizeCommitLog": 1 << 20,
    "maxMessageSize": 1 << 16,
    "mappedFileSizeConsumeQueue": 20_000 * 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "osPageCacheBusyTimeOutMills": 60_000,
    "waitTimeMillsInSendQueue": 30_000,
    "haSendHeartbeatInterval": 1000,
}
PAIRS = [("ours", version) for version in ("4.9.7", "5.3.3", "5.5.0")]
PAIRS += [(version, "ours") for version in ("4.9.7", "5.3.3", "5.5.0")]


def kind_of(toolchain: Toolchain, name: str) -> Kind:
    return Flare() if name == "ours" else Apache(toolchain, version=name)


def content(server: Server) -> bytes:
    """The log of a broker up to its last byte that is not zero."""
    files = sorted((server.folder / "store" / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files if path.name.isdigit()).rstrip(b"\0")


def first_offset(server: Server) -> int:
    files = sorted((server.folder / "store" / "commitlog").iterdir())
    return min(int(path.name) for path in files if path.name.isdigit())


def same_log(master: Server, slave: Server, least: int) -> None:
    """Wait until the slave has all that its master has."""

    async def is_same() -> bool:
        wanted = content(master)
        return len(wanted) >= least and content(slave) == wanted

    asyncio.run(eventually("the logs are the same", is_same, 60.0))


def send(namesrv: Server, begin: int, count: int) -> set[SendStatus]:
    settings = ProducerSettings(timeout_s=20.0)  # A slave of RocketMQ may take 5 s to connect again.
    with Producer("replication", namesrv=namesrv.address, settings=settings) as producer:
        messages = [
            Message("Orders", f"message {number} ".encode().ljust(2000, b"."))
            for number in range(begin, begin + count)
        ]
        return {result.status for result in producer.send_many(messages)}


class Pair:
    """A master and a slave of one name, which may be stopped and started again."""

    def __init__(self, peers: Peers, toolchain: Toolchain, master: str, slave: str, role: str) -> None:
        self._peers = peers
        self._kinds = {0: kind_of(toolchain, master), 1: kind_of(toolchain, slave)}
        self.namesrv = peers.namesrv(Flare())
        sync = {"inSyncReplicas": 2} if role == "SYNC_MASTER" and not master.startswith("4") else {}
        self._options: dict[int, Options] = {
            0: {**SMALL, "brokerRole": role, **sync},
            1: {**SMALL, "brokerRole": "SLAVE", "brokerId": 1},
        }
        self._folders: dict[int, Path] = {}

    def start(self, broker_id: int) -> Server:
        options = dict(self._options[broker_id])
        folder = self._folders.get(broker_id)
        if folder is not None:
            options |= {
                "storePathRootDir": folder / "store",
                "storePathCommitLog": folder / "store" / "commitlog",
            }
        server = self._peers.broker(self._kinds[broker_id], self.namesrv.address, "broker-a", options)
        server.folder = self._folders.setdefault(broker_id, server.folder)
        return server


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
@pytest.mark.parametrize(("master_kind", "slave_kind"), PAIRS)
def test_a_slave_has_the_bytes_of_its_master_after_restarts_of_both(
    java_toolchain: Toolchain, tmp_path: Path, master_kind: str, slave_kind: str, role: str
) -> None:
    with Peers(tmp_path) as peers:
        pair = Pair(peers, java_toolchain, master_kind, slave_kind, role)
        master, slave = pair.start(0), pair.start(1)
        send(pair.namesrv, 0, 1)  # The first answer may come before the slave does.
        same_log(master, slave, 2000)
        assert send(pair.namesrv, 1, 1000) == {SendStatus.OK}
        same_log(master, slave, 2_000_000)
        slave.stop()
        send(pair.namesrv, 1001, 300)
        slave = pair.start(1)
        same_log(master, slave, 2_600_000)
        master.stop()
        master = pair.start(0)
        same_log(master, slave, 2_600_000)
        send(pair.namesrv, 1301, 1)
        same_log(master, slave, 2_602_000)
        if role == "SYNC_MASTER":
            assert send(pair.namesrv, 1302, 300) == {SendStatus.OK}
        else:
            send(pair.namesrv, 1302, 300)
        same_log(master, slave, 3_200_000)


# Readers of a master that is killed.

TOPIC, QUEUES = "Orders", 4
JAVA = "5.3.3"
LEARNT_S = 150.0
"""A Java slave asks for topics once a minute, the first time a minute after its start."""
QUICK_ROUTES: Mapping[str, Any] = {"pollNameServerInterval": 500}
SLOW_READER: Mapping[str, Any] = {**QUICK_ROUTES, "pullBatchSize": 1, "pullInterval": 200}


class Site:
    """A master, whose answers wait for its slave, and this slave, which may be read."""

    def __init__(self, peers: Peers, kind: Kind, **of_master: Any) -> None:
        self._peers, self._kind = peers, kind
        self.namesrv = peers.namesrv(Flare()).address
        options: Options = {**SMALL, "slaveReadEnable": True, "inSyncReplicas": 2, "slaveTimeout": 1000}
        self.master = self._broker({**options, "brokerRole": "SYNC_MASTER", **of_master})
        self.slave = self._broker({**options, "brokerRole": "SLAVE", "brokerId": 1})

    def _broker(self, options: Options) -> Server:
        return self._peers.broker(self._kind, self.namesrv, "broker-a", options)

    @property
    def addresses(self) -> list[str]:
        return [self.master.address]

    async def master_again(self) -> None:
        self.master = await asyncio.to_thread(self._peers.again, self.master, self._kind)

    async def slave_knows(self, count: int) -> None:
        """The topic, and so many of its messages."""

        async def knows() -> bool:
            try:
                return sum(await self.ends(self.slave, wire)) >= count
            except RefusedByServer:
                return False

        async with WireClient() as wire:
            await eventually("the slave has topic and messages", knows, LEARNT_S)

    @staticmethod
    async def ends(broker: Server, wire: WireClient) -> list[int]:
        for number in range(QUEUES):  # Bounds are told of unknown topics too.
            await wire.pull(broker.address, Want(topic=TOPIC, queue_id=number, offset=0))
        return [(await wire.bounds(broker.address, TOPIC, number))[1] for number in range(QUEUES)]

    async def all_is_committed(self, broker: Server, *groups: str) -> None:
        async def is_so() -> bool:
            ends = await self.ends(broker, wire)
            found = [
                [await wire.committed(broker.address, group, TOPIC, n) for n in range(QUEUES)]
                for group in groups
            ]
            return found == [ends] * len(groups)

        async with WireClient() as wire:
            await eventually(f"{groups} have committed all", is_so)


async def addresses_of(namesrv: str, wire: WireClient) -> dict[int, str]:
    """Of the members of broker-a, by id."""
    route = await wire.route(namesrv, TOPIC)
    return {} if route is None else {int(k): v for k, v in route.broker_datas[0].broker_addrs.items()}


class Readers:
    """What a group of ours and a group of Java's have read."""

    def __init__(self, seen: Seen, java: clients.PushConsumer) -> None:
        self._seen, self._java = seen, java

    async def read(self) -> list[Counter[bytes]]:
        theirs = await asyncio.to_thread(self._java.received, 0, 0)
        return [Counter(self._seen.bodies), Counter(message.body for message in theirs)]

    async def have(self, wanted: set[bytes]) -> None:
        """Each group all of them, each once: neither stopped, so there is nothing to read again."""

        async def is_so() -> bool:
            return all(wanted <= found.keys() for found in await self.read())

        await eventually(f"both groups have {len(wanted)}", is_so, 90)
        assert await self.read() == [Counter(wanted)] * 2

    async def have_begun(self, count: int) -> None:
        async def is_so() -> bool:
            return all(found.total() >= count for found in await self.read())

        await eventually(f"both groups have {count}", is_so)


async def sent(producer: ours.Producer, begin: int, count: int) -> tuple[set[bytes], set[SendStatus]]:
    """So many new messages, as many to each queue: their bodies, and what was answered."""
    queues = await producer.queues(TOPIC)
    bodies = [b"%d" % number for number in range(begin, begin + count)]
    receipts = await asyncio.gather(
        *(producer.send(Message(TOPIC, each), to=queues[n % QUEUES]) for n, each in enumerate(bodies))
    )
    return set(bodies), {receipt.status for receipt in receipts}


@pytest.mark.parametrize("kind", ["ours", JAVA])
async def test_readers_go_to_the_slave_of_a_killed_master_and_back_and_skip_nothing(
    java_toolchain: Toolchain, tmp_path: Path, kind: str
) -> None:
    with Peers(tmp_path) as peers, JavaClients(java_toolchain, JAVA) as java:
        site = Site(peers, kind_of(java_toolchain, kind))
        java.namesrv = site.namesrv
        async with a_topic(site, TOPIC, QUEUES) as producer:
            bodies, _ = await sent(producer, 0, QUEUES)
            await site.slave_knows(QUEUES)
            more, answers = await sent(producer, QUEUES, 196)
            assert answers == {SendStatus.OK}
            bodies |= more
            await read_through_a_kill(site, java, producer, bodies)
            await offsets_are_kept(site, java, producer)


async def read_through_a_kill(
    site: Site, java: JavaClients, producer: ours.Producer, bodies: set[bytes]
) -> None:
    seen = Seen()
    quickly = {**SLOW_READER, "persistConsumerOffsetInterval": 500}
    theirs = await asyncio.to_thread(lambda: java.push(TOPIC, "G-java", **quickly))
    async with joined(site, "G-ours", TOPIC, seen, pull_batch=1, pull_interval_s=0.2):
        readers = Readers(seen, theirs)
        await readers.have_begun(20)
        site.master.kill()
        for found in await readers.read():
            assert found.total() < len(bodies), "the rest is for the slave"
        await readers.have(bodies)
        async with WireClient() as wire:
            assert await addresses_of(site.namesrv, wire) == {1: site.slave.address}
        await site.all_is_committed(site.slave, "G-ours", "G-java")

        await site.master_again()
        await eventually("the master has a route", lambda: has_route(producer.client, TOPIC, 1))
        bodies |= (await sent(producer, 200, 80))[0]
        await readers.have(bodies)
        os.kill(site.slave.pid, signal.SIGSTOP)
        bodies |= (await sent(producer, 280, 20))[0]
        await readers.have(bodies)
        site.slave.kill()
        await site.all_is_committed(site.master, "G-ours", "G-java")
        await asyncio.to_thread(theirs.stop)


async def offsets_are_kept(site: Site, java: JavaClients, producer: ours.Producer) -> None:
    """New members of both groups begin with what is new."""
    new, seen = (await sent(producer, 300, 8))[0], Seen()
    theirs = await asyncio.to_thread(lambda: java.push(TOPIC, "G-java", **QUICK_ROUTES))
    async with joined(site, "G-ours", TOPIC, seen):
        await Readers(seen, theirs).have(new)


# A slave of ours in the place of a Java master.


class Acknowledged:
    """Sends with a Java producer, one message after another, until one fails."""

    def __init__(self, producer: clients.Producer, queues: list[Queue]) -> None:
        self._producer, self._queues = producer, queues
        self.bodies: set[str] = set()
        self._count = 0

    def send(self) -> str:
        """One; its status."""
        self._count += 1
        body, queue = f"{self._count}", self._queues[self._count % QUEUES]
        (result,) = self._producer.send([Draft(topic=TOPIC, body=body.encode(), queue=queue)])
        if result.status == "SEND_OK":
            self.bodies.add(body)
        return result.status

    def until_killed(self, server: Server, count: int) -> None:
        """Kill the server behind so many answers, in the middle of a send."""
        enough = threading.Event()

        def sends() -> None:
            try:
                while True:
                    self.send()
                    if len(self.bodies) >= count:
                        enough.set()
            except JavaStoreError:
                return

        thread = threading.Thread(target=sends)
        thread.start()
        assert enough.wait(60)
        server.kill()
        thread.join()

    async def goes_on(self, _wire: WireClient) -> bool:
        try:
            return await asyncio.to_thread(self.send) == "SEND_OK"
        except JavaStoreError:
            return False


T = TypeVar("T")


def asked(question: Callable[[WireClient], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with WireClient() as wire:
            return await question(wire)

    return asyncio.run(ask())


def wait_for(what: str, is_so: Callable[[WireClient], Awaitable[bool]]) -> None:
    asked(lambda wire: eventually(what, lambda: is_so(wire), 60.0))


def wait_for_master(namesrv: str, server: Server) -> None:
    async def is_named(wire: WireClient) -> bool:
        return (await addresses_of(namesrv, wire)).get(0) == server.address

    wait_for(f"{server.address} is named as the master", is_named)


async def runtime(server: Server, wire: WireClient) -> Mapping[str, str]:
    try:
        answer = await wire.ask(server.address, RequestCode.GET_BROKER_RUNTIME_INFO)
    except RefusedByServer:  # RocketMQ's broker has no figures in its first seconds.
        return {}
    return beans.decode(KVTable, bytes(answer.body or b"")).table


async def bodies_at(server: Server, wire: WireClient) -> set[str]:
    try:
        found = [await wire.read_all(server.address, TOPIC, number) for number in range(QUEUES)]
    except RefusedByServer:  # A slave that has not heard of the topic yet.
        return set()
    return {message.body.decode() for queue in found for message in queue}


def promote(slave: Server) -> None:
    slave.stop()
    promoted = flaremq("broker", "promote", "-c", slave.folder / "conf.properties", "--yes")
    assert promoted.status == 0, promoted.err


def test_a_slave_that_is_promoted_has_all_that_its_java_master_acknowledged_and_clients_go_on(
    java_toolchain: Toolchain, tmp_path: Path
) -> None:
    with Peers(tmp_path) as peers, JavaClients(java_toolchain, JAVA) as java:
        pair = Pair(peers, java_toolchain, JAVA, "ours", "SYNC_MASTER")
        old, slave = pair.start(0), pair.start(1)
        java.namesrv = pair.namesrv.address
        queues = java.create_topic(TOPIC, old.address, "broker-a", QUEUES)
        consumer = java.push(TOPIC, "G-java", **QUICK_ROUTES)
        producer = Acknowledged(java.producer(**QUICK_ROUTES), queues)
        wait_for("the slave acknowledges", producer.goes_on)
        producer.until_killed(old, 100)
        promote(slave)
        slave = peers.again(slave, Flare())
        wait_for_master(java.namesrv, slave)
        assert producer.bodies <= asked(lambda wire: bodies_at(slave, wire))
        wait_for("the producer goes on", producer.goes_on)
        assert {producer.send() for _ in range(20)} == {"SEND_OK"}
        assert producer.bodies <= consumer.received_all(producer.bodies)


def test_ours_says_that_a_java_master_is_beside_it_and_does_not_start_beside_one_that_serves(
    java_toolchain: Toolchain, tmp_path: Path
) -> None:
    """A Java master cannot be told to yield, so the later of the two yields only if it is ours."""
    with Peers(tmp_path) as peers, JavaClients(java_toolchain, JAVA) as java:
        pair = Pair(peers, java_toolchain, JAVA, "ours", "ASYNC_MASTER")
        old, slave = pair.start(0), pair.start(1)
        java.namesrv = pair.namesrv.address
        queues = java.create_topic(TOPIC, old.address, "broker-a", QUEUES)
        producer = Acknowledged(java.producer(), queues)
        assert producer.send() == "SEND_OK"

        async def is_copied(wire: WireClient) -> bool:
            return await bodies_at(slave, wire) == producer.bodies

        wait_for("the slave has the message", is_copied)
        old.kill()
        promote(slave)
        slave = peers.again(slave, Flare())
        wait_for_master(java.namesrv, slave)

        async def says_so(wire: WireClient) -> bool:
            told = (await runtime(slave, wire))["haRival"]
            return f"{old.address}, a broker of RocketMQ that began later" in told

        async def can_be_asked(wire: WireClient) -> bool:
            return "bootTimestamp" in await runtime(old, wire)

        old = peers.again(old, Apache(java_toolchain))
        wait_for("ours says that a Java master is beside it", says_so)
        assert asked(lambda wire: runtime(slave, wire))["haDisplaced"] == ""
        slave.stop()
        wait_for("the Java master tells its figures", can_be_asked)
        wait_for_master(java.namesrv, old)
        with pytest.raises(
            PeerFailed, match=f"RocketMQ is the master of broker-a at {old.address}, and began"
        ):
            peers.again(slave, Flare())
        old.kill()
        peers.again(slave, Flare())
