"""A slave with a NameServer and another broker, all with their ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.desks import a_desk
from tests.broker.replicas.takeover import SIZES, folder_of_the_slave
from tests.protocol.samples import a_send

from flaremq.base.clock import SystemClock
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings
from flaremq.broker.tables.tables import Tables
from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.remoting.settings import ServerSettings
from flaremq.store.settings import BrokerRole
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import small_settings

TOPIC, RETRY = b"Orders", b"%RETRY%g"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


@asynccontextmanager
async def a_namesrv(folder: Path) -> AsyncIterator[NameServer]:
    settings = NamesrvSettings(
        kv_config_path=folder / "kv.json",
        config_store_path=folder / "n.properties",
        acting_masters=True,
        notify_lowest_id=True,
    )
    namesrv = NameServer(settings, ServerSettings(bind_address="127.0.0.1", drain_s=1))
    await namesrv.start()
    try:
        yield namesrv
    finally:
        await namesrv.stop()


@asynccontextmanager
async def a_broker(
    folder: Path, namesrv: NameServer, role: BrokerRole, **other: Any
) -> AsyncIterator[Broker]:
    """Its periodic work comes at once, again and again."""
    broker = Broker(
        BrokerConfig(
            broker=BrokerSettings(
                ip1="127.0.0.1", ip2="127.0.0.1", namesrv=f"127.0.0.1:{namesrv.port}", **other
            ),
            server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1", drain_s=1),
            store=small_settings(folder, role=role, **SIZES),
        ),
        sleep=lambda _seconds: asyncio.sleep(0),
    )
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def wait_at_a_master(folder: Path) -> None:
    """Messages that are due by now, in the log of a master that is gone."""
    async with a_desk(folder, clock=ManualClock(SystemClock().now_ms() - 60_000), **SIZES) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC.decode(), 4, 4))
        made_retry_topic(desk.tables)
        for number, asked in enumerate(("DELAY\x013", "TIMER_DELAY_SEC\x015", "TRAN_MSG\x01true")):
            text = f"UNIQ_KEY\x01U{number}\x02PGROUP\x01buyers\x02{asked}\x02"
            request = a_send(b=TOPIC.decode(), e="2", i=text, f="4" if "TRAN" in asked else "0")
            (answer,) = await desk.ask(replace(request, body=b"%d" % number))
            assert answer.code == 0
        # The last retry of a message that was prepared once, and failed at its consumer again and again.
        text = "UNIQ_KEY\x01U9\x02TRAN_MSG\x01true\x02DELAY\x011\x02"
        (answer,) = await desk.ask(a_send(b=RETRY.decode(), e="0", i=text, j="16", l="17"))
        assert answer.code == 0


def made_retry_topic(tables: Tables) -> None:
    tables.subscriptions.put(GroupConfig("g"))
    tables.topics.put(TopicConfig(RETRY.decode(), 1, 1))


@pytest.mark.parametrize("may_send", [True, False])
async def test_what_waits_at_a_lost_master_is_delivered_by_way_of_another_broker(
    tmp_path: Path, may_send: bool
) -> None:
    await wait_at_a_master(tmp_path / "m")
    slave_folder = folder_of_the_slave(tmp_path / "m")
    other, member = {"broker_name": "broker-b"}, {"broker_name": "broker-a", "broker_id": 1}
    member |= {"acting_master": True, "remote_escape": may_send, "transaction_check_ms": 10}
    async with (
        a_namesrv(tmp_path) as namesrv,
        a_broker(tmp_path / "b", namesrv, BrokerRole.ASYNC_MASTER, **other) as taking,
    ):
        taking.tables.topics.put(TopicConfig(TOPIC.decode(), 4, 4))
        made_retry_topic(taking.tables)
        await until(lambda: namesrv.routes.route(TOPIC.decode()) is not None)
        async with a_broker(slave_folder, namesrv, BrokerRole.SLAVE, **member) as slave:
            await until(lambda: bool(namesrv.routes.member_group("", "broker-a").broker_addrs))
            if not may_send:
                for _ in range(1000):
                    await asyncio.sleep(0)
                assert taking.store.log.end == 0
                return
            await until(lambda: sum(taking.store.max_offset(TOPIC, queue) for queue in range(4)) == 2)
            await until(lambda: taking.store.max_offset(b"RMQ_SYS_TRANS_HALF_TOPIC", 0) == 1)
            await until(lambda: slave.tables.delays.get(3) == 1)
            await until(lambda: taking.store.max_offset(RETRY, 0) == 1)
            assert slave.store.max_offset(TOPIC, 2) == 0
