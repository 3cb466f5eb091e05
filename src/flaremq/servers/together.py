"""A NameServer and brokers in one process and one event loop: `flaremq up`, and servers inside tests."""

from __future__ import annotations

import asyncio

from flaremq.base.clock import Clock
from flaremq.base.lifecycle import Sleep
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.servers.config import NamesrvConfig

__all__ = ["Broker", "Together"]


class Together:
    """A NameServer and brokers in one process and one event loop."""

    def __init__(
        self,
        namesrv: NamesrvConfig,
        host: str,
        *,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`clock` and `sleep` are for the brokers. The NameServer uses the system's clock: if its clock
        jumped, it would take all brokers for silent, and remove them."""
        self._clock = clock
        self._sleep = sleep
        self._host = f"[{host}]" if ":" in host else host
        self._namesrv = namesrv.build()
        self.brokers: list[Broker] = []

    @property
    def namesrv(self) -> str:
        """The address of the NameServer; valid once it is started."""
        return f"{self._host}:{self._namesrv.port}"

    async def start(self) -> None:
        await self._namesrv.start()

    async def add(self, config: BrokerConfig) -> Broker:
        """Start a broker. If its settings name our NameServer, it is registered when this returns."""
        broker = Broker(config, self._clock, sleep=self._sleep)
        await broker.start()
        self.brokers.append(broker)
        return broker

    async def remove(self, broker: Broker) -> None:
        self.brokers.remove(broker)
        await broker.stop()

    async def stop(self) -> None:
        """Stop the last broker first, and the NameServer after all of them, so that each can unregister."""
        try:
            while self.brokers:
                await self.remove(self.brokers[-1])
        finally:
            await self._namesrv.stop()
