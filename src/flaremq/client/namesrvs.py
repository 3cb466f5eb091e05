"""The NameServers as a client sees them: one chosen at random and kept, the next when it fails."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from flaremq.base.errors import Hint, NoNameServer, Unreachable
from flaremq.protocol.command import Command
from flaremq.remoting.caller import Caller

log = logging.getLogger(__name__)


class NameServerPool:
    """All configured NameServers, one of which is in use."""

    def __init__(self, addresses: Sequence[str], caller: Caller, rng: random.Random) -> None:
        self.addresses = tuple(addresses)
        self._caller = caller
        self._chosen = rng.randrange(len(self.addresses))

    @property
    def chosen(self) -> str:
        return self.addresses[self._chosen]

    def doubt(self) -> None:
        """What the chosen one tells may be wrong: the next call begins with another."""
        self._chosen = (self._chosen + 1) % len(self.addresses)

    async def call(self, request: Command, timeout_s: float) -> tuple[str, Command]:
        """The address that answered, and its answer, whatever its code. Raises NoNameServer if none answers.

        They share the timeout: while there is another one to ask, each gets half of what is left. Each is
        asked once, also when several calls lose the same one: only the first of them chooses the next.
        """
        failures: list[str] = []
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        count, first = len(self.addresses), self._chosen
        for number in range(count):
            asked, left_s = (first + number) % count, deadline_s - loop.time()
            address = self.addresses[asked]
            if failures and left_s <= 0:  # This process was stopped for a while: nobody could answer in time.
                failures.append(f"{address} was not asked, as no time was left")
                continue
            try:
                answer = await self._caller.call(
                    address, request, left_s / 2 if number + 1 < count else left_s
                )
            except Unreachable as error:
                failures.append(str(error))
                if self._chosen == asked:
                    self._chosen = (asked + 1) % count
                continue
            if failures:
                log.warning("now using NameServer %s: %s", address, "; ".join(failures))
            return address, answer
        raise NoNameServer(f"no NameServer answers ({'; '.join(failures)})").with_hint(Hint.START_NAMESRV)
