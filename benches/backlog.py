"""A large backlog in a small broker: `python -m benches backlog`.

Ten million messages are piled up while the broker may use 256 MiB of memory besides the page cache: a limit
that the kernel keeps for its private data (RLIMIT_DATA), not a figure that is only read. Then it is seen
whether sends are slower than to a broker without them, both in turns, how quickly a group catches up, and
whether a group that reads the oldest messages makes those wait that read the newest.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from benches.wire import TOPIC, Figures, Generator, NotMeasured, generator
from tests.java.peers import Flare, Peers, Server

MEMORY = 256 << 20
PILE = "Pile"
QUEUES = 4
CONSUMERS = 16
TURNS = 5


class SmallFlare(Flare):
    """FlareMQ, whose broker may not have more private memory than this."""

    def broker(self, folder: Path, config: Path) -> list[str]:
        return ["prlimit", f"--data={MEMORY}", *super().broker(folder, config)]


def send(load: Generator, port: int, seconds: float, topic: str = TOPIC) -> Figures:
    return load("send", port, 4, 64, seconds, 128, topic, 1, QUEUES)


def poll(load: Generator, port: int, seconds: float) -> Figures:
    return load("poll", port, CONSUMERS, seconds, 1000, 128, TOPIC)


def _anonymous_mib(broker: Server) -> float:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024


def compare(load: Generator, brokers: Sequence[Server], seconds: float) -> list[float]:
    """Sends a second to each of them, in turns: the median turn of each."""
    turns = [[send(load, each.port, seconds)["rate"] for each in brokers] for _ in range(TURNS)]
    return [median(rates) for rates in zip(*turns, strict=True)]


def measure(load: Generator, broker: Server, empty: Server, messages: int, seconds: float) -> None:
    port = broker.port
    for each in (broker, empty):
        send(load, each.port, seconds)
    alone = poll(load, port, seconds)
    piled, highest = 0, 0.0
    while piled < messages:
        piled += send(load, port, seconds, PILE)["messages"]
        highest = max(highest, _anonymous_mib(broker))
    without, behind = compare(load, (empty, broker), seconds)
    print(f"{piled:,} messages are piled up")
    print(f"sends/s, median of {TURNS} turns: {behind:,.0f}, to a broker without a backlog {without:,.0f}")
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(load, "pull", port, QUEUES, 32, PILE)
        others = poll(load, port, seconds)
        caught_up = reading.result()
    highest = max(highest, _anonymous_mib(broker))
    if caught_up["messages"] < piled:
        raise NotMeasured(f"of {piled} messages {caught_up['messages']} were read")
    print(f"a group catches up at {caught_up['rate']:,.0f} messages/s")
    for name, figures in (("alone", alone), ("while another group reads the oldest", others)):
        print(f"newest messages, {name}: p50 {figures['p50_us']:,.0f} us, p99 {figures['p99_us']:,.0f} us")
    print(f"private memory at most {highest:,.0f} MiB of {MEMORY >> 20}")


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches backlog", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run")
    options = parser.parse_args(words)
    if shutil.which("prlimit") is None:
        raise SystemExit("not measured: there is no prlimit (of util-linux) to limit the broker's memory")
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
    try:
        with generator() as load, Peers(root) as peers:
            namesrv = peers.namesrv(Flare())
            broker, empty = (peers.broker(SmallFlare(), namesrv.address, f"broker-{x}", {}) for x in "ab")
            measure(load, broker, empty, options.messages, options.seconds)
    except (NotMeasured, subprocess.SubprocessError) as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None
    finally:
        shutil.rmtree(root)
