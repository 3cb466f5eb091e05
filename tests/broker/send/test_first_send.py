"""A first send is answered when NameServers know its topic, or have had their time to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flaremq.broker import registration
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.router import Family, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings
from flaremq.store.settings import FlushDisk
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.wireclient import WireClient


class SlowNamesrv:
    """Takes a broker at once. What the broker tells it later, it answers when the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.told = asyncio.Event()
        self._known = False
        router = Router()
        router.serve(
            Family("slow", 100),
            {RequestCode.REGISTER_BROKER: self._register, RequestCode.UNREGISTER_BROKER: self._unregister},
        )
        self.server = Server(ServerSettings(listen_port=0, bind_address="127.0.0.1", drain_s=1), router)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def _register(self, _peer: Peer, request: Command) -> Command:
        if self._known:
            self.told.set()
            await self.gate.wait()
        self._known = True
        return response_to(request, ext_fields={})

    async def _unregister(self, _peer: Peer, request: Command) -> Command:
        return response_to(request)


def a_broker(folder: Path, namesrv: str, **store: Any) -> Broker:
    return Broker(
        BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", broker_name="broker-a", namesrv=namesrv),
            server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1", drain_s=5),
            store=small_settings(folder, **store),
        )
    )


@pytest.fixture
async def namesrv() -> AsyncIterator[SlowNamesrv]:
    namesrv = SlowNamesrv()
    await namesrv.server.start()
    yield namesrv
    namesrv.gate.set()
    await namesrv.server.stop()


@pytest.fixture(params=[FlushDisk.ASYNC_FLUSH, FlushDisk.SYNC_FLUSH], ids=lambda flush: flush.name)
async def address(request: pytest.FixtureRequest, namesrv: SlowNamesrv, tmp_path: Path) -> AsyncIterator[str]:
    broker = a_broker(tmp_path, namesrv.address, flush_disk=request.param)
    await broker.start()
    yield f"127.0.0.1:{broker.port}"
    await broker.stop()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough time for any machine: only the gate decides."""
    monkeypatch.setattr(registration, "_TOLD_LIMIT_S", 60.0)


@pytest.mark.usefixtures("patient")
async def test_only_the_send_that_makes_a_topic_waits_for_nameservers(
    namesrv: SlowNamesrv, address: str
) -> None:
    async with WireClient() as client:
        first = asyncio.ensure_future(client.send(address, "New", 0, b"first"))
        await namesrv.told.wait()
        second = await client.send(address, "New", 0, b"second")  # The same connection, and no wait.
        assert not first.done()
        namesrv.gate.set()
        assert (await first).queue_offset < second.queue_offset
        assert [each.body for each in await client.read_all(address, "New", 0)] == [b"first", b"second"]


async def test_a_nameserver_that_hangs_holds_up_a_first_send_only_for_a_moment(
    namesrv: SlowNamesrv, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_TOLD_LIMIT_S", 0.05)
    async with WireClient() as client:
        assert (await client.send(address, "New", 0, b"hello")).queue_offset == 0
        assert namesrv.told.is_set() and not namesrv.gate.is_set()
        assert (await client.send(address, "Newer", 0, b"hello")).queue_offset == 0


@pytest.mark.usefixtures("patient")
async def test_a_broker_that_stops_leaves_no_first_send_without_an_answer(
    namesrv: SlowNamesrv, tmp_path: Path
) -> None:
    broker = a_broker(tmp_path, namesrv.address)
    await broker.start()
    async with WireClient() as client:
        sending = asyncio.ensure_future(client.send(f"127.0.0.1:{broker.port}", "New", 0, b"hello"))
        await namesrv.told.wait()
        await broker.stop()
        assert (await sending).queue_offset == 0


async def test_a_topic_has_a_route_as_soon_as_its_first_send_is_answered(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as servers, WireClient() as client:
        for number in range(10):
            await client.send(servers.addresses[0], f"Topic{number}", 0, b"hello")
            assert await client.route(servers.namesrv, f"Topic{number}") is not None


async def test_without_nameservers_there_is_nobody_to_wait_for(tmp_path: Path) -> None:
    broker = a_broker(tmp_path, "")
    await broker.start()
    try:
        async with WireClient() as client:
            assert (await client.send(f"127.0.0.1:{broker.port}", "New", 0, b"hello")).queue_offset == 0
    finally:
        await broker.stop()
