"""The `flaremq` command. `commands` lists all commands, and explains how a module provides one.

Every failure is one line on stderr: an error of ours says what to do and ends with status 1, wrong usage with
2, Ctrl-C with 130. Anything else is a bug, and `--debug` shows where it happened.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
import traceback
from functools import cache, partial
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from flaremq.base.errors import FlareError, InvalidName, UsageError
from flaremq.cli.commands import ALIASES, COMMANDS, Row
from flaremq.cli.render import BadValue, worded_error
from flaremq.cli.tls import Ca, Cert, Enabled, Key, Tls
from flaremq.cli.words import HABITS, reword, suggest, worded

_ROWS: Final = {**COMMANDS, **ALIASES}
_INTERRUPTED: Final = 130
_MISUSED: Final = 2
_MISUSE: Final = (BadValue, InvalidName)
_DEBUG: Final = "FLAREMQ_DEBUG"


class Commands(TyperGroup):
    """The commands of the table. Listing them shows rows; calling one loads the command itself."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # For the listing, and to suggest a name for a wrong one.
        self.commands = {name: _listed(name, row) for name, row in _ROWS.items()}

    def get_params(self, ctx: Any) -> Any:
        return [worded(each) for each in super().get_params(ctx)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        suggest(ctx, args, self.commands, HABITS)
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and command else command, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            typer.echo(": ".join(("flaremq: interrupted", *map(str, stop.args))), err=True)
            raise typer.Exit(_INTERRUPTED) from None
        except FlareError as error:
            if _is_debug():
                traceback.print_exc()
            typer.echo(f"flaremq: {_one_line(worded_error(error), error)}", err=True)
            raise typer.Exit(_MISUSED if isinstance(error, _MISUSE) else 1) from None
        except Exception as error:
            if _is_for_typer(error):
                raise
            if _is_debug():
                traceback.print_exc()
            hint = "" if _is_debug() else f"; {_DEBUG}=1 shows where it happened"
            what = f"{type(error).__name__}: {_one_line(str(error), error)}"
            typer.echo(f"flaremq: this is a bug of FlareMQ, please report it: {what}{hint}", err=True)
            raise typer.Exit(1) from None


def load(name: str) -> Any:
    """The command behind a row of the table."""
    return _made(name, _ROWS[name])


@cache
def _made(name: str, row: Row) -> Any:
    """Made once, also for a program that calls it often: that takes longer than most commands work."""
    module_name, _, attribute = row.place.partition(":")
    is_enabled = gc.isenabled()
    gc.disable()  # What is loaded stays: looking for garbage in it takes a tenth of the time.
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise UsageError(f"{name} is not part of this installation") from None
    finally:
        if is_enabled:
            gc.enable()
    found = getattr(module, attribute or ("app" if hasattr(module, "app") else "command"))
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name, help=None if found.__doc__ else row.help)(found)
        found = app
    command = reword(get_command(found))
    command.name = name
    return command


def _listed(name: str, row: Row) -> TyperCommand:
    return TyperCommand(name, help=row.help, hidden=row.hidden, rich_help_panel=row.panel)


def _is_for_typer(error: Exception) -> bool:
    """Whether typer handles it: exits, usage errors, and a closed output pipe."""
    return (
        hasattr(error, "exit_code")
        or isinstance(error, typer.Abort)
        or (isinstance(error, OSError) and error.errno == errno.EPIPE)
    )


def _is_debug() -> bool:
    return os.environ.get(_DEBUG, "") not in ("", "0", "false")


def _one_line(text: str, error: BaseException) -> str:
    return " ".join(text.split()) or type(error).__name__


app = typer.Typer(
    name="flaremq",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import_module("flaremq.cli.about").command()
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    show_version: Annotated[  # noqa: ARG001 - Its callback does the work.
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Print a traceback with errors; the same as {_DEBUG}=1.")
    ] = False,
    tls: Enabled = None,
    tls_ca: Ca = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
) -> None:
    """A RocketMQ-compatible messaging system."""
    if debug:
        os.environ[_DEBUG] = "1"
    said = Tls(tls, tls_ca, tls_cert, tls_key)
    if said != Tls():
        ctx.call_on_close(partial(_restore, dict(os.environ)))
        said.say(over=True)


def _restore(environ: dict[str, str]) -> None:
    """For programs that call several commands in one process."""
    os.environ.clear()
    os.environ.update(environ)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Do not fail if the terminal cannot show a character.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    app(prog_name="flaremq")


if __name__ == "__main__":
    main()
