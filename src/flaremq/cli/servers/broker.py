"""`flaremq broker`: a broker in the foreground, and a slave that becomes the master."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from flaremq.base import descriptors
from flaremq.cli.options import Yes
from flaremq.cli.servers.serve import ConfigFile, Print, Settings, print_settings, run
from flaremq.servers.config import load_broker
from flaremq.servers.groupbroker import broker_of

NamesrvAddr = Annotated[
    str | None,
    typer.Option("-n", "--namesrv", metavar="HOST:PORT", help="NameServer addresses: host:port;host:port."),
]
_OPTIONS: Final = (
    *("BrokerConfig", "NettyServerConfig", "NettyClientConfig", "MessageStoreConfig", "AuthConfig"),
)
"""Java's classes whose fields its broker prints."""

app = typer.Typer(invoke_without_command=True, add_completion=False, help="Run a broker.")


@app.callback()
def serve(
    context: typer.Context,
    config: ConfigFile = None,
    namesrv_addr: NamesrvAddr = None,
    option: Settings = None,
    show: Print = False,
    important: Annotated[
        bool, typer.Option("-m", "--important", help="Print the important settings and exit.")
    ] = False,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C."""
    if context.invoked_subcommand is not None:
        return
    descriptors.raise_limit()
    flags = [*(option or []), *([f"namesrvAddr={namesrv_addr}"] if namesrv_addr else [])]
    settings = load_broker(config, os.environ, flags)
    if show or important:
        print_settings(settings.sections, _OPTIONS, only_important=not show)
        return
    app, named = broker_of(settings), settings.broker
    with_namesrv = f" and name server is {named.namesrv}" if named.namesrv else ""
    run(
        app,
        lambda: (
            f"The broker[{named.broker_name}, {named.ip1}:{app.port}] boot success. "
            f"serializeType=JSON{with_namesrv}"
        ),
    )


@app.command("promote")
def promote(
    config: ConfigFile = None,
    namesrv_addr: NamesrvAddr = None,
    option: Settings = None,
    sync: Annotated[
        bool, typer.Option("--sync", help="Become a SYNC_MASTER, whose answers wait for a slave.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Make a slave that was stopped the master of its name, from its next start on.

    Run it where the slave runs, with the options that it is started with. It looks first whether the master
    is really gone, and says what may be lost: all that the slave had not copied yet.
    """
    flags = [*(option or []), *([f"namesrvAddr={namesrv_addr}"] if namesrv_addr else [])]
    from flaremq.cli.servers.promote import promote_slave  # A broker that serves does not load the admin.

    promote_slave(config, flags, sync=sync, yes=yes)
