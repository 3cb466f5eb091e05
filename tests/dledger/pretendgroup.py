"""A group of the library's rules on a network that loses, delays and repeats, in one thread and by a seed."""

from __future__ import annotations

import heapq
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Final

from flaremq.dledger.library.messages import LibraryCall, LibraryEntry, LibraryReply, entries_in, run_of
from flaremq.dledger.library.rules import LibraryMember
from flaremq.dledger.library.state import Answered, Ask, Asked, Drain, LibraryPace, PushLimits, ReplyTo
from flaremq.dledger.types import (
    Appended,
    Ballot,
    Commit,
    Empty,
    EntryRun,
    Failing,
    Fit,
    Follow,
    Lead,
    Membership,
    SaveBallot,
    Standing,
    Synced,
    Tick,
    Transfer,
    Truncate,
    Write,
)
from flaremq.model import layout

FILE: Final = 4096
_HEAD: Final = struct.Struct(layout.DLEDGER_HEADER_FORMAT)
PACE: Final = LibraryPace()
ANSWER_S: Final = 3.0


def an_entry(index: int, term: int, position: int, body: bytes = b"body") -> LibraryEntry:
    size = _HEAD.size + len(body)
    head = _HEAD.pack(layout.DLEDGER_MAGIC, size, index, term, position, 0, 0, 0, len(body))
    return LibraryEntry(index, term, position, head + body)


class MemoryLedger:
    """A log in memory, whose synced part survives the power."""

    def __init__(self, members: Membership) -> None:
        self.membership = members
        self.first_index = 0
        self.entries: list[LibraryEntry] = []
        self.begin = 0
        self.synced_index = -1
        self.is_damaged = False

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.entries) - 1

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else -1

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.begin

    def entry(self, index: int) -> LibraryEntry:
        return self.entries[index - self.first_index]

    def term_at(self, index: int) -> int:
        return self.entry(index).term if self.first_index <= index <= self.last_index else -1

    def run(self, first: int, bytes_max: int) -> EntryRun | None:
        if not self.first_index <= first <= self.last_index:
            return None
        found, size = list[LibraryEntry](), 0
        for entry in islice(self.entries, first - self.first_index, None):
            size += len(entry.data)
            if found and (size > bytes_max or entry.position != found[-1].end):
                break
            found.append(entry)
        return run_of(found)

    def append(self, term: int, body: bytes) -> None:
        position = self.end
        if position % FILE + _HEAD.size + len(body) + layout.BLANK_SIZE > FILE:
            position = (position // FILE + 1) * FILE
        self.entries.append(an_entry(self.last_index + 1, term, position, body))

    def append_run(self, run: EntryRun) -> None:
        assert run.first == self.last_index + 1, (run, self.last_index)
        assert run.position in (self.end, (self.end // FILE + 1) * FILE)
        self.entries += entries_in(run)

    def truncate_from(self, first: int) -> None:
        del self.entries[first - self.first_index :]
        self.synced_index = min(self.synced_index, first - 1)

    def empty(self, first: int, position: int) -> None:
        self.entries.clear()
        self.first_index, self.begin, self.synced_index = first, position, first - 1

    def expire(self, before: int) -> None:
        """Files go whose entries all lie before this one."""
        begins = [each.index for each in self.entries if each.index <= before and each.position % FILE == 0]
        if begins:
            del self.entries[: begins[-1] - self.first_index]
            self.first_index = begins[-1]


@dataclass(slots=True)
class PretendMember:
    """One member, its disk, and what it has committed."""

    name: str
    ledger: MemoryLedger
    rules: LibraryMember | None = None
    ballot: Ballot | None = None
    committed: int = -1
    life: int = 0
    tick_at: float = -1.0


@dataclass
class PretendGroup:
    """All members, their network, and what was acknowledged."""

    seed: int
    ids: tuple[str, ...] = ("n0", "n1", "n2")
    batch_bytes: int = 0
    preferred: tuple[str, ...] = ()
    now: float = 0.0
    loss: float = 0.0
    repeats: float = 0.0
    slow_s: float = 0.01
    cut: set[frozenset[str]] = field(default_factory=set)
    kinds: Mapping[str, type[LibraryMember]] = field(default_factory=dict)
    """Members that follow other rules than ours. What these decide on may be taken back."""
    taken_back: set[int] = field(default_factory=set)
    """Entries that were decided on twice, differently."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    leaders: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._order = count()
        self._wire = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.members = Membership({each: f"10.0.0.{n}:1" for n, each in enumerate(self.ids)})
        self.all = {each: PretendMember(each, MemoryLedger(self.members)) for each in self.ids}
        self._unanswered: dict[str, list[tuple[int, bytes]]] = {each: [] for each in self.ids}
        for each in self.all.values():
            each.ballot = Ballot()
            self.start(each.name)

    # Lives.

    def start(self, name: str) -> None:
        member = self.all[name]
        member.life += 1
        member.rules = self.kinds.get(name, LibraryMember)(
            *(name, member.ledger, member.ballot or Ballot(), PACE, self.now),
            members=self.members.addresses,
            rng=self.rng,
            may_vote=member.ballot is not None,
            preferred=self.preferred,
            limits=PushLimits(batch_bytes=self.batch_bytes),
        )
        self._tick_later(member)

    def kill(self, name: str, *, with_power: bool = False) -> None:
        member = self.all[name]
        member.life += 1
        member.rules = None
        self._unanswered[name].clear()
        if with_power:
            member.ledger.truncate_from(member.ledger.synced_index + 1)
        member.ledger.synced_index = member.ledger.last_index

    def wipe(self, name: str) -> None:
        """Its folder is gone."""
        self.kill(name)
        self.all[name].ledger = MemoryLedger(self.members)
        self.all[name].ballot, self.all[name].committed = None, -1

    # Time.

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + delay_s, next(self._order), call))

    def run(self, for_s: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Whether it came to be within this time."""
        end = self.now + for_s
        while not until():
            if not self._due or self._due[0][0] > end:
                self.now = end
                return until()
            self.now, _, call = heapq.heappop(self._due)
            call()
        return True

    def settled(self) -> bool:
        """Everybody who runs has the leader's log, and knows that it is committed."""
        leader = self.leader()
        if leader is None:
            return False
        last = leader.ledger.last_index
        running = [each for each in self.all.values() if each.rules is not None]
        return all(
            each.committed == last and each.ledger.last_index == last and each.rules is not None
            for each in running
        )

    def leader(self) -> PretendMember | None:
        leading = [
            each
            for each in self.all.values()
            if each.rules is not None and each.rules.standing is Standing.LEADER
        ]
        newest = max(leading, key=lambda each: each.rules.term if each.rules else -1, default=None)
        if newest is None or newest.rules is None or not newest.rules.may_answer(self.now):
            return None
        return newest

    # What clients and operators do.

    def put(self, body: bytes) -> bool:
        leader = self.leader()
        if leader is None or leader.rules is None or not leader.rules.may_append:
            return False
        leader.ledger.append(leader.rules.term, body)
        self._unanswered[leader.name].append((leader.ledger.last_index, body))
        self._sync_later(leader)
        self.happens(leader, Appended())
        return True

    def transfer(self, to: str) -> None:
        leader = self.leader()
        assert leader is not None and leader.rules is not None
        leader.rules.check_transfer(to)
        self.happens(leader, Transfer(to))

    # What happens.

    def happens(self, member: PretendMember, event: Any) -> None:
        rules = member.rules
        if rules is None:
            return
        actions = rules.step(event, self.now, self.rng)
        for action in actions:
            self._do(member, action)
        self._tick_later(member)

    def fail(self, name: str, *, fit_after_s: float) -> None:
        member = self.all[name]
        life = member.life
        self.happens(member, Failing("the disk fails"))
        self.after(fit_after_s, lambda: self.happens(member, Fit()) if life == member.life else None)

    def _tick_later(self, member: PretendMember) -> None:
        assert member.rules is not None
        at = max(self.now, member.rules.deadline)
        if self.now < member.tick_at <= at:
            return
        member.tick_at, life = at, member.life

        def tick() -> None:
            if life == member.life and member.tick_at == at:
                member.tick_at = -1.0
                self.happens(member, Tick())

        self.after(at - self.now + 1e-6, tick)

    def _sync_later(self, member: PretendMember) -> None:
        life, last = member.life, member.ledger.last_index

        def synced() -> None:
            if life == member.life:
                ledger = member.ledger
                ledger.synced_index = max(ledger.synced_index, min(last, ledger.last_index))
                self.happens(member, Synced())

        self.after(self.rng.uniform(0.001, 0.02), synced)

    def _do(self, member: PretendMember, action: Any) -> None:
        match action:
            case SaveBallot(ballot):
                before = member.ballot
                assert before is None or ballot.term >= before.term
                if before is not None and before.term == ballot.term and before.voted_for:
                    assert ballot.voted_for == before.voted_for, "two votes in one term"
                member.ballot = ballot
            case Ask(to, call):
                self._ask(member, to, call)
            case ReplyTo(ticket, reply):
                assert callable(ticket)
                ticket(reply)
            case Write(run):
                member.ledger.append_run(run)
                self._sync_later(member)
            case Truncate(first):
                if member.name in self.kinds:
                    member.committed = min(member.committed, first - 1)
                assert first > member.committed, "what was committed is given up"
                member.ledger.truncate_from(first)
            case Empty(first, position):
                member.ledger.empty(first, position)
                member.committed = max(member.committed, first - 1)
            case Commit(index):
                self._commit(member, index)
            case Lead(term):
                assert self.leaders.setdefault(term, member.name) == member.name, "two leaders in one term"
                if member.name not in self.kinds:
                    member.ledger.append(term, b"leads")
                self._sync_later(member)
                self.after(0.0, lambda: self.happens(member, Appended()))
            case Follow():
                self._unanswered[member.name].clear()
            case _:
                raise AssertionError(action)

    def _commit(self, member: PretendMember, index: int) -> None:
        assert index <= member.ledger.last_index
        for at in range(max(member.ledger.first_index, member.committed + 1), index + 1):
            data = member.ledger.entry(at).data
            if self.acknowledged.setdefault(at, data) != data:
                assert self.kinds, f"entry {at} was decided differently"
                self.taken_back.add(at)
                self.acknowledged[at] = data
        member.committed = max(member.committed, index)

    # The network.

    def _is_cut(self, one: str, other: str) -> bool:
        return frozenset({one, other}) in self.cut

    def _ask(self, member: PretendMember, to: str, call: LibraryCall) -> None:
        life, is_done = member.life, False

        def answered(reply: LibraryReply | None) -> None:
            nonlocal is_done
            if not is_done and life == member.life:
                is_done = True
                self.happens(member, Answered(to, call, reply))

        def reply_to(reply: LibraryReply) -> None:
            self._send(to, member.name, lambda: answered(reply))

        def asked() -> None:
            other = self.all[to]
            self.happens(other, Asked(member.name, call, reply_to))
            self.after(0.0, lambda: self.happens(other, Drain()))

        self._send(member.name, to, asked)
        self.after(ANSWER_S, lambda: answered(None))

    def _send(self, sender: str, to: str, arrive: Callable[[], None]) -> None:
        times, sent_on = 1 + (self.rng.random() < self.repeats), self._wire

        def come() -> None:
            if self._wire == sent_on:
                arrive()

        for _ in range(times):
            if self.rng.random() >= self.loss and not self._is_cut(sender, to):
                self.after(self.rng.expovariate(1 / self.slow_s), come)

    def lose_what_is_under_way(self) -> None:
        self._wire += 1
