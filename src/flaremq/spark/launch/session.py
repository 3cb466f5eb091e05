"""Opening Spark for commands and pipelines: Java found, a quiet and quick start, nothing left at the end.

    with opened_session(SessionPlan(master="local[2]")) as spark:
        spark.range(10).count()

A process has one session, as it has one JVM. A program that builds its own SparkSession does not need this
module: the data sources work in any session.
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
"""Whatever calls of a session may raise; the last where its JVM is gone. `spark_error` makes a line of it."""
_PRINTING: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""They print a page of JSON for an error that is raised as well."""
_LOGGING: Final = (None, "py4j.clientserver", "py4j.java_gateway")
"""They log a traceback on Ctrl-C; None is the root logger, which Py4J uses."""


@dataclass(slots=True)
class _RunningSession:
    plan: SessionPlan
    folder: Path
    log: Path | None
    interrupt_before: Any
    """Who handled SIGINT before Spark took it."""
    process: int = field(default_factory=os.getpid)
    gateway: Any = None
    is_archiving: bool = False
    session: SparkSession | None = None
    work: Path | None = None
    """Where executors live, if that is a folder of Spark's own: they leave their logs there."""


_open: _RunningSession | None = None


def spark_session(plan: SessionPlan | None = None) -> SparkSession:
    """Start Spark, or give the session that was started with the same plan.

    Raises NoJava, ConfigError for a plan that cannot be, SparkFailed if Spark does not start.
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
        # spark-submit has started us and the JVM: master, memory and the rest are its own affair.
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
    """Stop what spark_session started, JVM and temporary files included. Nothing open, nothing done."""
    global _open
    running, _open = _open, None
    if running is not None and running.process == os.getpid():  # A fork has no business with the JVM.
        _close(running)


atexit.register(stop_session)


@contextlib.contextmanager
def opened_session(plan: SessionPlan | None = None) -> Iterator[SparkSession]:
    """spark_session for the length of a block. One that was open before stays open."""
    was_open = _open is not None
    session = spark_session(plan)
    try:
        yield session
    finally:
        if not was_open:
            stop_session()


def ui_address(session: SparkSession) -> str | None:
    """Where a browser finds what Spark is doing; None if the plan wanted no such place."""
    return session.sparkContext.uiWebUrl


def session_log() -> Path | None:
    """Where the open session's JVM and workers write what they would have written to the terminal."""
    return _open.log if _open is not None else None


def _start(running: _RunningSession) -> SparkSession:
    plan, folder = running.plan, running.folder
    java = plan.java or find_java()
    spark_home = Path(_find_spark_home())
    theirs = own_conf_folder(spark_home)
    # A folder with something in it on the class path, and the JVM makes no archive.
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
            # Perhaps Java cannot live with the archive. Whatever it was, without one it is told plainly.
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
            # Asked for now, as a JVM that has died does not tell.
            running.work = places.spark_home / "work" / str(context.applicationId)
        if running.plan.quiet:
            # It prints a traceback when the JVM dies, of which others tell.
            context._accumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign, assignment]
        return SparkSession(context)
    except (PySparkException, Py4JError, OSError) as error:
        seen = f" (its log is {running.log})" if running.log is not None else ""
        raise SparkFailed(f"Spark did not start: {spark_error(error)}{seen}") from error


def _close(running: _RunningSession) -> None:
    if running.session is not None:
        # A JVM that has died cannot be stopped again, and that is all right.
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
    """Ctrl-C: what Spark does is given up, and then it is as if Spark were not there.

    PySpark's own handler asks the JVM to cancel on the very connection on which this thread waits for a job,
    so it waits for the end of what it is to cancel. Another thread has another connection.
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
    with contextlib.suppress(Py4JError, OSError, AttributeError):  # It may have been stopped meanwhile.
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
    """PySpark keeps the gateway for the next session; its JVM is gone, so the next must start another."""
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
