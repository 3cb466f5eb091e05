"""What a slave costs its master, and how fast it catches up, beside Apache RocketMQ on the same machine.

`python -m benches replicas`: sends a second to a master with one slave, asynchronous (the answer waits for
nobody) and synchronous (it waits for the slave), how long after a send its message can be read at the slave,
how fast a slave that was away copies what it lacks, and how soon a consumer reads on at the slave when its
master is killed (`failover`; `--rounds` of them, `--failover` measures nothing else).
Each side has three processes (NameServer, master, slave) on the same cores, so read the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
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


def measure(
    side: Side,
    load: Generator,
    *,
    seconds: float,
    warm_s: float,
    options: Mapping[str, object],
    tell: Callable[[str], None],
) -> dict[str, Figures]:
    """All runs of one side: a master and a slave for each role."""
    measured: dict[str, Figures] = {}
    for role, own in ROLES.items():
        root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
        try:
            with Peers(root) as peers:
                measured |= _with_slave(peers, side, role, {**options, **own}, load, seconds, warm_s)
        finally:
            shutil.rmtree(root)
    for name, figures in measured.items():
        tell(f"{side.name}, {name}: {json.dumps(figures)}")
    return measured


def _with_slave(
    peers: Peers,
    side: Side,
    role: str,
    options: Mapping[str, object],
    load: Generator,
    seconds: float,
    warm_s: float,
) -> dict[str, Figures]:
    namesrv = peers.namesrv(side.namesrv)
    master = peers.broker(side.broker, namesrv.address, "broker-a", options)
    of_slave = {**options, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}
    slave = peers.broker(side.broker, namesrv.address, "broker-a", of_slave)
    caught_up_s(master, slave)
    for run in SENDS.values():
        run(load, master.port, warm_s)
    caught_up_s(master, slave)
    measured = {}
    for name, run in SENDS.items():
        measured[f"{role} slave, {name}"] = run(load, master.port, seconds)
        caught_up_s(master, slave)
    measured[f"{role} slave, {DELAY}"] = asyncio.run(_delay(master, slave))
    if role == "async":
        measured[CATCH_UP] = _catch_up(peers, side, namesrv, master, slave, of_slave, load, seconds)
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


def _catch_up(
    peers: Peers,
    side: Side,
    namesrv: Server,
    master: Server,
    slave: Server,
    of_slave: Mapping[str, object],
    load: Generator,
    seconds: float,
) -> Figures:
    """A slave is stopped, misses much, and is started again: MB a second from when it is ready."""
    before = asyncio.run(_log_end(master.address))
    slave.stop()
    send(load, master.port, 2 * seconds, conns=16, window=32, body=4096)
    missed = asyncio.run(_log_end(master.address)) - before
    store = slave.folder / "store"
    folder = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    again = peers.launch_broker(side.broker, namesrv.address, "broker-a", {**of_slave, **folder})
    again.wait_ready()
    took_s = caught_up_s(master, again)
    return {"rate": missed / took_s / 1e6, "messages": missed, "errors": 0}


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
    yield f"{given.seconds:g} s per run, after {given.warm_up:g} s of warming up; Java's heap is 4 GiB"
    with generator() as load:
        results = {
            side.name: measure(side, load, seconds=given.seconds, warm_s=given.warm_up, options={}, tell=tell)
            for side in sides(given.flare_only)
        }
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
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
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
