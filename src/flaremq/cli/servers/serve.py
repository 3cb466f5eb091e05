"""Servers in the foreground: settings from file, environment and flags; SIGTERM, SIGINT and SIGHUP drain."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import typer

from flaremq.base import descriptors, logs
from flaremq.base.lifecycle import new_loop
from flaremq.base.options import IMPORTANT, options_of
from flaremq.base.settings import dump
from flaremq.base.sources import shown
from flaremq.cli.about import compiled
from flaremq.servers.config import NamesrvConfig

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="Properties file with RocketMQ's option names."),
]
Settings = Annotated[
    list[str] | None, typer.Option("-o", "--option", metavar="KEY=VALUE", help="Setting; repeatable.")
]
Print = Annotated[bool, typer.Option("-p", "--print", help="Print all settings and exit.")]

_NAMESRV_OPTIONS: Final = ("NamesrvConfig", "NettyServerConfig")
"""Java's classes whose fields its server prints."""
_SWITCH_S: Final = 0.0002
"""How long a thread may keep the interpreter's lock while the event loop waits for it. With Python's 5 ms a
flush or a dispatch thread can hold up every request of a turn for that long; with this it cannot."""


class App(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def namesrv_command(config: ConfigFile = None, option: Settings = None, show: Print = False) -> None:
    """Run a NameServer until SIGTERM or Ctrl-C."""
    descriptors.raise_limit()
    settings = NamesrvConfig.load(config, os.environ, option or [])
    if show:
        print_settings(settings.sections, _NAMESRV_OPTIONS)
        return
    app = settings.build()
    address = settings.server.bind_address
    run(app, lambda: f"The Name Server boot success. serializeType=JSON, address {address}:{app.port}")


def print_settings(
    sections: tuple[Any, ...], owners: tuple[str, ...], *, only_important: bool = False
) -> None:
    """Print all names that Java prints: ours with their values, the others as comments with Java's defaults.
    The output can be read back as a configuration file."""
    values = {name: value for section in sections for name, value in dump(section)}
    others = {each.name: each.default_5 for each in options_of(*owners) if each.name not in values}
    names = [name for name in (*values, *others) if not only_important or name in IMPORTANT]
    for name in names:
        if name in values:
            is_secret = shown(name, values[name]) != repr(values[name])
            typer.echo(f"{name}={'***' if is_secret else values[name]}")
    without_effect = [name for name in names if name in others]
    if without_effect:
        typer.echo("# Known to RocketMQ, without effect here (RocketMQ's default):")
    for name in without_effect:
        typer.echo(f"# {name}={others[name].replace('null', '')}")


def run(app: App, ready: Callable[[], str], level: str = "INFO") -> None:
    """Start, print that it is ready, serve until a signal, stop."""
    logs.configure(os.environ.get("FLAREMQ_LOG_LEVEL", level))
    found = compiled()
    logging.getLogger(logs.ROOT).log(logging.INFO if found.all_in_use else logging.WARNING, "%s", found)
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(app, ready))
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before_s)


async def _serve(app: App, ready: Callable[[], str]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _stopping_signals():
        loop.add_signal_handler(number, stop.set)
    await app.start()
    # What was made so far lives as long as the process: later collections need not visit it. A broker inside
    # another program must not do so: once it has stopped, its memory would never be given back.
    gc.collect()
    gc.freeze()
    try:
        typer.echo(ready())
        await stop.wait()
    finally:
        await app.stop()


def _stopping_signals() -> list[signal.Signals]:
    """A closed terminal sends SIGHUP. Under nohup it is ignored, and must stay so."""
    found = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found
