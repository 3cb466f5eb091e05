"""Which handler serves which request code, in families with limits of their own.

A family is what RocketMQ gives a thread pool: sends, pulls, heartbeats ... Here it is a number of
requests that may be under way and an age at which a waiting one is refused, so that one kind of
request cannot starve the others. What is refused is refused before any work is done for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from flaremq.base.errors import FlareError
from flaremq.protocol.codes import ResponseCode
from flaremq.protocol.command import Command, response_to

log = logging.getLogger(__name__)


class Peer(Protocol):
    """The other end of a connection, as handlers see it."""

    @property
    def address(self) -> tuple[str, int]: ...
    def send(self, command: Command) -> None: ...
    def close(self) -> None: ...


Handler: TypeAlias = Callable[[Peer, Command], Awaitable[Command | None]]
"""Serves one request. None: no answer now, or never (the handler sends it itself)."""
Hook: TypeAlias = Callable[[Peer, Command], None]
"""Looks at a request before its handler does; raises to refuse it."""


@dataclass(slots=True)
class Family:
    """Requests of one kind: how many may be under way."""

    name: str
    limit: int
    under_way: int = 0


class Router:
    """code -> handler. Total: whatever comes, there is an answer, or the reason why there is none."""

    def __init__(self) -> None:
        self._routes: dict[int, tuple[Handler, Family]] = {}
        self.hooks: list[Hook] = []

    def serve(self, family: Family, handlers: dict[int, Handler]) -> None:
        for code, handler in handlers.items():
            assert code not in self._routes, f"request code {code} has two handlers"
            self._routes[int(code)] = handler, family

    @property
    def codes(self) -> frozenset[int]:
        return frozenset(self._routes)

    async def answer(self, peer: Peer, request: Command) -> Command | None:
        """What to send back; None if nothing is to be sent (now)."""
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
        if family.under_way >= family.limit:
            remark = (
                f"[OVERLOAD]system busy, start flow control for a while: {family.under_way} {family.name} "
                f"requests are under way, limit is {family.limit}"
            )
            return _told(request, response_to(request, ResponseCode.SYSTEM_BUSY, remark))
        family.under_way += 1
        try:
            for hook in self.hooks:
                hook(peer, request)
            response = await handler(peer, request)
        except FlareError as error:
            response = response_to(request, error.response_code, str(error))
        except Exception as error:
            log.exception("request %s failed", request)
            response = response_to(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}, {error}")
        finally:
            family.under_way -= 1
        return _told(request, response) if response is not None else None


def _told(request: Command, response: Command) -> Command | None:
    """A one-way request gets no answer, not even a refusal."""
    return None if request.is_oneway else response
