"""What a run of a group does, as data drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from flaremq.dledger.types import MemberId, Pace
from flaremq.testing.sim.plan import Fault
from flaremq.testing.sim.raft.group import WayQuality

LEADER: Final = -1
"""A target: who leads at that moment, or anybody."""
KINDS: Final = (
    "kill", "power", "power all", "pause", "isolate", "halves", "bridge", "one way", "lossy", "stall",
    "sync error", "disk full", "disk lost", "copy lost", "entries lost", "transfer", "add", "remove",
    "expire", "link", "without leader", "short reigns", "power at votes", "swap", "figure eight",
)  # fmt: skip
"""Besides, a plan may hold "rot": a part of a log is found to be damaged, and is repaired when another member
that has it can be reached."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Topology, clocks, ways, disks, clients and faults of one run."""

    seed: int
    size: int = 3
    pace: Pace = field(default_factory=Pace)
    quality: WayQuality = field(default_factory=WayQuality)
    drift: float = 0.0
    sync_s: float = 0.002
    preferred: tuple[MemberId, ...] = ()
    appends_per_s: float = 20.0
    length_s: float = 20.0
    faults: tuple[Fault, ...] = ()


def draw(seed: int) -> GroupPlan:
    """The plan of a seed. Most are mixed; some play the one scenario that chance hardly ever does."""
    special = random.Random(f"raft/{seed}/special")
    return _single(seed, special) if special.random() < 1 / 8 else _with_rot(_mixed(seed))


def _with_rot(plan: GroupPlan) -> GroupPlan:
    """In every sixth plan disks forget a little."""
    rng = random.Random(f"raft/{plan.seed}/rot")
    if rng.random() >= 1 / 6:
        return plan
    faults = [
        Fault(
            round(rng.uniform(1.0, plan.length_s - 1), 3),
            "rot",
            LEADER if rng.random() < 0.3 else rng.randrange(plan.size),
            rng.choice([0.05, 1.0, 4.0]),
            rng.randrange(1 << 30),
        )
        for _ in range(rng.randint(1, 5))
    ]
    return replace(plan, faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at_s)))


def _single(seed: int, rng: random.Random) -> GroupPlan:
    """One fault, which takes its time by itself; entries are pushed one by one."""
    return GroupPlan(
        seed=seed,
        pace=Pace(push_bytes_max=1, pushes_max=rng.choice([1, 8])),
        quality=WayQuality(latency_s=0.02),
        appends_per_s=5.0,
        length_s=14.0,
        faults=(Fault(3.0, rng.choice(["figure eight", "swap"]), LEADER, 1.0, rng.randrange(1 << 30)),),
    )


def _mixed(seed: int) -> GroupPlan:
    """A third of the kinds of fault do not occur in it at all."""
    rng = random.Random(f"raft/{seed}/plan")
    size = rng.choice([3, 3, 3, 5])
    length_s = rng.choice([6.0, 9.0, 14.0])
    kinds = [kind for kind in KINDS if rng.random() < 0.66]
    faults = []
    for _ in range(rng.randrange(2, 16) if kinds else 0):
        target = LEADER if rng.random() < 0.4 else rng.randrange(size)
        span_s = rng.choice([0.05, 0.3, 1.0, 2.5, 5.0])
        at_s = round(rng.uniform(0.5, length_s - 1), 3)
        faults.append(Fault(at_s, rng.choice(kinds), target, span_s, rng.randrange(1 << 30)))
    return GroupPlan(
        seed=seed,
        size=size,
        pace=Pace(push_bytes_max=rng.choice([1, 2000, 1 << 20]), pushes_max=rng.choice([1, 3, 8])),
        quality=WayQuality(
            latency_s=rng.choice([0.0005, 0.002, 0.02, 0.1]),
            loss=rng.choice([0.0, 0.0, 0.01, 0.2]),
            repeated=rng.choice([0.0, 0.0, 0.1]),
            spike=rng.choice([0.0, 0.0, 0.01, 0.1]),
            spike_s=rng.choice([0.3, 2.0, 6.0]),
            in_order=rng.random() < 0.5,
        ),
        drift=rng.choice([0.0, 0.001, 0.05]),
        sync_s=rng.choice([0.0005, 0.005, 0.05]),
        preferred=("n1",) if rng.random() < 0.2 else (),
        appends_per_s=rng.choice([0.3, 5.0, 30.0]),
        length_s=length_s,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )
