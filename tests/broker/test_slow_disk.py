"""A disk that takes its time: the event loop of a broker does not wait for it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clients import FakePeer
from tests.broker.desks import Line, a_desk
from tests.protocol.samples import a_send

from flaremq.base.units import KiB
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.model.topic import TopicConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.stats import TopicStatsTable
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.builders import small_settings
from flaremq.testing.fakes.wireclient import RefusedByServer, Want, WireClient

SOON_S = 30.0
"""Much less than the disk takes, much more than a busy machine needs."""


@asynccontextmanager
async def running(folder: Path, **store: Any) -> AsyncIterator[Broker]:
    broker = Broker(
        BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", ip2="127.0.0.1", broker_name="broker-a"),
            server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1", drain_s=1),
            store=small_settings(folder / "store", **store),
        )
    )
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@contextmanager
def stuck(broker: Broker, part: str) -> Iterator[threading.Event]:
    """Files below a folder of this name are not made before the end; set when the first one is to be."""
    create, begun, allowed = broker.store.disk.create, threading.Event(), threading.Event()

    def slow(path: Path, size: int, *, reserved: bool = False) -> None:
        if part in path.parts:
            begun.set()
            allowed.wait(120)
        create(path, size, reserved=reserved)

    broker.store.disk.create = slow  # type: ignore[method-assign]
    try:
        yield begun
    finally:
        allowed.set()
        broker.store.disk.create = create  # type: ignore[method-assign]


@pytest.mark.parametrize("known", [True, False], ids=["a known topic", "a topic made by its first send"])
async def test_queue_files_that_take_long_hold_up_nobody(tmp_path: Path, known: bool) -> None:
    async with running(tmp_path) as broker, WireClient() as client:
        address = f"127.0.0.1:{broker.port}"
        await client.send(address, "Fast", 0, b"first")
        await eventually("it is there", lambda: has(client, address, "Fast", 1))
        if known:
            broker.tables.topics.put(TopicConfig("Slow", 4, 4))
        with stuck(broker, "Slow") as begun:
            async with asyncio.timeout(SOON_S):
                await client.send(address, "Slow", 0, b"waits for its file")
                for _ in range(20):
                    await client.send(address, "Fast", 0, b"more")
                    assert await has(client, address, "Fast", 1)
                    assert broker.store.max_offset(b"Slow", 0) == 0
            assert begun.wait(SOON_S)
        await eventually("all is there", lambda: has(client, address, "Slow", 1))
        await eventually("all is there", lambda: has(client, address, "Fast", 21))


async def has(client: WireClient, address: str, topic: str, at_least: int) -> bool:
    pulled = await client.pull(address, Want(topic=topic, queue_id=0, offset=0))
    return len(pulled.messages) >= at_least


async def test_a_log_file_that_takes_long_is_waited_for_shortly_and_then_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, WireClient() as client:
        address = f"127.0.0.1:{broker.port}"
        taken = 0

        async def are_made_ahead() -> bool:
            return len(list((tmp_path / "store" / "commitlog").iterdir())) >= 2

        await eventually("two log files are made ahead", are_made_ahead)
        with stuck(broker, "commitlog"):

            async def fill() -> None:
                nonlocal taken
                while True:
                    await client.send(address, "Topic", 0, bytes(10 * KiB))
                    taken += 1

            with pytest.raises(RefusedByServer, match=r"not ready within 0\.05 s") as refused:
                await fill()
            assert refused.value.code == ResponseCode.SYSTEM_BUSY
            assert taken > 10, "files that were made ahead are used first"
            began_s = time.monotonic()
            with pytest.raises(RefusedByServer):
                await client.send(address, "Topic", 0, bytes(10 * KiB))
            assert time.monotonic() - began_s < SOON_S / 2

        async def is_taken() -> bool:
            try:
                await client.send(address, "Topic", 0, bytes(10 * KiB))
            except RefusedByServer:
                return False
            return True

        await eventually("messages are taken again", is_taken)


async def test_what_is_deleted_and_when_changes_while_the_broker_runs(tmp_path: Path) -> None:
    every_hour = ";".join(f"{hour:02}" for hour in range(24))
    options = {"clean_interval_ms": 10, "delete_when": every_hour, "delete_log_interval_ms": 0}
    async with running(tmp_path, **options) as broker, WireClient() as client:
        address = f"127.0.0.1:{broker.port}"
        for _ in range(30):
            await client.send(address, "Topic", 0, bytes(10 * KiB))
        two_days_ago_s = time.time() - 48 * 3600
        files = broker.store.log.files.files
        for file in files[:-1]:
            os.utime(file.path, (two_days_ago_s, two_days_ago_s))
        broker.store.workers.retention.run_once()
        assert broker.store.log.files.files == files, "they are kept for 72 hours"
        body = b"fileReservedTime=24\ndiskMaxUsedSpaceRatio=80\ndeleteWhen=%s\n" % every_hour.encode()
        await client.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

        async def are_gone() -> bool:
            return len(broker.store.log.files.files) == 1

        await eventually("files that are older than a day are gone", are_gone)
        shown = await client.ask(address, RequestCode.GET_BROKER_CONFIG)
        assert b"fileReservedTime=24\n" in bytes(shown.body or b"")
        with pytest.raises(RefusedByServer, match="hours from 0 to 23"):
            await client.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=b"deleteWhen=25")


async def test_figures_count_what_was_acknowledged_to_a_queue_that_has_no_file_yet(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        desk.tables.topics.put(TopicConfig("TopicTest", 1, 1))
        desk.store.workers.dispatch.stop()  # Whoever asks has to make the file.
        line = Line()
        desk.deliver(line, replace(a_send(e="0"), body=b"hello"))
        desk.turn.run()
        assert [answer.code for answer in line.read()] == [ResponseCode.SUCCESS]
        router = desk.router()
        request = Command(code=RequestCode.GET_TOPIC_STATS_INFO, ext_fields={"topic": "TopicTest"})
        answer = await router.answer(FakePeer(), request)
        assert answer is not None and answer.code == ResponseCode.SUCCESS
        (found,) = beans.decode(TopicStatsTable, answer.body).offset_table.values()
        assert found.max_offset == 1
