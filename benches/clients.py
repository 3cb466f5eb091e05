"""What a client does per second: ours and Java's, against the same broker, ours and Apache's.

`python -m benches clients`. Each client is a process of its own, so that ours has one core's worth of
Python and Java's as many threads as it likes. Messages have 128 bytes and a tag; consumers read a backlog
that was there before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benches.wire import NotMeasured, Side, generator, sides
from tests.java.peers import Peers
from tests.java.toolchain import Toolchain, find_toolchain

from flaremq.base.lifecycle import new_loop
from flaremq.client.consumer.litepull import LitePullConsumer
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ConsumerSettings, ProducerSettings
from flaremq.model.message import Message
from flaremq.protocol.bodies.group import ConsumeFromWhere

JAVA = Path(__file__).with_name("ClientBench.java")
MODES = {
    "one by one": ("one", 1),
    "many, window 1024": ("many", 1024),
    "batches of 32": ("batch", 32),
    "push consumer": ("push", 0),
    "pull consumer": ("pull", 0),
}
BODY = bytes(128)
QUEUES = 4
RUN_LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Work:
    """What one process is asked to do."""

    mode: str
    namesrv: str
    topic: str
    warm_s: float
    seconds: float
    count: int
    size: int

    def words(self) -> list[str]:
        given = (self.mode, self.namesrv, self.topic, self.warm_s, self.seconds, self.count, self.size)
        return [str(word) for word in given]

    @classmethod
    def of(cls, words: list[str]) -> Work:
        mode, namesrv, topic, warm_s, seconds, count, size = words
        return cls(mode, namesrv, topic, float(warm_s), float(seconds), int(count), int(size))


async def ours(work: Work) -> float:
    """Messages a second of our client."""
    if work.mode == "push":
        return await _push(work)
    if work.mode == "pull":
        return await _pull(work)
    async with Producer("PID_clients", work.namesrv, settings=ProducerSettings(timeout_s=10)) as producer:
        await _produce(producer, work, work.warm_s)
        return await _produce(producer, work, work.seconds)


async def _produce(producer: Producer, work: Work, seconds: float) -> float:
    begin_s = perf_counter()
    end_s, sent = begin_s + seconds, 0
    if work.mode == "many":

        def messages() -> Iterator[Message]:
            while perf_counter() < end_s:
                yield Message(work.topic, BODY, tags="t")

        sent = len(await producer.send_many(messages(), window=work.size))
    elif work.mode == "batch":
        while perf_counter() < end_s:
            await producer.send_batch([Message(work.topic, BODY, tags="t") for _ in range(work.size)])
            sent += work.size
    else:
        while perf_counter() < end_s:
            await producer.send(Message(work.topic, BODY, tags="t"))
            sent += 1
    return sent / (perf_counter() - begin_s)


async def _push(work: Work) -> float:
    seen, began_s, done = 0, 0.0, asyncio.Event()
    settings = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(f"GID_push_{int(perf_counter() * 1e6)}", work.namesrv, settings=settings)

    async def handle(_message: ReceivedMessage) -> None:
        nonlocal seen, began_s
        if not seen:
            began_s = perf_counter()
        seen += 1
        if seen == work.count:
            done.set()

    consumer.subscribe(work.topic, handle)
    async with consumer:
        await done.wait()
        return work.count / (perf_counter() - began_s)


async def _pull(work: Work) -> float:
    settings = ConsumerSettings(auto_commit=False)
    group = f"GID_pull_{int(perf_counter() * 1e6)}"
    async with LitePullConsumer(group, work.namesrv, settings=settings) as consumer:
        queues = await consumer.queues(work.topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        seen, began_s = 0, 0.0
        while seen < work.count:
            messages = await consumer.poll(10, 1024)
            if not messages:
                raise NotMeasured(f"{seen} of {work.count} messages came")
            began_s = began_s or perf_counter()
            seen += len(messages)
        return seen / (perf_counter() - began_s)


def in_process(command: list[str]) -> float:
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_LIMIT_S)
    lines = [line for line in run.stdout.splitlines() if line.startswith('{"rate"')]
    if not lines:
        raise NotMeasured(f"{' '.join(command[-7:])}: {(run.stderr or run.stdout).strip()[-500:]}")
    return float(json.loads(lines[-1])["rate"])


def measure(side: Side, toolchain: Toolchain, options: Any) -> Iterator[tuple[str, float, float]]:
    """Mode, our rate, Java's, at the servers of one side."""
    with (
        tempfile.TemporaryDirectory(prefix="flaremq-bench-", dir=".") as folder,
        Peers(Path(folder).resolve()) as peers,
    ):
        namesrv = peers.namesrv(side.namesrv)
        broker = peers.broker(side.broker, namesrv.address)
        with generator() as load:
            load("send", broker.port, 16, 32, options.warm_up, 128, "WarmUp", 1, QUEUES)
            backlog = load("send", broker.port, 4, 64, options.seconds, 128, "Backlog", 1, QUEUES)["messages"]
        java = [str(toolchain.java), "-Xms1g", "-Xmx1g", "-cp", toolchain.class_paths["5.3.3"], str(JAVA)]
        python = [sys.executable, "-m", "benches", "clients", "--work"]
        for name, (mode, size) in MODES.items():
            topic = "Backlog" if mode in ("push", "pull") else "Clients"
            # The generator says how many were acknowledged; a few more may lie there.
            count = min(int(backlog), options.count)
            work = Work(mode, namesrv.address, topic, options.warm_up, options.seconds, count, size).words()
            yield name, in_process([*python, *work]), in_process([*java, *work])


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches clients", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument(
        "--warm-up", type=float, default=5.0, help="seconds before each run that do not count"
    )
    parser.add_argument("--count", type=int, default=500_000, help="messages that consumers read at most")
    parser.add_argument("--work", nargs=7, help="do one run, as a process of its own")
    options = parser.parse_args(words)
    if options.work:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            print(json.dumps({"rate": runner.run(ours(Work.of(options.work)))}))
        return
    toolchain = find_toolchain()
    if isinstance(toolchain, str):
        print(f"not measured: {toolchain}")
        raise SystemExit(1)
    try:
        for side in sides(flare_only=False):
            print(
                f"\n{'client, at a broker of ' + side.name:<40}{'FlareMQ/s':>14}{'Java/s':>14}{'ratio':>8}",
                flush=True,
            )
            for name, our_rate, java_rate in measure(side, toolchain, options):
                print(
                    f"{name:<40}{our_rate:>14,.0f}{java_rate:>14,.0f}{our_rate / java_rate:>8.2f}", flush=True
                )
    except NotMeasured as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None
