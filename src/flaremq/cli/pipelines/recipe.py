"""`run` and `plan`: pipelines that users write in YAML."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flaremq.cli.options import Json
from flaremq.cli.pipelines.spark import (
    Conf,
    Master,
    PythonEnv,
    Ship,
    Ui,
    Where,
    check_installed,
    spark_for,
)
from flaremq.cli.render import Output, note

if TYPE_CHECKING:
    from flaremq.spark.pipelines.recipe.progress import SinkProgress

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="Pipeline file: sources, steps and sinks.")]


def plan(file: File) -> None:
    """Show what a pipeline would do, without starting Spark. Mistakes are reported with their line."""
    check_installed()
    from flaremq.spark.pipelines.recipe.describe import describe_recipe
    from flaremq.spark.pipelines.recipe.load import load_recipe

    typer.echo(describe_recipe(load_recipe(file)))


def run(
    file: File,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show each finished batch: rows, rows per second, lag, duration.")
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    ui: Ui = False,
    ship: Ship = False,
    python_env: PythonEnv = None,
    json: Json = False,
) -> None:
    """Run a pipeline from a YAML file: sources, steps in SQL or Python, and sinks.

    The file is checked before Spark starts. A stream runs until Ctrl-C, unless its trigger ends it.
    """
    check_installed()
    from flaremq.spark.pipelines.recipe.load import load_recipe

    recipe = load_recipe(file)
    settings = [*(f"{name}={value}" for name, value in recipe.spark.items()), *(conf or [])]
    with spark_for(Where(master, settings, ui, ship, python_env), recipe.name) as spark:
        from flaremq.spark.pipelines.recipe.run import run_recipe

        ran = run_recipe(spark, recipe, _tell if watch else None)
    out = Output(json)
    rows = [
        (
            sink.name,
            "stream" if sink.stream else "batch",
            f"{sink.rows:,}",
            sink.batches,
            f"{sink.seconds:.1f} s",
        )
        for sink in ran.sinks
    ]
    out.show(
        asdict(ran),
        lambda: out.table(("sink", "kind", ">rows", ">batches", ">took"), rows, f"{ran.name} is done"),
    )


def _tell(batch: SinkProgress) -> None:
    note(
        f"{batch.sink}: batch {batch.batch}, {batch.rows:,} rows, {batch.rows_per_s:,.0f} per second, "
        f"{batch.seconds:.1f} s, {batch.lag_total:,} waiting"
    )
    sys.stderr.flush()
