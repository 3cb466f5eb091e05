"""A NameServer and brokers inside the process of a test: real ones, with real sockets and files.

    async with Embedded(tmp_path) as servers:
        client = Client(servers.namesrv)

    with EmbeddedThread(tmp_path, brokers=2) as servers:  # For tests that block.
        producer = Producer(servers.namesrv)

They start in a fraction of a second, and leave their files, so that another `Embedded` in the same folder
finds everything again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from flaremq.remoting.ports import BROKER, free_port
from flaremq.servers.config import NamesrvConfig, flags, load_broker
from flaremq.servers.together import Broker, Together
from flaremq.testing.clock import MovableClock
from flaremq.testing.cluster import SMALL

T = TypeVar("T")

_HOST: Final = "127.0.0.1"
_STOP_LIMIT_S: Final = 60.0
_OFTEN: Final = {"cleanResourceInterval": 200}  # Its thread sleeps by the system's clock, not the test's.


class Embedded:
    """A NameServer and brokers in this process and loop, on free ports of 127.0.0.1.

    Brokers are broker-a, broker-b and so on, all in one cluster. `options` are RocketMQ's, for
    each broker; they take precedence over ours, which keep files small and waits short. Environment
    variables are ignored, so a test is the same on every machine. Brokers use `clock`, if given; the
    NameServer, sockets and clients use the system's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        options: Mapping[str, object] | None = None,
        clock: MovableClock | None = None,
    ) -> None:
        assert 0 <= brokers <= 26, brokers
        self._clock = clock
        self._folder = folder
        self._options = dict(options or {})
        self._names = [f"broker-{chr(ord('a') + n)}" for n in range(brokers)]
        self._ports: dict[str, int] = {}
        self._running: dict[str, Broker] = {}
        self._together: Together | None = None

    @property
    def namesrv(self) -> str:
        """host:port"""
        assert self._together is not None, "not entered yet"
        return self._together.namesrv

    @property
    def brokers(self) -> list[Broker]:
        """The running brokers, sorted by name."""
        return [self._running[name] for name in self._names if name in self._running]

    @property
    def addresses(self) -> list[str]:
        """host:port of each running broker."""
        return [f"{_HOST}:{broker.port}" for broker in self.brokers]

    def store(self, name: str = "broker-a") -> Path:
        return self._folder / name

    async def __aenter__(self) -> Self:
        own = self._folder / "namesrv"
        given = {
            "listenPort": 0,
            "bindAddress": _HOST,
            "kvConfigPath": own / "kvConfig.json",
            "configStorePath": own / "namesrv.properties",
            "shutdownWaitTimeSeconds": 2,
        }
        self._together = Together(
            NamesrvConfig.load(None, {}, flags(given)),
            _HOST,
            clock=self._clock,
            sleep=self._clock.sleep if self._clock is not None else asyncio.sleep,
        )
        await self._together.start()
        try:
            for name in self._names:
                await self.start(name)
        except BaseException:
            await self._together.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._together is not None
        self._running.clear()
        await self._together.stop()

    async def start(self, name: str) -> Broker:
        """Start a broker; one that was stopped gets its old port and folder."""
        assert self._together is not None and name not in self._running
        port = self._ports.setdefault(name, free_port(steps=BROKER))
        broker = await self._together.add(load_broker(None, {}, flags(self._given(name, port))))
        self._running[name] = broker
        if name not in self._names:
            self._names.append(name)
        return broker

    async def stop(self, name: str) -> None:
        """Stop one broker, as an operator would; the others keep running."""
        assert self._together is not None
        await self._together.remove(self._running.pop(name))

    def _given(self, name: str, port: int) -> dict[str, object]:
        return {
            "brokerName": name,
            "brokerIP1": _HOST,
            "brokerIP2": _HOST,
            "bindAddress": _HOST,
            "listenPort": port,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": self.store(name),
            **SMALL,
            "shutdownWaitTimeSeconds": 2,
            **(_OFTEN if self._clock is not None else {}),
            **self._options,
        }


class EmbeddedThread:
    """The same in a thread with its own event loop."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        options: Mapping[str, object] | None = None,
        clock: MovableClock | None = None,
    ) -> None:
        self._servers = Embedded(folder, brokers=brokers, options=options, clock=clock)
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="embedded", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    @property
    def namesrv(self) -> str:
        return self._servers.namesrv

    @property
    def brokers(self) -> list[Broker]:
        """For inspection; anything else must be done in their own loop, with `run`."""
        return self._servers.brokers

    @property
    def addresses(self) -> list[str]:
        return self._servers.addresses

    def store(self, name: str = "broker-a") -> Path:
        return self._servers.store(name)

    def start(self, name: str) -> Broker:
        return self.run(self._servers.start(name))

    def stop(self, name: str) -> None:
        self.run(self._servers.stop(name))

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop of the servers and wait for its result."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(_STOP_LIMIT_S)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_LIMIT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the servers still run {_STOP_LIMIT_S:g} s after the request to stop")

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._servers.__aenter__()
        except BaseException as error:  # noqa: BLE001 - Raised in the thread that entered.
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        try:
            await self._stop.wait()
        finally:
            await self._servers.__aexit__()
