"""NameServers and brokers as processes: started, killed and restarted in their folders.

A server is ready when it prints its line with "boot success". Processes that still run when the cluster is
left are killed, so a failing test leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from flaremq.remoting.ports import BROKER, free_port
from flaremq.servers.membership import member_settings
from flaremq.servers.processes import READY_LIMIT_S, Process, ProcessFailed, properties_file
from flaremq.testing.patience import load_factor

__all__ = ["SMALL", "Cluster", "Process", "ProcessFailed", "eventually", "properties_file"]

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
"""Small files for many brokers on one machine, and no refusals because the machine is slow."""
_POLL_S: Final = 0.02


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

    def broker(
        self, name: str = "broker-a", namesrv: str = "", *, descriptors: int | None = None, **options: object
    ) -> Process:
        """`namesrv` is one address or several, separated by semicolons; `descriptors` limits the open files
        of the process."""
        port = free_port(steps=BROKER)
        given = {"brokerName": name, "listenPort": port, **options}
        folder = self._broker_folder(name, namesrv, given)
        return self.start("broker", name, port, folder, descriptors=descriptors)

    def group(
        self,
        replicas: int,
        name: str = "broker-a",
        namesrv: str = "",
        *,
        options: Mapping[str, object] = MappingProxyType({}),
        each: Callable[[int], Mapping[str, object]] = lambda _number: {},
    ) -> list[Process]:
        """The members of a Raft group: `broker-a-n0`, `broker-a-n1` and so on. All serve when this
        returns. `each` has options of one member."""
        members = []
        for number, own in enumerate(member_settings(replicas, "127.0.0.1")):
            member, port = f"{name}-{own['dLegerSelfId']}", own["listenPort"]
            assert isinstance(port, int)
            folder = self._broker_folder(
                member, namesrv, {"brokerName": name, **options, **each(number), **own}
            )
            members.append(self._started("broker", member, port, folder))
        return [_ready(member) for member in members]

    def _broker_folder(self, name: str, namesrv: str, options: Mapping[str, object]) -> Path:
        folder = self._new_folder(name)
        given: dict[str, object] = {
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "storePathRootDir": folder / "store",
            **SMALL,
            **options,
        }
        if namesrv:
            given["namesrvAddr"] = namesrv
        properties_file(folder, given)
        return folder

    def again(self, ended: Process) -> Process:
        """Restart a server that has ended, with the same settings, port and folder."""
        assert not ended.is_running
        return self.start(ended.what, ended.name, ended.port, ended.folder)

    def start(
        self, what: str, name: str, port: int, folder: Path, *, descriptors: int | None = None
    ) -> Process:
        """Start a server whose settings are already in its folder. It ends with the cluster."""
        return _ready(self._started(what, name, port, folder, descriptors))

    def _started(
        self, what: str, name: str, port: int, folder: Path, descriptors: int | None = None
    ) -> Process:
        process = Process(what, name, port, folder, descriptors=descriptors)
        self._running.callback(process.kill)
        return process

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True)
        return folder


def _ready(process: Process) -> Process:
    return process.wait_ready(READY_LIMIT_S * load_factor())


async def eventually(what: str, is_so: Callable[[], Awaitable[bool]], limit_s: float = 30.0) -> None:
    """Wait for something in another process or thread that sends no notification.

    On a busy machine the limit is longer (`testing.patience`).
    """
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    while not await is_so():
        if loop.time() > begun_s + limit_s and loop.time() > begun_s + (limit := limit_s * load_factor()):
            raise TimeoutError(f"not within {limit:g} s: {what}")
        await asyncio.sleep(_POLL_S)
