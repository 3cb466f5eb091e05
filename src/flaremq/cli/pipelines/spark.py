"""Spark for one command: a quiet start, a progress bar, and errors in one line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from flaremq.base.errors import ConfigError, SparkFailed, UsageError
from flaremq.cli.render import note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S: Final = 0.2

Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="MASTER",
        envvar="FLAREMQ_SPARK_MASTER",
        help="Spark master: local[*], local[2], spark://host:port, yarn, k8s://...",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; repeatable."),
]
Ui = Annotated[bool, typer.Option("--ui", help="Serve Spark's web page and print its address.")]
Ship = Annotated[
    bool, typer.Option("--ship", help="Ship FlareMQ to executors that do not have it installed.")
]
PythonEnv = Annotated[
    Path | None,
    typer.Option(
        "--python-env", metavar="FILE", help="Packed Python environment (venv-pack) for the executors."
    ),
]
Tasks = Annotated[
    int | None,
    typer.Option("--tasks", min=1, metavar="N", help="Number of tasks (default: twice the number of cores)."),
]


@dataclass(frozen=True, slots=True)
class Where:
    """The Spark options of a command."""

    master: str = "local[*]"
    conf: list[str] = field(default_factory=list)
    ui: bool = False
    ship: bool = False
    python_env: Path | None = None

    def settings(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for text in self.conf:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise ConfigError(
                    f"--conf {text!r}: expected NAME=VALUE, for example spark.executor.memory=2g"
                )
            found[name] = value
        return found


@contextmanager
def spark_for(where: Where, what: str) -> Iterator[SparkSession]:
    """A session for a `with` block. Spark's exceptions become FlareErrors of one line."""
    check_installed()
    from flaremq.spark.errors import spark_error
    from flaremq.spark.launch.plan import SessionPlan
    from flaremq.spark.launch.session import RAISED, session_log, spark_session, stop_session, ui_address

    plan = SessionPlan(
        master=where.master,
        app_name=f"flaremq {what}",
        conf=where.settings(),
        ui=where.ui,
        ship=where.ship,
        python_env=where.python_env,
    )
    try:
        with _spinner("starting Spark"):
            spark = spark_session(plan)
        if where.ui:
            note(f"Spark's web page is {ui_address(spark)}")
        yield spark
    except RAISED as error:
        found = spark_error(error)
        if isinstance(found, SparkFailed) and (log := session_log()) is not None:
            raise SparkFailed(f"{found} (Spark's log is {log})") from error
        raise found from error
    finally:
        stop_session()


def check_installed() -> None:
    """Raises UsageError if Spark is not installed."""
    try:
        import flaremq.spark.launch.session  # noqa: F401 - Imports pyspark.
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "flaremq":
            raise
        raise UsageError(
            f"pipelines need Spark, but {error.name} is not installed: "
            "run pip install '.[spark]' in FlareMQ's source folder"
        ) from None


@contextmanager
def _spinner(what: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    console = import_module("rich.console").Console(stderr=True)
    with console.status(what):
        yield


@contextmanager
def watched(spark: SparkSession, what: str) -> Iterator[Path | None]:
    """A bar of finished tasks while a batch job runs; on a terminal only.

    Tasks are long, so work that can count records as it goes does so in files of the folder that is yielded.
    """
    if not sys.stderr.isatty():
        yield None
        return
    progress = import_module("rich.progress")
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[told]}"),
        progress.TimeElapsedColumn(),
        console=import_module("rich.console").Console(stderr=True),
        transient=True,
    )
    ended = threading.Event()
    with bar, TemporaryDirectory(prefix="flaremq-counted-") as counted:
        task = bar.add_task(what, total=None, told=told_of(0, 0, 0))
        watcher = threading.Thread(target=_watch, args=(spark, bar, task, Path(counted), ended), daemon=True)
        watcher.start()
        try:
            yield Path(counted)
        finally:
            ended.set()
            watcher.join()


def _watch(spark: SparkSession, bar: Any, task: Any, counted: Path, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(_LOOK_S):
        with suppress(Exception):  # A look that fails must not end the work: the next one may succeed.
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            found = [stage for stage in stages if stage is not None]
            total, done = sum(s.numTasks for s in found), sum(s.numCompletedTasks for s in found)
            told = told_of(total, done, records_counted(counted))
            bar.update(task, total=total or None, completed=done, told=told)


def told_of(tasks: int, done: int, records: int) -> str:
    """Progress in words. Between stages Spark has no tasks: it plans, or shuffles rows."""
    text = f"{done} of {tasks} tasks" if tasks else "planning"
    return f"{text}, {records:,} records read" if records else text


def records_counted(folder: Path) -> int:
    """How many records all tasks have counted so far, each in its file."""
    texts = (path.read_text() for path in folder.iterdir())
    return sum(int(text) for text in texts if text.isdigit())
