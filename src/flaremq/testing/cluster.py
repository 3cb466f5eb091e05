"""NameServers and brokers as processes of their own: started, killed and started again in their folders.

Ready is what a server calls ready: its line with "boot success", read from its pipe. Whatever still
runs when the cluster is left is killed, so a failing test leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

READY: Final = "boot success"
READY_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 60.0
PORTS: Final = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections, so that none of these takes a port meanwhile."""
SMALL: Final[Mapping[str, object]] = MappingProxyType(
    {
        "mappedFileSizeCommitLog": 16 << 20,
        "mappedFileSizeConsumeQueue": 20_000 * 20,
        "maxHashSlotNum": 10_000,
        "maxIndexNum": 40_000,
        "diskMaxUsedSpaceRatio": 95,
        "osPageCacheBusyTimeOutMills": 60_000,
        "waitTimeMillsInSendQueue": 30_000,
        "shutdownWaitTimeSeconds": 5,
    }
)
"""Many brokers on one machine need little room, and a slow machine is no reason to refuse a message."""
_LINES_SHOWN: Final = 40
_POLL_S: Final = 0.02


class ProcessFailed(Exception):
    """A server ended, or did not get ready in time; the message shows the last that it printed."""


class Process:
    """One server. Its output goes to a file beside its settings."""

    def __init__(self, what: str, name: str, port: int, folder: Path) -> None:
        self.what = what
        self.name = name
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self._ready = threading.Event()
        self._printed = folder / "printed"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flaremq.cli.main", what, "-c", str(folder / "conf.properties")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, name=f"printed-{name}", daemon=True)
        self._reader.start()

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def lines(self) -> list[str]:
        """All that it has printed, in all its lives."""
        return self._printed.read_text(errors="replace").splitlines()

    def wait_ready(self, limit_s: float = READY_LIMIT_S) -> Self:
        came = self._ready.wait(limit_s)
        if not came or self._process.poll() is not None:
            status = self._process.poll()
            self.kill()
            how = f"did not get ready within {limit_s} s" if status is None else f"ended with status {status}"
            raise ProcessFailed(f"{self.name} {how}, {self._last_words()}")
        return self

    def stop(self) -> int:
        """Ask it to end, as an operator would, and give its exit status."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailed(f"{self.name} ran on after SIGTERM, {self._last_words()}") from None
        self.kill()
        return self._process.returncode

    def kill(self) -> None:
        """End it at once (SIGKILL). Harmless when it has ended already."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _last_words(self) -> str:
        return "the last that it printed:\n" + "\n".join(self.lines[-_LINES_SHOWN:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._printed.open("ab", buffering=0) as copy:
            for line in self._process.stdout:
                copy.write(line)
                if READY in line.decode(errors="replace"):
                    self._ready.set()
        self._ready.set()  # Nothing more comes: whoever waits shall see that it ended.


class Cluster:
    """Servers in folders below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def namesrv(self, name: str = "namesrv", **options: object) -> Process:
        port = free_port()
        given = {"listenPort": port, "bindAddress": "127.0.0.1", **options}
        folder = self._new_folder(name)
        given.setdefault("kvConfigPath", folder / "kvConfig.json")
        properties_file(folder, given)
        return self.start("namesrv", name, port, folder)

    def broker(self, name: str = "broker-a", namesrv: str = "", **options: object) -> Process:
        """`namesrv` is one address or several, with semicolons between them."""
        port = free_port(neighbours=(-2, 1))
        folder = self._new_folder(name)
        given: dict[str, object] = {
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": folder / "store",
            **SMALL,
            **options,
        }
        if namesrv:
            given["namesrvAddr"] = namesrv
        properties_file(folder, given)
        return self.start("broker", name, port, folder)

    def again(self, ended: Process) -> Process:
        """A server that has ended, once more with the same settings, port and folder."""
        assert not ended.is_running
        return self.start(ended.what, ended.name, ended.port, ended.folder)

    def start(self, what: str, name: str, port: int, folder: Path) -> Process:
        """A server whose settings lie in its folder already. Started here, it ends with the cluster."""
        process = Process(what, name, port, folder)
        self._running.callback(process.kill)
        return process.wait_ready()

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True)
        return folder


def properties_file(folder: Path, options: Mapping[str, object]) -> Path:
    path = folder / "conf.properties"
    lines = [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}\n"
        for name, value in options.items()
    ]
    path.write_text("".join(lines))
    return path


def free_port(neighbours: tuple[int, ...] = ()) -> int:
    """A port that nobody listens at, and neither at those that lie so far from it."""
    for port in random.sample(PORTS, 200):
        try:
            with ExitStack() as sockets:
                for each in (port, *(port + step for step in neighbours)):
                    sockets.enter_context(socket.socket()).bind(("0.0.0.0", each))
        except OSError:
            continue
        return port
    raise ProcessFailed(f"no free ports between {PORTS.start} and {PORTS.stop}")


async def eventually(what: str, is_so: Callable[[], Awaitable[bool]], limit_s: float = 30.0) -> None:
    """Wait for something that only another process or thread can bring about, and that tells nobody."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while not await is_so():
        if loop.time() > deadline_s:
            raise TimeoutError(f"after {limit_s:g} s it is still not so: {what}")
        await asyncio.sleep(_POLL_S)
