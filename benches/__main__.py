"""What the store does per second, beside Apache RocketMQ's own store on the same machine: `make bench`.

`python -m benches wire` measures whole brokers over the wire instead, `python -m benches kinds` delayed and
transactional messages and replies, `python -m benches backlog` ten million messages in a small broker,
`python -m benches replicas` what a slave costs, `python -m benches durability` what each setting of flush and
replication costs, `python -m benches clients` clients, and `python -m benches spark` what Spark makes of
topics and stores.

Each line is measured in a process of its own. Figures of one run on a shared machine wobble; the ratios
of lines measured next to each other wobble less. `--quick` runs everything once with few messages.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches import backlog, clients, dedup, durability, kinds, raft, replicas, spark, wire
from tests.java.driver import JavaStore
from tests.java.jvm import FAST
from tests.java.toolchain import Toolchain, find_toolchain
from tests.java.values import BenchKind, BenchRun

JAVA_VERSION = "5.3.3"


ROUNDS = 1


def measured(name: str, *, pure: bool = False, **given: Any) -> dict[str, Any]:
    """The best of some rounds: what others did to the machine meanwhile only ever slows one down."""
    rounds = 1 if pure else ROUNDS
    return max((_measured_once(name, pure, given) for _ in range(rounds)), key=lambda answer: answer["rate"])


def _measured_once(name: str, pure: bool, given: dict[str, Any]) -> dict[str, Any]:
    environment = {**os.environ, "FLAREMQ_PURE": "1"} if pure else {**os.environ, "FLAREMQ_PURE": ""}
    command = [sys.executable, "-m", "benches.measure", name, *(f"{k}={v}" for k, v in given.items())]
    run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


class Java:
    """Apache RocketMQ's store, or the reason why it cannot be had."""

    def __init__(self, toolchain: Toolchain | str) -> None:
        self._toolchain = toolchain
        self.why_not = toolchain if isinstance(toolchain, str) else ""

    def rate(self, what: BenchKind, messages: int, body_size: int = 128) -> float | None:
        """The best of as many rounds as we have ourselves."""
        if isinstance(self._toolchain, str):
            return None
        return max(self._rate_once(self._toolchain, what, messages, body_size) for _ in range(ROUNDS))

    @staticmethod
    def _rate_once(toolchain: Toolchain, what: BenchKind, messages: int, body_size: int) -> float:
        root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir="."))
        try:
            with JavaStore(toolchain, JAVA_VERSION, machine=FAST) as java:
                return java.bench(
                    BenchRun(what=what, directory=root / "store", messages=messages, body_size=body_size)
                ).rate
        finally:
            shutil.rmtree(root)


def line(
    what: str, compiled: float, pure: float | None = None, java: float | None = None, note: str = ""
) -> str:
    cells = [f"{what:<38}", f"{compiled:>12,.0f}"]
    cells.append(f"{pure:>12,.0f}" if pure else f"{'':>12}")
    cells.append(f"{java:>12,.0f}" if java else f"{'':>12}")
    cells.append(f"{compiled / java:>8.2f}" if java else f"{'':>8}")
    return " ".join([*cells, " " + note]).rstrip()


def appends(n: int, java: Java) -> Iterator[str]:
    for body_size in (128, 1024):
        count = n if body_size == 128 else n // 2
        for batch, kind in ((1, "append"), (64, "appendBatch")):
            rounds = count // 4 if batch == 1 else count
            ours = measured("append", messages=rounds, body_size=body_size, batch=batch)
            pure = measured("append", pure=True, messages=rounds // 20, body_size=body_size, batch=batch)
            theirs = java.rate(kind, rounds, body_size)  # type: ignore[arg-type]
            name = f"append, {body_size} B, " + ("one by one" if batch == 1 else "batches of 64")
            yield line(name, ours["rate"], pure["rate"], theirs, f"{ours['cpu_us']} us of CPU each")


def turns(n: int) -> Iterator[str]:
    for batch in (64, 256):
        ours = measured("turn", messages=n, body_size=128, batch=batch)
        pure = measured("turn", pure=True, messages=n // 20, body_size=128, batch=batch)
        note = f"{ours['cpu_us']} us of CPU each, flush apart"
        yield line(f"append + dispatch, 128 B, turns of {batch}", ours["rate"], pure["rate"], None, note)


def calls(n: int) -> Iterator[str]:
    ours = measured("compiled", messages=n, body_size=128)
    pure = measured("compiled", pure=True, messages=n // 20, body_size=128)
    note = f"{ours['cpu_us']} us each: encode, walk, queue entries, index"
    yield line("the compiled calls alone, 128 B", ours["rate"], pure["rate"], None, note)


def rebuilding(n: int, java: Java) -> Iterator[str]:
    for name, text in (
        ("dispatch", "dispatch, queues and index from nothing"),
        ("recovery", "recovery after a crash"),
    ):
        ours = measured(name, messages=n, body_size=128)
        pure = measured(name, pure=True, messages=n // 20, body_size=128)
        theirs = java.rate("dispatch" if name == "dispatch" else "recover", n)
        yield line(text, ours["rate"], pure["rate"], theirs)


def reading(n: int) -> Iterator[str]:
    for order in ("sequential", "random"):
        ours = measured("read", messages=n, body_size=128, order=order)
        pure = measured("read", pure=True, messages=n // 20, body_size=128, order=order)
        yield line(f"read, {order}, 32 at a time", ours["rate"], pure["rate"])


def flushing(n: int) -> Iterator[str]:
    for writers in (1, 16, 64):
        ours = measured("sync_flush", messages=n * min(writers, 16) // 1000, writers=writers)
        yield line(f"sync flush, {writers} waiting writers", ours["rate"])


def at_scale(n: int) -> Iterator[str]:
    opened = measured("open_clean", messages=10 * n, body_size=128)
    note = f"{opened['seconds']} s, {opened['cpu_s']} s of CPU, {opened['messages']:,} messages"
    yield line("open after a clean stop", opened["rate"], note=note)
    queues = measured("many_queues", queues=n // 100, messages_each=5)
    note = (
        f"{queues['messages']:,} queues: {queues['resident_kib']:,} KiB more memory, "
        f"{queues['descriptors']} of {queues['limit']} descriptors, opened again in {queues['seconds']} s"
    )
    yield line("queues opened", queues["rate"], note=note)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few messages, no Java: does everything run?")
    parser.add_argument("--messages", type=int, default=1_024_000)
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many is shown, for each side")
    options = parser.parse_args()
    global ROUNDS  # One process, one setting.
    ROUNDS = 1 if options.quick else options.rounds
    n = 10_240 if options.quick else options.messages
    java = Java("left out by --quick" if options.quick else find_toolchain())
    if java.why_not:
        print(f"Apache RocketMQ's store is not measured: {java.why_not}\n")
    java_name = f"Java {JAVA_VERSION}"
    print(f"{'messages per second':<38} {'compiled':>12} {'Python twin':>12} {java_name:>12} {'ratio':>8}")
    for part in (
        appends(n, java),
        turns(n),
        calls(n),
        rebuilding(n, java),
        reading(n),
        flushing(n),
        at_scale(n),
    ):
        for text in part:
            print(text, flush=True)


PARTS = {
    "wire": wire.main,
    "kinds": kinds.main,
    "raft": raft.main,
    "replicas": replicas.main,
    "durability": durability.main,
    "backlog": backlog.main,
    "dedup": dedup.main,
    "clients": clients.main,
    "spark": spark.main,
}

if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in PARTS:
        PARTS[sys.argv[1]](sys.argv[2:])
    else:
        main()
