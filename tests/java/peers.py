"""NameServers and brokers as processes of their own, Apache RocketMQ's and ours behind one interface.

A test that starts its servers here says only which kind it wants, so the same test runs against Apache's,
which shows that the test is right, and against ours. Ready is what a server calls ready: its line with
"boot success". 5.x prints it although its first registration may not have arrived, so a broker is handed
out once its NameServers know it.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self

from tests.java.jvm import QUICK, Machine, java_command
from tests.java.toolchain import Toolchain

from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import ClusterInfo
from flaremq.protocol.codes import RequestCode
from flaremq.remoting.ports import BROKER, free_port
from flaremq.testing.cluster import eventually, properties_file
from flaremq.testing.fakes.wireclient import WireClient
from flaremq.testing.patience import load_factor

READY = "boot success"
READY_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
LINES_SHOWN = 40
Options = Mapping[str, object]
NO_OPTIONS: Options = MappingProxyType({})
FOR_TESTS: Options = MappingProxyType(
    {
        "autoCreateTopicEnable": True,
        "enablePropertyFilter": True,
        "osPageCacheBusyTimeOutMills": 60_000,
        "waitTimeMillsInSendQueue": 30_000,
        "mappedFileSizeCommitLog": 64 << 20,
        "mappedFileSizeConsumeQueue": 20_000 * 20,
        "maxHashSlotNum": 100_000,
        "maxIndexNum": 400_000,
    }
)
"""A broker that many tests share needs little room, and a slow machine is no reason to refuse a message."""


class PeerFailed(Exception):
    """A server ended, or did not get ready in time; the message shows the last that it printed."""


class Kind(Protocol):
    """Whose servers, and the words to start them. All take a properties file with the same names."""

    name: str

    def namesrv(self, folder: Path, config: Path) -> list[str]: ...
    def broker(self, folder: Path, config: Path) -> list[str]: ...


class Apache:
    """Apache RocketMQ's own servers."""

    name = "apache"

    def __init__(self, toolchain: Toolchain, machine: Machine = QUICK, version: str = "5.3.3") -> None:
        self._toolchain = toolchain
        self._machine = machine
        self._version = version

    def namesrv(self, folder: Path, config: Path) -> list[str]:
        return self._start("org.apache.rocketmq.namesrv.NamesrvStartup", folder, config)

    def broker(self, folder: Path, config: Path) -> list[str]:
        return self._start("org.apache.rocketmq.broker.BrokerStartup", folder, config)

    def _start(self, main: str, folder: Path, config: Path) -> list[str]:
        # 4.x reads its log settings there: they lie among the classes of its module. Any folder does for 5.x.
        home, *_ = self._toolchain.class_paths[self._version].split(os.pathsep)
        machine = replace(self._machine, properties={**self._machine.properties, "rocketmq.home.dir": home})
        command = java_command(self._toolchain, self._version, main, machine, str(folder))
        return [*command, "-c", str(config)]


class Flare:
    """FlareMQ, from the environment that the tests run in."""

    name = "flaremq"

    def namesrv(self, folder: Path, config: Path) -> list[str]:
        return self._start("namesrv", config)

    def broker(self, folder: Path, config: Path) -> list[str]:
        return self._start("broker", config)

    @staticmethod
    def _start(what: str, config: Path) -> list[str]:
        return [str(Path(sys.executable).parent / "flaremq"), what, "-c", str(config)]


class Server:
    """A server process. Whatever it prints is kept in its folder."""

    def __init__(self, command: list[str], name: str, port: int, folder: Path) -> None:
        self.name = name
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self.begun_s = time.monotonic()
        self._told = threading.Event()
        self._is_ready = False
        self._printed = folder / "printed"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self, limit_s: float = READY_LIMIT_S) -> None:
        limit_s *= load_factor()  # Other work may leave a JVM little of the machine.
        came = self._told.wait(limit_s)
        if not came or not self._is_ready:
            self.kill()
            status = self._process.returncode
            how = f"ended with status {status}" if came else f"is not ready after {limit_s:g} s"
            raise PeerFailed(f"{self.name} {how}, {self.last_words()}")

    def stop(self) -> int:
        """Ask it to end, as an operator would, and give its exit status."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerFailed(
                f"{self.name} still ran {STOP_LIMIT_S} s after SIGTERM, {self.last_words()}"
            ) from None
        self.kill()
        return self._process.returncode

    def kill(self) -> None:
        """End it at once. Harmless when it has ended already."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def last_words(self) -> str:
        lines = self._printed.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        return "the last that it printed:\n" + "\n".join(lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._printed.open("ab", buffering=0) as copy:
            for line in self._process.stdout:
                copy.write(line)
                if READY in line.decode(errors="replace"):
                    self._is_ready = True
                    self._told.set()
        self._told.set()  # Nothing more comes: whoever waits shall see that it ended.


class Peers:
    """Starts servers in folders below one folder, and ends whatever still runs in the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def namesrv(self, kind: Kind, options: Options = NO_OPTIONS) -> Server:
        port = free_port()
        folder = self._new_folder(f"{kind.name}-namesrv")
        config = properties_file(folder, {"listenPort": port, **options})
        server = Server(kind.namesrv(folder, config), f"{kind.name} NameServer", port, folder)
        self._running.callback(server.kill)
        return self._wait(server)

    def broker(
        self, kind: Kind, namesrv: str, name: str = "broker-a", options: Options = FOR_TESTS
    ) -> Server:
        """`namesrv` is one address or several, with semicolons between them."""
        server = self._wait(self.launch_broker(kind, namesrv, name, options))
        with ThreadPoolExecutor(1) as beside:  # Whoever asks may run in a loop already.
            for address in filter(None, namesrv.split(";")):
                beside.submit(asyncio.run, _is_known(address, server)).result()
        return server

    def launch_broker(self, kind: Kind, namesrv: str, name: str, options: Options) -> Server:
        """A broker that may not be ready yet."""
        port = free_port(steps=BROKER)
        folder = self._new_folder(f"{kind.name}-{name}")
        given = {
            "brokerName": name,
            "brokerClusterName": "DefaultCluster",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "namesrvAddr": namesrv,
            "storePathRootDir": folder / "store",
            "storePathCommitLog": folder / "store" / "commitlog",
            "diskMaxUsedSpaceRatio": 95,
            **options,
        }
        server = Server(kind.broker(folder, properties_file(folder, given)), name, port, folder)
        self._running.callback(server.kill)
        return server

    def again(self, server: Server, kind: Kind) -> Server:
        """A broker that has ended, once more with the same settings and the same folder."""
        command = kind.broker(server.folder, server.folder / "conf.properties")
        new = Server(command, server.name, server.port, server.folder)
        self._running.callback(new.kill)
        return self._wait(new)

    @staticmethod
    def _wait(server: Server) -> Server:
        server.wait_ready()
        return server

    def _new_folder(self, name: str) -> Path:
        self._started += 1
        folder = self._folder / f"{self._started}-{name}"
        folder.mkdir()
        return folder


async def _is_known(namesrv: str, broker: Server) -> None:
    async with WireClient() as wire:

        async def known() -> bool:
            answer = await wire.ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
            assert answer.body is not None
            table = beans.decode(ClusterInfo, answer.body).broker_addr_table
            return broker.name in table and broker.address in table[broker.name].broker_addrs.values()

        await eventually(f"{namesrv} knows {broker.name}", known, READY_LIMIT_S)
