"""Snippets of the README and the guides run as they are typed.

Each Python and shell block of a page has an entry in PLANS, in the order of the page: what it prints, or
why it is not run. Only addresses and folders are replaced by those of the test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flaremq.admin.sync import Admin
from flaremq.client.sync import Message, Producer
from flaremq.model.topic import GroupConfig
from flaremq.remoting.ports import BROKER, free_port
from flaremq.testing.patience import load_factor

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
LIMIT_S = 60.0
_POLL_S = 0.1
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
LONG = {"maintain.md", "test.md"}
"""Pages that take long, and say little that other tests do not."""


@dataclass(frozen=True)
class Runs:
    """Ends by itself with status 0, and prints what the expression matches."""

    prints: str = ""
    spark: bool = False


@dataclass(frozen=True)
class RunsOn:
    """Prints that, and then runs on until Ctrl-C, which it obeys: cleanly, or as asyncio.run always does."""

    prints: str
    interrupted: bool = False


@dataclass(frozen=True)
class Watches:
    """Runs on as well, and prints that when the block after it has run."""

    prints: str


@dataclass(frozen=True)
class Shown:
    """Not run, for this reason."""

    why: str


READERS_OWN = Shown("calls the reader's own program; examples/test_orders.py is a whole one, and is run")
SPARK = Shown(
    "needs Spark, a minute a block; tests/spark and tests/cli/pipelines/test_commands.py do the same"
)
STOPPED = Shown(
    "needs a stopped broker, or files of the reader; tests/cli/pipelines/test_commands.py runs them"
)
LIVED = Shown("needs brokers that come and go; test_a_master_dies_as_told_in_the_guide runs all of them")
PLANS: dict[str, list[Runs | RunsOn | Watches | Shown]] = {
    "README.md": [
        Shown("sets up and runs everything; tests/test_makefile.py and tests/cli/demo/test_demo.py"),
        Shown("installs; every page of this test then runs on a `flaremq up`"),
        Watches("one book"),
        Runs("OK"),
        RunsOn(r"\('o-17',\) b'one book'"),
        Runs(r"\|paid\| +1\|(?s:.*)\|Orders\| +1\|", spark=True),
        STOPPED,
    ],
    "archive.md": [SPARK] * 5,
    "commands.md": [Runs(r"OK\n(?s:.*)Orders(?s:.*)one book(?s:.*)DefaultCluster +broker-a"), Runs("prod")],
    "consume.md": [
        RunsOn(r"\('o-17',\) b'one book'"),
        RunsOn("one book", interrupted=True),
        Runs(r"^1$"),
        RunsOn(r"Orders: consumed in \d+\.\d ms"),
    ],
    "dead-letters.md": [
        RunsOn(r"billed \('o-18',\)"),
        Runs(r"1s x2 to 10m"),
        Runs(
            r"billing +1 (?s:.*)there is no such customer(?s:.*)would resend 1 dead letter of group billing"
            r" to the topic it came from\n1 dead letter written to letters.jsonl"
        ),
        Runs(r"^billing 1 \{'there is no such customer': 1\}\n1 sent, 0 failed$"),
    ],
    "delay.md": [
        Runs(r"^cancelled$"),
        Runs(r"OK(?s:.*)WITHIN_A_MINUTE(?s:.*)Orders(?s:.*)WAITS_FOR(?s:.*)timer"),
    ],
    "request.md": [Runs("^42$")],
    "transactions.md": [Runs("was not needed"), Runs("No transactions are open or parked")],
    "once.md": [
        Runs("^each of them is stored once$"),
        Runs(r"^\d+ new\n\d+ new\n\d+ again\n\d+ again$"),
        Runs(r"^billed o-17$"),
    ],
    "trace.md": [
        Runs(r"^billed: True$"),
        Runs(r"sent by orders(?s:.*)attempt 1: failed(?s:.*)attempt 2: ok"),
        Runs(r"^SendStatus.OK$"),
    ],
    "maintain.md": [
        Runs(),
        Runs("is sound: 1 record"),
        Runs(r"broker-a-n0 holds 1 record .*\n.*broker-a-plain holds 1 record "),
        Runs(r"Changed on broker-a\.\nDone by broker-a\."),
    ],
    "operate.md": [
        Shown("needs machines ns1 and ns2; tests/deploy starts servers by these commands"),
        Runs(r"fileReservedTime=72\ndeleteWhen=04\nChanged on broker-a\."),
        Runs(r"^broker-a 127.*\n0$"),
    ],
    "order.md": [RunsOn(r"order-17 b'created'\norder-17 b'paid'\norder-17 b'shipped'")],
    "pipelines.md": [
        Shown("an output: test_the_mistake_in_the_pipeline_is_found_as_shown compares it"),
        Shown("a step of the pipeline above, without a life of its own"),
        Shown("runs the pipeline above, whose mistake is meant; tests/spark and tests/cli run others"),
    ],
    "raft.md": [LIVED] * 7,
    "replicate.md": [LIVED] * 12,
    "send.md": [
        Runs(r"^[0-9A-F]{32} .*SendStatus.OK$"),
        Runs(r"^1 message to Orders: SendStatus.OK, \d+\.\d ms$"),
    ],
    "spark-write.md": [SPARK] * 4,
    "spark.md": [SPARK] * 3,
    "stats.md": [Runs("^1 ", spark=True)],
    "stores.md": [Runs(r"\|Orders\| +1\|", spark=True), STOPPED, STOPPED],
    "test.md": [
        Shown("a line of a conftest.py; examples/test_orders.py has it"),
        *[READERS_OWN] * 3,
        Shown("an output; tests/testing/test_asserts.py compares it"),
        *[READERS_OWN] * 3,
        Runs("12 attempts in 46 minutes"),
        Runs(r"^127\.0\.0\.1:\d+$"),
    ],
    "tls.md": [
        Shown("needs a cluster with TLS; tests/cli/test_tls.py gives the same flags"),
        Shown("needs a certificate; tests/client and tests/remoting connect with one"),
    ],
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of the Python and shell blocks; a block without a language is for a shell."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [(language, text) for language, text in found if language in ("", "sh", "python")]


class Place:
    """A folder and a `flaremq up` with one paid order: where the blocks of one page run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLAREMQ_")},
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "settings"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }
        self._up = self.start(["flaremq", "up", "--json", "--port", "0", "--broker-port", "0"], stderr=None)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        assert self._up.stdout is not None
        self.namesrv = str(json.loads(self._up.stdout.readline())["namesrv"])
        self._environ["NAMESRV_ADDR"] = self.namesrv
        with Producer("shop", self.namesrv) as producer, Admin(self.namesrv) as admin:
            producer.send(Message("Orders", b"one book", tags="paid", keys=["o-17"]))
            admin.groups.create(GroupConfig("billing"))

    def prepare_for_spark(self) -> None:
        """What the pages assume: Java, and a store."""
        find_java = pytest.importorskip("flaremq.spark.launch.java").find_java
        self._environ["JAVA_HOME"] = str(find_java().home)
        (self.folder / "data").mkdir()
        (self.folder / "data" / "store").symlink_to(self.folder / ".local" / "share" / "flaremq" / "store")

    def close(self) -> None:
        self._up.terminate()
        self._up.communicate()

    def start(self, command: list[str], stderr: int | None = subprocess.STDOUT) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=self.folder, env=self._environ, stdout=subprocess.PIPE, stderr=stderr, text=True
        )

    def command(self, language: str, text: str) -> list[str]:
        text = text.replace("127.0.0.1:9876", self.namesrv)
        text = re.sub(r"(?<![\w.])/(data|restored|tmp)\b", rf"{self.folder}/\1", text)
        return ["python", "-c", text] if language == "python" else ["bash", "-e", "-c", text]

    def runs(self, command: list[str], prints: str) -> None:
        # Each stream of its own: a line of a handler and one of the log may be written at the same moment.
        with self.start(command, stderr=subprocess.PIPE) as process:
            out, errors = process.communicate(timeout=LIMIT_S * load_factor())
        assert process.returncode == 0, out + errors
        assert re.search(prints, f"{out}\n{errors}", re.MULTILINE), out + errors

    def runs_on(self, command: list[str], prints: str, meanwhile: list[str] | None = None) -> str:
        """All that it printed until Ctrl-C ended it."""
        files = [self.folder / "printed", self.folder / "complained"]
        with files[0].open("w") as output, files[1].open("w") as errors:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environ, stdout=output, stderr=errors
            )

        def printed() -> str:
            return "\n".join(file.read_text() for file in files)

        try:
            self._until(process, lambda: re.search(prints, printed(), re.MULTILINE), meanwhile)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT_S * load_factor())
        assert re.search(prints, printed(), re.MULTILINE), printed()
        return printed()

    def _until(
        self, process: subprocess.Popen[bytes], is_so: Callable[[], object], meanwhile: list[str] | None
    ) -> None:
        """Wait for it, or for the end of the process; repeat what is to be done meanwhile."""
        ends_s = time.monotonic() + LIMIT_S * load_factor()
        while not is_so() and process.poll() is None and time.monotonic() < ends_s:
            if meanwhile:
                self.runs(meanwhile, "")
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    try:
        yield place
    finally:
        place.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_is_run_or_has_a_reason_not_to(page: Path) -> None:
    assert len(PLANS.get(page.name, [])) == len(blocks(page)), [text[:60] for _, text in blocks(page)]


def pages(*, spark: bool) -> list[Any]:
    """Those with blocks to run, with Spark or without."""
    return [
        pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in LONG else ())
        for page in PAGES
        if any(needs_spark(plan) is spark for plan in PLANS.get(page.name, []))
    ]


def needs_spark(plan: Runs | RunsOn | Watches | Shown) -> bool | None:
    """None for what is not run."""
    return None if isinstance(plan, Shown) else isinstance(plan, Runs) and plan.spark


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages(spark=False))
def test_blocks_of_a_page_run_as_they_are_typed(page: Path, place: Place) -> None:
    if page.name == "maintain.md":
        a_stopped_store(place.folder / "data" / "broker-a", place)
    run_blocks(page, place, spark=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", pages(spark=True))
def test_blocks_for_spark_run_as_they_are_typed(page: Path, place: Place) -> None:
    place.prepare_for_spark()
    run_blocks(page, place, spark=True)


def run_blocks(page: Path, place: Place, *, spark: bool) -> None:
    found = blocks(page)
    for number, plan in enumerate(PLANS[page.name]):
        if needs_spark(plan) is not spark:
            continue
        command = place.command(*found[number])
        if isinstance(plan, Runs):
            place.runs(command, plan.prints)
        elif isinstance(plan, RunsOn):
            printed = place.runs_on(command, plan.prints)
            was = ("KeyboardInterrupt" in printed, "Traceback" in printed)
            assert was == (plan.interrupted, plan.interrupted), printed
        elif isinstance(plan, Watches):
            place.runs_on(command, plan.prints, place.command(*found[number + 1]))


def a_stopped_store(folder: Path, place: Place) -> None:
    """What a broker leaves behind: here that of another `up`, which has stopped."""
    other = Place(place.folder / "other")
    other.close()
    shutil.copytree(other.folder / ".local" / "share" / "flaremq" / "store", folder)
    (place.folder / "restored").mkdir()


def test_the_mistake_in_the_pipeline_is_found_as_shown(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guide" / "pipelines.md").read_text()
    recipe, shown = re.findall(r"^```(?:yaml)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[:2]
    (tmp_path / "paid-orders.yaml").write_text(recipe)
    (tmp_path / "customers").mkdir()
    ran = subprocess.run(
        [str(BIN / "flaremq"), "pipeline", "plan", "paid-orders.yaml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert shown.strip() in ran.stderr


class Terminals:
    """The blocks of a guide about several servers, each in a terminal of its own."""

    def __init__(self, page: str, folder: Path) -> None:
        brokers, others = ("10911", "10921", "10931"), ("9876", "40911", "40912", "40913")
        ports = {
            **{port: free_port(steps=BROKER) for port in brokers},
            **{port: free_port() for port in others},
        }
        text = (ROOT / "docs" / "guide" / page).read_text()
        for old, new in ports.items():
            text = re.sub(rf"\b{old}\b", str(new), text)
        text = re.sub(r"(?<![\w.])/tmp\b", str(folder), text)
        found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        self._blocks = [(language, block) for language, block in found if language in ("", "python")]
        self._folder = folder
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLAREMQ_")},
            "HOME": str(folder),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "NAMESRV_ADDR": f"127.0.0.1:{ports['9876']}",
            "PYTHONUNBUFFERED": "1",
        }
        self._servers: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        for server in self._servers:
            server.kill()
            server.wait()

    def serves(self, number: int) -> subprocess.Popen[bytes]:
        """Starts the server of a block, and waits until it is ready."""
        printed = self._folder / f"printed-{len(self._servers)}"
        with printed.open("w") as output:
            command = f"exec {self._blocks[number][1]}"
            server = subprocess.Popen(
                ["bash", "-c", command], cwd=self._folder, env=self._environ, stdout=output, stderr=output
            )
        self._servers.append(server)
        ends_s = time.monotonic() + LIMIT_S * load_factor()
        while "boot success" not in printed.read_text():
            assert server.poll() is None and time.monotonic() < ends_s, printed.read_text()
            with suppress(subprocess.TimeoutExpired):
                server.wait(_POLL_S)
        return server

    def prints(self, number: int, expected: str, status: int = 0) -> None:
        """Runs a block until it prints that and ends with this status: servers take a moment to meet."""
        language, block = self._blocks[number]
        command = ["python", "-c", block] if language == "python" else ["bash", "-e", "-c", block]
        self.until(command, expected, status)

    def until(self, command: list[str], expected: str, status: int = 0) -> str:
        ends_s = time.monotonic() + LIMIT_S * load_factor()
        while True:
            ran = subprocess.run(
                command, cwd=self._folder, env=self._environ, capture_output=True, text=True, check=False
            )
            said = ran.stdout + ran.stderr
            if ran.returncode == status and re.search(expected, said, re.MULTILINE):
                return said
            assert time.monotonic() < ends_s, said


def killed(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()


@pytest.fixture
def guide(tmp_path: Path) -> Iterator[Callable[[str], Terminals]]:
    with ExitStack() as opened:

        def of(page: str) -> Terminals:
            terminals = Terminals(page, tmp_path)
            opened.callback(terminals.close)
            return terminals

        yield of


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_leader_dies_as_told_in_the_guide_to_raft_groups(guide: Callable[[str], Terminals]) -> None:
    terminals = guide("raft.md")
    terminals.serves(1)
    members = {f"n{number}": terminals.serves(2 + number) for number in range(3)}
    terminals.prints(5, r"OK\n(?s:.*)n0 +(leader|follower)(?s:.*)n2 ")
    shown = terminals.until(["flaremq", "cluster", "group"], r"(n\d) +leader .* serves")
    leader = re.search(r"(n\d) +leader", shown)
    assert leader is not None
    killed(members[leader[1]])
    terminals.prints(6, r"OK\n(?s:.*)one book(?s:.*)one lamp|OK\n(?s:.*)one lamp(?s:.*)one book")
    terminals.until(["flaremq", "cluster", "group"], r"do(es)? not know 1 member|cannot be reached", 1)
    terminals.serves(2 + int(leader[1][1:]))
    terminals.until(["flaremq", "cluster", "group"], rf"{leader[1]} +follower .* follows")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_master_dies_as_told_in_the_guide_to_replicate(guide: Callable[[str], Terminals]) -> None:
    terminals = guide("replicate.md")
    ha = ["flaremq", "cluster", "ha"]
    terminals.serves(0)
    master, slave = terminals.serves(1), terminals.serves(2)
    terminals.prints(3, r"OK\n(?s:.*)1 slave, 1 in sync(?s:.*) 0 B +following")
    terminals.until(["cat", "two/config/topics.json"], "Orders")  # A new topic comes within 3 seconds.
    killed(master)
    terminals.prints(4, "one book")
    terminals.prints(5, r"slave(?s:.*)not following(?s:.*)cannot be reached|no master is known", 1)
    master = terminals.serves(1)
    terminals.until(ha, "1 slave, 1 in sync")
    killed(master)
    master = terminals.serves(6)
    terminals.until(ha, "1 slave, 1 in sync")
    terminals.prints(7, "^safe$")
    killed(slave)
    terminals.prints(7, "^stored by its master alone: NO_SLAVE$")
    killed(master)
    terminals.serves(10)
    terminals.until(["flaremq", "send", "Orders", "one chair"], r"broker-a:\d/\d +OK")
    terminals.serves(11)
    terminals.until(ha, r"gave up \d+ B that its master did not have")
    terminals.prints(8, "")
    terminals.prints(9, "one lamp")
