"""What a run does, as data: topology, settings, workload and the faults with their moments.

A plan is drawn from a seed, and can be changed before it runs: so a failure is made smaller.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from flaremq.testing.sim.wires import LinkQuality

KINDS: Final = (
    "kill", "kill within", "power", "power within", "power all", "pause", "cut", "one way", "reset",
    "namesrv kill", "client pause", "clock step", "sync error", "disk full", "read only", "clog",
)  # fmt: skip
"""Every kind of fault that is drawn alone. Besides, a plan may hold "client kill", "truncate": a file that
can be made again from the log is cut to half, or to nothing, "slow disk": each sync takes so many seconds,
and of groups "rot": a bit of an entry flips on the disk of a member, and the partitions."""
PARTITIONS: Final = ("members cut", "members deaf", "halves", "bridge", "ring")
"""Of the members of a group, from each other; clients reach all of them. The member that is the target is cut
off, hears nobody, is in the smaller half, is the only one that both halves see, or sees its neighbours only,
as all do then."""
MEMBER_KINDS: Final = (*PARTITIONS, "transfer", "add member", "remove member", "disk lost", "slow disk")
"""Every kind that befalls members of groups alone. A lost disk is followed by an empty one; a slow one syncs
nothing for a while."""
LEADER: Final = -1
"""As a target: who leads at the moment."""
NAMESRV: Final = -2
"""As a target of what stays broken: a NameServer."""


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    kind: str
    target: int
    """Which broker (masters first, then slaves), NameServer or client; from 0, and modulo their number. Or
    LEADER."""
    span_s: float
    """How long it lasts, or until the machine is started again."""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    namesrvs: int = 1
    brokers: int = 1
    slaves: int = 0
    """Of each broker."""
    replicas: int = 1
    """Each broker is a Raft group of this many members, if there are several."""
    role: str = "ASYNC_MASTER"
    """Of the masters."""
    copies: int = 1
    """How many slaves must have a message before a SYNC_MASTER acknowledges it."""
    clients: int = 2
    flush: str = "SYNC_FLUSH"
    log_file_size: int = 128 << 10
    strict_names: bool = False
    drift: float = 0.0
    quality: LinkQuality = field(default_factory=LinkQuality)
    length_s: float = 30.0
    sends: int = 40
    """Of each client."""
    timers: bool = False
    """Whether some messages name their moment."""
    asks: bool = False
    """Whether all who serve as leaders of groups are asked for what they know, again and again."""
    faults: tuple[Fault, ...] = ()
    stays: tuple[Fault, ...] = ()
    """What is killed, cut or paused as soon as all else is healed, and stays so until all work is done: the
    rest must do without it."""

    @property
    def keeps_acknowledged(self) -> bool:
        """Whether no acknowledged send may be lost: under ASYNC_FLUSH that needs a plan without power
        losses, and without failed syncs, after which a machine is booted."""
        boots = ("power", "power within", "power all", "sync error", "read only")
        return (
            self.replicas > 1
            or self.flush == "SYNC_FLUSH"
            or not any(fault.kind in boots for fault in self.faults)
        )

    @property
    def moves_clocks(self) -> bool:
        return self.drift != 0 or any(fault.kind == "clock step" for fault in self.faults)


def draw(seed: int) -> Plan:
    """The plan of a seed. A third of the kinds of fault do not occur in it at all."""
    rng, replicas = random.Random(f"{seed}/plan"), random.Random(f"{seed}/replicas")
    slaves = replicas.choice([0, 0, 1, 1, 2])
    role = replicas.choice(["ASYNC_MASTER", "SYNC_MASTER"]) if slaves else "ASYNC_MASTER"
    length_s = rng.choice([20.0, 30.0, 45.0])
    quality = LinkQuality(
        latency_s=rng.choice([0.0002, 0.001, 0.005, 0.1]),
        spike=rng.choice([0.0, 0.0, 0.002, 0.01]),
        split=rng.choice([0.0, 0.1, 0.5]),
    )
    kinds = [kind for kind in KINDS if rng.random() < 0.66]
    faults = []
    for _ in range(rng.randrange(1, 9)):
        if kinds:
            kind, span_s = rng.choice(kinds), rng.choice([0.5, 2.0, 5.0, 10.0])
            at_s = round(rng.uniform(1.0, length_s - 2), 3)
            number = (
                rng.choice([-3_600_000, -5000, 700, 3_600_000]) if kind == "clock step" else rng.randrange(40)
            )
            faults.append(Fault(at_s, kind, rng.randrange(6), span_s, number))
    faults = _with_sequels(faults, random.Random(f"{seed}/sequels"), length_s)
    plan = Plan(
        seed=seed,
        namesrvs=rng.choice([1, 1, 2]),
        brokers=rng.choice([1, 1, 1, 2, 3]),
        slaves=slaves,
        role=role,
        copies=replicas.choice([1, 2]) if slaves == 2 and role == "SYNC_MASTER" else 1,
        clients=rng.randrange(1, 4),
        flush=rng.choice(["SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH"]),
        log_file_size=rng.choice([64, 128, 256]) << 10,
        strict_names=rng.random() < 0.5,
        drift=rng.choice([0.0, 0.0, 0.001]),
        quality=quality,
        length_s=length_s,
        sends=rng.choice([20, 40, 60]),
        timers=rng.random() < 0.15,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )
    plan = _with_returns(plan, random.Random(f"{seed}/returns")) if plan.copies > 1 else plan
    plan = _with_some_broken(plan, random.Random(f"{seed}/stays"))
    return replace(plan, faults=tuple(map(_by_seconds, plan.faults))) if plan.timers else plan


def draw_group(seed: int, *, is_mixed: bool = True) -> Plan:
    """The plan of a seed with Raft groups: as many faults as a group of that size may have, and more. Without
    `is_mixed`, only those that single brokers have too, and rot."""
    rng = random.Random(f"{seed}/group")
    plan = draw(seed)
    plan = replace(
        plan,
        replicas=rng.choice([3, 3, 3, 5]),
        brokers=1,
        slaves=0,
        role="ASYNC_MASTER",
        copies=1,
        flush="ASYNC_FLUSH",
        asks=is_mixed and random.Random(f"{seed}/asks").random() < 1 / 2,
        stays=(),
        faults=tuple(replace(fault, target=rng.randrange(15)) for fault in plan.faults),
    )
    plan = _with_rot(plan, random.Random(f"{seed}/rot"))
    if not is_mixed:
        return plan
    plan = _with_mixture(plan, random.Random(f"{seed}/mixture"))
    return _with_some_broken(plan, random.Random(f"{seed}/stays"))


def _with_mixture(plan: Plan, rng: random.Random) -> Plan:
    """In three of four plans: what befalls members alone, a third of its kinds not at all; and a third of all
    faults meets whoever leads then."""
    kinds = [kind for kind in MEMBER_KINDS if rng.random() < 0.66]
    if rng.random() >= 3 / 4 or not kinds:
        return plan
    faults = [
        Fault(
            round(rng.uniform(3.0, plan.length_s - 2), 3),
            rng.choice(kinds),
            rng.randrange(15),
            rng.choice([0.5, 2.0, 5.0, 10.0]),
            rng.randrange(40),
        )
        for _ in range(rng.randint(2, 7))
    ]
    spared = ("rot", "namesrv kill", "client pause", "client kill")  # These have targets of their own.
    aimed = [
        replace(fault, target=LEADER) if rng.random() < 1 / 3 and fault.kind not in spared else fault
        for fault in (*plan.faults, *faults)
    ]
    return replace(plan, faults=tuple(sorted(aimed, key=lambda fault: fault.at_s)))


def _with_rot(plan: Plan, rng: random.Random) -> Plan:
    """In every fourth plan one disk forgets a little: never the same in two members, as the last good copy of
    an entry is nobody's to restore."""
    if rng.random() >= 1 / 4:
        return plan
    target = rng.randrange(15)
    faults = [
        Fault(round(rng.uniform(4.0, plan.length_s - 2), 3), "rot", target, 0.0, rng.randrange(1 << 20))
        for _ in range(rng.randint(1, 4))
    ]
    return replace(plan, faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at_s)))


def _with_returns(plan: Plan, rng: random.Random) -> Plan:
    """Where two slaves must have a message: while one is away, the other one loses its power and comes back.
    Its master has two connections of it then, as nobody told it that the first is dead."""
    faults, at_s = list(plan.faults), rng.uniform(2.0, 4.0)
    while at_s < plan.length_s - 6:
        first = plan.brokers + 2 * rng.randrange(plan.brokers)
        away, other = (first, first + 1) if rng.random() < 0.5 else (first + 1, first)
        faults.append(Fault(round(at_s, 3), "power", away, 5.0))
        faults.append(Fault(round(at_s + rng.uniform(0.2, 2.0), 3), "power", other, 0.5))
        at_s += rng.uniform(7.0, 12.0)
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _with_sequels(faults: list[Fault], rng: random.Random, length_s: float) -> list[Fault]:
    """Some failed syncs are followed by the loss of what they left in memory alone: the broker is started
    again, works for a moment, and its machine loses its power. And some clients are killed."""
    found = []
    for fault in faults:
        if fault.kind == "sync error" and rng.random() < 0.7:
            fault = replace(fault, span_s=rng.choice([0.5, 2.0]), number=0)
            at_s = round(fault.at_s + fault.span_s + rng.uniform(0.5, 4.0), 3)
            found.append(Fault(at_s, "power", fault.target, 1.0))
        found.append(fault)
    if rng.random() < 0.3:
        at_s = round(rng.uniform(3.0, length_s - 2), 3)
        found.append(Fault(at_s, "client kill", rng.randrange(6), rng.choice([0.5, 2.0, 5.0])))
    return found


def _with_some_broken(plan: Plan, rng: random.Random) -> Plan:
    """In every third plan not all is healed, if there is something to spare: less than half of a group, a
    slave that no send waits for, one of two NameServers."""
    if rng.random() >= 1 / 3:
        return plan
    targets = list[int]()
    if plan.replicas > 1:
        targets = [rng.choice([LEADER, rng.randrange(15)]) for _ in range(plan.replicas // 2)]
    elif plan.slaves > (plan.copies if plan.role == "SYNC_MASTER" else 0):
        targets = [plan.brokers + rng.randrange(plan.brokers * plan.slaves)]
    if plan.namesrvs > 1 and rng.random() < 1 / 2:
        targets.append(NAMESRV)
    kinds = ("kill", "cut", "pause")
    return replace(plan, stays=tuple(Fault(0.0, rng.choice(kinds), each, 0.0) for each in targets))


def _by_seconds(fault: Fault) -> Fault:
    """A clock that is set an hour ahead takes timer messages that are due an hour later, and that is what it
    promised: steps of seconds show the rest."""
    return replace(fault, number=5000) if fault.kind == "clock step" and fault.number > 5000 else fault
