"""Shell completion of topic and group names.

The user is waiting at the prompt, so the cluster has one second to answer. If anything fails, nothing is
offered and nothing is printed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import typer

_LIMIT_S: Final = 1.0


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    async def ask(admin: Any) -> list[str]:
        return [each.name for each in await admin.topics.list() if each.kind.value == "normal"]

    return _asked(ctx, incomplete, ask)


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    async def ask(admin: Any) -> list[str]:
        return [each.name for each in await admin.groups.list() if not each.is_system]

    return _asked(ctx, incomplete, ask)


def _asked(ctx: typer.Context, incomplete: str, ask: Callable[[Any], Awaitable[list[str]]]) -> list[str]:
    try:
        # Imported here, so that only completion pays for it.
        from flaremq.admin.admin import Admin
        from flaremq.cli.connect import client_settings

        settings = client_settings(ctx.params.get("namesrv"), ctx.params.get("profile"))

        async def within_limit() -> list[str]:
            async with asyncio.timeout(_LIMIT_S), Admin(settings=settings) as admin:
                return await ask(admin)

        return [name for name in asyncio.run(within_limit()) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - Nothing may be printed at a prompt.
        return []
