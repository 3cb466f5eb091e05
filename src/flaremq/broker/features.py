"""The parts of which a broker is made.

A feature brings its requests, its periodic work, its figures, and how it starts and stops. `broker.app` lists
the features in the order in which they start; they stop in the reverse order. To add one, write it in a new
module, pass what it needs to its constructor, and put it in that list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from flaremq.broker.tasks import Task
from flaremq.remoting.router import Handler

Requests: TypeAlias = tuple[str, Mapping[int, Handler]]
"""The family that requests belong to, and the handler of each code."""


class Figure(NamedTuple):
    """A figure for the page of metrics."""

    name: str
    text: str
    is_counter: bool = False
    labels: tuple[str, ...] = ()
    rows: Sequence[tuple[tuple[str, ...], float]] = ()
    """The values of its labels, and its own."""


class Feature:
    """A part of a broker. Every method is optional."""

    step = ""
    """How the log names its start. Empty: it logs nothing, or logs its steps itself."""

    def handlers(self) -> Iterable[Requests]:
        """The requests that it serves."""
        return ()

    def tasks(self) -> Iterable[Task]:
        """Its periodic work while the broker runs."""
        return ()

    def metrics(self) -> Iterable[Figure]:
        """What it shows on the page of metrics. Asked in the event loop, at each scrape."""
        return ()

    async def start(self) -> None:
        """Start. If it fails half way, it must clean up itself: `stop` is then not called."""

    async def stop(self) -> None:
        """Stop. Called once, even if stopping another feature failed."""
