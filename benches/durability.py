"""What each setting of flush and replication costs a sender: `python -m benches durability`.

The settings are those of docs/durability.md. Each gets servers of its own, all on this machine, is warmed
up, and loaded by the generator in C with one send under way, with 64 connections of one each, and with 4
times 64. All of that is done `--turns` times over, as other users of a machine come and go, and of each load
the turn with the median rate counts. On machines of their own, replicas would share neither cores nor disk,
and a network would lie between them: read the figures beside each other.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benches.raft import BROKER, Group
from benches.replicas import SENDS, caught_up_s, middle
from benches.wire import Figures, Generator, NotMeasured, generator, sides
from tests.java.peers import Peers

(OURS,) = sides(flare_only=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """How a master flushes, whom its answers wait for, and how its slave flushes, if it has one."""

    flush: str
    role: str = "ASYNC_MASTER"
    slave_flush: str = ""

    def port(self, peers: Peers, options: Mapping[str, object]) -> int:
        namesrv = peers.namesrv(OURS.namesrv).address
        own = {**options, "brokerRole": self.role, "flushDiskType": self.flush}
        master = peers.broker(OURS.broker, namesrv, BROKER, own)
        if self.slave_flush:
            own = {**options, "brokerRole": "SLAVE", "brokerId": 1, "flushDiskType": self.slave_flush}
            caught_up_s(master, peers.broker(OURS.broker, namesrv, BROKER, own))
        return master.port


@dataclass(frozen=True, slots=True)
class GroupOfThree:
    def port(self, peers: Peers, options: Mapping[str, object]) -> int:
        return Group(peers, OURS, options).leader().port


SETTINGS: Mapping[str, Setting | GroupOfThree] = {
    "no slave, ASYNC_FLUSH": Setting("ASYNC_FLUSH"),
    "no slave, SYNC_FLUSH": Setting("SYNC_FLUSH"),
    "ASYNC_MASTER, ASYNC_FLUSH on both": Setting("ASYNC_FLUSH", slave_flush="ASYNC_FLUSH"),
    "ASYNC_MASTER, SYNC_FLUSH on it": Setting("SYNC_FLUSH", slave_flush="ASYNC_FLUSH"),
    "SYNC_MASTER, ASYNC_FLUSH on both": Setting("ASYNC_FLUSH", "SYNC_MASTER", "ASYNC_FLUSH"),
    "SYNC_MASTER, SYNC_FLUSH on the slave": Setting("ASYNC_FLUSH", "SYNC_MASTER", "SYNC_FLUSH"),
    "SYNC_MASTER, SYNC_FLUSH on it": Setting("SYNC_FLUSH", "SYNC_MASTER", "ASYNC_FLUSH"),
    "SYNC_MASTER, SYNC_FLUSH on both": Setting("SYNC_FLUSH", "SYNC_MASTER", "SYNC_FLUSH"),
    "Raft group of three": GroupOfThree(),
}


@dataclass(slots=True)
class Measured:
    turns: dict[str, list[Figures]] = field(default_factory=dict)

    def figures(self, run: str) -> Figures:
        return middle(self.turns[run])


def measure(load: Generator, given: argparse.Namespace, options: Mapping[str, object]) -> dict[str, Measured]:
    found = {name: Measured() for name in SETTINGS}
    for _ in range(given.turns):
        for name, setting in SETTINGS.items():
            for run, figures in _turn(setting, load, given, options).items():
                found[name].turns.setdefault(run, []).append(figures)
    return found


def _turn(
    setting: Setting | GroupOfThree,
    load: Generator,
    given: argparse.Namespace,
    options: Mapping[str, object],
) -> dict[str, Figures]:
    """All loads of one setting, from empty folders on."""
    root = Path(tempfile.mkdtemp(prefix="flaremq-bench-", dir=Path())).resolve()
    try:
        with Peers(root) as peers:
            port, found = setting.port(peers, options), {}
            for name, run in SENDS.items():
                run(load, port, given.warm_up)
                os.sync()  # What was sent before is not on its way to the disk any more.
                found[name] = run(load, port, given.seconds)
            return found
    finally:
        shutil.rmtree(root)


def table(found: Mapping[str, Measured]) -> Iterator[str]:
    yield f"{'':<38}" + "".join(f"{run:>14}/s{'p50 us':>9}{'p99 us':>9}" for run in SENDS)
    for name, measured in found.items():
        each = [measured.figures(run) for run in SENDS]
        refused = sum(figures["errors"] for figures in each)
        cells = "".join(f"{e['rate']:>16,.0f}{e['p50_us']:>9,.0f}{e['p99_us']:>9,.0f}" for e in each)
        yield f"{name:<38}{cells}{f'  {refused} refused' if refused else ''}"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benches durability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load that counts")
    parser.add_argument("--warm-up", type=float, default=1.0, help="of each load that does not count")
    parser.add_argument("--turns", type=int, default=3, help="how often all is measured")
    given = parser.parse_args(words)
    print(f"{given.turns} turns of {given.seconds:g} s for each load; 128 B bodies")
    try:
        with generator() as load:
            print("", *table(measure(load, given, {})), sep="\n", flush=True)
    except NotMeasured as missing:
        print(f"not measured: {missing}")
        raise SystemExit(1) from None
