"""The event loop that everything of ours runs in: uvloop's where there is one."""

import asyncio
from importlib import import_module


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        return import_module("uvloop").new_event_loop()  # type: ignore[no-any-return]
    except ImportError:  # There is none for this platform: asyncio's own loop does, more slowly.
        return asyncio.new_event_loop()
