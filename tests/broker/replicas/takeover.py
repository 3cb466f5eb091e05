"""A group of two: the log of a master, and a slave that has it too. Time is moved by hand."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.broker.desks import DeskBench, a_desk

from flaremq.base.units import MiB
from flaremq.broker.delay.levels import DelayedMessages
from flaremq.broker.delay.timers import Timers
from flaremq.broker.transactions.transactions import Transactions
from flaremq.model.properties import decode_properties
from flaremq.store.drafts import NewMessage
from flaremq.store.settings import BrokerRole
from flaremq.testing.clock import ManualClock, settle

F = TypeVar("F", DelayedMessages, Timers, Transactions)

SECOND = 1_000
SIZES: dict[str, Any] = {"commitlog_file_size": MiB}


class Elsewhere:
    """All other brokers: they take what they are given, or a first part of it."""

    def __init__(self) -> None:
        self.stored: list[NewMessage] = []
        self.takes: Callable[[NewMessage], bool] = lambda _message: True
        self.each: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)

    async def deliver(self, messages: Sequence[NewMessage]) -> int:
        await self.each()
        for number, message in enumerate(messages):
            if not self.takes(message):
                return number
            self.stored.append(message)
        return len(messages)

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(each.body) for each in self.stored]

    def known(self, number: int = 0) -> dict[str, str]:
        return decode_properties(self.stored[number].properties)


class Slave:
    """One that may act for its master."""

    def __init__(self, desk: DeskBench, elsewhere: Elsewhere) -> None:
        self.desk = desk
        self.acts = True
        self.elsewhere = elsewhere

    def feature(self, kind: type[F]) -> F:
        """One of its services, which delivers while `acts`."""
        (found,) = (each for each in self.desk.made.inner if isinstance(each, kind))
        found._serves = lambda: self.acts
        found._elsewhere = self.elsewhere.deliver
        return found

    async def settle(self) -> None:
        """Until nothing more comes of what is under way."""
        for _ in range(20):
            await settle()


def folder_of_the_slave(master: Path) -> Path:
    """A copy of everything that the master has on its disk."""
    slave = master.parent / f"{master.name}-slave"
    shutil.rmtree(slave, ignore_errors=True)
    shutil.copytree(master, slave)
    return slave


@asynccontextmanager
async def a_slave(
    folder: Path, clock: ManualClock, elsewhere: Elsewhere | None = None
) -> AsyncIterator[Slave]:
    async with a_desk(
        folder, clock=clock, role=BrokerRole.SLAVE, broker={"broker_id": 1, "acting_master": True}, **SIZES
    ) as desk:
        yield Slave(desk, elsewhere or Elsewhere())
