"""`flaremq pipeline`: commands that run on Spark, which is loaded only when a command needs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import typer

from flaremq.cli.pipelines import archive, recipe, stats, store

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Archive, replay, rebuild, audit and measure with Spark, on this machine unless --master names a "
    "cluster.",
)


def _add(name: str, command: Callable[..., None]) -> None:
    """Lines of the docstring are joined: the terminal wraps them at its width."""
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
