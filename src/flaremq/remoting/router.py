"""The handler of each request code, in families that each have a limit.

RocketMQ gives each family (sends, pulls, heartbeats ...) a thread pool. Here a family limits how many
requests may be under way, and how long one may wait, so that one kind of request cannot starve the others. A
request is refused before any work is done for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from flaremq.base.errors import Busy, FlareError
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.command import Command, response_to

log = logging.getLogger(__name__)


class Peer(Protocol):
    """The other end of a connection, as handlers see it."""

    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def is_open(self) -> bool: ...
    def send(self, command: Command) -> None: ...
    async def call(self, request: Command, timeout_s: float) -> Command: ...
    def close(self) -> None: ...


Handler: TypeAlias = Callable[[Peer, Command], Awaitable[Command | None]]
"""Serves one request. None: no answer now, or never (the handler sends it itself)."""


@dataclass(slots=True)
class Family:
    """Requests of one kind: how many may be under way, how many are served at once, and how long one may
    wait."""

    name: str
    limit: int
    at_once: int = 0
    """0: no limit. Requests cost nothing while they wait for something else."""
    age_max_ms: int = 0
    """0: no limit."""
    under_way: int = 0
    _served: int = 0
    _line: deque[tuple[asyncio.Future[None], float]] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        return len(self._line)

    def head_wait_ms(self) -> int:
        """How long the first in line has waited."""
        if not self._line:
            return 0
        return round((asyncio.get_running_loop().time() - self._line[0][1]) * 1000)

    async def enter(self) -> None:
        """Wait to be served. Raises Busy if the line, or the wait in it, is too long."""
        if self.under_way >= self.limit:
            raise Busy(
                f"[OVERLOAD]system busy, start flow control for a while: {self.under_way} {self.name} "
                f"requests are under way, limit is {self.limit}"
            )
        self.under_way += 1
        if self.at_once and self._served >= self.at_once:
            try:
                await self._stand_in_line()
            except BaseException:
                self.under_way -= 1
                raise
        self._served += 1

    async def _stand_in_line(self) -> None:
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        self._line.append((place, loop.time()))
        try:
            async with asyncio.timeout(self.age_max_ms / 1000 if self.age_max_ms else None):
                await place
        except TimeoutError:
            raise Busy(
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
                f"{self.age_max_ms}ms, size of queue: {len(self._line)}"
            ) from None

    def leave(self) -> None:
        self.under_way -= 1
        self._served -= 1
        while self._line:
            place, _ = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return


class Router:
    """code -> handler. Every request gets an answer, be it a refusal with the reason."""

    def __init__(self) -> None:
        self._routes: dict[int, tuple[Handler, Family]] = {}

    def serve(self, family: Family, handlers: dict[int, Handler]) -> None:
        for code, handler in handlers.items():
            assert code not in self._routes, f"request code {code} has two handlers"
            self._routes[int(code)] = handler, family

    @property
    def codes(self) -> frozenset[int]:
        return frozenset(self._routes)

    async def answer(self, peer: Peer, request: Command) -> Command | None:
        """The answer to send; None if there is nothing to send (now)."""
        route = self._routes.get(request.code)
        if route is None:
            return _told(
                request,
                response_to(
                    request,
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f" request type {request.code} not supported",
                ),
            )
        handler, family = route
        try:
            await family.enter()
            try:
                response = await handler(peer, request)
            finally:
                family.leave()
        except FlareError as error:
            response = response_to(request, error.response_code, str(error))
        except Exception as error:
            log.exception("request %s failed", request)
            response = response_to(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}, {error}")
        return _told(request, response) if response is not None else None


def _told(request: Command, response: Command) -> Command | None:
    """A one-way request gets no answer, not even a refusal."""
    return None if request.is_oneway else response
