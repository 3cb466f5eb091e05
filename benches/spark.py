"""Rows per second of our Spark formats, beside Spark's own Parquet and its Kafka source.

`python -m benches spark`. Everything runs under pyspark 4.2.0 in an environment of its own
(build/bench-spark), because Spark's Kafka source is published up to that version. `--here` takes the
environment that it is called from, and leaves Kafka out.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benches.wire import NotMeasured
from tests.java.toolchain import Toolchain, find_toolchain

from flaremq.admin.sync import Admin
from flaremq.admin.values.topics import TopicSettings
from flaremq.remoting.ports import free_port
from flaremq.store.settings import StoreSettings
from flaremq.store.store import MessageStore
from flaremq.testing.cluster import Cluster
from flaremq.testing.fakes.builders import a_message

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "build" / "bench-spark"
SPARK = "4.2.0"
QUEUES = 4
PACKAGES = (
    f"pyspark=={SPARK}",
    "pyarrow>=18",
    "pandas>=2.2,<3",
    "numpy",
    "lz4",
    "orjson",
    "uvloop",
    "zstandard",
)
"""Ourselves we take from the sources, compiled twins and all."""
READY_LIMIT_S = 60.0


def make_store(root: Path, rows: int) -> None:
    """Messages of 100 bytes with a key, a tag, an id and a property: records of some 280 bytes."""
    store = MessageStore(StoreSettings(root=root, disk_max_used_percent=99), owner_dispatches=True)
    store.open()
    try:
        for i in range(rows):
            tag = (b"paid", b"new", b"sent")[i % 3]
            properties = b"KEYS\x01order-%08d\x02UNIQ_KEY\x01%032X\x02TAGS\x01%s\x02region\x01eu-west\x02" % (
                i,
                i,
                tag,
            )
            store.put(a_message(b"x" * 100, topic=b"Orders", queue_id=i % QUEUES, properties=properties))
            if i % 1000 == 999:
                store.dispatch()
        store.dispatch()
    finally:
        store.close()


def environment() -> Path:
    """The Python of an environment with Spark 4.2.0 and what we are now, made once."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"making an environment with pyspark {SPARK} (some minutes, once)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
    return python


def class_path(pom: str) -> str:
    """Of what a pom names, from Maven Central."""
    out = ROOT / "build" / f"{pom}.classpath"
    if not out.exists():
        out.parent.mkdir(exist_ok=True)
        words = ["mvn", "-q", "-B", "-f", str(ROOT / "benches" / "kafka" / f"{pom}.xml")]
        words += ["dependency:build-classpath", f"-Dmdep.outputFile={out}", "-Dmdep.includeScope=runtime"]
        run = subprocess.run(words, capture_output=True, text=True, check=False)
        if run.returncode:
            raise NotMeasured(
                f"Maven cannot get what benches/kafka/{pom}.xml names: {run.stdout.strip()[-300:]}"
            )
    return out.read_text().strip()


@contextmanager
def kafka(toolchain: Toolchain, folder: Path) -> Iterator[str]:
    """A Kafka broker of its own, with a topic of as many partitions as we have queues."""
    port, controller = free_port(), free_port()
    config = folder / "kafka.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={folder / 'kafka'}\n"
        f"num.partitions={QUEUES}\noffsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    )
    java = [str(toolchain.java), "-Xmx2g", "-cp", class_path("broker")]
    format_ = [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(config)]
    subprocess.run(format_, check=True, capture_output=True)
    with (folder / "kafka.log").open("wb") as log:
        server = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=subprocess.STDOUT)
        try:
            _await_port(port)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _await_port(port: int) -> None:
    deadline_s = time.monotonic() + READY_LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise NotMeasured(f"nothing listens at port {port} after {READY_LIMIT_S:g} s") from None
            threading.Event().wait(0.2)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def run_work(python: Path, words: list[str]) -> dict[str, float]:
    """Rates by case, printed as they come."""
    rates: dict[str, float] = {}
    for case in [told["case"] for told in _told(python, [*words, "--prepare"])]:
        for told in _told(python, [*words, "--only", case]):
            rates[case] = told["rate"]
            print(f"{case:<40}{rates[case]:>14,.0f}", flush=True)
    return rates


def _told(python: Path, words: list[str]) -> list[dict[str, Any]]:
    command = [str(python), "-m", "benches.sparkwork", *words]
    run = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=_environment(), check=False
    )
    if run.returncode:
        raise NotMeasured(f"{' '.join(command)} ended with status {run.returncode}")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=7, help="rounds before those that count")
    parser.add_argument("--here", action="store_true", help="in this environment, and without Kafka")
    given = parser.parse_args(words)
    toolchain = find_toolchain()
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flaremq-bench-", dir=".")))
            python = Path(sys.executable) if given.here else environment()
            common = ["--rows", str(given.rows), "--rounds", str(given.rounds), "--warm", str(given.warm)]
            common += ["--folder", str(folder.resolve())]
            store = folder.resolve() / "broker-a" / "store"
            make_store(store, given.rows)
            print(f"\n{'Spark, local[2]':<40}{'rows/s':>14}", flush=True)
            rates = run_work(python, [*common, "--store", str(store)])
            rates |= _over_network(python, folder.resolve(), common)
            if not given.here and not isinstance(toolchain, str):
                address = stack.enter_context(kafka(toolchain, folder.resolve()))
                jars = class_path("connector").replace(":", ",")
                rates |= run_work(
                    python, [*common, "--rows-of", str(store), "--kafka", address, "--jars", jars]
                )
            _show_ratios(rates)
    except NotMeasured as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None


def _over_network(python: Path, folder: Path, common: list[str]) -> dict[str, float]:
    """The same store, opened by a broker."""
    with Cluster(folder / "servers") as cluster:
        namesrv = cluster.namesrv()
        cluster.broker(
            "broker-a",
            namesrv.address,
            storePathRootDir=folder / "broker-a" / "store",
            mappedFileSizeCommitLog=1 << 30,
            mappedFileSizeConsumeQueue=300_000 * 20,
            maxHashSlotNum=5_000_000,
            maxIndexNum=20_000_000,
        )
        with Admin(
            namesrv.address
        ) as admin:  # The queues are there; only the broker does not know of them yet.
            admin.topics.create("Orders", TopicSettings(read_queues=QUEUES, write_queues=QUEUES))
        return run_work(python, [*common, "--namesrv", namesrv.address, "--topic", "Orders"])


def _show_ratios(rates: dict[str, float]) -> None:
    print(f"\n{'ratio':<60}{'':>8}")
    for ours, peer in (
        ("store files, nine columns", "Parquet, nine columns"),
        ("store files, nine columns", "ready batches, nine columns"),
        ("store files, nine columns", "Kafka source, with headers"),
        ("store files, two columns", "Kafka source, without headers"),
        ("network, nine columns", "Kafka source, with headers"),
        ("network, nine columns", "store files, nine columns"),
    ):
        if ours in rates and peer in rates:
            print(f"{ours + ' / ' + peer:<60}{rates[ours] / rates[peer]:>8.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
