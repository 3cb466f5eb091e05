"""One run of a plan: a safety phase with faults, then everything is healed and must finish its work.

safety      workload and faults, side by side
liveness    all is healed for good, or all but what the others can do without; every message must reach its
            group within a limit
drain       what all queues hold is compared with the history; stores are verified; a restart of every
            node changes nothing
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from flaremq.base.errors import Malformed
from flaremq.broker.replicas.replication import Replication
from flaremq.ha.states import FollowState, SlaveStatus
from flaremq.model.record import decode_many
from flaremq.servers.together import Broker
from flaremq.store.offline.folder import OfflineStore
from flaremq.store.offline.verify import Verifier
from flaremq.store.store import MessageStore
from flaremq.testing.sim.checks import Evidence, Violated, examine
from flaremq.testing.sim.groupchecks import GroupChecks
from flaremq.testing.sim.groupregisters import LeaderAnswers
from flaremq.testing.sim.history import Content, History
from flaremq.testing.sim.loop import Stuck
from flaremq.testing.sim.nemesis import Nemesis
from flaremq.testing.sim.offsetfiles import OffsetFiles
from flaremq.testing.sim.offsetwatch import OffsetWatch
from flaremq.testing.sim.plan import Plan, draw, draw_group
from flaremq.testing.sim.queueends import QueueEnds
from flaremq.testing.sim.workload import DELAYS, TOPICS, Shopper
from flaremq.testing.sim.world import Machine, Simulation

_DELAYED_S: Final = 16.0
"""After this time each message is in its queue, or lost."""
_CLIENT_AGAIN_S: Final = 2.0
_CATCH_UP_S: Final = 120.0
_LOOK_S: Final = 0.05
_FINISH_S: Final = 240.0
"""After healing, all work must be done within this virtual time: transactions are asked about every few
seconds, retries wait up to ten, routes are refreshed every five, and silent peers noticed within minutes."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What became of a run."""

    plan: Plan
    check: str
    """The check that failed; empty if none did."""
    error: str
    virtual_s: float
    real_s: float
    events: int
    digest: str
    faults: Counter[str]
    last: tuple[str, ...] = ()
    """The last events, of a run that failed."""
    met: Counter[str] = field(default_factory=Counter)
    """What clients met, and how often."""

    def line(self, commit: str = "") -> str:
        state = f"FAILED {self.error}" if self.check else "ok"
        known = f" commit={commit}" if commit else ""
        return (
            f"seed={self.plan.seed}{known} virtual={self.virtual_s:.1f}s real={self.real_s:.2f}s "
            f"events={self.events} hash={self.digest} {state}"
        )


def run_seed(seed: int, *, groups: bool = False) -> RunResult:
    return run_plan(draw_group(seed) if groups else draw(seed))


def run_plan(plan: Plan) -> RunResult:
    began_s = time.perf_counter()
    check = error = ""
    last: tuple[str, ...] = ()
    options: dict[str, object] = {
        "flushDiskType": plan.flush,
        "brokerRole": plan.role,
        "inSyncReplicas": 1 + plan.copies
        if plan.copies > 1
        else 0,  # 0: one slave, or say at once that there is none.
        "mappedFileSizeCommitLog": plan.log_file_size,
        "messageDelayLevel": DELAYS,
        "timerWheelEnable": plan.timers,
        "transactionCheckInterval": 3000,
        "transactionTimeOut": 2000,
        "autoCreateTopicEnable": False,
        "flushConsumeQueueThoroughInterval": 3000,  # So that checkpoints move within a run.
        "flushCommitLogThoroughInterval": 3000,
    }
    if any(fault.kind == "rot" for fault in plan.faults):
        options["dLegerScrubInterval"] = 2000
    with Simulation(
        plan.seed,
        namesrvs=plan.namesrvs,
        brokers=plan.brokers,
        slaves=plan.slaves,
        replicas=plan.replicas,
        options=options,
        quality=plan.quality,
        strict_names=plan.strict_names,
    ) as sim:
        run = _Run(sim, plan)
        collects = gc.isenabled()
        gc.disable()  # A run lasts a second: what it leaves is collected after it.
        try:
            sim.run(run.whole())
        except Violated as failed:
            check, error = failed.check, str(failed)
        except Stuck as failed:
            check, error = "stuck", str(failed)
        except Exception as failed:  # noqa: BLE001 - Whatever a run raises is its result.
            check, error = type(failed).__name__, f"{type(failed).__name__}: {failed}"
        finally:
            if collects:
                gc.enable()
        if check:
            last = tuple(sim.events.last())
        events = sim.events
        return RunResult(
            plan, check, error, sim.loop.now_s, time.perf_counter() - began_s, events.count, events.digest,
            events.faults, last, run.met,
        )  # fmt: skip


class _Run:
    def __init__(self, sim: Simulation, plan: Plan) -> None:
        self._sim = sim
        self._plan = plan
        self._history = History()
        self._machines = [sim.client_machine(f"client-{number}") for number in range(plan.clients)]
        self._shoppers = [Shopper(sim, machine, plan, self._history) for machine in self._machines]
        self._groups = GroupChecks(sim)
        self._offsets = OffsetWatch(sim, self._history)
        self._ends = QueueEnds(sim)
        self._answers = LeaderAnswers(sim) if plan.asks else None
        self.met: Counter[str] = Counter()
        self._files = OffsetFiles(sim)
        sim.on_made, sim.on_started = self._made, self._started
        for number, machine in enumerate(sim.machines.values()):
            machine.drift = plan.drift * (-1) ** number

    async def whole(self) -> None:
        sim, plan = self._sim, self._plan
        await sim.start()
        work = [asyncio.create_task(self._client(number)) for number in range(plan.clients)]
        nemesis = Nemesis(sim, self._machines)
        faults = asyncio.create_task(nemesis.run(plan.faults))
        watching = asyncio.create_task(self._watch())
        asking = [asyncio.create_task(self._answers.run())] if self._answers is not None else []
        await asyncio.sleep(plan.length_s)
        faults.cancel()
        await nemesis.heal()
        await nemesis.leave(plan.stays)
        await self._finish([*work, watching, *asking])
        if plan.stays:
            await nemesis.heal()
        await self._groups.led()
        nemesis.settle()
        for task in asking:
            task.cancel()
        content = self.content()
        self.met = self._history.counts(content)
        self._check(content)
        if plan.keeps_acknowledged:
            self._ends.check(self._history, content)
        if self._answers is not None:
            self._answers.stop()
            self._answers.check(self._history, content)
            self.met["answers of leaders"] = self._answers.count
        for shopper, machine in zip(self._shoppers, self._machines, strict=True):
            await machine.do(_set(shopper.stopping))
        await asyncio.gather(*work)
        watching.cancel()
        await self._catch_up()
        await self._restart()
        self._check_same(content)

    async def _watch(self) -> None:
        """Look again and again, until this is cancelled or something is wrong."""
        while True:
            self._groups.look()
            self._offsets.look()
            self._ends.look()
            await asyncio.sleep(_LOOK_S)

    async def _client(self, number: int) -> None:
        """A client that is killed is started again, and goes on with what it had to send."""
        machine, shopper = self._machines[number], self._shoppers[number]
        while True:
            try:
                await machine.start()  # It may be killed at that already.
                return await machine.do(shopper.run())
            except ConnectionAbortedError:
                if machine.is_running:
                    raise
                await asyncio.sleep(_CLIENT_AGAIN_S)

    async def _finish(self, work: list[asyncio.Task[None]]) -> None:
        """Wait until every acknowledged message was handled."""
        limit_s = self._sim.loop.now_s + _FINISH_S
        while self._sim.loop.now_s < limit_s:
            for task in work:
                if task.done():
                    task.result()
            if self._is_done():
                return
            await asyncio.sleep(1.0)
        begun = len(self._history.sends)
        if begun < self._wanted:
            raise Violated("no progress", f"{begun} of {self._wanted} sends were begun in {_FINISH_S:g} s")

    @property
    def _wanted(self) -> int:
        """How many sends all clients have to do."""
        return self._plan.sends * self._plan.clients

    def _is_done(self) -> bool:
        history = self._history
        if not all(shopper.has_sent for shopper in self._shoppers):
            return False
        left = [op.value for op in history.unhandled()]
        if self._plan.keeps_acknowledged:
            return not left and not history.unseen()
        if not left:
            return True
        # Some may be lost, and those that are still to come are in no queue yet.
        now_s, last_s = self._sim.loop.now_s, max(op.ended_s or 0.0 for op in history.sends.values())
        if now_s < max(last_s, self._plan.length_s) + _DELAYED_S:
            return False
        if now_s > self._plan.length_s * 2 + 30:
            return True
        there = {value for values in self.content().values() for value in values.values()}
        return there.isdisjoint(left)

    def content(self) -> Content:
        """What all queues of the masters hold, or those of the leaders of groups."""
        found: Content = {}
        for name in self._sim.names:
            master = self._sim.master(name)
            if master is not None:
                found |= _content(master.store, name)
        return found

    async def _catch_up(self) -> None:
        """Every slave gets what its master has: the same bytes, and no other messages. One that was refused,
        because its master has lost what it still has, says so. So do the members of a group."""
        await self._groups.settle()
        for machine in self._sim.members:
            await self._shows_the_same(machine)
        for machine in self._sim.slaves:
            name = self._sim.master_of(machine).name
            limit_s = self._sim.loop.now_s + _CATCH_UP_S
            slave, master = self._sim.running[machine.name], self._sim.running[name]
            while slave.store.log.end != master.store.log.confirmed and not _is_refused(slave):
                if self._sim.loop.now_s > limit_s:
                    raise Violated("slave behind", f"{machine.name} does not catch up: {_why(slave)}")
                await asyncio.sleep(0.5)
            if _is_refused(slave):
                if self._plan.keeps_acknowledged and self._plan.flush == "SYNC_FLUSH":
                    raise Violated("slave refused", f"{machine.name}: {_why(slave)}")
                continue
            begin = max(slave.store.log.begin, master.store.log.begin)
            if _bytes(slave, begin) != _bytes(master, begin):
                raise Violated("other bytes", f"the log of {machine.name} is not that of its master")
            slave.store.show()
            if _content(slave.store, name) != _content(master.store, name):
                raise Violated("other messages", f"{machine.name} shows other messages than its master")

    async def _shows_the_same(self, machine: Machine) -> None:
        """A member, as its leader, when it knows as much of the log to be decided on: that still grows."""
        limit_s, name = self._sim.loop.now_s + _CATCH_UP_S, machine.name.rpartition("-")[0]
        member = self._sim.running_members[machine.name]
        while True:
            leader = self._sim.leader(name)
            if leader is not None and leader.store.log.confirmed == member.store.log.confirmed:
                break
            if self._sim.loop.now_s > limit_s:
                raise Violated("not settled", f"{machine.name} does not get to where its leader is")
            await asyncio.sleep(_LOOK_S)
        member.store.show()
        leader.store.show()
        if _content(member.store, name) != _content(leader.store, name):
            raise Violated("other messages", f"{machine.name} shows other messages than its leader")

    def _check(self, content: Content) -> None:
        plan, topics = self._plan, dict[str, frozenset[str]]()
        for name in self._sim.names:
            master = self._sim.master(name)
            topics[name] = frozenset(() if master is None else master.tables.topics.all())
        examine(
            Evidence(
                self._history,
                content,
                is_lossless=plan.keeps_acknowledged,
                has_true_clocks=not plan.moves_clocks,
                topics=topics,
            )
        )

    def _made(self, machine: Machine) -> None:
        if machine in self._sim.brokers:
            self._files.made(machine)

    def _started(self, machine: Machine) -> None:
        if machine in self._sim.brokers:
            self._offsets.started(machine)
            self._files.started(machine)

    async def _restart(self) -> None:
        for machine in self._sim.servers:
            await self._sim.stop_broker(machine)
            report = Verifier(OfflineStore(machine.folder)).run()
            if not report.is_sound:
                raise Violated("verify", f"{machine.name}: {report}")
        for machine in self._sim.namesrvs:
            machine.kill()
        await self._sim.start()
        await self._groups.settle()

    def _check_same(self, before: Content) -> None:
        after = self.content()
        for queue, values in before.items():
            for offset, value in values.items():
                if after.get(queue, {}).get(offset) != value:
                    raise Violated("restart", f"{queue}:{offset} was {value} before a clean restart")


def _is_refused(slave: Broker) -> bool:
    return _state(slave).state is FollowState.REFUSED


def _why(slave: Broker) -> str:
    state = _state(slave)
    return f"{state.state.value}, {state.why or 'no reason given'}, {state.end} of {state.master_end} bytes"


def _state(slave: Broker) -> SlaveStatus:
    assert slave.composition is not None
    replication = slave.composition.replication
    assert isinstance(replication, Replication) and replication.slave is not None
    return replication.slave.status()


def _bytes(broker: Broker, begin: int) -> bytes:
    log, found, at = broker.store.log, bytearray(), begin
    while at < log.confirmed:
        size = min(log.confirmed - at, log.file_size - at % log.file_size)
        found += log.slice(at, size) or b""
        at += size
    return bytes(found)


def _content(store: MessageStore, name: str) -> Content:
    found: Content = {}
    for topic in TOPICS:
        for queue_id in range(2):
            values = _values(store, topic, queue_id)
            if values:
                found[topic, name, queue_id] = values
    return found


async def _set(event: asyncio.Event) -> None:
    event.set()


def _values(store: MessageStore, topic: str, queue_id: int) -> dict[int, str]:
    name = topic.encode()
    offset, end = store.min_offset(name, queue_id), store.max_offset(name, queue_id)
    found: dict[int, str] = {}
    while offset < end:
        result = store.get(name, queue_id, offset, 32)
        try:
            messages = decode_many(result.gathered())
        except Malformed as error:
            raise Violated("unreadable", f"{topic}:{queue_id} from {offset} on: {error}") from error
        found |= {message.queue_offset: message.body.decode() for message in messages}
        if result.next_offset <= offset:
            break
        offset = result.next_offset
    return found
