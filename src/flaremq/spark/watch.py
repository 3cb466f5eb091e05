"""Waiting for more: a pull that its broker holds for each queue, until there is something new in any.

A pull that is held costs nothing, and is answered within milliseconds of a message's arrival. Each queue
has at most one, kept from one wait to the next. With very many queues, or where brokers hold no pulls,
the heads are looked at every tenth of a second instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.client.client import Client
from flaremq.model.queuekey import queue_of
from flaremq.spark.peeks import await_more

log = logging.getLogger(__name__)

_QUEUES_MAX: Final = 256
_LOOK_S: Final = 0.1
_HOLD_S: Final = 10.0


class Watch:
    """Lives in the loop of its client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held: dict[str, tuple[int, asyncio.Task[bool]]] = {}

    async def wait(self, ends: Mapping[str, int], limit_s: float) -> None:
        """Until a queue may go beyond its end, or the time is over."""
        if len(ends) > _QUEUES_MAX or not ends:
            await asyncio.sleep(min(limit_s, _LOOK_S))
            return
        for key in [key for key, (offset, _) in self._held.items() if ends.get(key) != offset]:
            self._held.pop(key)[1].cancel()
        for key, offset in ends.items():
            if key not in self._held:
                self._held[key] = offset, asyncio.create_task(self._more(key, offset), name=f"watch-{key}")
        tasks = [task for _, task in self._held.values()]
        done, _ = await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        self._held = {key: each for key, each in self._held.items() if each[1] not in done}
        if done and not any(task.result() for task in done):
            # A broker that holds no pulls, or cannot be asked: look again, but not at once.
            await asyncio.sleep(min(limit_s, _LOOK_S))

    async def _more(self, key: str, offset: int) -> bool:
        """Whether the broker says that there is more."""
        try:
            return await await_more(self._client, queue_of(key), offset, _HOLD_S)
        except FlareError as error:
            log.debug("%s cannot be watched now: %s", key, error)
            return False

    async def close(self) -> None:
        for _, task in self._held.values():
            task.cancel()
        if self._held:
            await asyncio.wait([task for _, task in self._held.values()])
        self._held.clear()
