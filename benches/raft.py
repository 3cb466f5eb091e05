"""What a Raft group takes, and how soon it takes messages again when its leader is killed, beside groups of
Apache RocketMQ (DLedger mode) on the same machine.

`python -m benches raft`: sends a second to the leader of a group of three, and failover: the leader is killed
with SIGKILL under load, `--rounds` times. Measured is the time from the kill to the first send that another
member acknowledges, by a client that asks the NameServer for the leader 50 times a second: what servers need,
without the time in which clients refresh their routes. Each side has four processes (NameServer and members)
on the same cores, so read the ratios; they send in turns, as those of `benches replicas` do.

FlareMQ's members sync their disks before they acknowledge; RocketMQ's do not, and cannot be told to. So a
group of ours is also measured beside a master of ours whose answers wait for as much: the disks of the master
and of one of two slaves.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benches.replicas import SENDS, caught_up_s, in_turns
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
SLAVES = "two slaves"


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


class Copies:
    """A master of one side that waits for its disk, and for that of one of its two slaves."""

    def __init__(self, peers: Peers, side: Side) -> None:
        namesrv = peers.namesrv(side.namesrv).address
        self.master = peers.broker(side.broker, namesrv, BROKER, MASTER)
        for number in range(1, MEMBERS):
            own = {**MASTER, "brokerRole": "SLAVE", "brokerId": number}
            caught_up_s(self.master, peers.broker(side.broker, namesrv, BROKER, own))


def loads(both: Sequence[Side], load: Generator, given: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    """All loads of the groups, and of our master with slaves, in turns."""
    with ExitStack() as stack:

        def peers() -> Peers:
            root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
            stack.callback(shutil.rmtree, root)
            return stack.enter_context(Peers(root))

        groups = {side.name: Group(peers(), side, {}) for side in both}
        copies = Copies(peers(), both[0])
        ports = {name: partial(_port_of, group.leader) for name, group in groups.items()}
        ports[SLAVES] = partial(_port_of, lambda: copies.master)
        # What was sent before is not on its way to the disk any more.
        return in_turns(load, ports, given, lambda _name: os.sync())


def _port_of(server: Callable[[], Server]) -> int:
    return server().port


def failovers(side: Side, given: argparse.Namespace, tell: Callable[[str], None]) -> list[float]:
    """How long each took."""
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
    try:
        with Peers(root) as peers:
            group, took_s = Group(peers, side, {}), list[float]()
            for _ in range(given.rounds):
                took_s.append(group.round())
                tell(f"{side.name}, failover: {took_s[-1]:.2f} s")
            return took_s
    finally:
        shutil.rmtree(root)


def table(sent: Mapping[str, dict[str, Figures]]) -> Iterator[str]:
    """A line per load: ratios above 1 say that our group does more."""
    names = list(sent)
    yield f"{'':<8}" + "".join(f"{name:>14}/s{'p50 us':>8}{'p99 us':>8}{'ratio':>7}" for name in names)
    for run in SENDS:
        ours = sent[names[0]][run]["rate"]
        cells = ""
        for name in names:
            each = sent[name][run]
            cells += f"{each['rate']:>16,.0f}{each['p50_us']:>8,.0f}{each['p99_us']:>8,.0f}"
            cells += f"{ours / each['rate']:>7.2f}"
        refused = [f"{sent[name][run]['errors']} refused" for name in names if sent[name][run]["errors"]]
        yield f"{run:<8}{cells}{'  ' + ', '.join(refused) if refused else ''}"


def table_of_failovers(took: Mapping[str, Sequence[float]]) -> Iterator[str]:
    yield f"{'killed leader':<16}{'rounds':>8}{'median s':>10}{'worst s':>10}"
    for name, took_s in took.items():
        yield f"{name:<16}{len(took_s):>8}{statistics.median(took_s):>10.2f}{max(took_s):>10.2f}"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches raft", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=3, help="of each side, for each load")
    parser.add_argument("--warm-up", type=float, default=8.0, help="of each load that does not count")
    parser.add_argument("--rounds", type=int, default=20, help="how often the leader is killed")
    parser.add_argument("--failover", action="store_true", help="only that: no loads")
    parser.add_argument("--flare-only", action="store_true", help="leave Apache RocketMQ out")
    parser.add_argument("--verbose", action="store_true", help="figures as they come")
    given = parser.parse_args(words)
    tell = print if given.verbose else lambda _: None
    both = sides(given.flare_only)
    try:
        if not given.failover:
            print(f"{given.turns} turns of {given.seconds:g} s per load, after {given.warm_up:g} s each")
            with generator() as load:
                print("", *table(loads(both, load, given)), sep="\n", flush=True)
        if given.rounds:
            took = {side.name: failovers(side, given, tell) for side in both}
            print("", *table_of_failovers(took), sep="\n")
    except TimeoutError as late:
        print(f"not measured: {late}")
        raise SystemExit(1) from None
    except NotMeasured as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None
