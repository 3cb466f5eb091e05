# The lazy names of the package, for type checkers. At run time `__init__.py` finds them.
from flaremq.spark.archive.reader import archived_files as archived_files
from flaremq.spark.archive.reader import read_archive as read_archive
from flaremq.spark.launch.plan import SessionPlan as SessionPlan
from flaremq.spark.launch.session import opened_session as opened_session
from flaremq.spark.launch.session import spark_session as spark_session
from flaremq.spark.launch.session import stop_session as stop_session
from flaremq.spark.pipelines.archive import ArchivePlan as ArchivePlan
from flaremq.spark.pipelines.archive import run_archive as run_archive
from flaremq.spark.pipelines.archive import start_archive as start_archive
from flaremq.spark.pipelines.compact import compact as compact
from flaremq.spark.pipelines.compact import vacuum as vacuum
from flaremq.spark.pipelines.recipe.describe import describe_recipe as describe_recipe
from flaremq.spark.pipelines.recipe.load import load_recipe as load_recipe
from flaremq.spark.pipelines.recipe.run import RecipeRun as RecipeRun
from flaremq.spark.pipelines.recipe.run import run_recipe as run_recipe
from flaremq.spark.pipelines.replay import ReplayPlan as ReplayPlan
from flaremq.spark.pipelines.replay import replay as replay
from flaremq.spark.pipelines.stats.groupoffsets import offsets_of_store as offsets_of_store
from flaremq.spark.pipelines.stats.plots import plot_stats as plot_stats
from flaremq.spark.pipelines.stats.stats import COLUMNS_NEEDED as COLUMNS_NEEDED
from flaremq.spark.pipelines.stats.stats import KEY_COLUMNS as KEY_COLUMNS
from flaremq.spark.pipelines.stats.stats import StatsPlan as StatsPlan
from flaremq.spark.pipelines.stats.stats import stats as stats
from flaremq.spark.pipelines.stats.tables import write_stats as write_stats
from flaremq.spark.pipelines.store.audit import audit as audit
from flaremq.spark.pipelines.store.rebuild import rebuild as rebuild
from flaremq.spark.read.progress import watch_progress as watch_progress
from flaremq.spark.source import RocketMQ as RocketMQ
from flaremq.spark.storesource import RocketMQStore as RocketMQStore

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
