"""Pipelines on a Spark cluster: a master and two workers as processes of their own, from the pip package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.spark.pipelines.test_rebuild import contents, same_index, written
from tests.spark.servers import fill, make_topic

from flaremq.remoting.ports import free_port
from flaremq.spark.launch.java import Java
from flaremq.testing.embedded import EmbeddedThread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

READY = {"Master": "I have been elected leader", "Worker": "Successfully registered with master"}


@pytest.fixture(scope="module")
def master(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster with two workers of one core each."""
    folder, port = tmp_path_factory.mktemp("standalone"), free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
        start(stack, java, folder, "Master", *place)
        for number in (1, 2):
            room = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", str(free_port())]
            start(stack, java, folder, "Worker", *room, "--work-dir", str(folder / f"work-{number}"), address)
        yield address


def start(stack: ExitStack, java: Java, folder: Path, what: str, *words: str) -> None:
    home = Path(pyspark.__file__).parent
    kind = f"org.apache.spark.deploy.{what.lower()}.{what}"
    environment = {**os.environ, "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        [str(home / "bin" / "spark-class"), kind, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
    )
    stack.enter_context(process)  # Waits for it, and closes its pipe.
    stack.callback(process.kill)
    seen: list[str] = []
    told = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:  # To the end: a full pipe would stop it.
            seen.append(line)
            if READY[what] in line:
                told.set()
        told.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert told.wait(120) and process.poll() is None, "".join(seen[-20:])


def pipeline(master: str, *words: str) -> dict[str, object]:
    command = [str(Path(sys.executable).parent / "flaremq"), "pipeline", *words]
    command += ["--master", master, "--conf", "spark.executor.memory=700m", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_store_is_rebuilt_and_audited_by_a_cluster(master: str, tmp_path: Path) -> None:
    store, made = tmp_path / "store", tmp_path / "made"
    written(store)
    shape = ("--index-slots", "50", "--index-entries", "200")
    assert pipeline(master, "rebuild", str(store), "--to", str(made), *shape)["records"] == 1500
    assert contents(made / "consumequeue") == contents(store / "consumequeue")
    same_index(made / "index", store / "index")
    assert pipeline(master, "audit", str(store), *shape)["is_sound"] is True


def test_a_topic_is_archived_by_a_cluster(master: str, tmp_path: Path) -> None:
    with EmbeddedThread(tmp_path / "servers") as servers:
        make_topic(servers.namesrv, "Orders", 4)
        fill(servers.namesrv, "Orders", 500)
        at, to = ("-n", servers.namesrv), str(tmp_path / "archive")
        done = pipeline(master, "archive", *at, "-t", "Orders", "--to", to, "--once")
        assert (done["rows"], done["total_rows"]) == (500, 500)


def test_a_topic_and_a_store_are_counted_by_a_cluster(master: str, tmp_path: Path) -> None:
    with EmbeddedThread(tmp_path / "servers") as servers:
        make_topic(servers.namesrv, "Orders", 4)
        fill(servers.namesrv, "Orders", 500, tags=["paid", "open"])
        figures = tmp_path / "figures"
        counted = pipeline(master, "stats", "-n", servers.namesrv, "-t", "Orders", "--to", str(figures))
        beside = pipeline(master, "stats", str(servers.store()), "-t", "Orders")
    for found in (counted, beside):
        assert (found["messages"], found["bytes"]) == (500, 500 * 60)
        tags = found["tags"]
        assert isinstance(tags, list)
        assert {row["tag"]: row["messages"] for row in tags} == {"paid": 250, "open": 250}
    assert pq.read_table(figures / "topics.parquet")["messages"].to_pylist() == [500]
