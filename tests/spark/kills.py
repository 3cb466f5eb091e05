"""What tests that kill share: a sender, a driver with what runs below it, and turns in which one of all dies.

FLAREMQ_KILL_MESSAGES   how many are sent (20000); limits of time grow with it
FLAREMQ_KILL_ROUNDS     how many turns there are (4); the victims of a test take turns
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
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.spark.conftest import ROOT
from tests.spark.servers import make_topic

from flaremq.base.errors import FlareError, ManyFailed
from flaremq.client.message import Receipt
from flaremq.client.sync import Producer
from flaremq.model.message import Message
from flaremq.testing.cluster import Cluster, Process, eventually


def wanted(name: str, otherwise: str) -> str:
    """A variable of the environment, taken out of it: servers inherit it, and take FLAREMQ_* for options."""
    return os.environ.pop(f"FLAREMQ_KILL_{name}", otherwise)


MESSAGES = int(wanted("MESSAGES", "20000"))
ROUNDS = int(wanted("ROUNDS", "4"))
SHARE = MESSAGES // ROUNDS
"""Messages of one turn."""
BATCH = max(100, SHARE // 6)
"""Messages of a batch: several are needed for a share, so that most kills come in the middle of one."""
CHUNK = max(1, min(500, SHARE // 20))
"""Messages that are sent at a time."""
LIMIT_S = 400.0 + MESSAGES / 500
"""For anything that is waited for. A machine with two cores that is busy otherwise needs a tenth of it."""
TIMEOUT_S = 600 + 120 * ROUNDS + MESSAGES // 50
"""Of a test."""
QUEUES = 4
TOPIC = "Kills"
_PAUSE_S = 0.2

T = TypeVar("T")
Place = tuple[int, int]
"""Queue and offset."""


class Sender:
    """Sends numbered messages, as many as are allowed by now, each until it is acknowledged."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self.acknowledged: dict[Place, int] = {}
        """Numbers by where they lie. One that was stored without an answer has another place besides."""
        self._allowed = 0
        self._is_last = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def allow(self, total: int) -> None:
        with self._changed:
            self._allowed = total
            self._changed.notify()

    def check(self) -> None:
        assert self._thread.is_alive(), "the sender has failed: its thread has said why"

    def finish(self) -> None:
        """All that is allowed is acknowledged."""
        with self._changed:
            self._is_last = True
            self._changed.notify()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        check_same(set(self.acknowledged.values()), set(range(self._allowed)))

    def _run(self) -> None:
        begin = 0
        with Producer("kills", self._namesrv) as producer:
            while end := self._next(begin):
                todo = list(range(begin, end))
                while todo := self._refused(producer, todo):
                    with self._changed:
                        self._changed.wait(_PAUSE_S)  # A broker that was killed needs some time.
                begin = end

    def _next(self, begin: int) -> int:
        """Where the next chunk ends, as soon as there may be one; 0 if none comes any more."""
        with self._changed:
            self._changed.wait_for(lambda: begin < self._allowed or self._is_last)
            return min(self._allowed, begin + CHUNK) if begin < self._allowed else 0

    def _refused(self, producer: Producer, numbers: list[int]) -> list[int]:
        """Send these; which of them nobody has acknowledged."""
        messages = [Message(self._topic, b"%010d" % each) for each in numbers]
        try:
            results: list[object] = list(producer.send_many(messages))
        except ManyFailed as error:
            results = list(error.results)
        except FlareError:
            return numbers
        left = []
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, Receipt):
                self.acknowledged[result.queue.queue_id, result.queue_offset] = number
            else:
                left.append(number)
        return left


class Driver:
    """A process with Spark in it, started anew whenever it has ended.

    It runs until its stdin ends; told to work once, it does what is left and prints a line of JSON.
    """

    def __init__(self, module: str, said: Mapping[str, object], folder: Path) -> None:
        self._module = module
        self._said = said
        self._folder = folder
        self._seen: set[int] = set()
        self._files = ExitStack()
        self.starts = 0
        self.errors: list[str] = []
        """What those have said that ended before they should."""
        self._process = self._start()

    def _start(self, *, once: bool = False) -> subprocess.Popen[str]:
        self.starts += 1
        out, err = (self._files.enter_context(self._output(name).open("w")) for name in ("out", "err"))
        return subprocess.Popen(
            [sys.executable, "-m", self._module, json.dumps({**self._said, "once": once})],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            text=True,
            cwd=ROOT,
        )

    def _output(self, name: str) -> Path:
        """Files: nobody reads a pipe while it runs, and a full one would stop it."""
        return self._folder / f"driver-{self.starts}.{name}"

    def keep_running(self) -> None:
        if self._process.poll() is not None:
            self._let_go()
            self.errors.append(self._output("err").read_text().strip())
            self._process = self._start()

    def below(self) -> dict[int, str]:
        """The processes below it, with their command lines. Those that it leaves behind are known by it."""
        found = descendants(self._process.pid)
        self._seen |= set(found)
        return found

    def _let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_S)
        self._files.close()

    def kill(self) -> None:
        self.keep_running()
        self.below()
        self._process.kill()

    def finish(self) -> dict[str, Any]:
        """Stop, and do what is left; what that has printed."""
        self.below()
        self._let_go()
        self._process = self._start(once=True)
        self._process.wait(LIMIT_S)
        assert self._process.returncode == 0, self._output("err").read_text()
        found: dict[str, Any] = json.loads(self._output("out").read_text())
        return found

    def clean_up(self) -> None:
        """Nothing of Spark stays behind, whatever has happened."""
        self.below()
        self._process.kill()
        self._let_go()
        for pid in self._seen:
            with suppress(OSError):
                if b"org.apache.spark" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> dict[int, str]:
    """All processes below one, with their command lines."""
    children, commands = defaultdict[int, list[int]](list), dict[int, str]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            children[_parent(int(folder.name))].append(int(folder.name))
            commands[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    found: dict[int, str] = {}
    todo = list(children[root])
    while todo:
        pid = todo.pop()
        found[pid] = commands.get(pid, "")
        todo += children[pid]
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def workers(below: Mapping[int, str]) -> list[int]:
    """All of them, as nobody tells which are at work: forks of daemons, not the daemons themselves."""
    daemons = {pid for pid, command in below.items() if "pyspark.daemon" in command}
    found = []
    for pid in daemons:
        with suppress(OSError, ValueError, IndexError):
            if _parent(pid) in daemons:
                found.append(pid)
    return found


def executors(below: Mapping[int, str]) -> list[int]:
    """One of them: what the others have begun goes on."""
    return [pid for pid, command in below.items() if "CoarseGrainedExecutorBackend" in command][:1]


def jvms(below: Mapping[int, str]) -> list[int]:
    """The one in which the driver's Spark runs."""
    return [pid for pid, command in below.items() if "org.apache.spark.deploy.SparkSubmit" in command]


BELOW: Mapping[str, Callable[[Mapping[int, str]], list[int]]] = {
    "worker": workers,
    "executor": executors,
    "jvm": jvms,
}
"""What can be killed below a driver."""


class Run:
    """All that takes part: servers, a sender, a driver. What the driver makes of it is said by each test."""

    topics: tuple[str, ...] = (TOPIC,)
    """The first is the one that is sent to."""
    module = ""

    def __init__(self, folder: Path, master: str) -> None:
        self.folder = folder
        self._master = master
        self.rng = random.Random(7)
        self.killed: list[str] = []
        self._all = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.cluster = stack.enter_context(Cluster(self.folder))
            self.namesrv = self.cluster.namesrv().address
            self.broker: Process = self.cluster.broker("broker-a", self.namesrv)
            for topic in self.topics:
                make_topic(self.namesrv, topic, QUEUES)
            said = {"namesrv": self.namesrv, "master": self._master, "batch": BATCH, **self.said()}
            self.driver = Driver(self.module, said, self.folder)
            stack.callback(self.driver.clean_up)
            self.sender = Sender(self.namesrv, self.topics[0])
            self._all = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._all.close()

    # What each test says.

    def said(self) -> dict[str, object]:
        """What the driver is told besides."""
        raise NotImplementedError

    def done(self) -> int:
        """How many messages have been dealt with. It is asked again and again."""
        raise NotImplementedError

    async def moment(self) -> None:
        """Wait for a good moment to kill something."""
        raise NotImplementedError

    def between(self) -> None:
        """Comes after each turn."""

    # What all do.

    async def play(self, victims: list[str]) -> dict[str, Any]:
        """Kill one after the other, then let all be done; what the last driver has said."""
        for turn in range(ROUNDS):
            before = turn * SHARE
            self.sender.allow(before + SHARE * 3 // 4)
            await self.grown_to(before + self.rng.randrange(1, max(2, SHARE // 4)))
            await self.moment()
            await self._sending(before + SHARE)
            await self.kill(victims[turn % len(victims)])
            await self.grown_to(before + SHARE * 3 // 4)
            self.between()
        self.sender.finish()
        said = self.driver.finish()
        for each in self.driver.errors:
            assert "Traceback" not in each, each
        return said

    async def grown_to(self, count: int) -> None:
        async def is_so() -> bool:
            self.look()
            return self.done() >= count

        await self.until(f"{count} messages are dealt with", is_so)

    async def _sending(self, total: int) -> None:
        """What is killed is killed while messages are on their way."""
        before = len(self.sender.acknowledged)
        self.sender.allow(total)

        async def is_so() -> bool:
            self.look()
            return len(self.sender.acknowledged) > before

        await self.until("more is being sent", is_so)

    async def kill(self, victim: str) -> None:
        self.killed.append(victim)
        if victim == "driver":
            self.driver.kill()
            return
        if victim == "broker":
            self.broker.kill()
            self.broker = await asyncio.to_thread(self.cluster.again, self.broker)
            return

        async def is_done() -> bool:
            self.look()
            found = BELOW[victim](self.driver.below())
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return bool(found)

        await self.until(f"a {victim} was there to be killed", is_done)

    def look(self) -> None:
        self.sender.check()
        self.driver.keep_running()

    async def until(self, what: str, is_so: Callable[[], Awaitable[bool]]) -> None:
        try:
            await eventually(what, is_so, LIMIT_S)
        except TimeoutError as error:
            raise TimeoutError(
                f"{error}; killed: {self.killed}; drivers said: {self.driver.errors}"
            ) from None


def check_same(found: Set[T], wanted: Set[T]) -> None:
    """As an assert, but its message has no line for each of a million."""
    lost, more = wanted - found, found - wanted
    if lost or more:
        few = f"{list(lost)[:3]}; {len(more)} should not be there: {list(more)[:3]}"
        raise AssertionError(f"of {len(wanted)}, {len(lost)} are missing: {few}")


def newest(folder: Path) -> int:
    """The last number that a file of a checkpoint has for a name; -1 if there is none."""
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)  # noqa: PTH208
    except FileNotFoundError:
        return -1
