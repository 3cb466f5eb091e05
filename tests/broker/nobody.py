"""A peer that only asks: nothing is sent to it, and it is asked for nothing."""

from __future__ import annotations

from flaremq.base.errors import ConnectionLost
from flaremq.protocol.command import Command


class Nobody:
    address, is_open = ("127.0.0.1", 1), True

    def send(self, command: Command) -> None: ...

    def close(self) -> None: ...

    async def call(self, request: Command, timeout_s: float) -> Command:
        raise ConnectionLost("nobody is there")
