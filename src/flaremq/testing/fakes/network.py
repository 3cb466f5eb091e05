"""A bad network between clients and a broker: late, cut off, and with lost answers, by a seed."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final, Self

HOST: Final = "127.0.0.2"
"""What the broker calls itself (brokerIP1); it listens at 127.0.0.1."""


class BadNetwork:
    """Passes on what both sides write. `rng` decides what goes wrong; None: nothing."""

    def __init__(self, port: int, rng: random.Random | None = None) -> None:
        self._port = port
        self.rng = rng
        self.loses_answers = False
        """Whether answers disappear, and connections stay."""
        self.cuts = 0
        """Connections that were cut."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cut all connections."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_broker = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, to_broker[1]}
        ways = (
            self._pass(reader, to_broker[1], answers=False),
            self._pass(to_broker[0], writer, answers=True),
        )
        tasks = [asyncio.create_task(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, to_broker[1]):
            each.transport.abort()
            self._open.discard(each)
        await asyncio.wait(tasks)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if answers and self.loses_answers:
                    continue
                if self.rng is not None:
                    fate = self.rng.random()
                    if fate < 0.05:  # Before it arrives, or with the answer.
                        self.cuts += 1
                        return
                    if fate < 0.3:
                        await asyncio.sleep(self.rng.uniform(0.0, 0.02))
                    elif fate < 0.4:  # A part arrives.
                        writer.write(data[: len(data) // 2])
                        await writer.drain()
                        if self.rng.random() < 0.5:
                            self.cuts += 1
                            return
                        data = data[len(data) // 2 :]
                writer.write(data)
                await writer.drain()
