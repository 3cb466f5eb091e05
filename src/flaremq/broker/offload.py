"""A small thread pool for work that would block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from flaremq.broker.features import Feature

T = TypeVar("T")


class Offload(Feature):
    """Runs slow work in threads: searches by key and time, config files."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="flaremq-offload")

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def stop(self) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the work under way, then stop the threads."""
        self._threads.shutdown()
