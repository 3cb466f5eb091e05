"""An archive whose driver, workers, executors and broker are killed in turn: every message is in it, once.

FLAREMQ_KILL_MESSAGES, FLAREMQ_KILL_ROUNDS and FLAREMQ_KILL_FORMAT make it longer, or another.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.spark.conftest import ROOT
from tests.spark.servers import make_topic

from flaremq.base.errors import FlareError, ManyFailed
from flaremq.client.message import Receipt
from flaremq.client.sync import Producer
from flaremq.model.message import Message
from flaremq.spark.java import Java
from flaremq.spark.pipelines.compact import compact
from flaremq.spark.tables import archived_files
from flaremq.testing.cluster import Cluster, Process, eventually

MESSAGES = int(os.environ.get("FLAREMQ_KILL_MESSAGES", "20000"))
ROUNDS = int(os.environ.get("FLAREMQ_KILL_ROUNDS", "4"))
FORMAT = os.environ.get("FLAREMQ_KILL_FORMAT", "parquet")
TOPIC = "Kills"
QUEUES = 4
CHUNK = 500
LIMIT_S = 400.0

Place = tuple[int, int]
"""Queue and offset."""


class Sender:
    """Sends numbered messages, as many as are allowed by now, and notes where acknowledged ones lie."""

    def __init__(self, namesrv: str) -> None:
        self.acknowledged: dict[Place, int] = {}
        self._allowed = 0
        self._is_last = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(namesrv,), daemon=True)
        self._thread.start()

    def allow(self, total: int) -> None:
        with self._changed:
            self._allowed = total
            self._changed.notify()

    def finish(self) -> None:
        with self._changed:
            self._is_last = True
            self._changed.notify()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _run(self, namesrv: str) -> None:
        number = 0
        with Producer("kills", namesrv) as producer:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda at=number: at < self._allowed or self._is_last)  # type: ignore[misc]
                    end = min(self._allowed, number + CHUNK)
                if number >= end:
                    return
                messages = [Message(TOPIC, b"%010d" % each) for each in range(number, end)]
                try:
                    results: list[object] = list(producer.send_many(messages))
                except ManyFailed as error:
                    results = list(error.results)
                except FlareError:
                    results = []
                for each, result in enumerate(results, number):
                    if isinstance(result, Receipt):
                        self.acknowledged[result.queue.queue_id, result.queue_offset] = each
                number = end


class Driver:
    """The process that archives, started anew whenever it has ended."""

    def __init__(self, said: dict[str, object]) -> None:
        self._said = said
        self._seen: set[int] = set()
        self.starts = 0
        self.errors: list[str] = []
        self._process = self._start()

    def _start(self, *, once: bool = False) -> subprocess.Popen[str]:
        self.starts += 1
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.archivedriver", json.dumps({**self._said, "once": once})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def keep_running(self) -> None:
        below = descendants(self._process.pid)
        self._seen |= set(below)
        if self._process.poll() is not None:
            self.errors.append(self._end())
            self._process = self._start()

    def _end(self) -> str:
        """What it has said to the end."""
        _, said = self._process.communicate()
        return said.strip()

    def kill(self) -> None:
        self.keep_running()
        self._process.kill()

    def kill_one(self, is_it: Callable[[int, str], bool]) -> bool:
        """One process below the driver; False if there is none such now."""
        found = [pid for pid, command in descendants(self._process.pid).items() if is_it(pid, command)]
        for pid in found[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    def finish(self) -> None:
        """Stop, and archive what is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._process = self._start(once=True)
        out, err = self._process.communicate(timeout=LIMIT_S)
        assert self._process.returncode == 0, err
        assert int(out) >= 0

    def clean_up(self) -> None:
        self._seen |= set(descendants(self._process.pid))
        self._process.kill()
        self._process.communicate()
        for pid in self._seen:
            with suppress(OSError):
                if b"org.apache.spark" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> dict[int, str]:
    """All processes below one, with their command lines."""
    children, commands = defaultdict[int, list[int]](list), dict[int, str]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(folder.name))
            commands[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    found: dict[int, str] = {}
    todo = list(children[root])
    while todo:
        pid = todo.pop()
        found[pid] = commands.get(pid, "")
        todo += children[pid]
    return found


def is_worker(pid: int, command: str) -> bool:
    """A fork of the daemon, not the daemon itself."""
    with suppress(OSError, ValueError):
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return (
            "pyspark.daemon" in command and b"pyspark.daemon" in Path(f"/proc/{parent}/cmdline").read_bytes()
        )
    return False


def is_executor(_: int, command: str) -> bool:
    return "CoarseGrainedExecutorBackend" in command


class Run:
    """All that takes part."""

    def __init__(self, folder: Path, cluster: Cluster, master: str) -> None:
        self.folder = folder / "archive"
        self.cluster = cluster
        namesrv = cluster.namesrv()
        self.broker: Process = cluster.broker("broker-a", namesrv.address)
        make_topic(namesrv.address, TOPIC, QUEUES)
        self.driver = Driver(
            {
                "namesrv": namesrv.address,
                "topic": TOPIC,
                "to": str(self.folder),
                "format": FORMAT,
                "master": master,
                "offsets_max": max(CHUNK, MESSAGES // ROUNDS // 6),
            }
        )
        self.sender = Sender(namesrv.address)

    def rows(self) -> int:
        with suppress(FlareError):
            return sum(file.rows for file in archived_files(self.folder)[1])
        return 0

    async def grown_to(self, rows: int) -> None:
        async def is_so() -> bool:
            self.driver.keep_running()
            return self.rows() >= rows

        await eventually(f"{rows} rows are archived; drivers said {self.driver.errors}", is_so, LIMIT_S)

    async def kill(self, victim: str) -> None:
        if victim == "driver":
            self.driver.kill()
        elif victim == "broker":
            self.broker.kill()
            self.broker = self.cluster.again(self.broker)
        else:
            is_it = is_worker if victim == "worker" else is_executor

            async def is_done() -> bool:
                self.driver.keep_running()
                return self.driver.kill_one(is_it)

            await eventually(f"a {victim} was there to be killed", is_done, LIMIT_S)

    async def play(self, victims: list[str]) -> None:
        rng, share = random.Random(7), MESSAGES // ROUNDS
        for turn in range(ROUNDS):
            before = self.rows()
            self.sender.allow((turn + 1) * share)
            await self.grown_to(before + rng.randrange(1, max(2, share // 2)))
            await self.kill(victims[turn % len(victims)])
            await self.grown_to(before + share * 3 // 4 - CHUNK)  # What is not acknowledged may be missing.
            compact(None, self.folder)
        self.sender.finish()
        self.driver.finish()


@contextmanager
def playing(folder: Path, master: str) -> Iterator[Run]:
    with Cluster(folder) as cluster:
        run = Run(folder, cluster, master)
        try:
            yield run
        finally:
            run.driver.clean_up()


def check(folder: Path, acknowledged: dict[Place, int]) -> int:
    """Every queue from its first to its last message without a gap, each once, with what was acknowledged."""
    base, files = archived_files(folder)
    found: dict[Place, int] = {}
    for file in files:
        table = pq.ParquetFile(base / file.path).read(columns=["queueId", "queueOffset", "body"])
        for queue, offset, body in zip(*(column.to_pylist() for column in table.columns), strict=True):
            assert (queue, offset) not in found, f"offset {offset} of queue {queue} is there twice"
            found[queue, offset] = int(body)
    assert all(found.get(place) == number for place, number in acknowledged.items())
    for queue in range(QUEUES):
        offsets = sorted(offset for each, offset in found if each == queue)
        assert offsets == list(range(len(offsets)))
    return len(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("master", "victims"),
    [
        ("local[2]", ["driver", "broker", "worker", "driver"]),
        ("local-cluster[2,1,1024]", ["executor", "driver", "worker", "broker"]),
    ],
)
def test_every_message_is_archived_once_whatever_is_killed(
    java: Java, tmp_path: Path, master: str, victims: list[str]
) -> None:
    with playing(tmp_path, master) as run:
        asyncio.run(run.play(victims))
        total = check(run.folder, run.sender.acknowledged)
        assert total >= len(run.sender.acknowledged) > MESSAGES // 2
        assert run.driver.starts > 2
