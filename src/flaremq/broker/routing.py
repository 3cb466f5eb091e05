"""All requests but sends and pulls: the handler of each code, in families that each have a limit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from flaremq.base.errors import ServiceStops
from flaremq.base.logs import fields, logger
from flaremq.broker.features import Requests
from flaremq.broker.overload import Overload
from flaremq.broker.settings import FamilySettings
from flaremq.broker.stats.runtime import Backlog
from flaremq.protocol.command import Command
from flaremq.remoting.router import Family, Peer, Router

log = logger("broker.routing")

_QUERIES_AT_ONCE: Final = 16
_HEARTBEATS_MAX: Final = 50_000  # RocketMQ's heartbeatThreadPoolQueueCapacity.


class _Line:
    """The backlog of sends, or of pulls, as it is reported."""

    def __init__(self, limit: int, waiting: Callable[[], int]) -> None:
        self.limit = limit
        self._waiting = waiting

    @property
    def waiting(self) -> int:
        return self._waiting()

    def head_wait_ms(self) -> int:
        return 0  # A send is handled as soon as it is read; it waits for the disk only.


class Families:
    """The families of requests, their limits and their backlogs.

    RocketMQ gives each family a thread pool; here, slow families are limited to a number of tasks.
    Heartbeats are served as they are read.
    """

    def __init__(self, settings: FamilySettings, overload: Overload) -> None:
        self._by_name = {
            "query": Family("query", settings.query_max, at_once=_QUERIES_AT_ONCE),
            "heartbeat": Family("heartbeat", _HEARTBEATS_MAX),
            "consumerManager": Family("consumerManager", settings.consumer_max),
            "endTransaction": Family("endTransaction", settings.end_transaction_max),
            "adminBroker": Family(
                "adminBroker",
                settings.admin_max,
                at_once=_QUERIES_AT_ONCE,
                age_max_ms=settings.admin_age_ms if settings.fast_failure else 0,
            ),
        }
        self.backlogs: dict[str, Backlog] = {
            **self._by_name,
            "send": _Line(overload.limit, lambda: overload.held),
            "pull": _Line(settings.pull_max, lambda: 0),
            "litePull": _Line(settings.pull_max, lambda: 0),  # Lite pulls are parked with the others.
        }

    def router(self, served: Iterable[Requests], lanes: Iterable[int]) -> Router:
        """A router to all these handlers. The codes in `lanes` reach it only while the broker is stopping."""
        router = Router()
        for family, handlers in served:
            router.serve(self._by_name[family], dict(handlers))
        router.serve(self._by_name["adminBroker"], dict.fromkeys(lanes, _stopping))
        return router

    def print_backlogs(self) -> None:
        """Log the backlogs: at DEBUG if there are any, as a warning when one is above half its limit."""
        waiting = {name: line.waiting for name, line in self.backlogs.items() if line.waiting}
        high = any(line.waiting > line.limit // 2 for line in self.backlogs.values())
        if waiting:
            log.log(logging.WARNING if high else logging.DEBUG, "requests wait", extra=fields(**waiting))


async def _stopping(_peer: Peer, request: Command) -> Command:
    raise ServiceStops(f"this broker is shutting down and takes no {request}: try another one")
