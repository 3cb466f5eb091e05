"""`flaremq pipeline`: work for Spark, which is loaded only when a command needs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import typer

from flaremq.cli.pipelines import archive, recipe, stats, store

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


_add("archive", archive.archive)
_add("compact", archive.compact)
_add("replay", archive.replay)
_add("rebuild", store.rebuild)
_add("audit", store.audit)
_add("stats", stats.stats)
_add("run", recipe.run)
_add("plan", recipe.plan)
