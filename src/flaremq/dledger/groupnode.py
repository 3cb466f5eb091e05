"""The rules of a member at work: they get what happens, and what they decide is done.

    frames, ticks, appends, syncs > [rules.step] > ballots, sends, writes, the commit index

The rules are pure, and this is what is around any of them: timers, the log, the ballot on the disk. Nodes
differ in the rules that they follow and in how they speak to other members. All of it runs in the event loop
but for the sync of a ballot, which may take as long as a disk takes: what happens meanwhile waits its turn,
and the lease of a leader runs on.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, ResourceShort
from flaremq.base.lifecycle import Owned, repeat
from flaremq.base.logs import Seldom, fields
from flaremq.dledger.settings import RaftSettings
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
    LedgerView,
    MemberId,
    Membership,
    PeerStatus,
    RepairMessage,
    SaveBallot,
    Standing,
    Synced,
    Tick,
    Transfer,
    Truncate,
    Write,
)
from flaremq.remoting.settings import ServerSettings

log = logging.getLogger(__name__)

_WAITING_MAX: Final = 1_000  # So much may wait for a ballot: more is lost, and said again.
_TOLD_S: Final = 10.0


class GroupLedger(LedgerView, Protocol):
    """The log as the node needs it."""

    def append_run(self, run: EntryRun) -> None: ...
    def truncate_from(self, index: int) -> None: ...
    def empty(self, first: int, position: int, previous_term: int) -> None: ...
    def commit_to(self, index: int) -> None: ...
    def lead(self, term: int) -> None:
        """Take appends of this term, and append the record that begins it."""

    def follow(self) -> None:
        """Take no appends any more."""

    def allow(self, may_append: bool) -> None:
        """Whether messages may be appended at the moment."""

    def change(self, membership: Membership) -> None:
        """Append a record that says who the members are."""

    def stalled_s(self) -> float:
        """For how long the disk has not synced what it was given."""

    @property
    def failure(self) -> Exception | None:
        """Why it will never sync anything again."""

    @property
    def damage_found(self) -> str:
        """Entries that are known to be damaged and not repaired yet; empty if none are."""

    def watch(self, appended: Callable[[], None], synced: Callable[[], None]) -> Callable[[], None]:
        """Call back, in any thread, when it has grown, or more of it is on the disk. Returns what ends
        that."""


class Ballots(Protocol):
    def save(self, ballot: Ballot) -> None:
        """Returns when it is on the disk."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A member as operators see it."""

    group: str
    self_id: MemberId
    standing: Standing
    term: int
    leader: MemberId
    membership: Membership
    first_index: int
    last_index: int
    synced_index: int
    commit: int
    answers: bool
    """Whether it leads and may answer clients."""
    why_not_fit: str
    damage: str
    """What of its log is damaged; empty if nothing is known to be."""
    refused: str
    peers: tuple[PeerStatus, ...]
    complaints: tuple[tuple[MemberId, str], ...]
    may_vote: bool = True
    """Whether it knows what it has promised."""
    caution: str = ""
    """Why it is less safe than it could be; empty if it is not."""


class GroupRules(Protocol):
    """What a member's rules are to its node."""

    @property
    def standing(self) -> Standing: ...
    @property
    def term(self) -> int: ...
    @property
    def leader(self) -> MemberId: ...
    @property
    def commit(self) -> int: ...
    @property
    def deadline(self) -> float:
        """When the next Tick is due."""

    @property
    def may_append(self) -> bool: ...
    @property
    def why_silent(self) -> str: ...
    def step(self, event: Any, now: float, rng: random.Random) -> Sequence[Any]: ...
    def may_answer(self, now: float) -> bool: ...
    def peers(self, now: float) -> list[PeerStatus]: ...
    def check_transfer(self, to: MemberId) -> None: ...


class GroupNode(ABC):
    """One member. `changed` is set whenever who leads may have changed."""

    def __init__(
        self,
        settings: RaftSettings,
        group: str,
        ledger: GroupLedger,
        ballots: Ballots,
        *,
        clock: Clock,
        rng: random.Random,
        offload: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        """`offload` runs what waits for the disk."""
        self._settings = settings
        self._group = group
        self._me = settings.self_id
        self._ledger = ledger
        self._ballots = ballots
        self._clock = clock
        self._rng = rng
        self._offload = offload
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tasks = Owned()
        self._waiting: deque[Any] = deque()
        self._is_saving = self._is_stopped = self._is_broken = False
        self._asked: set[type[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._why_not_fit = ""
        self._may_append = False
        self._told = Seldom(_TOLD_S)
        self._unwatch: Callable[[], None] = lambda: None
        self.about_repairs: Callable[[MemberId, RepairMessage], None] = lambda _sender, _message: None
        """Hears what members say of damaged entries. Entries in it are valid until it returns."""
        self._began = -1
        """Index of the record with which our term as leader began."""
        self.changed = asyncio.Event()

    # What a kind of node brings.

    @property
    @abstractmethod
    def rules(self) -> GroupRules: ...
    @abstractmethod
    async def _connect(self, server: ServerSettings) -> None:
        """Listen where `server` says, and reach the others."""

    @abstractmethod
    async def _disconnect(self) -> None: ...
    @abstractmethod
    def helpers(self) -> list[MemberId]:
        """Other members that can be asked for entries, the leader first."""

    @abstractmethod
    def say(self, to: MemberId, message: RepairMessage) -> None: ...
    @abstractmethod
    def change(self, new: Membership) -> int:
        """These are the members from now on, once the group has decided on the entry whose index is returned.
        Raises a FlareError if that may not be now."""

    @abstractmethod
    def status(self) -> GroupStatus:
        """The state of now."""

    @abstractmethod
    def _stepped(self) -> None:
        """All that a step asked for is done, or could not be."""

    @abstractmethod
    def _look_at_links(self) -> None:
        """Called every heartbeat."""

    @property
    @abstractmethod
    def _disk_patience_s(self) -> float:
        """For how long a disk may not sync."""

    @property
    @abstractmethod
    def _pace_s(self) -> float:
        """How often disk and links are looked at."""

    # Life.

    async def start(self, server: ServerSettings) -> None:
        """Listen where `server` says, and take part."""
        await self._connect(server)
        self._unwatch = self._ledger.watch(lambda: self._soon(Appended()), lambda: self._soon(Synced()))
        self._tasks.spawn("watch-disk", repeat("watching the disk", self._look, self._pace_s))
        self._schedule()

    async def stop(self) -> None:
        """The others notice by themselves. Call `step_down` before, and they notice at once."""
        self._is_stopped = True
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        await self._disconnect()
        await self._tasks.aclose(timeout_s=5)

    # What others ask.

    @property
    def leads(self) -> bool:
        """Whether this member leads, and knows everything that the group has decided before."""
        return self.rules.standing is Standing.LEADER and 0 <= self._began <= self.rules.commit

    @property
    def term(self) -> int:
        return self.rules.term

    @property
    def leader(self) -> MemberId:
        return self.rules.leader

    @property
    def tables_term(self) -> int:
        """What the versions of a leader's tables begin with: those of another leader are different then."""
        return self.rules.term

    def may_answer(self) -> bool:
        """Whether clients may be answered: nobody else can have been elected yet."""
        return self.leads and self.rules.may_answer(self._now())

    def has_decided(self, index: int, term: int) -> bool:
        """Whether the group has decided on this entry of this term: another one may have taken its place."""
        return index <= self.rules.commit and self._ledger.term_at(index) == term

    def transfer(self, to: MemberId) -> None:
        """Let this member lead. It does once it has all entries, or the present leader stays."""
        self.rules.check_transfer(to)
        self._happens(Transfer(to))

    def yield_lead(self) -> None:
        """If this member leads, let another one that has most of the log and could."""
        best = self.successor() if self.rules.may_append else None
        if best is not None:
            try:
                self.transfer(best)
            except FlareError as error:
                log.warning("leadership cannot be handed over yet: %s", error, extra=fields(to=best))

    def successor(self) -> MemberId | None:
        """Who could lead next, as far as the leader knows: that has most of the log."""
        now_s = self._now()
        could = [each for each in self.rules.peers(now_s) if each.matched is not None]
        best = max(could, key=lambda each: (not each.is_damaged, each.matched or 0), default=None)
        return None if best is None or best.is_damaged else best.member

    # What happens.

    def _now(self) -> float:
        return self._clock.monotonic_s()

    def _soon(self, event: Any) -> None:
        """Let it happen once in the event loop, however often it is asked for until then."""
        kind = type(event)
        if kind in self._asked:
            return
        self._asked.add(kind)
        try:
            if threading.get_ident() == self._thread:
                self._loop.call_soon(self._now_happens, event)
            else:
                self._loop.call_soon_threadsafe(self._now_happens, event)
        except RuntimeError:  # The loop has ended.
            self._asked.discard(kind)

    def _now_happens(self, event: Any) -> None:
        self._asked.discard(type(event))
        self._happens(event)

    def _happens(self, event: Any) -> None:
        if self._is_stopped:
            return
        if self._is_saving:
            if len(self._waiting) < _WAITING_MAX:
                self._waiting.append(event)
            return
        self._do(deque(self.rules.step(event, self._now(), self._rng)))

    def _do(self, actions: deque[Any]) -> None:
        """Do these in order. A ballot is saved aside, and the rest waits for it."""
        try:
            while actions:
                action = actions.popleft()
                if isinstance(action, SaveBallot):
                    self._is_saving = True
                    self._tasks.spawn("save-ballot", self._save(action.ballot, actions))
                    return
                self._carry_out(action)
        except Exception as error:  # noqa: BLE001 - The rules hear of it, whatever it was, and it is told.
            self._not_done(error)
        self._allow()
        self._stepped()
        if self.rules.why_silent and not self._why_not_fit:
            self._end_of_group()
        self._schedule()

    def _end_of_group(self) -> None:
        """The rules have found what cannot be, and take no part any more."""
        self._why_not_fit = self.rules.why_silent
        self._is_broken = True
        log.error("this member takes no part any more: %s", self._why_not_fit, extra=fields(member=self._me))

    def _not_done(self, error: Exception) -> None:
        """What was decided could not be done. The rules must not go on as if it had been."""
        if self._told.due() is not None:
            if isinstance(error, ResourceShort):
                log.warning("this member waits: %s", error)
            else:
                log.error("a decision of the group could not be carried out: %s", error, exc_info=error)
        self._not_fit(str(error))

    def _allow(self) -> None:
        may = self.rules.may_append
        if may != self._may_append:
            self._may_append = may
            self._ledger.allow(may)

    async def _save(self, ballot: Ballot, rest: deque[Any]) -> None:
        try:
            await self._offload(lambda: self._ballots.save(ballot))
        except Exception as error:
            log.exception("the ballot could not be saved: this member takes no part before it can be")
            rest.clear()
            self._is_saving = False  # The rules hear of it before anything that waits.
            self._not_fit(f"the ballot could not be saved: {error}")
        self._is_saving = False
        self._do(rest)
        while self._waiting and not self._is_saving:
            self._happens(self._waiting.popleft())

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_stopped:
            rest_s = max(0.0, self.rules.deadline - self._now())
            self._timer = self._loop.call_later(rest_s, self._happens, Tick())

    # What is done.

    def _carry_out(self, action: Any) -> None:
        self._DO[type(action)](self, action)

    def _write(self, action: Write) -> None:
        self._ledger.append_run(action.run)

    def _truncate(self, action: Truncate) -> None:
        log.warning(
            "entries that the group has not decided on are given up",
            extra=fields(first=action.first, count=self._ledger.last_index + 1 - action.first),
        )
        self._ledger.truncate_from(action.first)

    def _empty(self, action: Empty) -> None:
        log.warning(
            "the log begins anew: the leader has deleted what would be next", extra=fields(first=action.first)
        )
        self._ledger.empty(action.first, action.position, action.previous_term)

    def _commit(self, action: Commit) -> None:
        self._ledger.commit_to(action.index)
        if self.rules.standing is Standing.LEADER and not self.changed.is_set():
            self.changed.set()

    def _lead(self, action: Lead) -> None:
        log.info("elected leader", extra=fields(group=self._group, member=self._me, term=action.term))
        self._ledger.lead(action.term)
        self._began = self._ledger.last_index
        self.changed.set()
        self._soon(Appended())

    def _follow(self, action: Follow) -> None:
        if self._began >= 0:
            log.warning("leads no more", extra=fields(group=self._group, member=self._me, term=action.term))
        self._ledger.follow()
        self._began = -1
        self.changed.set()

    _DO: Final[dict[type[Any], Callable[[GroupNode, Any], None]]] = {
        Write: _write,
        Truncate: _truncate,
        Empty: _empty,
        Commit: _commit,
        Lead: _lead,
        Follow: _follow,
    }

    # The disk, and connections that nothing comes from.

    def _look(self) -> None:
        failure, stalled_s = self._ledger.failure, self._ledger.stalled_s()
        if failure is not None:
            self._not_fit(str(failure))
        elif stalled_s > self._disk_patience_s:
            self._not_fit(f"the disk has not synced anything for {stalled_s:.1f} s")
        elif self._why_not_fit and not self._is_broken:
            log.info("fit to lead again", extra=fields(member=self._me))
            self._why_not_fit = ""
            self._happens(Fit())
        self._look_at_links()

    def _not_fit(self, why: str) -> None:
        was_fit, self._why_not_fit = not self._why_not_fit, why
        if was_fit:
            log.error("not fit to lead: %s", why, extra=fields(member=self._me))
            self._happens(Failing(why))
