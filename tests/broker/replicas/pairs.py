"""A master and its slave without ports: the slave asks by a function, and gets the log by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.broker.desks import DeskBench, a_desk
from tests.broker.nobody import Nobody

from flaremq.base.errors import ConnectFailed
from flaremq.base.units import MiB
from flaremq.broker.app import Broker
from flaremq.broker.delay.timers import Timers
from flaremq.broker.offload import Offload
from flaremq.broker.replicas.metasync import MetaSync
from flaremq.broker.replicas.replication import Replication
from flaremq.broker.role import Role
from flaremq.protocol.command import Command
from flaremq.store.settings import BrokerRole
from flaremq.testing.clock import ManualClock

MASTER, VIP = "10.0.0.1:10911", "10.0.0.1:10909"
SLAVE = "10.0.0.2:10911"


class Pauses:
    """Sleepers that wake when they are told to."""

    def __init__(self) -> None:
        self.asleep: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asleep.append((seconds, future))
        await future

    async def wake(self) -> list[float]:
        """Wake all, and wait until all sleep again. Returns for how long they had wanted to."""
        woken, self.asleep = self.asleep, []
        for _, future in woken:
            future.set_result(None)
        async with asyncio.timeout(10):
            while len(self.asleep) < len(woken):
                await asyncio.sleep(0)
        return [seconds for seconds, _ in woken]


class Pair:
    def __init__(self, master: DeskBench, slave: DeskBench, clock: ManualClock) -> None:
        self.master = master
        self.slave = slave
        self.clock = clock
        self.pauses = Pauses()
        self.asked: list[tuple[str, Command]] = []
        self.gone: set[str] = set()
        """Addresses that cannot be reached."""
        self.knows_pages = True
        """Whether the master serves tables page by page: RocketMQ does from 5.4 on."""
        self.changes: dict[int, Callable[[Command], Command]] = {}
        """By request code, what becomes of the master's answer."""
        self.role = Role(is_slave=True)
        self.role.learn(MASTER, "10.0.0.1:10912")
        (timers,) = (each for each in slave.made.inner if isinstance(each, Timers))
        self.timers = timers
        self.offload = Offload(1)
        self.sync = MetaSync(
            *(slave.store, slave.tables, slave.broker.stats, self.offload, clock),
            role=self.role,
            ask=self.ask,
            timers=timers,
            address=lambda: SLAVE,
            sleep=self.pauses.sleep,
        )

    async def ask(self, address: str, request: Command, _timeout_s: float) -> Command:
        self.asked.append((address, request))
        if address in self.gone:
            raise ConnectFailed(f"{address} cannot be reached")
        if not self.knows_pages:
            request = replace(request, ext_fields={})
        answer = await self.master.router().answer(Nobody(), request)
        assert answer is not None
        if not self.knows_pages:
            kept = {name: value for name, value in answer.fields.items() if not name.startswith("total")}
            answer = replace(answer, ext_fields=kept)
        change = self.changes.get(request.code)
        return answer if change is None else change(answer)

    async def copy(self) -> list[float]:
        """A round of all kinds. Returns for how long each had rested before it."""
        rested = await self.pauses.wake()
        await self.slave.run()
        return rested

    def replicate(self) -> None:
        """Bring all of the master's log to the slave, and to its disk."""
        ours, theirs = self.slave.store, self.master.store
        view = theirs.log.slice(ours.log.end, theirs.log.readable_end - ours.log.end)
        assert view is not None
        if len(view):
            ours.log.append_raw(view)
        self.flush()

    def flush(self) -> None:
        self.slave.store.log.flush(0)
        self.slave.store.show()

    def requests(self, code: int) -> list[tuple[str, Command]]:
        return [(address, request) for address, request in self.asked if request.code == code]


@asynccontextmanager
async def a_pair(
    folder: Path, *, broker: dict[str, Any] | None = None, slave: dict[str, Any] | None = None, **store: Any
) -> AsyncIterator[Pair]:
    """`broker` and `store` are settings of both, `slave` further ones of the slave's store."""
    clock, given = ManualClock(), broker or {}
    sizes = {"commitlog_file_size": MiB, **store}
    async with AsyncExitStack() as running:
        master = await running.enter_async_context(
            a_desk(folder / "master", clock=clock, broker=given, **sizes)
        )
        behind = await running.enter_async_context(
            a_desk(
                folder / "slave",
                clock=clock,
                broker={**given, "broker_id": 1},
                **{**sizes, **(slave or {}), "role": BrokerRole.SLAVE},
            )
        )
        pair = Pair(master, behind, clock)
        await pair.sync.start()
        running.push_async_callback(pair.sync.stop)
        running.callback(pair.offload.close)
        await asyncio.sleep(0)
        yield pair


def replication(broker: Broker) -> Replication:
    """Of a broker that is not in a Raft group."""
    assert broker.composition is not None
    found = broker.composition.replication
    assert isinstance(found, Replication)
    return found
