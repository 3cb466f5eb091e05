"""Servers in the foreground: settings from file, environment and flags; SIGTERM and SIGINT drain."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

import typer

from flaremq.base import logs
from flaremq.base.options import IMPORTANT
from flaremq.base.settings import Sources, dump, load
from flaremq.broker.app import Broker, BrokerConfig
from flaremq.broker.settings import BrokerServerSettings, BrokerSettings, FamilySettings
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvServerSettings, NamesrvSettings
from flaremq.remoting.settings import CallerSettings
from flaremq.remoting.tls import TlsSettings
from flaremq.store.settings import StoreSettings

_BROKER_SECTIONS: Final = (
    BrokerSettings, BrokerServerSettings, CallerSettings, StoreSettings, FamilySettings, TlsSettings
)  # fmt: skip


class Show(Enum):
    """What is printed instead of serving."""

    NOTHING = "nothing"
    ALL = "all"
    IMPORTANT = "important"


class App(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def namesrv(config: Path | None, options: Sequence[str], show: bool) -> None:
    """Run a NameServer until it is told to stop."""
    settings, server = load(Sources.of(config, os.environ, options), NamesrvSettings, NamesrvServerSettings)
    if show:
        for section in (settings, server):
            for name, value in dump(section):
                typer.echo(f"{name}={value}")
        return
    app = NameServer(settings, server)
    run(
        app,
        lambda: f"The Name Server boot success. serializeType=JSON, address {server.bind_address}:{app.port}",
    )


def broker(config: Path | None, namesrv_addr: str | None, options: Sequence[str], show: Show) -> None:
    """Run a broker until it is told to stop."""
    flags = [*options, *([f"namesrvAddr={namesrv_addr}"] if namesrv_addr else [])]
    sections = load(Sources.of(config, os.environ, flags), *_BROKER_SECTIONS)
    settings, server, caller, store, families, tls = sections
    if show is not Show.NOTHING:
        for section in sections:
            for name, value in dump(section):
                if show is Show.ALL or name in IMPORTANT:
                    typer.echo(f"{name}={value}")
        return
    app = Broker(
        BrokerConfig(broker=settings, server=server, caller=caller, store=store, families=families, tls=tls)
    )
    with_namesrv = f" and name server is {settings.namesrv}" if settings.namesrv else ""
    run(
        app,
        lambda: (
            f"The broker[{settings.broker_name}, {settings.ip1}:{app.port}] boot success. "
            f"serializeType=JSON{with_namesrv}"
        ),
    )


def run(app: App, ready: Callable[[], str]) -> None:
    """Start, say that all is well in one line, serve until a signal, stop."""
    logs.configure(os.environ.get("FLAREMQ_LOG_LEVEL", "INFO"))
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(app, ready))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        return import_module("uvloop").new_event_loop()  # type: ignore[no-any-return]
    except ImportError:  # There is none for this platform: asyncio's own loop does, more slowly.
        return asyncio.new_event_loop()


async def _serve(app: App, ready: Callable[[], str]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await app.start()
    try:
        typer.echo(ready())
        await stop.wait()
    finally:
        await app.stop()
