"""`flaremq up`: a NameServer and a broker in one process, for a laptop.

All data is in one folder: `store` is the broker's, `namesrv` the NameServer's, and `up.conf` holds settings
that were chosen when the folder was new. They stay, because the sizes of files with data must not change; the
user may add others.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from flaremq.base import descriptors
from flaremq.base.errors import ConfigError, StoreLocked
from flaremq.base.lifecycle import Owned
from flaremq.base.propertiesfile import parse_properties
from flaremq.base.units import MiB
from flaremq.broker.settings import local_address
from flaremq.cli.about import compiled
from flaremq.cli.profiles import USUAL
from flaremq.cli.render import BadValue, dumps, note
from flaremq.cli.servers.members import REPLICAS_MAX, start_members, stop_members, watch_members
from flaremq.cli.servers.serve import run
from flaremq.model import layout
from flaremq.remoting.ports import BROKER, are_free, free_port
from flaremq.servers.config import NamesrvConfig, flags, load_broker
from flaremq.servers.processes import Process
from flaremq.servers.together import Broker, Together
from flaremq.store.files.lock import holder
from flaremq.store.offline.folder import file_sizes

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
_ANY: Final = ("0.0.0.0", "::")
_DISK_FULL: Final = 0.9  # Above this a broker accepts no messages.
_INDEX_SLOTS: Final = 100_000
_NEW: Final[Mapping[str, object]] = {
    "mappedFileSizeCommitLog": 32 * MiB,
    "mappedFileSizeConsumeQueue": 50_000 * layout.ENTRY_SIZE,
    "maxHashSlotNum": _INDEX_SLOTS,
    "maxIndexNum": 4 * _INDEX_SLOTS,
}
_OURS: Final[Mapping[str, object]] = {
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "diskMaxUsedSpaceRatio": 85,  # Laptops have full disks: delete nothing before it is necessary.
    "shutdownWaitTimeSeconds": 3,
}
_TLS: Final = ("tls.server.", "tls.test.", "tls.config.")
_TLS_VARIABLES: Final = ("FLAREMQ_TLS_SERVER_", "FLAREMQ_TLS_TEST_", "FLAREMQ_TLS_CONFIG_")
_INSTEAD: Final = {
    "listenPort": "--broker-port",
    "bindAddress": "--host",
    "namesrvAddr": "--port",
    "storePathRootDir": "--data",
}


@dataclass(frozen=True, slots=True)
class UpPlan:
    """The servers to run, and where."""

    host: str
    namesrv_port: int
    broker_port: int
    data: Path
    options: Sequence[str] = ()
    replicas: int = 1
    """Members of a Raft group, each a process of its own, if there are several."""

    @property
    def advertised(self) -> str:
        """The address that clients should connect to."""
        return local_address() if self.host in _ANY else self.host


class Up:
    """Both servers. Each step of a start is undone if a later one fails."""

    def __init__(self, plan: UpPlan) -> None:
        self._plan = plan
        given = {
            "listenPort": plan.namesrv_port,
            "bindAddress": plan.host,
            "kvConfigPath": plan.data / "namesrv" / "kvConfig.json",
            "configStorePath": plan.data / "namesrv" / "namesrv.properties",
            "shutdownWaitTimeSeconds": 3,
        }
        # Both use the same TLS settings, or the broker could not register.
        tls = [option for option in plan.options if option.startswith(_TLS)]
        environ = {name: value for name, value in os.environ.items() if name.startswith(_TLS_VARIABLES)}
        settings = NamesrvConfig.load(None, environ, [*flags(given), *tls])
        self._together = Together(settings, plan.advertised)
        self._broker: Broker | None = None
        self.members: Sequence[Process] = ()
        self._tasks = Owned()

    @property
    def namesrv(self) -> str:
        return self._together.namesrv

    @property
    def brokers(self) -> list[str]:
        """host:port of each."""
        host = self._plan.advertised
        host = f"[{host}]" if ":" in host else host
        ports = [each.port for each in self.members] if self._broker is None else [self._broker.port]
        return [f"{host}:{port}" for port in ports]

    async def start(self) -> None:
        plan = self._plan
        config = _prepare(plan.data)
        await self._together.start()
        given = {
            **_OURS,
            "brokerIP1": plan.advertised,
            "brokerIP2": plan.advertised,
            "bindAddress": plan.host,
            "listenPort": plan.broker_port,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": plan.data / "store",
        }
        try:
            if plan.replicas > 1:
                usual = {**parse_properties(config.read_text()), **given}
                where = plan.data, plan.advertised, plan.replicas
                self.members = await asyncio.to_thread(start_members, usual, *where, plan.options)
                self._tasks.spawn("watch-members", watch_members(self.members))
                return
            settings = load_broker(config, os.environ, [*flags(given), *plan.options])
            self._broker = await self._together.add(settings)
        except StoreLocked as error:
            await self._together.stop()
            raise _in_use(plan.data, str(error)) from None
        except BaseException:
            await self._together.stop()
            raise

    async def stop(self) -> None:
        await self._tasks.aclose(timeout_s=5)
        await asyncio.to_thread(stop_members, self.members)
        await self._together.stop()


def _in_use(data: Path, who: str) -> StoreLocked:
    return StoreLocked(
        f"{data} is already in use ({who}): use that one, stop it, or choose another folder with --data"
    )


def _prepare(data: Path) -> Path:
    """Prepare the folder and its settings. File sizes that are not set are taken from existing files."""
    config = data / "up.conf"
    try:
        data.mkdir(parents=True, exist_ok=True)
        if not config.exists():
            is_new = not (data / "store" / "commitlog").is_dir()
            chosen = _NEW if is_new else file_sizes(data / "store")
            lines = [
                "# Settings of the broker that `flaremq up` runs here, with RocketMQ's names.",
                "# These sizes were chosen when the folder was new and may not change while it holds data.",
                *flags(chosen),
            ]
            config.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise ConfigError(
            f"{data} cannot be used: {error.strerror or error}; choose another folder with --data"
        ) from error
    return config


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "flaremq"


# Ports.


def choose_port(host: str, asked: int | None, usual: int, steps: Sequence[int]) -> int:
    """The requested port, or the usual one, or any that is free together with its neighbours."""
    port = usual if asked is None else asked
    if port and are_free(host, [port + step for step in steps]):
        return port
    if asked:
        taken = next(port + step for step in steps if not are_free(host, [port + step]))
        flag = "--port" if len(steps) == 1 else "--broker-port"
        also = "" if taken == port else f", which a broker at {port} needs,"
        raise ConfigError(
            f"{flag} {asked}: port {taken}{also} is taken: choose another port, or leave the option out"
        )
    return free_port(host, steps)


def _check_host(host: str) -> None:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
    except OSError as error:
        raise BadValue(
            f"--host {host}: {error.strerror or error}; expected an address of this machine"
        ) from None


# Output.


def _panel(up: Up, plan: UpPlan) -> str:
    where = "" if up.namesrv == USUAL else f" -n {up.namesrv}"
    rows = [
        ("NameServer", up.namesrv),
        *_broker_rows(up),
        ("Data", str(plan.data)),
        ("", ""),
        ("Send", f"flaremq send{where} TopicTest 'Hello FlareMQ'"),
        ("Tail", f"flaremq tail{where} TopicTest"),
        *([("Group", f"flaremq cluster group{where}")] if up.members else []),
        ("", ""),
        ("Stop", "Ctrl-C"),
        ("", ""),
        ("", str(compiled())),
    ]
    lines = [f"{name:<10}  {value}".rstrip() for name, value in rows]
    width = max(map(len, lines))
    title = " FlareMQ is up "
    top = f"╭─{title}{'─' * (width + 1 - len(title))}╮"
    body = [f"│ {line:<{width}} │" for line in lines]
    return "\n".join([top, *body, f"╰{'─' * (width + 2)}╯"])


def _broker_rows(up: Up) -> list[tuple[str, str]]:
    if not up.members:
        return [("Broker", up.brokers[0])]
    return [
        ("Member" if not number else "", f"{member.name} at {address}, process {member.pid}")
        for number, (member, address) in enumerate(zip(up.members, up.brokers, strict=True))
    ]


def _json_line(up: Up, plan: UpPlan) -> str:
    said: dict[str, object] = {"namesrv": up.namesrv, "broker": up.brokers[0]}
    if up.members:
        said["members"] = [
            {"member": member.name, "broker": address, "pid": member.pid}
            for member, address in zip(up.members, up.brokers, strict=True)
        ]
    return dumps({**said, "data": str(plan.data), "pid": os.getpid()})


def _check_options(options: Sequence[str]) -> None:
    for option in options:
        name = option.partition("=")[0].strip()
        if name in _INSTEAD:
            raise BadValue(f"-o {option}: use {_INSTEAD[name]} instead")


def _warn_of_full_disk(data: Path) -> None:
    with suppress(OSError):
        usage = shutil.disk_usage(next(each for each in (data, *data.parents) if each.exists()))
        size = usage.used + usage.free  # 0 if the file system reports no size: /proc, some FUSE.
        used = usage.used / size if size else 0.0
        if used >= _DISK_FULL:
            note(
                f"the disk of {data} is {used:.0%} full; above {_DISK_FULL:.0%} brokers accept no messages: "
                "free some space, or choose a folder on another disk with --data"
            )


def _plan(
    host: str, port: int | None, broker_port: int | None, folder: Path, options: Sequence[str], replicas: int
) -> UpPlan:
    """With ports that are free. Says so if they are not the usual ones."""
    plan = UpPlan(
        host,
        choose_port(host, port, NAMESRV_PORT, (0,)),
        choose_port(host, broker_port, BROKER_PORT, BROKER),
        folder,
        options,
        replicas,
    )
    for server, asked, usual, got in (
        ("NameServer", port, NAMESRV_PORT, plan.namesrv_port),
        ("broker", broker_port, BROKER_PORT, plan.broker_port),
    ):
        if asked is None and got != usual and not (server == "broker" and replicas > 1):
            note(f"port {usual} is taken; the {server} uses port {got}")
    return plan


def command(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="Data folder (default ~/.local/share/flaremq)."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65535,
            help="NameServer port (default 9876, or a free port if taken).",
        ),
    ] = None,
    broker_port: Annotated[
        int | None,
        typer.Option(
            "--broker-port",
            metavar="PORT",
            min=0,
            max=65534,
            help="Broker port (default 10911, or a free port if taken).",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", metavar="KEY=VALUE", help="Broker setting; repeatable."),
    ] = None,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            metavar="COUNT",
            min=1,
            max=REPLICAS_MAX,
            help="Run a Raft group of this many brokers, each in its own process: 3 survive the loss of one.",
        ),
    ] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when ready.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the log.")] = False,
) -> None:
    """Run a NameServer and a broker in one process, until Ctrl-C.

    For development: there is nothing else to install or configure. Messages are kept between runs.
    """
    descriptors.raise_limit()
    options = option or []
    _check_options(options)
    _check_host(host)
    folder = (data or data_folder()).expanduser().absolute()
    owner = holder(folder / "store")
    if owner is not None:  # Checked first, before any message about ports.
        raise _in_use(folder, f"process {owner}" if owner else "another process")
    plan = _plan(host, port, broker_port, folder, options, replicas)
    _warn_of_full_disk(folder)
    up = Up(plan)
    ready = _json_line if json else _panel
    run(up, lambda: ready(up, plan), "INFO" if verbose else "WARNING")
