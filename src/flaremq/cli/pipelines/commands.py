"""`flaremq pipeline`: work for Spark, which is loaded only when a command needs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import typer

from flaremq.cli.pipelines import archives, figures, recipes, stores

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Archive, replay, rebuild, audit and measure, on Spark. Work is done on this machine unless "
    "--master says where else.",
)


def _add(name: str, command: Callable[..., None]) -> None:
    """Its docstring has lines as long as the code's; a narrow terminal makes lines of its own."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    app.command(name, help="\n\n".join(" ".join(each.split()) for each in paragraphs))(command)


_add("archive", archives.archive)
_add("compact", archives.compact)
_add("replay", archives.replay)
_add("rebuild", stores.rebuild)
_add("audit", stores.audit)
_add("stats", figures.stats)
_add("run", recipes.run)
_add("plan", recipes.plan)
