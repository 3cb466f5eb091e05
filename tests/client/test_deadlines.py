"""Calls end when their time is up, whatever the peer does: it stops, never reads, or never accepts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from flaremq.base.errors import CallTimeout, ConnectFailed, FlareError, ManyFailed, NoNameServer, SendFailed
from flaremq.base.units import MiB
from flaremq.client.client import Client
from flaremq.client.message import Receipt
from flaremq.client.namesrvs import NameServerPool
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ProducerSettings
from flaremq.model.message import Message
from flaremq.protocol.command import Command
from flaremq.remoting.caller import Caller
from flaremq.testing.cluster import Cluster, Process
from flaremq.testing.embedded import Embedded
from flaremq.testing.patience import load_factor

LIMIT_S = 1.0
TOLERANCE_S = 3.0  # Of a machine that has other things to do.
AS_THEY_ARE = ProducerSettings(compress_over=8 * MiB, timeout_s=LIMIT_S)
ECHO = 9001


@contextmanager
def stopped(process: Process) -> Iterator[None]:
    """A process that is there, and does nothing."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


async def took_s(work: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await work
    return (loop.time() - began_s) / load_factor()


def large() -> Message:
    return Message("T", os.urandom(MiB))


async def test_sends_to_a_stopped_broker_end_in_time_however_many_there_are(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        broker = cluster.broker(namesrv=namesrv.address)
        async with Producer("PID", namesrv.address, settings=AS_THEY_ARE) as producer:
            await producer.send(large(), timeout_s=30)
            with stopped(broker):
                sends = [producer.send(large(), timeout_s=LIMIT_S) for _ in range(40)]
                done: list[object] = []

                async def all_of_them() -> None:
                    done.extend(await asyncio.gather(*sends, return_exceptions=True))

                assert await took_s(all_of_them()) < LIMIT_S + TOLERANCE_S
                assert all(isinstance(each, SendFailed) for each in done)
            assert isinstance(await producer.send(large(), timeout_s=30), Receipt)


async def test_send_many_to_a_stopped_broker_ends_in_time(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        broker = cluster.broker(namesrv=namesrv.address)
        async with Producer("PID", namesrv.address, settings=AS_THEY_ARE) as producer:
            await producer.send(large(), timeout_s=30)
            with stopped(broker):

                async def many() -> None:
                    with pytest.raises(ManyFailed, match="did not answer"):
                        await producer.send_many([large() for _ in range(40)], timeout_s=LIMIT_S)

                assert await took_s(many()) < LIMIT_S + TOLERANCE_S
            receipts = await producer.send_many([large() for _ in range(3)], timeout_s=30)
            assert len(receipts) == 3


async def test_send_many_moves_on_to_the_other_broker_when_one_is_stopped(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        stuck = cluster.broker("broker-a", namesrv=namesrv.address)
        cluster.broker("broker-b", namesrv=namesrv.address)
        async with Producer(
            "PID", namesrv.address, settings=ProducerSettings(avoid_slow=False, timeout_s=6)
        ) as producer:
            while len({queue.broker_name for queue in await producer.queues("TBW102")}) < 2:
                await producer.client.routes.refresh("TBW102")
            await producer.send_many([Message("T", b"x")] * 20)
            with stopped(stuck):
                receipts = await producer.send_many([Message("T", b"x")] * 20)
            assert {each.queue.broker_name for each in receipts} == {"broker-b"}


async def test_one_way_sends_to_a_stopped_broker_do_not_pile_up(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        broker = cluster.broker(namesrv=namesrv.address)
        async with Producer("PID", namesrv.address, settings=ProducerSettings(timeout_s=LIMIT_S)) as producer:
            await producer.send(large(), timeout_s=30)
            with stopped(broker):
                sends = [producer.send_oneway(large()) for _ in range(40)]
                done: list[object] = []

                async def all_of_them() -> None:
                    done.extend(await asyncio.gather(*sends, return_exceptions=True))

                assert await took_s(all_of_them()) < LIMIT_S + TOLERANCE_S
                assert sum(isinstance(each, FlareError) for each in done) > 30


async def test_a_send_does_not_wait_longer_for_a_route_than_it_may(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        async with Producer("PID", namesrv.address, settings=AS_THEY_ARE) as producer:
            with stopped(namesrv):

                async def send() -> None:
                    with pytest.raises(FlareError, match=r"0\.3 s"):
                        await producer.send(Message("T", b"x"), timeout_s=0.3)

                assert await took_s(send()) < 0.3 + TOLERANCE_S / 2


@asynccontextmanager
async def never_reads() -> AsyncIterator[str]:
    """The address of a peer that accepts connections and reads nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def never_accepts() -> AsyncIterator[str]:
    """The address of a peer whose backlog is full: greetings are not answered at all."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = []
        for _ in range(8):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(address)
            waiting.append(sock)
        try:
            yield f"127.0.0.1:{address[1]}"
        finally:
            for sock in waiting:
                sock.close()


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    caller = Caller()
    yield caller
    await caller.aclose()


async def test_calls_to_a_peer_that_never_reads_end_in_time_and_its_connection_is_gone(
    caller: Caller,
) -> None:
    async with never_reads() as address:
        calls = [caller.call(address, Command(code=ECHO, body=bytes(MiB)), 0.4) for _ in range(20)]
        results: list[object] = []

        async def all_of_them() -> None:
            results.extend(await asyncio.gather(*calls, return_exceptions=True))

        assert await took_s(all_of_them()) < 0.4 + TOLERANCE_S / 2
        assert all(isinstance(each, FlareError) for each in results)
        assert any(isinstance(each, CallTimeout) for each in results)
        assert caller.open_connection(address) is None
        assert caller.descriptors() == []


async def test_callers_of_a_peer_that_never_accepts_wait_together_and_not_in_line(caller: Caller) -> None:
    async with never_accepts() as address:
        calls = [caller.call(address, Command(code=ECHO), 0.4) for _ in range(20)]
        results: list[object] = []

        async def all_of_them() -> None:
            results.extend(await asyncio.gather(*calls, return_exceptions=True))

        assert await took_s(all_of_them()) < 0.4 + TOLERANCE_S / 2
        assert {type(each) for each in results} == {ConnectFailed}


async def test_name_servers_share_the_time_of_a_call(caller: Caller) -> None:
    async with never_reads() as first, never_reads() as second:
        namesrvs = NameServerPool([first, second], caller, random.Random(1))

        async def ask() -> None:
            with pytest.raises(NoNameServer):
                await namesrvs.call(Command(code=ECHO), 0.8)

        assert await took_s(ask()) < 0.8 + TOLERANCE_S / 2


async def test_both_ways_can_be_full_at_once_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    """A client that wrote much, and did not read meanwhile, would wait for a broker that waits for it."""
    async with (
        Embedded(tmp_path) as servers,
        Client(settings=ClientSettings(namesrv=servers.namesrv)) as client,
        Producer("PID", client=client) as producer,
    ):
        receipt = await producer.send(large(), timeout_s=30)
        address = servers.addresses[0]
        connection = await client.caller.connected(address, 5)
        connection.pause_writing()  # As if much were still to be written.
        try:
            offset = await client.api.max_offset(address, receipt.queue)
        finally:
            connection.resume_writing()
        assert offset == 1
