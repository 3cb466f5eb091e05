"""What clients read from leaders, told against what they wrote: the number of the last append is a register.

A reader asks every member at once, and each that may answer gives the newest append that it knows to be
committed.
"""

from __future__ import annotations

import random
from typing import Final

from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.raft.group import SimGroup
from flaremq.testing.sim.raft.ledger import append_number
from flaremq.testing.sim.raft.machine import SimMachine
from flaremq.testing.sim.registers import NEVER, RegisterOp, unexplained

_READS_PER_S: Final = 10.0
_BACK_MAX: Final = 200
"""So many entries a reader looks at, at most: others than appends may lie at the end."""


class Readings:
    """Of one run. Readers change nothing that the rest of it can see."""

    def __init__(self, group: SimGroup, seed: int, until_s: float) -> None:
        self._group = group
        self._rng = random.Random(f"raft/{seed}/readers")
        self._until_s = until_s
        self._reads: list[RegisterOp] = []
        self._next()

    def _next(self) -> None:
        delay_s = self._rng.expovariate(_READS_PER_S)
        if self._group.now + delay_s < self._until_s:
            self._group.after(delay_s, self._read)

    def _read(self) -> None:
        now = self._group.now
        for machine in self._group.machines.values():
            if machine.serves:
                value = _newest(machine)
                if value is not None:
                    self._reads.append(RegisterOp(value, now, now, is_read=True))
        self._next()

    def check(self) -> None:
        ended = self._group.promises.acknowledged_s
        writes = [
            RegisterOp(number, begun_s, ended.get(number, NEVER))
            for number, begun_s in self._group.begun_s.items()
        ]
        ops = unexplained([*writes, *self._reads])
        if ops:
            told = "; ".join(map(str, sorted(ops, key=lambda op: op.begun_s)))
            raise Violated("stale read", f"no order explains what clients saw: {told}")


def _newest(machine: SimMachine) -> int | None:
    """The last append that the machine knows to be committed."""
    ledger = machine.ledger
    oldest = max(ledger.first_index, machine.committed - _BACK_MAX)
    for index in range(machine.committed, oldest - 1, -1):
        value = append_number(ledger.entry(index).value)
        if value is not None:
            return value
    return None
