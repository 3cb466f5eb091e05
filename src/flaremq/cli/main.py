"""The `flaremq` command. A subcommand is loaded when it is called, so none pays for another's imports."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from flaremq.base.errors import FlareError

app = typer.Typer(
    name="flaremq",
    help="A RocketMQ-compatible messaging system.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", help="Properties file with RocketMQ's names.")
]
Settings = Annotated[list[str] | None, typer.Option("-o", "--option", help="One setting, as key=value.")]
Print = Annotated[bool, typer.Option("-p", "--print", help="Print all settings and exit.")]


@app.callback()
def root() -> None:
    """A RocketMQ-compatible messaging system."""


@app.command()
def namesrv(config: ConfigFile = None, option: Settings = None, show: Print = False) -> None:
    """Run a NameServer."""
    import_module("flaremq.cli.serve").namesrv(config, option or [], show)


@app.command()
def broker(
    config: ConfigFile = None,
    namesrv_addr: Annotated[
        str | None, typer.Option("-n", "--namesrv", help="NameServers, as host:port;host:port.")
    ] = None,
    option: Settings = None,
    show: Print = False,
    important: Annotated[
        bool, typer.Option("-m", "--important", help="Print the important settings and exit.")
    ] = False,
) -> None:
    """Run a broker."""
    serve = import_module("flaremq.cli.serve")
    wanted = serve.Show.ALL if show else serve.Show.IMPORTANT if important else serve.Show.NOTHING
    serve.broker(config, namesrv_addr, option or [], wanted)


def main() -> None:
    """Errors of ours are one line, with what to do; anything else is a bug and shows where."""
    try:
        app()
    except FlareError as error:
        typer.echo(f"flaremq: {error}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
