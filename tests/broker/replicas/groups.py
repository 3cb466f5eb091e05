"""Whole brokers of one name, with NameServer and real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from flaremq.namesrv.app import NameServer
from flaremq.servers.config import NamesrvConfig, flags, load_broker
from flaremq.servers.together import Broker, Together

HOST = "127.0.0.1"


class Group:
    """A NameServer, and brokers of one name."""

    def __init__(self, folder: Path, **namesrv: object) -> None:
        """`namesrv` are further options of the NameServer."""
        self._folder = folder
        given = flags({"listenPort": 0, "bindAddress": HOST, **namesrv})
        self.together = Together(NamesrvConfig.load(None, {}, given), HOST)

    @property
    def namesrv(self) -> NameServer:
        return self.together._namesrv

    async def broker(self, broker_id: int, role: str, *, name: str = "broker-a", **options: object) -> Broker:
        given = {
            "brokerName": name,
            "brokerId": broker_id,
            "brokerRole": role,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "bindAddress": HOST,
            "listenPort": 0,
            "namesrvAddr": self.together.namesrv,
            "storePathRootDir": self._folder / f"{name}-{role}-{broker_id}",
            "mappedFileSizeCommitLog": 1 << 20,
            "maxMessageSize": 1 << 16,
            "maxHashSlotNum": 100,
            "maxIndexNum": 400,
            "timerWheelEnable": False,
            "registerNameServerPeriod": 10_000,
            **options,
        }
        return await self.together.add(load_broker(None, {}, flags(given)))


@asynccontextmanager
async def a_group(folder: Path, **namesrv: object) -> AsyncIterator[Group]:
    group = Group(folder, **namesrv)
    async with AsyncExitStack() as running:
        await group.together.start()
        running.push_async_callback(group.together.stop)
        yield group
