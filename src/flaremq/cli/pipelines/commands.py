"""`flaremq pipeline`: work for Spark, which is loaded only when a command needs it."""

from __future__ import annotations

import typer

from flaremq.cli.pipelines import archives, figures, recipes, stores

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Archive, replay, rebuild, audit and measure, on Spark. Work is done on this machine unless "
    "--master says where else.",
)
app.command("archive")(archives.archive)
app.command("compact")(archives.compact)
app.command("replay")(archives.replay)
app.command("rebuild")(stores.rebuild)
app.command("audit")(stores.audit)
app.command("stats")(figures.stats)
app.command("run")(recipes.run)
app.command("plan")(recipes.plan)
