"""Watches where queues end, as everybody who would answer says, and checks each end as a register.

A send that was acknowledged with place 6 of a queue has written 7 into its register: from then on nobody may
say that the queue ends before that. Who was deposed and goes on answering would. A broker shows messages a
moment after they were acknowledged, or later if its disk is full: it is asked when it shows all that it knows
to be decided on.
"""

from __future__ import annotations

from typing import Final

from flaremq.servers.groupbroker import GroupBroker
from flaremq.servers.together import Broker
from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.history import Content, History, QueueName
from flaremq.testing.sim.registers import NEVER, RegisterOp, unexplained
from flaremq.testing.sim.workload import QUEUES, TOPICS
from flaremq.testing.sim.world import Simulation

_EVERY: Final = 4
"""Ends are looked at by one look in so many."""


class QueueEnds:
    """Runs outside all nodes."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._reads: dict[QueueName, list[RegisterOp]] = {}
        self._looks = 0

    def look(self) -> None:
        self._looks += 1
        if self._looks % _EVERY:
            return
        now_s = self._sim.loop.now_s
        for name, broker in self._answering():
            for topic in TOPICS:
                for queue_id in range(QUEUES):
                    reads = self._reads.setdefault((topic, name, queue_id), [])
                    end = broker.store.max_offset(topic.encode(), queue_id)
                    reads.append(RegisterOp(end, now_s, now_s, is_read=True))

    def _answering(self) -> list[tuple[str, Broker | GroupBroker]]:
        """All that would answer at this moment: they may be more than one of a name."""
        sim, found = self._sim, list[tuple[str, Broker | GroupBroker]]()
        for machine in [*sim.brokers, *sim.members]:
            if not machine.is_running or (machine.node is not None and machine.node.paused):
                continue
            broker, member = sim.running.get(machine.name), sim.running_members.get(machine.name)
            if broker is not None and broker.store.report is not None:
                found.append((machine.name, broker))
            if member is not None and member.takes_part and member.leads and member.node.may_answer():
                found.append((machine.name.rpartition("-")[0], member))
        return [(name, each) for name, each in found if not each.store.dispatcher.behind]

    def check(self, history: History, content: Content) -> None:
        """`content` of all queues, in the end."""
        for queue, reads in self._reads.items():
            ops = unexplained([*_writes(history, queue, content.get(queue, {})), *reads], initial=0)
            if ops:
                told = "; ".join(map(str, sorted(ops, key=lambda op: op.begun_s)))
                raise Violated("stale end", f"no order explains where {queue} ended: {told}")


def _writes(history: History, queue: QueueName, values: dict[int, str]) -> list[RegisterOp]:
    found = []
    for offset, value in values.items():
        op = history.sends[value]
        has_receipt = (op.queue, op.offset) == (queue, offset)
        ended_s = op.ended_s if has_receipt and op.ended_s is not None else NEVER
        found.append(RegisterOp(offset + 1, op.began_s, ended_s))
    return found
