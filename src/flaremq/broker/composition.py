"""What a broker is made of: its composition, and the small features that belong to no other room."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ParamSpec

from flaremq.base.clock import Clock
from flaremq.base.logs import fields
from flaremq.broker.features import Feature, Requests
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.overload import Overload
from flaremq.broker.pull.lane import PullLane
from flaremq.broker.registration import Registration
from flaremq.broker.replicas.logside import LogSide
from flaremq.broker.replicas.refusals import served_by
from flaremq.broker.role import Role
from flaremq.broker.routing import Families
from flaremq.broker.send.acks import Acks
from flaremq.broker.send.lane import SendLane
from flaremq.broker.tasks import Task, Tasks
from flaremq.remoting.caller import Caller
from flaremq.remoting.turn import Lane

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Composition:
    """All parts of a broker, created but not started."""

    sends: SendLane
    pulls: PullLane
    lanes: Sequence[Lane]
    """All others."""
    acks: Acks
    overload: Overload
    families: Families
    namesrvs: NameServers
    role: Role
    replication: LogSide
    registration: Registration
    inner: list[Feature]
    outer: list[Feature]

    def served(self) -> Iterable[Requests]:
        for feature in (*self.inner, *self.outer):
            yield from served_by(self.role, feature.handlers())

    def tasks(self) -> Iterable[Task]:
        """All periodic work."""
        for feature in (*self.inner, *self.outer):
            yield from feature.tasks()


def told_to(*listeners: Callable[P, None]) -> Callable[P, None]:
    """One listener for several."""

    def tell(*given: P.args, **named: P.kwargs) -> None:
        for listener in listeners:
            listener(*given, **named)

    return tell


class HandlerTables(Feature):
    """Handlers that need no start or stop."""

    step = "handlers"

    def __init__(self, requests: Iterable[Requests], families: Families) -> None:
        self._requests = list(requests)
        self._families = families

    def handlers(self) -> Iterable[Requests]:
        return self._requests

    def tasks(self) -> Iterable[Task]:
        yield Task("print-backlogs", 10, 1, self._families.print_backlogs)


class OpenCalls(Feature):
    """Calls to NameServers."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def stop(self) -> None:
        await self._caller.aclose()


class OpenLanes(Feature):
    """Sends and pulls."""

    def __init__(self, pulls: PullLane, acks: Acks) -> None:
        self._pulls = pulls
        self._acks = acks

    async def stop(self) -> None:
        await self._pulls.close()
        self._acks.close()


class PeriodicWork(Feature):
    """The periodic work of all features, collected when the broker starts."""

    step = "scheduled tasks"

    def __init__(self, tasks: Callable[[], Tasks]) -> None:
        self._make = tasks
        self._tasks: Tasks | None = None

    async def start(self) -> None:
        self._tasks = self._make()
        self._tasks.start()

    async def stop(self) -> None:
        assert self._tasks is not None
        await self._tasks.stop()


class Steps:
    """Logs each step of a start with the time it took. Steps follow one another, in whichever thread."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._since_s = clock.monotonic_s()

    def done(self, step: str) -> None:
        now_s = self._clock.monotonic_s()
        self._log.info("started: %s", step, extra=fields(took_ms=round((now_s - self._since_s) * 1000, 1)))
        self._since_s = now_s
