"""The session: quiet, alone, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flaremq.base.errors import ConfigError
from flaremq.spark.launch.java import Java
from flaremq.spark.launch.jvm import last_words
from flaremq.spark.launch.plan import SessionPlan
from flaremq.spark.launch.session import opened_session, session_log, spark_session, ui_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
OPENING = (
    "import os\n"
    "from flaremq.spark.launch.plan import SessionPlan\n"
    "from flaremq.spark.launch.session import *\n"
)


def ran(code: str, temporary: Path, **environment: str) -> tuple[str, str]:
    """What a program of its own prints. Its temporary files go where they can be counted."""
    temporary.mkdir(exist_ok=True)
    whole = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", OPENING + code], env=whole, capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr


def test_settings_reach_spark(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.master == "local[2]"
    assert ui_address(spark) is None


def test_workers_run_our_interpreter_and_find_us(spark: SparkSession) -> None:
    from tests.spark.sources import Failing, where_we_are

    told = spark.sparkContext.parallelize([0], 1).map(where_we_are).collect()
    assert told == [(sys.executable, str(ROOT / "src" / "flaremq" / "base" / "errors.py"))]
    spark.dataSource.register(Failing)
    rows = spark.read.format("failing").load().orderBy("n").collect()
    assert [row.n for row in rows] == [0, 1]


def test_a_process_has_one_session(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"on local\[2\] is already open.* stop_session\(\)"):
        spark_session(SessionPlan(master="local[1]"))
    with pytest.raises(ConfigError, match="already open"), opened_session(SessionPlan(master="local[1]")):
        pass
    assert spark.range(3).count() == 3
    log = session_log()
    assert log is not None
    assert log.exists()


def test_a_start_prints_nothing_and_leaves_nothing(java: Java, tmp_path: Path) -> None:
    code = """
before = dict(os.environ)
with opened_session(SessionPlan(master="local[1]", jvm_options=("-XX:TieredStopAtLevel=1",))) as spark:
    print(spark.range(5).count())
    own = {name: value for name, value in os.environ.items() if before.get(name) != value}
    print(own.keys() <= {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"})  # PySpark's own doing.
"""
    out, err = ran(code, tmp_path / "tmp")
    assert err == ""
    assert out == "5\nTrue\n"
    assert [path.name for path in (tmp_path / "tmp").iterdir() if "hsperf" not in path.name] == []


def test_a_jvm_that_does_not_start_is_one_line_with_its_log(java: Java, tmp_path: Path) -> None:
    code = """
from flaremq.base.errors import SparkFailed
try:
    spark_session(SessionPlan(archive=False, jvm_options=("-agentlib:nosuch",)))
except SparkFailed as error:
    print(error)
"""
    out, err = ran(code, tmp_path / "tmp", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert err == ""
    (line,) = out.splitlines()
    assert line.startswith("Spark's Java did not start: Could not find agent library nosuch")
    (log,) = (tmp_path / "cache" / "flaremq" / "logs").iterdir()
    assert line.endswith(f"(its log is {log})")
    assert not list((tmp_path / "tmp").glob("flaremq-spark-*"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("WARNING: one\nError: no such option\n\tat x.y(z)\n", "Error: no such option"),
        (
            "Unrecognized option: -Xwhat\nError: Could not create the Java Virtual Machine.\n",
            "Unrecognized option: -Xwhat",
        ),
        ("Error occurred during initialization of VM\nToo small maximum heap\n", "Too small maximum heap"),
        ("first\nlast\n\n", "last"),
        ("x\n2026 ERROR A: b\njava.lang.E: no Exception\n\tat a.b(c)\n", "2026 ERROR A: b"),
    ],
)
def test_the_last_words_of_a_jvm_are_those_that_tell(text: str, words: str) -> None:
    assert last_words(text) == words


@pytest.mark.slow
def test_a_second_session_may_follow_with_another_plan(java: Java, tmp_path: Path) -> None:
    code = """
for cores, ui in ((1, False), (2, True)):
    with opened_session(SessionPlan(master=f"local[{cores}]", ui=ui)) as spark:
        print(spark.sparkContext.defaultParallelism, (ui_address(spark) or "none").partition(":")[0])
"""
    assert ran(code, tmp_path / "tmp") == ("1 none\n2 http\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cut", "garbage"])
def test_a_damaged_archive_stops_nothing(java: Java, tmp_path: Path, how: str) -> None:
    """The size in its name is kept right, so that it is Java that finds the damage."""
    code = "with opened_session(SessionPlan(master='local[1]')) as spark: print(spark.range(5).count())"
    cache = tmp_path / "cache"
    assert ran(code, tmp_path / "tmp", XDG_CACHE_HOME=str(cache)) == ("5\n", "")
    archives = cache / "flaremq" / "archives"
    (lock,) = archives.glob("*.lock")
    subprocess.run(["flock", lock, "true"], check=True)  # Until the first JVM has written it.
    (new,) = archives.glob("*.new")
    whole = new.read_bytes()
    damaged = whole[: len(whole) // 3] if how == "cut" else whole[:4] + os.urandom(4096) + whole[4100:]
    new.unlink()
    (archives / f"{new.stem}-{len(damaged)}.jsa").write_bytes(damaged)
    out, err = ran(code, tmp_path / "tmp", XDG_CACHE_HOME=str(cache))
    assert out.endswith("5\n")
    assert err == ""


@pytest.mark.slow
def test_ctrl_c_ends_a_job_and_not_the_session(java: Java, tmp_path: Path) -> None:
    # Who was started in the background ignores the signal, and so do those whom it starts.
    code = """
import signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
def tell():
    while not spark.sparkContext.statusTracker().getActiveJobsIds():
        threading.Event().wait(0.05)
    print("ready", flush=True)
with opened_session(SessionPlan(master="local[2]")) as spark:
    threading.Thread(target=tell).start()
    try:
        spark.sql("select sum(id % 7) from range(1000000000000000)").collect()  # It can be killed.
    except KeyboardInterrupt:
        print("interrupted", spark.range(5).count())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", OPENING + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does: to all in the group.
        assert process.stdout.read() == "interrupted 5\n"
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[1]", "local-cluster[1,1,1024]"])
def test_a_session_whose_jvm_is_killed_closes_without_a_word(java: Java, tmp_path: Path, master: str) -> None:
    code = f"""
import signal
from pyspark.find_spark_home import _find_spark_home
with opened_session(SessionPlan(master={master!r})) as spark:
    print(spark.sparkContext.parallelize([1, 2], 1).sum())
    work = os.path.join(_find_spark_home(), "work", spark.sparkContext.applicationId)
    print(os.path.isdir(work))
    os.kill(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
print(os.path.isdir(work))
"""
    out, err = ran(code, tmp_path / "tmp")
    assert (out, err) == (f"3\n{master.startswith('local-cluster')}\nFalse\n", "")


@pytest.mark.slow
def test_executors_take_our_modules_from_the_zip_and_python_from_the_packed_environment(
    java: Java, tmp_path: Path
) -> None:
    """Two executors of their own, and a source whose class travels by its name."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as packed:
        packed.add(python, "bin/python")
    code = f"""
import tests.spark.sources as sources
from pathlib import Path
plan = SessionPlan(
    master="local-cluster[2,1,1024]",
    ship=True,
    python_env=Path({str(tmp_path / "env.tar.gz")!r}),
    conf={{"spark.executorEnv.PYTHONPATH": {str(ROOT)!r}}},
)
with opened_session(plan) as spark:
    spark.dataSource.register(sources.Failing)
    for row in spark.read.format("failing").load().orderBy("n").collect():
        print(row.n, "flaremq.zip/flaremq/base/errors.py" in row.origin)
"""
    out, err = ran(code, tmp_path / "tmp")
    assert (out, err) == ("0 True\n1 True\n", "")
