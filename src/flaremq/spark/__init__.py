"""Floor 6: RocketMQ topics and store files in Spark. Imports client and arrow.

clients      one client per cluster and process
errors       Spark's exceptions in one line
jobs         a second Spark job, while the first runs
options      options as Spark passes them
schema       Spark types and columns
source       format("rocketmq")
storesource  format("rocketmq-store")
"""

from importlib import import_module
from typing import Any

__all__ = [
    "COLUMNS_NEEDED",
    "KEY_COLUMNS",
    "ArchivePlan",
    "RecipeRun",
    "ReplayPlan",
    "RocketMQ",
    "RocketMQStore",
    "SessionPlan",
    "StatsPlan",
    "archived_files",
    "audit",
    "compact",
    "describe_recipe",
    "load_recipe",
    "offsets_of_store",
    "opened_session",
    "plot_stats",
    "read_archive",
    "rebuild",
    "replay",
    "run_archive",
    "run_recipe",
    "spark_session",
    "start_archive",
    "stats",
    "stop_session",
    "vacuum",
    "watch_progress",
    "write_stats",
]

# Public names are loaded on first use: a Spark task that imports one room loads no other.
_PLACES = {
    "COLUMNS_NEEDED": "pipelines.stats.stats",
    "KEY_COLUMNS": "pipelines.stats.stats",
    "ArchivePlan": "pipelines.archive",
    "RecipeRun": "pipelines.recipe.run",
    "ReplayPlan": "pipelines.replay",
    "RocketMQ": "source",
    "RocketMQStore": "storesource",
    "SessionPlan": "launch.plan",
    "StatsPlan": "pipelines.stats.stats",
    "archived_files": "archive.reader",
    "audit": "pipelines.store.audit",
    "compact": "pipelines.compact",
    "describe_recipe": "pipelines.recipe.describe",
    "load_recipe": "pipelines.recipe.load",
    "offsets_of_store": "pipelines.stats.groupoffsets",
    "opened_session": "launch.session",
    "plot_stats": "pipelines.stats.plots",
    "read_archive": "archive.reader",
    "rebuild": "pipelines.store.rebuild",
    "replay": "pipelines.replay",
    "run_archive": "pipelines.archive",
    "run_recipe": "pipelines.recipe.run",
    "spark_session": "launch.session",
    "start_archive": "pipelines.archive",
    "stats": "pipelines.stats.stats",
    "stop_session": "launch.session",
    "vacuum": "pipelines.compact",
    "watch_progress": "read.progress",
    "write_stats": "pipelines.stats.tables",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'flaremq.spark' has no attribute {name!r}")
    return getattr(import_module(f"flaremq.spark.{place}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
