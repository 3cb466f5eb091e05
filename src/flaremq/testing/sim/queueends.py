"""Watches where queues end, as everybody says who would answer: an end is a register that only grows.

A send that was acknowledged with place 6 of a queue has written 7 into its register: from then on nobody may
say that the queue ends before that. Who was deposed and goes on answering would. A broker shows messages a
moment after they were acknowledged, or later if its disk is full: it is asked when it shows all that it knows
to be decided on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from flaremq.servers.groupbroker import GroupBroker
from flaremq.servers.together import Broker
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.history import Content, History, QueueName
from flaremq.testing.sim.workload import QUEUES, TOPICS
from flaremq.testing.sim.world import Simulation

_EVERY: Final = 4
"""Ends are looked at by one look in so many."""


@dataclass(frozen=True, slots=True)
class SeenEnd:
    """Where a queue ended at a moment, as a server said."""

    at_s: float
    end: int
    server: str


class QueueEnds:
    """Runs outside all nodes."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._seen: dict[QueueName, list[SeenEnd]] = {}
        self._looks = 0

    def look(self) -> None:
        self._looks += 1
        if self._looks % _EVERY:
            return
        for server, name, broker in self._answering():
            for topic in TOPICS:
                for queue_id in range(QUEUES):
                    seen = self._seen.setdefault((topic, name, queue_id), [])
                    end = broker.store.max_offset(topic.encode(), queue_id)
                    seen.append(SeenEnd(self._sim.loop.now_s, end, server))

    def _answering(self) -> list[tuple[str, str, Broker | GroupBroker]]:
        """All that would answer at this moment: they may be more than one of a name."""
        sim, found = self._sim, list[tuple[str, str, Broker | GroupBroker]]()
        for machine in [*sim.brokers, *sim.members]:
            if not machine.is_running or (machine.node is not None and machine.node.paused):
                continue
            broker, member = sim.running.get(machine.name), sim.running_members.get(machine.name)
            if broker is not None and broker.store.report is not None:
                found.append((machine.name, machine.name, broker))
            if member is not None and member.takes_part and member.leads and member.node.may_answer():
                found.append((machine.name, machine.name.rpartition("-")[0], member))
        return [each for each in found if not each[2].store.dispatcher.behind]

    def check(self, history: History, content: Content) -> None:
        """`content` of all queues, in the end."""
        for queue, seen in self._seen.items():
            check_end(history, queue, content.get(queue, {}), seen)


def check_end(history: History, queue: QueueName, values: Mapping[int, str], seen: Iterable[SeenEnd]) -> None:
    """`values` by queue offset; `seen` in the order of time."""
    placed = (op for op in history.acknowledged.values() if op.queue == queue)
    acknowledged = sorted(((op.ended_s or 0.0, op.offset + 1) for op in placed), reverse=True)
    known, why = 0, ""
    for each in seen:
        while acknowledged and acknowledged[-1][0] < each.at_s:
            at_s, end = acknowledged.pop()
            if end > known:
                known, why = end, f"place {end - 1} was acknowledged at {at_s:.3f} s"
        if each.end < known:
            what = f"{queue} ended at {each.end} for {each.server} at {each.at_s:.3f} s"
            raise Violated("stale end", f"{what}, and {why}")
        if each.end > known:
            known, why = each.end, f"{each.server} had said {each.end} at {each.at_s:.3f} s"
        last = history.sends.get(values.get(each.end - 1, ""))
        if each.end and (last is None or last.began_s > each.at_s):
            what = f"{queue} ended at {each.end} for {each.server} at {each.at_s:.3f} s"
            raise Violated("stale end", f"{what}, and nothing was sent that could be there")
