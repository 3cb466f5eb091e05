"""What a slave costs its master, and how fast it catches up, beside Apache RocketMQ on the same machine.

`python -m benches replicas`: sends a second to a master with one slave, asynchronous (the answer waits for
nobody) and synchronous (it waits for the slave), how long after a send its message can be read at the slave,
how fast a slave that was away copies what it lacks, and how soon a consumer reads on at the slave when its
master is killed (`failover`; `--rounds` of them, `--failover` measures nothing else).
Each side has three processes (NameServer, master, slave) on the same cores, so read the ratios. The sides
send in turns, `--turns` times each, and the turn with the median rate counts: a machine that others use as
well is half as fast a minute later.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from benches import failover
from benches.wire import Figures, Generator, NotMeasured, Side, generator, send, sides
from tests.java.peers import Peers, Server
from tests.java.toolchain import find_toolchain

from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.codes import RequestCode
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import RefusedByServer, Want, WireClient

CATCH_UP = "catch-up, MB"
CATCH_UP_LIMIT_S = 300.0
ROLES: Mapping[str, Mapping[str, object]] = {
    "async": {"brokerRole": "ASYNC_MASTER"},
    "sync": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2},
}
SENDS: Mapping[str, Callable[..., Figures]] = {
    "1 x 1": partial(send, conns=1, window=1),
    "64 x 1": partial(send, conns=64, window=1),
    "4 x 64": partial(send, conns=4, window=64),
}
DELAY = "seen at slave"
DELAY_TOPIC = "Delay"
DELAY_SENDS = 500
RUNS = [*(f"{role} slave, {name}" for role in ROLES for name in (*SENDS, DELAY)), CATCH_UP]


async def _log_end(address: str) -> int:
    async with WireClient() as wire:
        try:
            answer = await wire.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except RefusedByServer:  # RocketMQ's broker has no figures in its first seconds.
            return -1
    return int(beans.decode(KVTable, bytes(answer.body or b"")).table["commitLogMaxOffset"])


def caught_up_s(master: Server, slave: Server) -> float:
    """How long from now until the slave has as much as its master."""

    async def wait() -> float:
        began_s, end = time.monotonic(), await _log_end(master.address)

        async def has_all() -> bool:
            return await _log_end(slave.address) >= end

        try:
            await eventually("the slave has all that its master has", has_all, CATCH_UP_LIMIT_S)
        except TimeoutError as late:
            raise NotMeasured(str(late)) from None
        return time.monotonic() - began_s

    return asyncio.run(wait())


class Pair:
    """A master and its slave, of one side."""

    def __init__(self, root: Path, side: Side, options: Mapping[str, object]) -> None:
        self.side = side
        self._options = {**options, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}
        self._peers = Peers(root)
        self._peers.__enter__()
        self._namesrv = self._peers.namesrv(side.namesrv)
        self.master = self._peers.broker(side.broker, self._namesrv.address, "broker-a", options)
        self.slave = self._peers.broker(side.broker, self._namesrv.address, "broker-a", self._options)
        caught_up_s(self.master, self.slave)

    def close(self) -> None:
        self._peers.__exit__(None, None, None)

    def catch_up(self, load: Generator, seconds: float) -> Figures:
        """A slave is stopped, misses much, and is started again: MB a second from when it is ready."""
        before = asyncio.run(_log_end(self.master.address))
        self.slave.stop()
        send(load, self.master.port, 2 * seconds, conns=16, window=32, body=4096)
        missed = asyncio.run(_log_end(self.master.address)) - before
        store = self.slave.folder / "store"
        folder = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
        again = self._peers.launch_broker(
            self.side.broker, self._namesrv.address, "broker-a", {**self._options, **folder}
        )
        again.wait_ready()
        took_s = caught_up_s(self.master, again)
        return {"rate": missed / took_s / 1e6, "messages": missed, "errors": 0}


def in_turns(
    load: Generator,
    ports: Mapping[str, Callable[[], int]],
    given: argparse.Namespace,
    settle: Callable[[str], object],
) -> dict[str, dict[str, Figures]]:
    """All loads, first to warm up, then in turns: what each side did in its median turn. `settle` is called
    after each load with the name of its side."""
    for name, port in ports.items():
        for run in SENDS.values():
            run(load, port(), given.warm_up)
        settle(name)
    done: dict[str, dict[str, list[Figures]]] = {name: {run: [] for run in SENDS} for name in ports}
    for run_name, run in SENDS.items():
        for _ in range(given.turns):
            for name, port in ports.items():
                done[name][run_name].append(run(load, port(), given.seconds))
                settle(name)
    return {name: {run: middle(turns) for run, turns in runs.items()} for name, runs in done.items()}


def middle(turns: Sequence[Figures]) -> Figures:
    """The turn with the median rate."""
    return sorted(turns, key=lambda each: each["rate"])[len(turns) // 2]


def measure(
    both: Sequence[Side],
    load: Generator,
    given: argparse.Namespace,
    *,
    options: Mapping[str, object],
    tell: Callable[[str], None],
) -> dict[str, dict[str, Figures]]:
    """All runs: a master and a slave of each side, for each role."""
    results: dict[str, dict[str, Figures]] = {side.name: {} for side in both}
    for role, own in ROLES.items():
        with ExitStack() as stack:
            pairs = {}
            for side in both:
                root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
                stack.callback(shutil.rmtree, root)
                pairs[side.name] = stack.enter_context(closing(Pair(root, side, {**options, **own})))
            for name, measured in _of_role(role, pairs, load, given).items():
                tell(f"{name}, {role} slave: {json.dumps(measured)}")
                results[name] |= measured
    return results


def _of_role(
    role: str, pairs: Mapping[str, Pair], load: Generator, given: argparse.Namespace
) -> dict[str, dict[str, Figures]]:
    ports = {name: partial(getattr, pair.master, "port") for name, pair in pairs.items()}
    sent = in_turns(load, ports, given, lambda name: caught_up_s(pairs[name].master, pairs[name].slave))
    measured = {
        name: {f"{role} slave, {run}": figures for run, figures in runs.items()}
        for name, runs in sent.items()
    }
    for name, pair in pairs.items():
        measured[name][f"{role} slave, {DELAY}"] = asyncio.run(_delay(pair.master, pair.slave))
        if role == "async":
            measured[name][CATCH_UP] = pair.catch_up(load, given.seconds)
    return measured


async def _delay(master: Server, slave: Server) -> Figures:
    """One message after another: from its send to the answer of a pull that waits for it at the slave."""
    took_us: list[float] = []
    async with WireClient() as sends, WireClient() as reads:
        at = (await sends.send(master.address, DELAY_TOPIC, 0, b"first")).queue_offset + 1
        await _readable(reads, slave, at)
        began_s = time.monotonic()
        for number in range(DELAY_SENDS):
            want = Want(topic=DELAY_TOPIC, queue_id=0, offset=at + number, suspend_ms=5000)
            waiting = asyncio.ensure_future(reads.pull(slave.address, want))
            await asyncio.sleep(0)
            sent_s = time.perf_counter()
            await sends.send(master.address, DELAY_TOPIC, 0, b"x" * 100)
            while not (pulled := await waiting).messages:  # A pull may be answered empty: it asks again.
                waiting = asyncio.ensure_future(reads.pull(slave.address, want))
            assert pulled.messages[0].queue_offset == at + number
            took_us.append((time.perf_counter() - sent_s) * 1e6)
        seconds = time.monotonic() - began_s
    took_us.sort()
    p50, p99 = took_us[len(took_us) // 2], took_us[len(took_us) * 99 // 100]
    return {"rate": DELAY_SENDS / seconds, "p50_us": p50, "p99_us": p99, "errors": 0}


async def _readable(reads: WireClient, slave: Server, end: int) -> None:
    """Until the slave knows the topic: RocketMQ's asks for new ones once a minute."""

    async def knows() -> bool:
        try:
            await reads.pull(slave.address, Want(topic=DELAY_TOPIC, queue_id=0, offset=end))
        except RefusedByServer:
            return False
        return True

    await eventually("the slave knows the topic", knows, CATCH_UP_LIMIT_S)


def table(results: dict[str, dict[str, Figures]]) -> Iterator[str]:
    """A line per run; a ratio above 1 says that FlareMQ does more."""
    names = list(results)
    titles = "".join(f"{name:>14}/s{'p50 us':>10}{'p99 us':>10}" for name in names)
    yield f"{'':<24}{titles}{'ratio':>8}"
    for run in RUNS:
        figures = [results[name][run] for name in names]
        cells = "".join(
            f"{each['rate']:>16,.0f}"
            + (f"{each['p50_us']:>10,.0f}{each['p99_us']:>10,.0f}" if "p50_us" in each else f"{'':>20}")
            for each in figures
        )
        ratio = f"{figures[0]['rate'] / figures[1]['rate']:>8.2f}" if len(figures) > 1 else ""
        refused = [f"{each['errors']} refused" for each in figures if each["errors"]]
        yield f"{run:<24}{cells}{ratio}{'  ' + ', '.join(refused) if refused else ''}"


def _loads(given: argparse.Namespace) -> Iterator[str]:
    tell = print if given.verbose else lambda _: None
    yield f"{given.turns} turns of {given.seconds:g} s, after {given.warm_up:g} s; Java's heap is 4 GiB"
    with generator() as load:
        results = measure(sides(given.flare_only), load, given, options={}, tell=tell)
    yield from ("", *table(results))


def _failovers(given: argparse.Namespace) -> Iterator[str]:
    results = {}
    for side in sides(given.flare_only):
        toolchain = None if side.broker.name == "flaremq" else find_toolchain()
        begin = (
            failover.ours if toolchain is None or isinstance(toolchain, str) else failover.javas(toolchain)
        )
        results[side.name] = failover.measure(side, begin, given.rounds, {})
    yield from ("", *failover.table(results))


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches replicas", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=3, help="of each side, for each load")
    parser.add_argument("--warm-up", type=float, default=8.0, help="of each run that does not count")
    parser.add_argument("--rounds", type=int, default=20, help="how often a master is killed")
    parser.add_argument("--failover", action="store_true", help="only that: no loads")
    parser.add_argument("--flare-only", action="store_true", help="leave Apache RocketMQ out")
    parser.add_argument("--verbose", action="store_true", help="all figures of each run, as JSON")
    given = parser.parse_args(words)
    try:
        for part in (_failovers,) if given.failover else (_loads, _failovers):
            for text in part(given):
                print(text, flush=True)
    except NotMeasured as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None
