"""The start of a member of a group: before anyone can find it, it exchanges with the others what they know.

    nobody else is there   start
    a slave, no master     start
    a slave, a master      follow it, and start when the log comes
    a master, slaves       one after another, by their ids: ask it to follow, wait until it does, and copy
                           back how far it has come in our place; start when all are through

So a master that returns does not deliver again what a slave has delivered for it, and a slave does not show
itself to consumers before it has a master to hear of. What fails is tried again every second. All that time
the member is reachable, for the others, but registered nowhere, and delivers nothing.

Members are recognised by their hosts, as the log carries no more: several of one group on one host are taken
for one another here, and the first that follows counts for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Owned, Sleep
from flaremq.base.live import Live
from flaremq.base.logs import Seldom, fields, logger
from flaremq.broker.features import Feature
from flaremq.broker.replicas.duty import Duty
from flaremq.broker.replicas.exchange import HaInfo, MemberCalls
from flaremq.broker.replicas.members import MemberGroup
from flaremq.broker.settings import BrokerSettings
from flaremq.broker.tasks import Task
from flaremq.protocol.bodies.route import MASTER_ID

log = logger("broker.preonline")

_AGAIN_S: Final = 1.0
_LOOK_S: Final = 0.1
_CONNECTED_S: Final = 10.0
_NOTED_S: Final = 1.0
"""A slave that follows acts no longer, and has noted by then how far it came."""
_TOLD_EVERY_S: Final = 60.0


class Replicas(Protocol):
    """The log's way between members: the HA port of a master, the follower of a slave."""

    def is_followed_by(self, host: str) -> bool: ...
    def is_following(self) -> bool: ...
    def master_is(self, address: str, ha_address: str) -> None:
        """Follow this master."""


class PreOnline(Feature):
    """Starts the registration: at once, or when the exchange is through."""

    def __init__(
        self,
        settings: Live[BrokerSettings],
        duty: Duty,
        members: MemberGroup,
        calls: MemberCalls,
        *,
        registration: Feature,
        replicas: Replicas,
        own: Callable[[], HaInfo],
        copy_back: Callable[[str], Awaitable[None]],
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`own` is this broker as a master. `copy_back` takes over what a slave has done for it."""
        self._live = settings
        self._duty = duty
        self._members = members
        self._calls = calls
        self._registration = registration
        self._replicas = replicas
        self._own = own
        self._copy_back = copy_back
        self._clock = clock
        self._sleep = sleep
        self._through: set[str] = set()
        """Slaves that the exchange is through with."""
        self._trouble = Seldom(_TOLD_EVERY_S)
        self._tasks = Owned()
        self._is_online = False
        self.step = "" if duty.isolated else registration.step

    # Life.

    async def start(self) -> None:
        if not self._duty.isolated:
            await self._go_online()
            return
        log.info("before it registers, this member exchanges with the others what they know")
        self._tasks.spawn("pre-online", self._prepare_until_done())

    async def stop(self) -> None:
        await self._tasks.aclose(timeout_s=5)
        if self._is_online:
            await self._registration.stop()

    def tasks(self) -> Iterable[Task]:
        yield from self._registration.tasks()

    async def _go_online(self) -> None:
        self._duty.begin()
        self._is_online = True
        await self._registration.start()

    # The exchange.

    async def _prepare_until_done(self) -> None:
        while not await self._prepared():
            await self._sleep(_AGAIN_S)
        log.info("the exchange with the other members is through")
        await self._go_online()

    async def _prepared(self) -> bool:
        try:
            await self._members.namesrvs.refresh()
            return await self._prepare()
        except FlareError as error:
            self._not_yet(str(error))
        except Exception:
            log.exception("the exchange with the other members failed and is tried again")
        return False

    def _not_yet(self, why: str) -> None:
        if self._trouble.due() is not None:
            log.warning("this member is not registered yet, trying again", extra=fields(why=why))

    async def _prepare(self) -> bool:
        """Whether the exchange is through. Raises FlareError."""
        settings = self._live.now
        if not self._members.namesrvs.addresses:
            return True  # Registration says what is wrong with that.
        found = await self._members.ask()
        if found is None:
            self._not_yet("no NameServer says who else belongs to the group")
            return False
        others = {id_: address for id_, address in found.items() if id_ != settings.broker_id}
        if settings.broker_id == MASTER_ID:
            return await self._with_slaves(others)
        master = others.get(MASTER_ID)
        return master is None or await self._with_master(master)

    async def _with_master(self, address: str) -> bool:
        found = await self._calls.ha_info(address)
        if not found.ha_address:
            log.warning(
                "the master takes no slaves: this one starts without it", extra=fields(master=address)
            )
            return True
        self._replicas.master_is(found.address, found.ha_address)
        if await self._until(self._replicas.is_following):
            return True
        self._not_yet(f"the log does not come from the master at {found.ha_address}")
        return False

    async def _with_slaves(self, slaves: dict[int, str]) -> bool:
        for _, address in sorted(slaves.items()):
            if address not in self._through and not await self._with_slave(address):
                return False
        return True

    async def _with_slave(self, address: str) -> bool:
        await self._calls.follow(address, self._own())
        host = address.rpartition(":")[0].strip("[]")
        if not await self._until(lambda: self._replicas.is_followed_by(host)):
            self._not_yet(f"the slave at {address} does not follow this master")
            return False
        await self._sleep(_NOTED_S)
        await self._copy_back(address)
        self._through.add(address)
        return True

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Whether it comes true in time."""
        deadline_s = self._clock.monotonic_s() + _CONNECTED_S
        while not condition():
            if self._clock.monotonic_s() >= deadline_s:
                return False
            await self._sleep(_LOOK_S)
        return True
