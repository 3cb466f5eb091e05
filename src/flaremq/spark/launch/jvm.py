"""Spark's JVM: started without output on the terminal, and ended.

The stderr of the JVM and its Python workers goes to a log file, which is needed only if something fails; the
error then names it. The standard output is not redirected, since Spark's console sink and `show` write there.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from flaremq.base.errors import SparkFailed
from flaremq.spark.launch.appcds import ClassArchive
from flaremq.spark.launch.cache import cache_folder

_LOGS_MAX: Final = 10
_STOP_LIMIT_S: Final = 20.0
_WORDS_MAX: Final = 400
_SAYS_NOTHING: Final = (
    "WARNING: Using incubator modules",
    "Error occurred during initialization of VM",
    "Error: Could not create the Java Virtual Machine",
    "Error: A fatal exception has occurred",
)

# JVMs that are ending and still write their archive. They are kept here because a Popen that is collected
# before its process has ended prints a warning.
_ending: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a JVM."""

    settings: Mapping[str, str]
    archive: ClassArchive
    log: Path | None
    """Where its stderr goes; None: to ours."""
    folder: Path | None = None
    """Its working folder; None: ours."""


@contextlib.contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a block, and restore them after it."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def new_log() -> Path:
    """The path of a log for one JVM. The oldest logs are removed, so that ten remain."""
    folder = cache_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("spark-*"))[: -(_LOGS_MAX - 1)]:
        old.unlink(missing_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    return folder / f"spark-{now:%Y%m%d-%H%M%S-%f}-{os.getpid()}.log"


def start_jvm(plan: Launch) -> Any:
    """Py4J's gateway to a new JVM. Raises SparkFailed with the line of its log that says why."""
    conf = SparkConf(loadDefaults=False).setAll(list(plan.settings.items()))
    with contextlib.ExitStack() as until_started:
        until_started.callback(plan.archive.handed_over)
        # PySpark makes the JVM ignore SIGINT. In its own process group neither it nor its workers get one
        # from the terminal: Ctrl-C reaches only us, and we stop the JVM.
        how: dict[str, Any] = {"process_group": 0, "cwd": plan.folder}
        if plan.log is not None:
            how["stderr"] = until_started.enter_context(plan.log.open("ab"))
        if plan.archive.lock is not None:
            how["pass_fds"] = (plan.archive.lock,)
        try:
            return launch_gateway(conf, how)  # type: ignore[no-untyped-call]
        except (PySparkException, OSError) as error:
            raise SparkFailed(f"Spark's Java did not start: {_why(plan.log, error)}") from error


def stop_jvm(gateway: Any, *, wait: bool) -> None:
    """End the JVM, and wait until it has ended if `wait` is set. It is killed after 20 s."""
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:  # Another process has started it.
        return
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # The JVM ends when this is closed.
    if not wait:
        _ending.append(process)
        return
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _why(log: Path | None, error: Exception) -> str:
    if log is None:
        return str(error)
    try:
        text = log.read_text(errors="replace")
    except OSError:
        text = ""
    return f"{last_words(text) or error} (its log is {log})"


def last_words(text: str) -> str:
    """The line of a log that says why the JVM ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "  "))]
    lines = [line for line in lines if not line.startswith(_SAYS_NOTHING)] or lines
    telling = [line for line in lines if "error" in line.lower() or "exception" in line.lower()]
    # The first error is the cause of the others.
    words = telling[0] if telling else lines[-1] if lines else ""
    return words[:_WORDS_MAX]
