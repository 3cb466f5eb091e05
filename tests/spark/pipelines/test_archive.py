"""Topics into archives, through Spark and brokers: every message once, over restarts and crashes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.archive.archives import CrashingSink, crash_file
from tests.spark.read.test_stream import caught_up, sent
from tests.spark.servers import fill, make_topic, servers

from flaremq.base.errors import ConfigError, CorruptStore, FlareError, SparkFailed, StoreLocked, UsageError
from flaremq.client.sync import Producer
from flaremq.model.message import Message
from flaremq.spark.archive.lease import WriterLease, check_run
from flaremq.spark.archive.reader import read_archive
from flaremq.spark.clients import close_links
from flaremq.spark.pipelines.archive import Archived, ArchivePlan, RunningArchive, run_archive, start_archive
from flaremq.spark.pipelines.compact import compact
from flaremq.testing.clock import MovableClock
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread

LIMIT_S = 120


class GoneWithItsJvm:
    """A query of which Py4J says nothing, because nobody answers it any more."""

    lastProgress = None  # noqa: N815

    def awaitTermination(self, timeout: float | None) -> bool:  # noqa: N802
        raise ConnectionRefusedError(111, "Connection refused")

    def stop(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


def test_an_archive_whose_jvm_is_killed_says_so_and_lets_go(tmp_path: Path) -> None:
    plan = ArchivePlan(namesrv="127.0.0.1:1", topics=("Orders",), to=tmp_path)
    running = RunningArchive(None, plan, WriterLease(tmp_path).take(), 0)  # type: ignore[arg-type]
    running._query = GoneWithItsJvm()  # type: ignore[assignment]
    with pytest.raises(SparkFailed, match="the JVM in which Spark runs is gone"), running:
        running.wait(1)
    WriterLease(tmp_path).take().release()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("servers"), brokers=2) as found:
        yield found


class Archiving:
    """One archive, filled again and again."""

    def __init__(self, spark: SparkSession, running: EmbeddedThread, folder: Path) -> None:
        self.spark = spark
        self.running = running
        self.folder = folder / "archive"

    def plan(self, *topics: str, **others: object) -> ArchivePlan:
        return ArchivePlan(
            namesrv=self.running.namesrv,
            **{"topics": topics, "to": self.folder, "offsets_max": 400, **others},  # type: ignore[arg-type]
        )

    def once(self, *topics: str, **others: object) -> Archived:
        return run_archive(self.spark, self.plan(*topics, **others))

    @property
    def numbers(self) -> list[int]:
        """Of the bodies of all messages."""
        rows = (
            read_archive(self.spark, self.folder).selectExpr("CAST(substr(body, 1, 8) AS STRING)").collect()
        )
        return sorted(int(row[0]) for row in rows)

    def wait_for(self, live: RunningArchive, total: int) -> None:
        async def is_so() -> bool:
            assert live.is_running, live.query.exception()
            return live.archived().total_rows >= total

        asyncio.run(eventually(f"{total} rows are archived", is_so, LIMIT_S))


@pytest.fixture
def archiving(spark: SparkSession, running: EmbeddedThread, tmp_path: Path) -> Archiving:
    return Archiving(spark, running, tmp_path)


# The steps are the same for each format: tests/spark/archive writes and reads tables of all three, and the
# crash below goes through Spark into one of Iceberg.
@pytest.mark.parametrize(
    "name", ["parquet", *(pytest.param(name, marks=pytest.mark.slow) for name in ("delta", "iceberg"))]
)
def test_what_is_there_is_archived_once_and_the_next_run_adds_what_is_new(
    archiving: Archiving, running: EmbeddedThread, name: str
) -> None:
    topic = f"Once-{name}"
    make_topic(running.namesrv, topic, queues=2)
    fill(running.namesrv, topic, 1000)
    first = archiving.once(topic, format=name)
    assert (first.rows, first.total_rows, first.format) == (1000, 1000, name) and first.files >= 3
    assert archiving.numbers == list(range(1000))
    sent(running, topic, range(1000, 1100))
    second = archiving.once(topic, format=name)
    assert (second.rows, second.total_rows) == (100, 1100)
    assert archiving.once(topic, format=name).rows == 0
    assert compact(None, archiving.folder).files < second.files
    assert archiving.numbers == list(range(1100))
    found = read_archive(archiving.spark, archiving.folder)
    assert found.select("brokerName", "queueId", "queueOffset").distinct().count() == 1100
    row = found.where("msgId is not null and properties['n'] = '7'").collect()[0]
    assert (row["topic"], row["keys"], bytes(row["body"])[:8]) == (topic, "k7", b"00000007")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("killed", "parquet"),
        ("after", "iceberg"),
        *(
            pytest.param(where, name, marks=pytest.mark.slow)
            for where in ("before", "killed", "after")
            for name in ("parquet", "delta", "iceberg")
            if (where, name) not in {("killed", "parquet"), ("after", "iceberg")}
        ),
    ],
)
def test_a_crash_around_the_commit_of_a_batch_neither_loses_nor_doubles_its_rows(
    archiving: Archiving,
    running: EmbeddedThread,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    where: str,
) -> None:
    topic = f"Crash-{where}-{name}"
    make_topic(running.namesrv, topic, queues=2)
    sent(running, topic, range(1000))
    monkeypatch.setattr("flaremq.spark.pipelines.archive.ArchiveSink", CrashingSink)
    crash_file(archiving.folder).write_text(f"{where} 2")
    with pytest.raises(SparkFailed, match=None if where == "killed" else "batch 2 fails on purpose"):
        archiving.once(topic, format=name)
    assert not crash_file(archiving.folder).exists()
    assert len(archiving.numbers) == (400 if where == "before" else 800)
    sent(running, topic, range(1000, 1100))  # The batch must come again as it was.
    archiving.once(topic, format=name)
    assert archiving.numbers == list(range(1100))


def test_a_stream_archives_what_comes_until_it_is_stopped_and_goes_on_where_it_was(
    archiving: Archiving, running: EmbeddedThread
) -> None:
    make_topic(running.namesrv, "live-a", queues=2)
    sent(running, "live-a", range(100))
    plan = archiving.plan(pattern="live-.*", interval_s=0.0, group="archives")
    with start_archive(archiving.spark, plan) as live:
        archiving.wait_for(live, 100)
        make_topic(running.namesrv, "live-b", queues=1)
        sent(running, "live-b", range(100, 150))
        sent(running, "live-a", range(150, 200))
        archiving.wait_for(live, 200)
        with pytest.raises(StoreLocked, match=f"is being written by process {os.getpid()} on "):
            start_archive(archiving.spark, plan)
        assert compact(None, archiving.folder).rows == 200
        sent(running, "live-b", range(200, 210))
        archiving.wait_for(live, 210)
        assert not live.wait(0.01)
        asyncio.run(caught_up(running, "archives", 210))
    assert not live.is_running and live.wait()
    live.stop()
    sent(running, "live-a", range(210, 220))
    assert run_archive(archiving.spark, plan).rows == 10
    asyncio.run(caught_up(running, "archives", 220))
    assert archiving.numbers == list(range(220))
    found = read_archive(archiving.spark, archiving.folder, topics=["live-b"])
    assert found.count() == 60


def test_messages_go_to_the_hours_in_which_they_were_stored(spark: SparkSession, tmp_path: Path) -> None:
    clock = MovableClock()
    with EmbeddedThread(tmp_path / "servers", clock=clock) as running:
        try:
            make_topic(running.namesrv, "Hours", queues=1)
            with Producer("hours", running.namesrv) as producer:
                for number in range(3):
                    producer.send(Message("Hours", b"%08d" % number))
                    clock.advance(3600)
            archiving = Archiving(spark, running, tmp_path)
            archiving.once("Hours")
            found = read_archive(spark, archiving.folder).orderBy("queueOffset")
            rows = found.selectExpr("date_trunc('HOUR', storeTimestamp) AS at", "day", "hour").collect()
            assert len({(row["day"], row["hour"]) for row in rows}) == 3
            assert all((row["at"].date(), row["at"].hour) == (row["day"], row["hour"]) for row in rows)
        finally:
            close_links()


def test_further_options_reach_the_source(archiving: Archiving, running: EmbeddedThread) -> None:
    make_topic(running.namesrv, "Tagged", queues=1)
    fill(running.namesrv, "Tagged", 100, tags=("paid", "open"))
    assert archiving.once("Tagged", options={"tags": "paid", "minPartitions": "3"}).rows == 50
    tags = read_archive(archiving.spark, archiving.folder).select("tags").distinct().collect()
    assert [row["tags"] for row in tags] == ["paid"]


def test_a_lost_old_or_foreign_checkpoint_is_told_before_it_does_harm(
    archiving: Archiving, running: EmbeddedThread, tmp_path: Path
) -> None:
    for topic in ("Mine", "Yours"):
        make_topic(running.namesrv, topic, queues=1)
        sent(running, topic, range(10))
    archiving.once("Mine")
    checkpoint, copy = archiving.folder / "_checkpoint", tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    sent(running, "Mine", range(10, 20))
    archiving.once("Mine")
    with pytest.raises(UsageError, match="holds Mine, not topics Yours"):
        archiving.once("Yours")
    shutil.move(checkpoint, tmp_path / "newest")
    with pytest.raises(UsageError, match=r"its checkpoint .* is missing: .* message twice"):
        archiving.once("Mine")
    with pytest.raises(
        UsageError, match=r"ends at batch 1, but .* has batch 2: the checkpoint is an old copy"
    ):
        archiving.once("Mine", checkpoint=copy)
    with pytest.raises(UsageError, match="is the checkpoint of another query"):
        archiving.once("Mine", to=tmp_path / "other", checkpoint=copy)
    (copy / "metadata").write_text("{")
    with pytest.raises(CorruptStore, match="restore the checkpoint from a copy"):
        archiving.once("Mine", checkpoint=copy)
    assert archiving.once("Mine", checkpoint=tmp_path / "newest").rows == 0
    assert archiving.numbers == list(range(20))


def test_wrong_folders_and_plans_are_told(
    archiving: Archiving, running: EmbeddedThread, tmp_path: Path
) -> None:
    make_topic(running.namesrv, "Wrong", queues=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is not empty \(notes.txt\): expected an empty or new folder"):
        archiving.once("Wrong", to=tmp_path / "full")
    with pytest.raises(UsageError, match=r"notes.txt is a file: expected an empty or new folder"):
        archiving.once("Wrong", to=tmp_path / "full" / "notes.txt")
    archiving.once("Wrong")
    with pytest.raises(UsageError, match="is an archive in format parquet, not delta"):
        archiving.once("Wrong", format="delta")
    made = json.loads((archiving.folder / "_flaremq" / "archive.json").read_text())
    (archiving.folder / "_flaremq" / "archive.json").write_text(json.dumps({**made, "version": 2}))
    with pytest.raises(UsageError, match="is an archive of version 2: expected version 1"):
        archiving.once("Wrong")
    for wrong, words in (
        ({"topics": ()}, "expected either topics or pattern"),
        ({"pattern": "a.*"}, "expected either topics or pattern"),
        ({"format": "orc"}, "format='orc': expected one of"),
        ({"interval_s": -1}, "interval_s=-1: expected 0 or more"),
        ({"offsets_max": 0}, "offsets_max=0: expected a whole number"),
        ({"options": {"columns": "body"}}, "columns cannot be set for an archive: an archive has all"),
        ({"options": {"tagz": "a"}}, "unknown option 'tagz': did you mean tags"),
        ({"options": {"endingOffsets": "latest"}}, "a stream has no end"),
    ):
        with pytest.raises(ConfigError, match=words):
            archiving.plan("Wrong", **wrong)
    with pytest.raises(FlareError, match="Nowhere"):
        archiving.once("Nowhere", to=tmp_path / "nowhere", options={"brokerTimeout": "1s"})


HOLDER = """
import sys
from pathlib import Path
from flaremq.spark.archive.lease import WriterLease
lease = WriterLease(Path(sys.argv[1])).take()
print(lease.run, flush=True)
sys.stdin.read()
"""


def test_one_process_fills_an_archive_and_the_lock_of_a_dead_one_is_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            run = holder.stdout.readline().strip()
            check_run(tmp_path, run)
            with pytest.raises(
                StoreLocked, match=f"is being written by process {holder.pid} on .*: stop it first"
            ):
                WriterLease(tmp_path).take()
        finally:
            holder.kill()
    with WriterLease(tmp_path).take() as lease:
        check_run(tmp_path, lease.run)
        with pytest.raises(StoreLocked, match="this run was thought dead and must end"):
            check_run(tmp_path, run)
    WriterLease(tmp_path).take().release()
