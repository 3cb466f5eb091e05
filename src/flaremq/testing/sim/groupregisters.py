"""Asks whoever serves as the leader of a group, as clients do, and tells their answers against each other.

Three registers, and each must be linearisable:

who leads    an answer of a leader in term 7 reads 7, and that only grows: nobody may answer in term 6 when
             somebody has answered in term 7 before
max offset   of a queue, which only grows too
offset       that is committed and asked for, within one term. A new leader begins with what was kept: a
             commit may be lost with the leader that acknowledged it

A leader that was deposed and does not know it serves on, as far as it knows: that is why it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from flaremq.base.errors import FlareError
from flaremq.client.client import Client
from flaremq.model.message import MessageQueue
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.topic import CreateTopicRequestHeader
from flaremq.servers.groupbroker import GroupBroker
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.history import Content, History
from flaremq.testing.sim.registers import NEVER, RegisterOp, unexplained
from flaremq.testing.sim.workload import PLAIN
from flaremq.testing.sim.world import Machine, Simulation

GROUP: Final = "TOOLS_CONSUMER"  # Every broker knows it.
TOPIC: Final = "Register"
_PACE_S: Final = 0.25
_TIMEOUT_S: Final = 1.5


@dataclass(slots=True)
class GroupAnswers:
    """Of one group, each with the term in which it was given."""

    commits: list[tuple[int | None, RegisterOp]] = field(default_factory=list)
    """Each commits another offset. No term: nobody has acknowledged it."""
    queries: list[tuple[int, RegisterOp]] = field(default_factory=list)
    ends: list[tuple[int, RegisterOp]] = field(default_factory=list)

    @property
    def leaders(self) -> list[RegisterOp]:
        """Who leads, as all answers say."""
        given = [*((term, op) for term, op in self.commits if term is not None), *self.queries, *self.ends]
        return [RegisterOp(term, op.begun_s, op.ended_s, is_read=True) for term, op in given]


class LeaderAnswers:
    """Runs on a machine of its own."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._machine = sim.client_machine("asker")
        self._rng = sim.rng("asker")
        self._answers = {name: GroupAnswers() for name in sim.names}
        self._committed = 0
        self._has_topic = False
        self._asked: dict[Machine, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until `stop`."""
        await self._machine.start()
        await self._machine.do(self._run())

    def stop(self) -> None:
        self._machine.kill()

    async def _run(self) -> None:
        async with self._sim.client(self._machine, timeout_s=_TIMEOUT_S) as client:
            while True:
                await asyncio.sleep(self._rng.random() * 2 * _PACE_S)
                for machine in self._sim.members:
                    if self._term(machine) is not None and machine not in self._asked:
                        self._asked[machine] = asyncio.create_task(self._ask_once(client, machine))

    async def _ask_once(self, client: Client, machine: Machine) -> None:
        try:
            await self._ask(client, machine)
        finally:
            del self._asked[machine]

    def _term(self, machine: Machine) -> tuple[GroupBroker, int] | None:
        """In which its answers are given; None if it does not serve as a leader. Who has just been deposed
        may have answered before."""
        member = self._sim.running_members.get(machine.name)
        if member is None or not machine.is_running or not member.takes_part or not member.leads:
            return None
        return member, member.node.term

    async def _ask(self, client: Client, machine: Machine) -> None:
        name, address = machine.name.rpartition("-")[0], f"{machine.ip}:10911"
        of, kind = self._answers[name], self._rng.randrange(4)
        with suppress(FlareError):
            if kind == 0:
                await self._commit(client, machine, of, MessageQueue(TOPIC, name, 0))
            elif kind == 1:
                await self._end(client, machine, of, MessageQueue(PLAIN, name, 0))
            else:
                before, begun_s = self._term(machine), self._sim.loop.now_s
                offset = await client.api.committed(
                    address, GROUP, MessageQueue(TOPIC, name, 0), zero_if_missing=False
                )
                if before is not None and self._term(machine) in (before, None):
                    op = RegisterOp(offset, begun_s, self._sim.loop.now_s, is_read=True)
                    of.queries.append((before[1], op))

    async def _commit(self, client: Client, machine: Machine, of: GroupAnswers, queue: MessageQueue) -> None:
        self._committed += 1
        before, begun_s, address = self._term(machine), self._sim.loop.now_s, f"{machine.ip}:10911"
        at = len(of.commits)
        of.commits.append((None, RegisterOp(self._committed, begun_s, NEVER)))
        if not self._has_topic:
            header = CreateTopicRequestHeader(
                topic=TOPIC, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1,
                perm=6, topic_filter_type="SINGLE_TAG",
            )  # fmt: skip
            await client.api.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            self._has_topic = True
        offset = self._committed
        await client.api.commit(address, GROUP, queue, offset, oneway=False)
        if before is not None and before == self._term(machine):
            of.commits[at] = before[1], RegisterOp(offset, begun_s, self._sim.loop.now_s)

    async def _end(self, client: Client, machine: Machine, of: GroupAnswers, queue: MessageQueue) -> None:
        """Asked when it shows all that is decided on: other messages are shown a moment later."""
        before, begun_s = self._term(machine), self._sim.loop.now_s
        if before is None or before[0].store.dispatcher.behind:
            return
        end = await client.api.max_offset(f"{machine.ip}:10911", queue)
        if self._term(machine) in (before, None):
            op = RegisterOp(end, begun_s, self._sim.loop.now_s, is_read=True)
            of.ends.append((before[1], op))

    def check(self, history: History, content: Content) -> None:
        for name, answers in self._answers.items():
            values = content.get((PLAIN, name, 0), {})
            check_answers(answers, {at + 1: history.sends[value].began_s for at, value in values.items()})

    @property
    def count(self) -> int:
        return sum(len(each.leaders) for each in self._answers.values())


def check_answers(answers: GroupAnswers, begun_s: Mapping[int, float]) -> None:
    """`begun_s`: when the send began by which a queue came to have this end."""
    terms = {op.value: -NEVER for op in answers.leaders if isinstance(op.value, int)}
    _check("who leads", growing(answers.leaders, terms))
    _check("max offset", growing([op for _, op in answers.ends], {0: -NEVER, **begun_s}))
    for term in {term for term, _ in answers.queries}:
        writes = [op for of, op in answers.commits if of in (term, None)]
        reads = [op for of, op in answers.queries if of == term]
        known = {op.value for op in writes}
        kept = next((op.value for op in reads if op.value not in known), None)
        _check(f"offset in term {term}", [*writes, *reads], kept)


def growing(reads: Sequence[RegisterOp], begun_s: Mapping[int, float]) -> list[RegisterOp]:
    """Reads of a register that only grows, with its writes: each was there when a larger value was read."""
    ended_s, found = NEVER, list[RegisterOp]()
    by_value: dict[Hashable, float] = {}
    for op in reads:
        by_value[op.value] = min(op.ended_s, by_value.get(op.value, NEVER))
    for value in sorted(begun_s, reverse=True):
        ended_s = min(ended_s, by_value.get(value, NEVER))
        found.append(RegisterOp(value, begun_s[value], max(ended_s, begun_s[value])))
    return [*found, *reads]


def _check(what: str, ops: Iterable[RegisterOp], initial: Hashable = None) -> None:
    found = unexplained(ops, initial)
    if found:
        told = "; ".join(map(str, sorted(found, key=lambda op: op.begun_s)))
        raise Violated("stale answer", f"no order explains what clients saw of {what}: {told}")
