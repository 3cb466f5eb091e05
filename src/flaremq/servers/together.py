"""A NameServer and brokers in one process and one event loop: `flaremq up`, and servers inside tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flaremq.base.clock import Clock
from flaremq.base.lifecycle import Sleep
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.servers.config import NamesrvConfig
from flaremq.servers.groupbroker import GroupBroker

__all__ = ["Broker", "GroupBroker", "Together"]


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
        self.members: list[GroupBroker] = []
        """Of Raft groups."""

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

    async def add_members(self, configs: Sequence[BrokerConfig]) -> list[GroupBroker]:
        """Start members of Raft groups, all at once: each waits for a majority."""
        members = [GroupBroker(config, self._clock, sleep=self._sleep) for config in configs]
        try:
            async with asyncio.TaskGroup() as starting:
                for member in members:
                    starting.create_task(self._start_member(member))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return members

    async def _start_member(self, member: GroupBroker) -> None:
        await member.start()
        self.members.append(member)

    async def remove_member(self, member: GroupBroker) -> None:
        self.members.remove(member)
        await member.stop()

    async def stop(self) -> None:
        """Stop the last broker first, and the NameServer after all of them, so that each can unregister."""
        try:
            while self.members:
                await self.remove_member(self.members[-1])
            while self.brokers:
                await self.remove(self.brokers[-1])
        finally:
            await self._namesrv.stop()
