"""Servers that die and return while a producer works."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from pathlib import Path
from typing import cast

import pytest

from flaremq.base.errors import FlareError, ManyFailed, NoNameServer, NoRoute, SendFailed, Unreachable
from flaremq.client.client import Client
from flaremq.client.message import Receipt
from flaremq.client.namesrvs import NameServerPool
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ClientSettings, ProducerSettings
from flaremq.model.message import Message
from flaremq.protocol.command import Command
from flaremq.remoting.caller import Caller
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient
from flaremq.testing.sim.world import Machine, Simulation


def quick(namesrv: str) -> Client:
    """Looks for changes far more often than in earnest."""
    return Client(settings=ClientSettings(namesrv=namesrv, refresh_s=0.2, heartbeat_s=0.2))


async def test_a_send_goes_to_another_broker_when_one_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Embedded(tmp_path, brokers=2) as servers,
        Client(servers.namesrv) as client,
        Producer("PID", client=client) as producer,
    ):
        await producer.send_many([Message("T", b"x")] * 20)
        await servers.stop("broker-a")
        receipts = [await producer.send(Message("T", b"y")) for _ in range(20)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}
        many = await producer.send_many([Message("T", b"z")] * 50)
        assert {receipt.queue.broker_name for receipt in many} == {"broker-b"}
    assert not [record for record in caplog.records if record.exc_info]


class Callee:
    """NameServers of which some are dead. Calls are under way at the same time."""

    def __init__(self, *dead: str) -> None:
        self.dead = dead

    async def call(self, address: str, request: Command, timeout_s: float) -> Command:
        await asyncio.sleep(0)
        if address in self.dead:
            raise Unreachable(f"{address} cannot be reached")
        return Command(code=0)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("alive", ["a", "b", "c"])
@pytest.mark.parametrize("others", [1, 2])
async def test_calls_that_lose_a_name_server_at_once_all_go_on_to_the_next(
    count: int, alive: str, others: int
) -> None:
    names = sorted({*[each for each in "abc" if each != alive][:others], alive})
    pool = NameServerPool(names, cast(Caller, Callee(*{*names} - {alive})), random.Random(1))
    for _ in range(3):
        answers = await asyncio.gather(*(pool.call(Command(code=0), 1.0) for _ in range(count)))
        assert {address for address, _ in answers} == {alive}
        assert pool.chosen == alive


async def test_without_time_left_no_other_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after SIGSTOP: the first had no answer within the time that its call took by the clock."""
    loop, asked = asyncio.get_running_loop(), list[float]()
    now_s = loop.time()

    class Paused:
        async def call(self, address: str, _request: Command, timeout_s: float) -> Command:
            asked.append(timeout_s)
            monkeypatch.setattr(loop, "time", lambda: now_s + 8)
            raise Unreachable(f"{address}: no answer within {timeout_s:g} s")

    pool = NameServerPool(["a", "b"], cast(Caller, Paused()), random.Random(1))
    first = pool.chosen
    with pytest.raises(NoNameServer, match=r"no time was left"):
        await pool.call(Command(code=0), 3.0)
    monkeypatch.undo()
    assert asked == [pytest.approx(1.5, abs=0.1)]
    assert pool.chosen != first, "the next call begins with the other one"


async def test_a_broker_that_returns_is_used_again(tmp_path: Path) -> None:
    async with (
        Embedded(tmp_path, brokers=2) as servers,
        quick(servers.namesrv) as client,
        Producer("PID", client=client, settings=ProducerSettings(avoid_slow=False)) as producer,
    ):
        await producer.send_many([Message("T", b"x")] * 20)
        await servers.stop("broker-a")
        await producer.send(Message("T", b"y"))
        await servers.start("broker-a")
        async with asyncio.timeout(60):
            while (await producer.send(Message("T", b"z"))).queue.broker_name != "broker-a":
                pass


async def test_the_only_broker_is_killed_and_returns_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        broker = cluster.broker(namesrv=namesrv.address)
        acknowledged: list[tuple[Receipt, bytes]] = []
        failed = 0
        async with quick(namesrv.address) as client, Producer("PID", client=client) as producer:
            for number in range(3000):
                if number == 1000:
                    broker.kill()
                if number == 1200:
                    broker = await asyncio.to_thread(cluster.again, broker)
                body = b"%d" % number
                try:
                    acknowledged.append((await producer.send(Message("T", body)), body))
                except FlareError:
                    failed += 1
        async with WireClient() as wire:
            stored = {
                (queue, message.queue_offset): message.body
                for queue in range(4)
                for message in await wire.read_all(broker.address, "T", queue)
            }
    assert 0 < failed < 1500
    for receipt, body in acknowledged:
        assert stored[(receipt.queue.queue_id, receipt.queue_offset)] == body


async def test_one_of_two_name_servers_is_enough(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(tmp_path) as cluster:
        first, second = cluster.namesrv("first"), cluster.namesrv("second")
        both = f"{first.address};{second.address}"
        cluster.broker(namesrv=both)
        async with quick(both) as client, Producer("PID", client=client) as producer:
            await producer.send(Message("T", b"x"))
            kept, other = (
                (first, second) if producer.client.namesrvs.chosen == first.address else (second, first)
            )
            kept.kill()
            await producer.send(Message("U", b"x"))
            assert producer.client.namesrvs.chosen == other.address
            kept = await asyncio.to_thread(cluster.again, kept)
            other.kill()
            await producer.send(Message("T", b"x"))
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert any("now using NameServer" in record.getMessage() for record in warnings)
    assert not any(record.exc_info for record in warnings)


async def test_sends_under_way_end_well_or_clearly_when_the_producer_is_cancelled(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as servers, Producer("PID", servers.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        tasks = [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(100)]
        many = [asyncio.create_task(producer.send_many(Message("T", b"x") for _ in range(10_000)))]
        await asyncio.sleep(0)
        for task in (*tasks[::2], *many):
            task.cancel()
        done = await asyncio.gather(*tasks, *many, return_exceptions=True)
        assert sum(isinstance(each, Receipt) for each in done) >= 50
        # Nothing of what was cancelled waits for its answer any more, and the connection still serves.
        await producer.send(Message("T", b"x"))
        connection = producer.client.caller.open_connection(servers.addresses[0])
        assert connection is not None and len(connection.pending) == 0


async def test_a_broker_that_does_not_answer_costs_no_more_than_the_timeout(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv()
        broker = cluster.broker(namesrv=namesrv.address)
        async with Producer("PID", namesrv.address) as producer:
            await producer.send(Message("T", b"x"))
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                with pytest.raises(SendFailed, match=r"did not answer a send within 0\.3 s"):
                    await producer.send(Message("T", b"y"), timeout_s=0.3)
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            receipt = await producer.send(Message("T", b"z"), timeout_s=20)
            assert receipt.queue.broker_name == "broker-a"


@pytest.mark.parametrize("together", [False, True])
def test_a_send_without_an_answer_is_not_called_unplaced_when_no_broker_is_left(together: bool) -> None:
    """The master stores the message and dies with the answer. "No route" would say that nothing is stored."""

    async def sending(sim: Simulation, machine: Machine) -> FlareError:
        settings = ProducerSettings(timeout_s=30.0)
        async with (
            sim.client(machine, refresh_s=1.0) as client,
            Producer("p", settings=settings, client=client) as producer,
        ):
            await producer.send(Message("Orders", b"first"))
            sim.wires.cut([sim.brokers[0].ip], [machine.ip], one_way=True)
            message = Message("Orders", b"second")
            with pytest.raises(FlareError) as failed:
                await (producer.send_many([message]) if together else producer.send(message))
            (error,) = failed.value.results if isinstance(failed.value, ManyFailed) else (failed.value,)
            assert isinstance(error, FlareError)
            return error

    async def scenario(sim: Simulation) -> FlareError:
        await sim.start()
        machine = sim.client_machine("shop")
        await machine.start()
        work = asyncio.create_task(machine.do(sending(sim, machine)))
        log = None
        while log is None or b"second" not in bytes(log.slice(0, log.readable_end) or b""):
            await sim.passes(0.01)
            log = sim.running["broker-a"].store.log
        sim.brokers[0].kill()
        sim.wires.heal()
        return await work

    with Simulation(1, slaves=1) as sim:
        error = sim.run(scenario(sim))
    assert isinstance(error, SendFailed)
    assert isinstance(error.attempts[0], Unreachable) and isinstance(error.attempts[-1], NoRoute)


async def test_a_broker_that_left_for_good_is_let_go(tmp_path: Path) -> None:
    async with (
        Embedded(tmp_path, brokers=2) as servers,
        quick(servers.namesrv) as client,
        Producer("PID", client=client) as producer,
    ):
        await producer.send_many([Message("T", b"x")] * 20)
        left, stays = (client.routes.master(name) for name in ("broker-a", "broker-b"))
        assert left is not None and stays is not None
        await servers.stop("broker-a")

        async def is_forgotten() -> bool:
            return "broker-a" not in client.routes.brokers

        await eventually("the broker is forgotten", is_forgotten)
        assert client.caller.open_connection(left) is None
        assert left not in client.caller._connections
        await client.beat()
        assert client.caller.open_connection(stays) is not None
