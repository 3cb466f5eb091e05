"""One member in the simulator: what flaremq.dledger.node does for its rules, without a loop and a socket.

Actions are done in order. A ballot takes its time, and what happens meanwhile waits. What cannot be done ends
the list, and the member is told that it fails before anything else happens to it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from flaremq.dledger.member import Member
from flaremq.dledger.types import (
    Action,
    Appended,
    Ballot,
    Commit,
    Empty,
    Event,
    Failing,
    Fit,
    Follow,
    Heard,
    Index,
    Lead,
    MemberId,
    Membership,
    Message,
    Pace,
    SaveBallot,
    Synced,
    Tell,
    Tick,
    Truncate,
    Write,
)
from flaremq.testing.sim.events import EventStream
from flaremq.testing.sim.raft.ledger import SimEntry, SimLedger, membership_value
from flaremq.testing.sim.raft.promises import Promises, Watched

MemberRules = type[Member]
_BACKLOG_MAX: Final = 2000


class DiskRefusal(Exception):
    """The disk does not take it just now."""


class World(Protocol):
    """What surrounds a machine."""

    now: float
    pace: Pace
    events: EventStream
    promises: Promises
    rules: MemberRules
    preferred: tuple[MemberId, ...]
    noticed: Callable[[str, MemberId], None]

    def after(self, delay_s: float, call: Callable[[], None]) -> None: ...
    def send(self, sender: MemberId, to: MemberId, message: Message) -> None: ...
    def everybody(self) -> list[Watched]: ...


class SimMachine:
    """A machine with one member. Its process may be killed, paused and started, its disk may fail."""

    def __init__(self, name: MemberId, world: World, configured: Membership, seed: str) -> None:
        self.name = name
        self.ledger = SimLedger(configured)
        self.member: Member | None = None
        self.committed: Index = -1
        self.life = 0
        self.drift = 0.0
        self.sync_s = 0.002
        self.refusing = 0.0
        """The part of what the disk is asked for that it refuses."""
        self.stalled_until = 0.0
        self.is_failed = self.is_paused = self.has_lost = False
        self.is_gone = False
        """It was removed from the group, and its operator has stopped it."""
        self.is_leading = self.may_append = False
        self._world = world
        self._rng = random.Random(f"{seed}/{name}")
        self._epoch_s = self._rng.uniform(0, 1e6)
        self._waiting: deque[Event] = deque()
        self._backlog: list[Event] = []
        self._is_saving = self._is_syncing = self._is_unfit = False
        self._sync_began = 0.0
        self._tick_at = -1.0
        self._began: Index = -1
        """The entry with which its term as leader began."""
        self._unanswered: deque[tuple[Index, bytes]] = deque()

    # Life.

    def clock(self) -> float:
        """Monotonic seconds, as this machine counts them."""
        return self._epoch_s + self._world.now * (1 + self.drift)

    @property
    def is_running(self) -> bool:
        return self.member is not None

    @property
    def may_vote(self) -> bool:
        """As its disk says."""
        return self.ledger.has_ballot and self.ledger.ballot.is_voter

    @property
    def answers(self) -> bool:
        return self.member is not None and not self.is_paused and self.member.may_answer(self.clock())

    @property
    def serves(self) -> bool:
        """Whether a reader is answered: this member knows all that was decided before its term."""
        return self.is_leading and self._began <= self.committed and self.answers

    @property
    def is_broken(self) -> bool:
        return self.member is not None and bool(self.member.why_silent) and not self._is_unfit

    def start(self) -> None:
        assert self.member is None
        world, ledger = self._world, self.ledger
        self.life += 1
        self.is_failed = self.is_paused = self.is_leading = self.may_append = False
        self._is_saving = self._is_syncing = self._is_unfit = False
        self._tick_at = -1.0
        ledger.open()
        self.committed = ledger.first_index - 1
        self.member = world.rules(
            self.name,
            ledger,
            ledger.ballot,
            world.pace,
            self.clock(),
            rng=self._rng,
            may_vote=ledger.has_ballot and not self.has_lost,
            preferred=world.preferred,
        )
        world.events.add(self.name, "start", self.life)
        self._schedule()
        self._look(self.life)

    def kill(self) -> None:
        """The process ends. What it has written stays."""
        self._world.events.fault("kill", self.name)
        self._end()

    def lose_power(self) -> None:
        self._world.events.fault("power", self.name)
        self._end()
        self.ledger.lose_power(self._rng)

    def lose_disk(self) -> None:
        self._world.events.fault("disk lost", self.name)
        self._end()
        self.ledger.lose_all()

    def lose_entries(self, first: Index) -> None:
        """Recovery finds damage in what was synced."""
        self._world.events.fault("entries lost", self.name, first)
        self._end()
        self.has_lost = True
        self.ledger.lose_tail(first)

    def _end(self) -> None:
        self.life += 1
        self.member = None
        self.is_leading = self.may_append = False
        self._waiting.clear()
        self._backlog.clear()
        self._unanswered.clear()

    def pause(self) -> None:
        self._world.events.fault("pause", self.name)
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for event in backlog:
            self.happens(event)

    # What clients and operators ask.

    def append(self, value: bytes) -> bool:
        if not self.may_append or self.is_paused or self.member is None:
            return False
        index = self.ledger.append(SimEntry(self.member.term, value))
        self._unanswered.append((index, value))
        self._grown()
        return True

    def change(self, new: Membership) -> None:
        assert self.member is not None
        self.member.check_change(new)
        self.ledger.append(SimEntry(self.member.term, membership_value(new)))
        self._grown()

    def _grown(self) -> None:
        self._sync_soon()
        life = self.life
        self._world.after(0.0, lambda: self.happens(Appended()) if life == self.life else None)

    # What happens.

    def heard(self, sender: MemberId, message: Message) -> None:
        self.happens(Heard(sender, message))

    def happens(self, event: Event) -> None:
        if self.member is None:
            return
        if self.is_paused:
            if len(self._backlog) < _BACKLOG_MAX and not isinstance(event, Tick):
                self._backlog.append(event)
        elif self._is_saving:
            self._waiting.append(event)
        else:
            self._world.events.add(self.name, type(event).__name__)
            self._do(deque(self.member.step(event, self.clock(), self._rng)))

    def _do(self, actions: deque[Action]) -> None:
        try:
            while actions:
                action = actions.popleft()
                if isinstance(action, SaveBallot):
                    self._save(action.ballot, actions)
                    return
                self._DO[type(action)](self, action)
        except DiskRefusal as error:
            self._not_fit(str(error))
        member = self.member
        self.may_append = member is not None and self.is_leading and member.may_append
        self._world.promises.after_step(self, self._world.everybody())
        self._schedule()

    def _save(self, ballot: Ballot, rest: deque[Action]) -> None:
        self._is_saving = True
        life = self.life
        fails = self.is_failed or self._rng.random() < self.refusing

        def done() -> None:
            if life != self.life:
                return
            if self.is_paused or self._world.now < self.stalled_until:
                self._world.after(0.05, done)
                return
            self._is_saving = False
            if fails:
                self._not_fit("the ballot could not be saved")
                self._do(deque())
            else:
                self.ledger.ballot, self.ledger.has_ballot = ballot, True
                self.has_lost = self.has_lost and ballot.is_voter
                self._do(rest)
            while self._waiting and not self._is_saving and life == self.life:
                self.happens(self._waiting.popleft())

        self._world.after(self._rng.uniform(0.2, 1.5) * self.sync_s, done)
        self._world.noticed("save", self.name)

    def _not_fit(self, why: str) -> None:
        self._world.events.fault("not fit", self.name)
        self.is_leading = self.may_append = False
        self._is_unfit = True
        assert self.member is not None
        self._do(deque(self.member.step(Failing(why), self.clock(), self._rng)))

    def _schedule(self) -> None:
        """One tick is under way at any time, at the deadline or before it."""
        if self.member is None or self._is_saving:
            return
        at = max(self._world.now, (self.member.deadline - self._epoch_s) / (1 + self.drift))
        if self._world.now <= self._tick_at <= at:
            return
        self._tick_at = at
        life = self.life

        def tick() -> None:
            if life == self.life and self._tick_at == at:
                self._tick_at = -1.0
                if self.is_paused or self._is_saving:
                    self._world.after(0.01, lambda: self.happens(Tick()) if life == self.life else None)
                else:
                    self.happens(Tick())

        self._world.after(at - self._world.now + 1e-6, tick)

    # What is done.

    def _tell(self, action: Tell) -> None:
        member = self.member
        if member is not None and (action.to in member.contacts or action.to == member.leader):
            self._world.send(self.name, action.to, action.message)

    def _write(self, action: Write) -> None:
        self._may_refuse()
        self.ledger.append_run(action.run)
        self._sync_soon()

    def _truncate(self, action: Truncate) -> None:
        self._may_refuse()
        self._world.promises.truncated(self, action.first)
        self._world.events.fault("truncate", self.name, action.first)
        self.ledger.truncate_from(action.first)
        self._sync_soon()

    def _empty(self, action: Empty) -> None:
        self._may_refuse()
        self._world.events.fault("empty", self.name, action.first)
        self.ledger.empty(action.first, action.position, action.previous_term)
        self.committed = action.first - 1

    def _commit(self, action: Commit) -> None:
        self._world.promises.committed(self, action.index)
        self._world.events.add(self.name, "commit", action.index)
        self.committed = max(self.committed, action.index)
        while self._unanswered and self._unanswered[0][0] <= action.index:
            self._world.promises.acknowledge(*self._unanswered.popleft(), self._world.now)

    def _lead(self, action: Lead) -> None:
        self._may_refuse()
        self._world.promises.elected(self, action.term)
        self._world.events.add(self.name, "lead", action.term)
        self.is_leading = True
        self.ledger.lead(action.term)
        self._began = self.ledger.last_index
        self._grown()
        self._world.noticed("lead", self.name)

    def _follow(self, action: Follow) -> None:
        self._world.events.add(self.name, f"follow {action.leader}", action.term)
        self.is_leading = self.may_append = False
        self._unanswered.clear()

    _DO: Final[dict[type[Any], Callable[[SimMachine, Any], None]]] = {
        Tell: _tell,
        Write: _write,
        Truncate: _truncate,
        Empty: _empty,
        Commit: _commit,
        Lead: _lead,
        Follow: _follow,
    }

    # The disk.

    def _may_refuse(self) -> None:
        if self.is_failed or self._rng.random() < self.refusing:
            raise DiskRefusal("the disk is full")

    def _sync_soon(self) -> None:
        if self._is_syncing or self.ledger.is_synced:
            return
        self._is_syncing = True
        self._sync_began = self._world.now
        life, written = self.life, self.ledger.written()

        def done() -> None:
            if life != self.life or self.is_failed:
                return
            if self._world.now < self.stalled_until:
                self._world.after(self.stalled_until - self._world.now, done)
                return
            self._is_syncing = False
            self.ledger.sync(written)
            self.happens(Synced())
            self._sync_soon()

        self._world.after(self._rng.uniform(0.3, 2.0) * self.sync_s, done)

    def _look(self, life: int) -> None:
        """Whether the disk works, every heartbeat."""
        if life != self.life:
            return
        pace = self._world.pace
        self._world.after(pace.heartbeat_s, lambda: self._look(life))
        if self.is_paused or self._is_saving:
            return
        stalled_s = self._world.now - self._sync_began if self._is_syncing else 0.0
        if self.is_failed or stalled_s > pace.election_s:
            if not self._is_unfit:
                self._not_fit("the disk does not sync")
        elif self._is_unfit:
            self._is_unfit = False
            self.happens(Fit())
