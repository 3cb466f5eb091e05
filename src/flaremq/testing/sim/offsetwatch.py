"""Watches the committed offsets of all groups, as masters and leaders have them.

every moment   what was committed  > history.progress
               what was committed so long ago that it must outlive its broker  > kept
failover       what the next leader, or the master that was started again, found > history.failovers

What a broker dies with, and nobody else has, may be lost: those messages come again. How much that is:

master         saves its table every few seconds, the first time ten seconds after its start
leader         writes its table into the log every second; what the group has decided on is kept
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from flaremq.dledger.ledger.raftlog import RaftLog
from flaremq.servers.groupbroker import GroupBroker
from flaremq.servers.together import Broker
from flaremq.testing.sim.history import CommittedOffset, Failover, History, QueueName
from flaremq.testing.sim.workload import TOPICS
from flaremq.testing.sim.world import Machine, Simulation

_EVERY: Final = 5
"""What is committed is taken down by one look in so many."""
_GAP_S: Final = 0.2
"""A broker that was not seen for so long was paused, or could not write."""
_SAVED_S, _FIRST_SAVED_S, _WRITTEN_S, _SLACK_S = 5.0, 10.0, 1.0, 1.0

_Offsets: TypeAlias = dict[tuple[str, QueueName], int]
"""By group and queue."""


@dataclass(slots=True)
class _Period:
    """A broker serves without a break."""

    life: object
    began_s: float
    seen_s: float
    waiting: deque[tuple[float, _Offsets]] = field(default_factory=deque)
    """What was committed when, and may not be kept yet."""
    appended: deque[tuple[int, _Offsets]] = field(default_factory=deque)
    """What stands in the log of a group before an index."""
    kept: _Offsets = field(default_factory=dict)

    def lower(self, now: _Offsets) -> None:
        """No more than this is promised."""
        for each in (*(old for _, old in self.waiting), *(old for _, old in self.appended), self.kept):
            for key, offset in each.items():
                each[key] = min(offset, now.get(key, offset))


class OffsetWatch:
    """Runs outside all nodes."""

    def __init__(self, sim: Simulation, history: History) -> None:
        self._sim = sim
        self._history = history
        self._known: dict[str, _Offsets] = {}
        """What was noted in the history, by the broker's name."""
        self._periods: dict[str, _Period] = {}
        self._started: dict[str, Broker] = {}
        self._looks = 0

    def look(self) -> None:
        self._looks += 1
        for name in self._sim.names:
            broker = self._sim.master(name)
            if broker is None or not self._can_write(name, broker):
                continue
            period = self._period(name, broker)
            if self._looks % _EVERY == 0:
                offsets = _offsets(name, broker)
                self._note(name, offsets)
                self._keep(broker, period, offsets)

    def started(self, machine: Machine) -> None:
        """A master has."""
        broker = self._started[machine.name] = self._sim.running[machine.name]
        self._failed_over(machine.name, machine.name, broker)

    # What is committed.

    def _note(self, name: str, offsets: _Offsets) -> None:
        known, history = self._known.setdefault(name, {}), self._history
        for (group, queue), offset in offsets.items():
            if known.get((group, queue)) != offset:
                known[group, queue] = offset
                so_far = len(history.pulls), len(history.handled)
                history.progress.append(CommittedOffset(group, queue, offset, *so_far))

    def _listen(self, name: str, broker: Broker | GroupBroker, period: _Period) -> None:
        """A consumer may go back and commit that, and go on before anybody looks."""
        offsets = broker.tables.offsets
        plain = offsets.commit

        def commit(group: str, topic: str, queue_id: int, offset: int) -> None:
            plain(group, topic, queue_id, offset)
            if topic in TOPICS and self._periods[name] is period:
                committed = {(group, (topic, name, queue_id)): offset}
                period.lower(committed)
                self._note(name, committed)

        offsets.commit = commit  # type: ignore[method-assign]

    # What is kept.

    def _period(self, name: str, broker: Broker | GroupBroker) -> _Period:
        now_s, period = self._sim.loop.now_s, self._periods.get(name)
        life: object = (broker, broker.node.term) if isinstance(broker, GroupBroker) else broker
        if period is None or period.life != life:
            if isinstance(broker, GroupBroker):
                self._failed_over(name, f"the leader of {name} in term {broker.node.term}", broker)
            kept = period.kept if period is not None else {}
            period = self._periods[name] = _Period(life, now_s, now_s, kept=kept)
            self._listen(name, broker, period)
        elif now_s - period.seen_s > _GAP_S:
            period.waiting.clear()
            period.appended.clear()
        period.seen_s = now_s
        return period

    def _keep(self, broker: Broker | GroupBroker, period: _Period, offsets: _Offsets) -> None:
        now_s = self._sim.loop.now_s
        period.waiting.append((now_s, offsets))
        if isinstance(broker, GroupBroker):
            self._keep_decided(broker, period, now_s)
        elif now_s > period.began_s + _FIRST_SAVED_S + _SLACK_S:
            for old in _taken(period.waiting, now_s - _SLACK_S - _SAVED_S):
                period.kept = old

    def _keep_decided(self, member: GroupBroker, period: _Period, now_s: float) -> None:
        ledger = member.store.log
        assert isinstance(ledger, RaftLog)
        for old in _taken(period.waiting, now_s - _WRITTEN_S - _SLACK_S):
            period.appended.append((ledger.last_index, old))
        while period.appended and period.appended[0][0] <= ledger.committed_index:
            period.kept = period.appended.popleft()[1]

    def _can_write(self, name: str, broker: Broker | GroupBroker) -> bool:
        if isinstance(broker, GroupBroker):
            running = self._sim.running_members
            (machine,) = (each for each in self._sim.members if running.get(each.name) is broker)
            may_append = broker.node.rules.may_append
        else:
            machine, may_append = self._sim.machines[name], self._started.get(name) is broker
        disk = machine.disk
        return (
            machine.is_running
            and may_append
            and (machine.node is not None and not machine.node.paused)
            and not disk.read_only
            and disk.free_bytes is None
            and broker.store.flags.failure is None
        )

    def _failed_over(self, name: str, server: str, broker: Broker | GroupBroker) -> None:
        period = self._periods.get(name)
        if period is None:
            return
        found = _offsets(name, broker)
        for (group, queue), kept in period.kept.items():
            at_s = self._sim.loop.now_s
            self._history.failovers.append(
                Failover(server, at_s, group, queue, kept, found.get((group, queue), -1))
            )


def _taken(waiting: deque[tuple[float, _Offsets]], until_s: float) -> Iterator[_Offsets]:
    while waiting and waiting[0][0] <= until_s:
        yield waiting.popleft()[1]


def _offsets(name: str, broker: Broker | GroupBroker) -> _Offsets:
    return {
        (group, (topic, name, queue_id)): offset
        for (topic, group), queues in broker.tables.offsets.all().items()
        if topic in TOPICS
        for queue_id, offset in queues.items()
    }
