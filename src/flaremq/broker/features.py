"""The parts of which a broker is made.

A feature brings its own requests, periodic work and life. `broker.app` lists the features in the order in
which they start; they stop in the reverse order. To add one, give it a room of its own and what it needs in
its constructor, and put it in that list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from flaremq.broker.tasks import Task
from flaremq.remoting.router import Handler

Requests: TypeAlias = tuple[str, Mapping[int, Handler]]
"""The family that requests belong to, and the handler of each code."""


class Feature:
    """Every part is optional: whatever a feature does not define, it does not have."""

    step = ""
    """What the log calls its start. Empty: it is not worth a line, or has lines of its own."""

    def handlers(self) -> Iterable[Requests]:
        """The requests that it serves."""
        return ()

    def tasks(self) -> Iterable[Task]:
        """What it does periodically, while the broker runs."""
        return ()

    async def start(self) -> None:
        """Begin. What fails half way cleans up behind itself: `stop` is then not called."""

    async def stop(self) -> None:
        """End. Called once, whatever became of the features that stopped before."""
