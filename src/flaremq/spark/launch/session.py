"""Session: Spark opened for commands and pipelines, and closed without leaving anything behind.

    with opened_session(SessionPlan(master="local[2]")) as spark:
        spark.range(10).count()

A process has one session, as it has one JVM. A program that builds its own SparkSession does not need this
module: the data sources work in any session.

The problem
-----------
`SparkSession.builder.getOrCreate()` suits a notebook, not a command. It fails if neither JAVA_HOME nor PATH
has a suitable Java. The JVM writes its warnings to the terminal. `stop()` leaves the JVM running, with the
memory it was started with, for the next session. And PySpark's Ctrl-C handler waits for the very job that
it is to cancel.

How it works
------------
1. Find a Java (`java`), an archive of Spark's classes that halves the start (`appcds`), and the settings
   (`plan`). The user's settings and spark-defaults.conf win over ours.
2. Make a folder for the temporary files of Spark and its JVM.
3. Start the JVM (`jvm`), by default with its stderr in a log file. Environment variables that Spark needs are
   set only during the start. If the JVM does not start with the archive, try once more without it.
4. Create the session in that JVM, and replace PySpark's Ctrl-C handler.
5. To close: stop the session, end the JVM, make PySpark forget both, restore the Ctrl-C handler, and delete
   the folder and, if it is empty, the log. A start that fails is closed in the same way; a session that is
   still open when the process ends is closed then.

Under spark-submit the JVM exists already: its session is used, and never closed here.

An example
----------
A command is run twice, and the second run is interrupted:

    1st   no class archive yet: the JVM is to write one when it ends
          close: the JVM is not waited for, as it writes the archive
    2nd   the archive is there, and is used
          Ctrl-C: KeyboardInterrupt ends the block; a thread with its own connection cancels all jobs
          close: the JVM ends within 20 s, or is killed

Within the block, `opened_session` with an equal plan gives the same session and leaves it open. With another
plan it raises ConfigError: memory and Java options are fixed when the JVM starts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from flaremq.base.errors import ConfigError, SparkFailed
from flaremq.spark.errors import spark_error
from flaremq.spark.launch.appcds import ClassArchive, archive_for, discard
from flaremq.spark.launch.cache import cache_folder
from flaremq.spark.launch.java import find_java
from flaremq.spark.launch.jvm import Launch, environment, new_log, start_jvm, stop_jvm
from flaremq.spark.launch.plan import Places, SessionPlan, environment_of, own_conf_folder, settings_of
from flaremq.spark.launch.ship import stand_in_env

RAISED: Final = (PySparkException, Py4JError, ConnectionError)
"""What calls of a session may raise; the last if its JVM is gone. `spark_error` makes one line of it."""
_PRINTING: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers that print a page of JSON for an error that is raised as well."""
_LOGGING: Final = (None, "py4j.clientserver", "py4j.java_gateway")
"""Loggers that log a traceback on Ctrl-C; None is the root logger, which Py4J uses."""


@dataclass(slots=True)
class _RunningSession:
    plan: SessionPlan
    folder: Path
    log: Path | None
    interrupt_before: Any
    """The SIGINT handler before Spark replaced it."""
    process: int = field(default_factory=os.getpid)
    gateway: Any = None
    is_archiving: bool = False
    session: SparkSession | None = None
    work: Path | None = None
    """The folder below SPARK_HOME in which executors leave their logs, for a local-cluster."""


_open: _RunningSession | None = None


def spark_session(plan: SessionPlan | None = None) -> SparkSession:
    """Start Spark, or return the open session if it has the same plan.

    Raises NoJava, ConfigError for an impossible plan, or SparkFailed if Spark does not start.
    """
    global _open
    plan = plan or SessionPlan()
    if _open is not None and _open.session is not None:
        if _open.plan != plan:
            raise ConfigError(
                f"a Spark session on {_open.plan.master} is already open, and a process can have only one: "
                "call stop_session() first"
            )
        return _open.session
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started us and the JVM: it decides on master, memory and the rest.
        return SparkSession.builder.appName(plan.app_name).config(map=dict(plan.conf)).getOrCreate()
    if SparkContext._active_spark_context is not None:
        raise ConfigError("this process already has a SparkSession: use it, or stop() it first")
    folder = Path(tempfile.mkdtemp(prefix="flaremq-spark-"))
    running = _RunningSession(
        plan, folder, new_log() if plan.quiet else None, signal.getsignal(signal.SIGINT)
    )
    try:
        _hush(plan.quiet)
        running.session = _start(running)
        if _is_main_thread():
            signal.signal(signal.SIGINT, functools.partial(_interrupted, running))
    except BaseException:
        _close(running)
        raise
    _open = running
    return running.session


def stop_session() -> None:
    """Stop what spark_session started, with its JVM and temporary files. Does nothing if none is open."""
    global _open
    running, _open = _open, None
    if running is not None and running.process == os.getpid():  # The JVM belongs to the parent of a fork.
        _close(running)


atexit.register(stop_session)


@contextlib.contextmanager
def opened_session(plan: SessionPlan | None = None) -> Iterator[SparkSession]:
    """spark_session for a `with` block. A session that was open before stays open."""
    was_open = _open is not None
    session = spark_session(plan)
    try:
        yield session
    finally:
        if not was_open:
            stop_session()


def ui_address(session: SparkSession) -> str | None:
    """The address of Spark's web UI; None if the plan leaves it off."""
    return session.sparkContext.uiWebUrl


def session_log() -> Path | None:
    """The log of the open session's JVM and workers; None if it is the terminal, or no session is open."""
    return _open.log if _open is not None else None


def _start(running: _RunningSession) -> SparkSession:
    plan, folder = running.plan, running.folder
    java = plan.java or find_java()
    spark_home = Path(_find_spark_home())
    theirs = own_conf_folder(spark_home)
    # With a folder that is not empty on the class path, the JVM makes no archive.
    wants_archive = plan.archive and theirs is None
    archive = archive_for(java, spark_home, cache_folder() / "archives") if wants_archive else ClassArchive()
    running.is_archiving = archive.is_made_now
    places = Places(folder=folder, spark_home=spark_home, conf_folder=theirs, log=running.log)
    for name in ("local", "tmp"):
        (folder / name).mkdir()
    if plan.python_env is not None:
        stand_in_env(folder)
    with environment({**environment_of(plan, places), "JAVA_HOME": str(java.home)}):
        try:
            return _connected(running, places, archive)
        except SparkFailed:
            if running.gateway is not None or not archive.options:
                raise
            # Perhaps Java cannot use the archive. If the cause is another, the second attempt reports it.
            discard(archive)
            running.is_archiving = False
            return _connected(running, places, ClassArchive())


def _connected(running: _RunningSession, places: Places, archive: ClassArchive) -> SparkSession:
    settings = settings_of(running.plan, places, archive.options)
    folder = running.folder if running.plan.python_env is not None else None
    running.gateway = start_jvm(Launch(settings=settings, archive=archive, log=running.log, folder=folder))
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        context = SparkContext(conf=conf, gateway=running.gateway)
        if running.plan.master.startswith("local-cluster"):
            # Ask now: a JVM that has died cannot answer.
            running.work = places.spark_home / "work" / str(context.applicationId)
        if running.plan.quiet:
            # It prints a traceback when the JVM dies, which other errors report as well.
            context._accumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign, assignment]
        return SparkSession(context)
    except (PySparkException, Py4JError, OSError) as error:
        seen = f" (its log is {running.log})" if running.log is not None else ""
        raise SparkFailed(f"Spark did not start: {spark_error(error)}{seen}") from error


def _close(running: _RunningSession) -> None:
    if running.session is not None:
        # The JVM may have died already.
        with contextlib.suppress(Py4JError, OSError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running.session.stop()
    if running.gateway is not None:
        stop_jvm(running.gateway, wait=not running.is_archiving)
    _forget(running)
    for folder in filter(None, (running.folder, running.work)):
        shutil.rmtree(folder, ignore_errors=True)
    if running.log is not None and running.log.exists() and running.log.stat().st_size == 0:
        running.log.unlink(missing_ok=True)


def _say_nothing(*_: object) -> None:
    pass


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _interrupted(running: _RunningSession, number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C as before Spark was started, and cancel all Spark jobs.

    PySpark's own handler asks the JVM to cancel on the very connection on which this thread waits for a job,
    so it waits for the end of the job that it is to cancel. Another thread has another connection.
    """
    if not callable(running.interrupt_before):
        return
    try:
        running.interrupt_before(number, frame)
    except BaseException:
        if running.session is not None and running.session.sparkContext._jsc is not None:
            cancel = running.session.sparkContext.cancelAllJobs
            threading.Thread(target=_without_complaint, args=(cancel,), daemon=True).start()
        raise


def _without_complaint(call: Callable[[], None]) -> None:
    with contextlib.suppress(Py4JError, OSError, AttributeError):  # The session may have been stopped.
        call()


def _hush(is_quiet: bool) -> None:
    loggers = [*map(PySparkLogger.getLogger, _PRINTING), *map(logging.getLogger, _LOGGING)]
    for logger in loggers:
        if is_quiet:
            logger.addFilter(_is_not_sparks)
        else:
            logger.removeFilter(_is_not_sparks)


def _is_not_sparks(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j" and f"{os.sep}pyspark{os.sep}" not in record.pathname


def _forget(running: _RunningSession) -> None:
    """Make PySpark forget the session and its gateway, so that the next session starts another JVM."""
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    _hush(False)
    if _is_main_thread() and running.interrupt_before is not None:
        signal.signal(signal.SIGINT, running.interrupt_before)
    below = str(running.folder)
    sys.path[:] = [entry for entry in sys.path if not entry.startswith(below)]
