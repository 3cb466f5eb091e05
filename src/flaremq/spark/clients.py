"""Cluster clients: one client with one loop thread for each NameServer, kept as long as the process.

Spark reuses its Python workers, so connections made for one task serve the next. A fork has no loop
thread, and makes its own clients.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from flaremq.client.blocking import LoopThread
from flaremq.client.client import Client

R = TypeVar("R")

_links: Final[dict[tuple[str, int], ClusterClient]] = {}
_left_to_the_parent: Final[list[ClusterClient]] = []
"""Clients inherited by a fork: kept, because collecting them would close what the parent still uses."""
_making = threading.Lock()


class ClusterClient:
    """A client with the thread in which its event loop runs."""

    def __init__(self, name_server: str) -> None:
        self.portal = LoopThread(f"rocketmq-{name_server}")
        self.client = self.portal.run(_started(name_server))
        self.told: dict[tuple[str, str], int] = {}
        """By group and queue, the offsets committed last."""

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the client's loop, and wait for its result."""
        return self.portal.run(work)

    def close(self) -> None:
        self.portal.run(self.client.stop())
        self.portal.close()


async def _started(name_server: str) -> Client:
    client = Client(name_server)
    await client.start()
    return client


def cluster_client(name_server: str) -> ClusterClient:
    """This process's client of a cluster, made on first use."""
    key = name_server, os.getpid()
    with _making:
        found = _links.get(key)
        if found is None:
            found = _links[key] = ClusterClient(name_server)
        return found


def close_links() -> None:
    """Close all clients of this process."""
    with _making:
        mine = [key for key in _links if key[1] == os.getpid()]
        closing = [_links.pop(key) for key in mine]
    for each in closing:
        each.close()


def _after_fork() -> None:
    global _making
    _making = threading.Lock()  # The thread that held it, if any, does not exist here.
    _left_to_the_parent.extend(_links.values())
    _links.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
