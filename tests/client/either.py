"""One suite for async and blocking clients: a blocking one, seen as if it were async."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Self


class Either:
    """Calls of either kind, all awaited. A blocking call runs in a thread, as in a program that blocks."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            if inspect.iscoroutinefunction(found):
                return await found(*args, **kwargs)
            return await asyncio.to_thread(found, *args, **kwargs)

        return call

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
