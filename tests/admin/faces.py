"""The blocking admin with the face of the async one, so that one suite tests both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from flaremq.admin import sync


class Unblocked:
    """Each call blocks a thread of its own, while the loop of the test serves it."""

    def __init__(self, admin: sync.Admin) -> None:
        self.topics = _Part(admin.topics)
        self.groups = _Part(admin.groups)
        self.brokers = _Part(admin.brokers)
        self.messages = _Scanned(admin.messages)
        self.dead_letters = _Scanned(admin.dead_letters)
        self.transactions = _Part(admin.transactions)
        self.namesrvs = _Part(admin.namesrvs)
        self.health = _Part(admin.health)


class _Part:
    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._part, name)

        async def call(*args: object, **kwargs: object) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call


class _Scanned(_Part):
    async def scan(self, wanted: object) -> AsyncGenerator[Any, None]:
        found = self._part.scan(wanted)
        while (message := await asyncio.to_thread(next, found, None)) is not None:
            yield message
