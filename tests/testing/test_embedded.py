"""Servers inside the process of a test."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import pytest

from flaremq.base.errors import ConfigError
from flaremq.remoting.turn import Turn
from flaremq.testing.embedded import Embedded, EmbeddedThread
from flaremq.testing.fakes.wireclient import WireClient


async def test_servers_know_each_other_as_soon_as_they_are_entered(tmp_path: Path) -> None:
    async with Embedded(tmp_path, brokers=2) as servers, WireClient() as client:
        route = await client.route(servers.namesrv, "DefaultCluster")
        assert route is not None
        addresses = {data.broker_name: data.broker_addrs[0] for data in route.broker_datas}
        assert addresses == dict(zip(("broker-a", "broker-b"), servers.addresses, strict=True))
        await client.send(servers.addresses[1], "TopicTest", 0, b"hello")


async def test_what_was_stored_is_there_again_in_the_same_folder(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as servers, WireClient() as client:
        await client.send(servers.addresses[0], "TopicTest", 0, b"hello")
    assert not (servers.store() / "abort").exists()
    async with Embedded(tmp_path) as servers, WireClient() as client:
        (found,) = await client.read_all(servers.addresses[0], "TopicTest", 0)
        assert found.body == b"hello"


async def test_one_broker_can_be_stopped_and_started_again_where_it_was(tmp_path: Path) -> None:
    async with Embedded(tmp_path, brokers=2) as servers, WireClient() as client:
        before = servers.addresses
        await servers.stop("broker-a")
        assert servers.addresses == before[1:]
        route = await client.route(servers.namesrv, "DefaultCluster")
        assert route is not None and [data.broker_name for data in route.broker_datas] == ["broker-b"]
        await servers.start("broker-a")
        assert servers.addresses == before


def turns() -> list[Turn]:
    """Each holds megabytes."""
    return [each for each in gc.get_objects() if isinstance(each, Turn)]


def test_the_memory_of_servers_that_have_stopped_is_given_back(tmp_path: Path) -> None:
    others = turns()

    async def serve() -> list[weakref.ref[Turn]]:
        async with Embedded(tmp_path):
            return [weakref.ref(each) for each in turns() if each not in others]

    made = asyncio.run(serve())
    assert made
    gc.collect()
    assert not [turn for turn in made if turn() is not None]


async def test_a_wrong_option_is_told_and_leaves_nothing_running(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brokerNam"):
        async with Embedded(tmp_path, options={"brokerNam": "x"}):
            pass
    async with Embedded(tmp_path):
        pass


def test_a_test_that_blocks_has_them_in_a_thread(tmp_path: Path) -> None:
    async def send(address: str) -> None:
        async with WireClient() as client:
            await client.send(address, "TopicTest", 0, b"hello")

    with EmbeddedThread(tmp_path, brokers=2) as servers:
        for address in servers.addresses:
            asyncio.run(send(address))
        servers.stop("broker-b")
        assert len(servers.brokers) == 1
    assert not (servers.store() / "abort").exists()


def test_a_start_that_fails_in_its_thread_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brokerNam"), EmbeddedThread(tmp_path, options={"brokerNam": "x"}):
        pass
