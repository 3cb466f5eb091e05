"""A whole broker without ports: its lanes, fed with frames and read from, byte for byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.broker.nobody import Nobody

from flaremq.base.clock import Clock
from flaremq.base.errors import Malformed
from flaremq.broker.app import Broker
from flaremq.broker.composition import Composition
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.model.columns import Bytes
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode_many
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.remoting.gate import Gate
from flaremq.remoting.inlet import Inlet
from flaremq.remoting.router import Router
from flaremq.remoting.turn import Turn
from flaremq.testing.clock import ManualClock, settle
from flaremq.testing.fakes.builders import small_settings

PORT = 10911


class Line:
    """One connection, as the turn sees it; what is written to it can be read as commands."""

    def __init__(self, port: int = 5000, waited_ms: int = 0) -> None:
        self.inlet: Inlet | None = None
        self.host = bytes((10, 0, 0, 9)) + port.to_bytes(4, "big")
        self.address = ("10.0.0.9", port)
        self.is_open = True
        self.is_full = False
        self.waiting: list[Callable[[], None]] = []
        self.under_way = 0
        self.written = bytearray()
        self.writes = 0
        self.errors: list[Malformed] = []
        self.commands: list[Command] = []
        self._waited_ms = waited_ms

    def send_bytes(self, data: Bytes) -> None:
        self.written += data
        self.writes += 1

    def send_parts(self, parts: Sequence[Bytes]) -> None:
        self.send_bytes(b"".join(parts))

    def received(self, command: Command) -> None:
        self.commands.append(command)

    def broken(self, error: Malformed) -> None:
        self.errors.append(error)

    def when_writable(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def waited_ms(self) -> int:
        return self._waited_ms

    def begun(self) -> None:
        self.under_way += 1

    def ended(self) -> None:
        self.under_way -= 1

    def read_all(self) -> list[Command]:
        """All answers so far, which stay to be read."""
        return FrameDecoder().feed(bytes(self.written)) if self.written else []

    def read(self) -> list[Command]:
        """All answers since the last time."""
        written, self.written = bytes(self.written), bytearray()
        return FrameDecoder().feed(written) if written else []


def deliver(turn: Turn, line: Line, data: bytes) -> None:
    """As if it had come by the socket."""
    line.inlet = line.inlet or turn.inlet(line)
    turn.deliver(line, data)


class DeskBench:
    def __init__(self, broker: Broker, made: Composition, clock: Clock, gate: Gate | None = None) -> None:
        self.broker = broker
        self._clock = clock
        self.made = made
        self.store = broker.store
        self.tables = broker.tables
        self.sends = made.sends
        self.pulls = made.pulls
        self.acks = made.acks
        self.turn = Turn((self.sends, self.pulls, *made.lanes), gate=gate)

    @property
    def clock(self) -> ManualClock:
        """To move the time by hand."""
        assert isinstance(self._clock, ManualClock)
        return self._clock

    def router(self, lanes: frozenset[int] = frozenset()) -> Router:
        """To all requests but sends and pulls."""
        return self.made.families.router(self.made.served(), lanes)

    def deliver(self, line: Line, *commands: Command) -> None:
        """As if they had come by the socket, for the next turn."""
        deliver(self.turn, line, b"".join(encode_frame(command) for command in commands))

    async def run(self) -> None:
        """One turn of everything that was delivered, and what follows from it at once."""
        for _ in range(5):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while self.store.dispatcher.behind:  # A new queue gets its file in another thread.
                await asyncio.sleep(0)
        await settle()

    async def ask(self, *commands: Command, line: Line | None = None) -> list[Command]:
        line = line or Line()
        self.deliver(line, *commands)
        await self.run()
        return line.read()

    async def delete(self, topic: str) -> None:
        """Delete a topic, as an operator does."""
        request = Command(code=RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": topic})
        answer = await self.router().answer(Nobody(), request)
        assert answer is not None and answer.code == ResponseCode.SUCCESS

    def log(self) -> bytes:
        """All records, as they lie."""
        end = self.store.log.readable_end
        view = self.store.log.slice(0, end)
        return bytes(view) if view is not None else b""

    def messages(self) -> list[StoredMessage]:
        return list(decode_many(self.log()))


@asynccontextmanager
async def a_desk(
    folder: Path,
    *,
    broker: dict[str, Any] | None = None,
    families: dict[str, Any] | None = None,
    clock: Clock | None = None,
    gate: Gate | None = None,
    now_s: Callable[[], float] = time.perf_counter,
    **store: Any,
) -> AsyncIterator[DeskBench]:
    """`now_s` measures how long work takes: with a clock that stands, no slice of it ends before its work."""
    clock = clock or ManualClock()
    broker_made = Broker(
        BrokerConfig(
            broker=BrokerSettings(ip1="127.0.0.1", ip2="127.0.0.1", broker_name="broker-a", **(broker or {})),
            server=BrokerServerSettings(listen_port=PORT),
            store=small_settings(folder, **store),
            families=FamilySettings(**(families or {})),
        ),
        clock,
        now_s=now_s,
    )
    made = broker_made.compose()
    async with AsyncExitStack() as started:
        for feature in made.inner:
            await feature.start()
            started.push_async_callback(feature.stop)
        yield DeskBench(broker_made, made, clock, gate)
