"""What a broker does per second over the wire, beside Apache RocketMQ on the same machine.

`python -m benches wire`. Each side gets a NameServer, a broker with RocketMQ's default settings and an empty
folder, is warmed up by runs that do not count, and is then loaded by the same generator in C, first with
asynchronous and then with synchronous flush. The sides take turns, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.java.jvm import FAST, QUICK
from tests.java.peers import Apache, Flare, Kind, Peers, Server
from tests.java.toolchain import find_toolchain

SOURCE = Path(__file__).with_name("load.c")
START_LIMIT_S = 120
FLUSHES = ("ASYNC_FLUSH", "SYNC_FLUSH")
TOPIC = "BenchmarkTest"
"""Every RocketMQ broker has it from the start, with 1024 queues."""
POLL_RATE = 1000
PULLS_MAX = 5
Figures = dict[str, Any]


class NotMeasured(Exception):
    """Something is missing, or a run went wrong; the message is the whole story."""


class NoCompiler(NotMeasured):
    """The generator is in C."""


@dataclass(frozen=True, slots=True)
class Side:
    """Whose servers, and how to start each. The NameServer is not measured and stays small."""

    name: str
    namesrv: Kind
    broker: Kind


@dataclass(slots=True)
class Measured:
    """What one side did with one way to flush."""

    start_s: float = 0.0
    memory_mib: float = 0.0
    runs: dict[str, Figures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to run, and where: on the disk of the working folder, because /tmp may be memory."""

    seconds: float = 10.0
    """Of each run."""
    warm_s: float = 40.0
    folder: Path = Path()
    options: Mapping[str, object] = field(default_factory=dict)
    """Of the broker, beside RocketMQ's default ones."""
    tell: Callable[[str], None] = lambda _: None
    """Is told the figures of each run as they come."""


class Generator:
    """The compiled load generator."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def __call__(self, what: str, *words: object) -> Figures:
        command = [str(self._program), what, *map(str, words)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        figures: Figures = json.loads(run.stdout or json.dumps({"failed": run.stderr.strip()}))
        if "failed" in figures:
            raise NotMeasured(f"load {what} {' '.join(map(str, words))}: {figures['failed']}")
        return figures


@contextmanager
def generator(source: Path = SOURCE) -> Iterator[Generator]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler("there is no C compiler (gcc) for the load generator")
    with tempfile.TemporaryDirectory(prefix="flaremq-load-") as folder:
        program = Path(folder, "load")
        subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
        yield Generator(program)


Run = Callable[[Generator, int, float], Figures]
"""Generator, port, seconds."""


def send(
    load: Generator, port: int, seconds: float, *, conns: int, window: int, body: int = 128, topics: int = 1
) -> Figures:
    topic, queues = (TOPIC, 4) if topics == 1 else ("Mixed", 8)
    return load("send", port, conns, window, seconds, body, topic, topics, queues)


def backlog(load: Generator, port: int, seconds: float, *, topic: str = "Backlog") -> Figures:
    """Fill four queues of a new topic, then read them all from the beginning."""
    filled = load("send", port, 4, 64, seconds, 128, topic, 1, 4)
    for _ in range(PULLS_MAX):  # Queues may be written a little later than messages are acknowledged.
        pulled = load("pull", port, 4, 32, topic)
        # What was under way when the filling ended may have been stored without being counted.
        if 0 <= pulled["messages"] - filled["messages"] <= 4 * 64:
            return pulled
    raise NotMeasured(f"{filled['messages']} messages were acknowledged, {pulled['messages']} were pulled")


def waiting(load: Generator, port: int, seconds: float, *, consumers: int) -> Figures:
    figures = load("poll", port, consumers, seconds, POLL_RATE, 128, TOPIC)
    if figures["messages"] != figures["sent"]:
        raise NotMeasured(f"of {figures['sent']} messages {figures['messages']} arrived")
    return figures


RUNS: dict[str, Run] = {
    "1 x 1, 128 B": partial(send, conns=1, window=1),
    "64 x 1, 128 B": partial(send, conns=64, window=1),
    "4 x 64, 128 B": partial(send, conns=4, window=64),
    "16 x 32, 1 KiB": partial(send, conns=16, window=32, body=1024),
    "16 x 32, 128 B, 5 topics x 8": partial(send, conns=16, window=32, topics=5),
    "backlog pull, 4 queues x 32": backlog,
    "64 waiting consumers": partial(waiting, consumers=64),
}
"""Sends are named by their connections and how many sends each keeps under way."""


def measure(side: Side, flush: str, load: Generator, plan: Plan) -> Measured:
    """All runs of one side with one way to flush, from an empty folder on."""
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=plan.folder)).resolve()
    measured = Measured()
    try:
        with Peers(root) as peers:
            namesrv = peers.namesrv(side.namesrv)
            options = {"flushDiskType": flush, **plan.options}
            broker = peers.launch_broker(side.broker, namesrv.address, "broker-a", options)
            measured.start_s = _first_acknowledged(load, broker) - broker.begun_s
            broker.wait_ready()
            _warm_up(load, broker.port, plan.warm_s)
            for name, run in RUNS.items():
                measured.runs[name] = figures = run(load, broker.port, plan.seconds)
                plan.tell(f"{side.name}, {flush}, {name}: {json.dumps(figures)}")
            measured.memory_mib = _anonymous_mib(broker)
    finally:
        shutil.rmtree(root)
    return measured


def _warm_up(load: Generator, port: int, seconds: float) -> None:
    """Every path that is measured is gone before, or a JVM would be measured while it still compiles it."""
    send(load, port, seconds * 3 / 8, conns=16, window=32)
    send(load, port, seconds / 8, conns=16, window=32, topics=5)
    backlog(load, port, seconds / 4, topic="WarmUp")
    waiting(load, port, seconds / 4, consumers=64)


def _first_acknowledged(load: Generator, broker: Server) -> float:
    """When the broker acknowledged its first send. It is asked from the moment that it is started."""
    try:
        return float(load("first", broker.port, START_LIMIT_S)["at_s"])
    except NotMeasured as failed:
        raise NotMeasured(f"{failed}; {broker.last_words()}") from None


def _anonymous_mib(broker: Server) -> float:
    """Memory that is the process's own: mapped files belong to the page cache, whoever maps them."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024


def sides(flare_only: bool) -> list[Side]:
    found = [Side("FlareMQ", Flare(), Flare())]
    if flare_only:
        return found
    toolchain = find_toolchain()
    if isinstance(toolchain, str):
        print(f"Apache RocketMQ is not measured: {toolchain}\n")
        return found
    return [*found, Side("Apache 5.3.3", Apache(toolchain, QUICK), Apache(toolchain, FAST))]


def table(flush: str, results: dict[str, Measured]) -> Iterator[str]:
    """A line per run; a ratio above 1 says that FlareMQ does more."""
    names = list(results)
    yield (
        f"{flush:<30}"
        + "".join(f"{name:>14}/s{'p50 us':>10}{'p99 us':>10}" for name in names)
        + f"{'ratio':>8}"
    )
    for run in RUNS:
        figures = [results[name].runs[run] for name in names]
        cells = "".join(
            f"{each['rate']:>16,.0f}"
            + (f"{each['p50_us']:>10,.0f}{each['p99_us']:>10,.0f}" if "p50_us" in each else f"{'':>20}")
            for each in figures
        )
        # At a fixed rate only the time that a message takes tells them apart.
        what = "p99_us" if run.endswith("waiting consumers") else "rate"
        yield f"{run:<30}{cells}{_ratio(figures, what)}{_notes(figures)}"
    for label, values in (
        ("anonymous memory, MiB", [results[name].memory_mib for name in names]),
        ("start to first ack, s", [results[name].start_s for name in names]),
    ):
        ratio = f"{values[1] / values[0]:>8.2f}" if len(values) > 1 else ""
        yield (f"{label:<30}" + "".join(f"{value:>16,.1f}{'':>20}" for value in values) + ratio).rstrip()


def _ratio(figures: list[Figures], what: str) -> str:
    if len(figures) < 2:
        return ""
    ours, theirs = figures[0][what], figures[1][what]
    return f"{(theirs / ours if what == 'p99_us' else ours / theirs):>8.2f}"


def _notes(figures: list[Figures]) -> str:
    """Errors are no footnote: a side that refused sends did not do what was asked."""
    notes = [f"{each['p999_us']:,.0f} us p99.9" for each in figures if "sent" in each]
    notes += [
        f"{each['errors']} of {each['messages']} refused with {each.get('last_code')}"
        for each in figures
        if each["errors"]
    ]
    return "  " + ", ".join(notes) if notes else ""


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches wire", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run")
    parser.add_argument("--warm-up", type=float, default=40.0, help="seconds of the runs that do not count")
    parser.add_argument("--flare-only", action="store_true", help="leave Apache RocketMQ out")
    parser.add_argument("--flush", choices=FLUSHES, action="append", help="one way to flush instead of both")
    parser.add_argument("--verbose", action="store_true", help="all figures of each run, as JSON")
    options = parser.parse_args(words)
    plan = Plan(options.seconds, options.warm_up, tell=print if options.verbose else lambda _: None)
    print(f"{options.seconds:g} s per run, after {options.warm_up:g} s of warming up; Java's heap is 4 GiB")
    try:
        with generator() as load:
            for flush in options.flush or FLUSHES:
                results = {side.name: measure(side, flush, load, plan) for side in sides(options.flare_only)}
                print("\n" + "\n".join(table(flush, results)), flush=True)
    except NotMeasured as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None
