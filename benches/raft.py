"""What a Raft group takes, and how soon it takes messages again when its leader is killed, beside groups of
Apache RocketMQ (DLedger mode) on the same machine.

`python -m benches raft`: sends a second to the leader of a group of three, and failover: the leader is killed
with SIGKILL under load, `--rounds` times. Measured is the time from the kill to the first send that another
member acknowledges, by a client that asks the NameServer for the leader 50 times a second: what servers need,
without the time in which clients refresh their routes. Each side has four processes (NameServer and members)
on the same cores, so read the ratios.

FlareMQ's members sync their disks before they acknowledge; RocketMQ's do not, and cannot be told to. So a
group of ours is also measured beside a master of ours whose answers wait for as much: the disks of the master
and of one of two slaves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benches.replicas import SENDS, caught_up_s
from benches.wire import Figures, Generator, NotMeasured, Side, generator, sides
from tests.java.peers import Peers, Server

from flaremq.base.errors import FlareError
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import ClusterInfo
from flaremq.protocol.codes import RequestCode
from flaremq.remoting.ports import free_port
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import RefusedByServer, WireClient

BROKER, TOPIC = "broker-a", "Failover"
MEMBERS = 3
LED_S, LIMIT_S = 120.0, 60.0
SEND_S = 1.0
SETTLED_S = 3.0
"""Of sends before each kill. RocketMQ's registrations and heartbeats have their own pace."""


async def leader_address(wire: WireClient, namesrv: str) -> str:
    """Where the member is that NameServers know as the master; empty if they know none."""
    answer = await wire.ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answer.body is not None
    table = beans.decode(ClusterInfo, answer.body).broker_addr_table
    return table[BROKER].broker_addrs.get(0, "") if BROKER in table else ""


MASTER: Mapping[str, object] = {
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
    "flushDiskType": "SYNC_FLUSH",
}
"""Answers wait for what a group's answers wait for: two disks of three."""


class Group:
    """A group of one side, started."""

    def __init__(self, peers: Peers, side: Side, options: Mapping[str, object]) -> None:
        self._peers = peers
        self._side = side
        self.namesrv = peers.namesrv(side.namesrv).address
        doors = [free_port() for _ in range(MEMBERS)]
        names = ";".join(f"n{number}-127.0.0.1:{door}" for number, door in enumerate(doors))
        group = {"enableDLegerCommitLog": True, "dLegerGroup": "group-a", "dLegerPeers": names}
        self.members = [
            peers.launch_broker(
                side.broker, self.namesrv, BROKER, {**options, **group, "dLegerSelfId": f"n{number}"}
            )
            for number in range(MEMBERS)
        ]
        for member in self.members:
            member.wait_ready()
        asyncio.run(self.led())

    async def led(self) -> None:
        """Until the leader takes messages."""

        async def takes() -> bool:
            try:
                async with WireClient() as wire:
                    address = await leader_address(wire, self.namesrv)
                    return bool(address) and bool(await wire.send(address, TOPIC, 0, b"first"))
            except (FlareError, OSError, RefusedByServer):
                return False

        await eventually(f"a leader of {self._side.name} takes messages", takes, LED_S)

    def leader(self) -> Server:
        async def ask() -> str:
            async with WireClient() as wire:
                return await leader_address(wire, self.namesrv)

        address = asyncio.run(ask())
        return next(each for each in self.members if each.address == address)

    def round(self) -> float:
        """The leader is killed, and comes back afterwards."""
        leader = self.leader()
        took_s = asyncio.run(self._failover(leader))
        self.members.remove(leader)
        self.members.append(self._peers.again(leader, self._side.broker))
        asyncio.run(self.led())
        return took_s

    async def _failover(self, leader: Server) -> float:
        async with WireClient() as wire:
            ends_s = time.monotonic() + SETTLED_S
            while time.monotonic() < ends_s:
                await wire.send(leader.address, TOPIC, 0, b"x" * 128)
        killed_s = time.monotonic()
        await asyncio.to_thread(leader.kill)

        async def takes() -> bool:
            try:
                async with WireClient() as wire, asyncio.timeout(SEND_S):
                    address = await leader_address(wire, self.namesrv)
                    if not address or address == leader.address:
                        return False
                    await wire.send(address, TOPIC, 0, b"again")
            except (FlareError, OSError, TimeoutError, RefusedByServer):
                return False  # It is not the leader yet.
            return True

        await eventually(f"another member of {self._side.name} takes messages", takes, LIMIT_S)
        return time.monotonic() - killed_s


def loaded(load: Generator, port: Callable[[], int], given: argparse.Namespace) -> dict[str, Figures]:
    """All loads, one after another."""
    for run in SENDS.values():
        run(load, port(), given.warm_up)
    measured = {}
    for name, run in SENDS.items():
        os.sync()  # What was sent before is not on its way to the disk any more.
        measured[name] = run(load, port(), given.seconds)
    return measured


def with_slaves(side: Side, load: Generator, given: argparse.Namespace) -> dict[str, Figures]:
    """Loads of a master that waits for its disk, and for that of one of its two slaves."""
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
    try:
        with Peers(root) as peers:
            namesrv = peers.namesrv(side.namesrv).address
            master = peers.broker(side.broker, namesrv, BROKER, MASTER)
            for number in range(1, MEMBERS):
                own = {**MASTER, "brokerRole": "SLAVE", "brokerId": number}
                caught_up_s(master, peers.broker(side.broker, namesrv, BROKER, own))
            return loaded(load, lambda: master.port, given)
    finally:
        shutil.rmtree(root)


def measure(
    side: Side,
    load: Generator | None,
    given: argparse.Namespace,
    tell: Callable[[str], None],
    options: Mapping[str, object],
) -> tuple[dict[str, Figures], list[float]]:
    """Loads and failovers of one side."""
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
    try:
        with Peers(root) as peers:
            group, measured = Group(peers, side, options), dict[str, Figures]()
            if load is not None:
                measured = loaded(load, lambda: group.leader().port, given)
                tell(f"{side.name}: {json.dumps(measured)}")
            took_s = []
            for _ in range(given.rounds):
                took_s.append(group.round())
                tell(f"{side.name}, failover: {took_s[-1]:.2f} s")
            return measured, took_s
    except TimeoutError as late:
        raise NotMeasured(f"{side.name}: {late}") from None
    finally:
        shutil.rmtree(root)


def table(
    results: Mapping[str, tuple[dict[str, Figures], list[float]]], slaves: Mapping[str, Figures]
) -> Iterator[str]:
    """A line per load; ratios above 1 say that our group does more."""
    names = list(results)
    titles = "".join(f"{name:>14}/s{'p50 us':>10}{'p99 us':>10}" for name in names)
    yield f"{'':<12}{titles}{'ratio':>8}"
    for run in SENDS:
        figures = [results[name][0][run] for name in names if run in results[name][0]]
        cells = "".join(
            f"{each['rate']:>16,.0f}{each['p50_us']:>10,.0f}{each['p99_us']:>10,.0f}" for each in figures
        )
        ratio = f"{figures[0]['rate'] / figures[1]['rate']:>8.2f}" if len(figures) > 1 else ""
        refused = [f"{each['errors']} refused" for each in figures if each["errors"]]
        if figures:
            yield f"{run:<12}{cells}{ratio}{'  ' + ', '.join(refused) if refused else ''}"
    if slaves:
        yield ""
        yield f"{'':<12}{'two slaves':>14}/s{'p50 us':>10}{'p99 us':>10}{'group':>8}"
        ours = next(iter(results.values()))[0]
        for run, each in slaves.items():
            cells = f"{each['rate']:>16,.0f}{each['p50_us']:>10,.0f}{each['p99_us']:>10,.0f}"
            yield f"{run:<12}{cells}{ours[run]['rate'] / each['rate']:>8.2f}"
    yield ""
    yield f"{'killed leader':<16}{'rounds':>8}{'median s':>10}{'worst s':>10}"
    for name, (_, took_s) in results.items():
        if took_s:
            yield f"{name:<16}{len(took_s):>8}{statistics.median(took_s):>10.2f}{max(took_s):>10.2f}"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches raft", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load")
    parser.add_argument("--warm-up", type=float, default=8.0, help="of each load that does not count")
    parser.add_argument("--rounds", type=int, default=20, help="how often the leader is killed")
    parser.add_argument("--failover", action="store_true", help="only that: no loads")
    parser.add_argument("--flare-only", action="store_true", help="leave Apache RocketMQ out")
    parser.add_argument("--verbose", action="store_true", help="figures as they come")
    given = parser.parse_args(words)
    tell = print if given.verbose else lambda _: None
    try:
        with generator() as load:
            print(f"{given.seconds:g} s per load, after {given.warm_up:g} s of warming up each")
            asked = None if given.failover else load
            both = sides(given.flare_only)
            slaves = with_slaves(both[0], asked, given) if asked else {}
            results = {side.name: measure(side, asked, given, tell, {}) for side in both}
        print("", *table(results, slaves), sep="\n")
    except NotMeasured as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None
