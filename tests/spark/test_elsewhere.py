"""The formats where Spark is not ours to start: a plain session, Spark Connect, Declarative Pipelines.

Each is a process of its own, with nothing said to it but where Python is: what a notebook has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.test_rebuild import written

from flaremq.spark.java import Java

pytestmark = pytest.mark.slow

READ = """
import sys
from pyspark.sql import SparkSession
spark = {session}
frame = spark.read.format("rocketmq-store").load(sys.argv[1])
frame.createOrReplaceTempView("messages")
print("rows", frame.count(), spark.sql("select count(distinct topic) from messages").first()[0])
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


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("elsewhere")
    written(root, 300)
    return root


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


@pytest.mark.parametrize(
    "session",
    [
        'SparkSession.builder.master("local[2]").getOrCreate()',
        'SparkSession.builder.remote("local[2]").getOrCreate()',
    ],
    ids=["plain", "connect"],
)
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
