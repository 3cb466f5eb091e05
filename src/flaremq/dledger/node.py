"""A member of a group at work: its rules get what happens, and what they decide is done.

    frames, ticks, appends, syncs > [Member.step] > ballots, sends, writes, the commit index

The rules are pure, and this is everything around them: timers, connections, the log, the ballot on the disk.
All of it runs in the event loop but for the sync of a ballot, which may take as long as a disk takes: what
happens meanwhile waits its turn, and the lease of a leader runs on.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from flaremq.base.clock import Clock
from flaremq.base.errors import FlareError, ResourceShort
from flaremq.base.lifecycle import Owned, repeat
from flaremq.base.logs import Seldom, fields
from flaremq.dledger.frames import Hello
from flaremq.dledger.links import Links
from flaremq.dledger.member import Member, PeerStatus
from flaremq.dledger.settings import RaftSettings, addresses_of
from flaremq.dledger.types import (
    Action,
    Appended,
    Ballot,
    Commit,
    Empty,
    EntriesAnswer,
    EntriesRequest,
    EntryRun,
    Event,
    Failing,
    Fit,
    Follow,
    Heard,
    Lead,
    LedgerView,
    MemberId,
    Membership,
    Message,
    Push,
    RepairMessage,
    SaveBallot,
    Standing,
    Synced,
    Tell,
    Tick,
    Transfer,
    Truncate,
    Write,
)
from flaremq.remoting.network import Network
from flaremq.remoting.settings import ServerSettings

log = logging.getLogger(__name__)

_WAITING_MAX: Final = 1_000  # So much may wait for a ballot: more is lost, and said again.
_SILENT_ELECTIONS: Final = 3  # After so many election timeouts of silence a connection is made anew.
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


class MemberNode:
    """One member. `changed` is set whenever who leads may have changed."""

    def __init__(
        self,
        settings: RaftSettings,
        group: str,
        ledger: GroupLedger,
        ballots: Ballots,
        ballot: Ballot,
        *,
        may_vote: bool,
        network: Network,
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
        self._links = Links(self, network)
        self._tasks = Owned()
        self._waiting: deque[Event] = deque()
        self._is_saving = self._is_stopped = self._is_broken = False
        self._asked: set[type[Event]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._heard_s: dict[MemberId, float] = {}
        self._why_not_fit = ""
        self._may_append = False
        self._told = Seldom(_TOLD_S)
        self._unwatch: Callable[[], None] = lambda: None
        self.about_repairs: Callable[[MemberId, RepairMessage], None] = lambda _sender, _message: None
        """Hears what members say of damaged entries. Entries in it are valid until it returns."""
        self._guests: dict[MemberId, str] = {}
        """Members that we have not heard of, and where they are: we were away when they came."""
        self._reached: Mapping[MemberId, str] = {}
        self._began = -1
        """Index of the record with which our term as leader began."""
        self.changed = asyncio.Event()
        self.member = Member(
            self._me,
            ledger,
            ballot,
            settings.pace,
            self._now(),
            rng=self._rng,
            may_vote=may_vote,
            preferred=settings.preferred_ids,
        )

    # Life.

    async def start(self, server: ServerSettings) -> None:
        """Listen where `server` says, and take part."""
        await self._links.start(server)
        self._reach()
        self._unwatch = self._ledger.watch(lambda: self._soon(Appended()), lambda: self._soon(Synced()))
        self._tasks.spawn("watch-disk", repeat("watching the disk", self._look, self._pace_s))
        self._schedule()

    async def stop(self) -> None:
        """The others notice by themselves. Call `step_down` before, and they notice at once."""
        self._is_stopped = True
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        await self._links.stop()
        await self._tasks.aclose(timeout_s=5)

    # What others ask.

    @property
    def leads(self) -> bool:
        """Whether this member leads, and knows everything that the group has decided before."""
        return self.member.standing is Standing.LEADER and 0 <= self._began <= self.member.commit

    @property
    def term(self) -> int:
        return self.member.term

    @property
    def leader(self) -> MemberId:
        return self.member.leader

    def may_answer(self) -> bool:
        """Whether clients may be answered: nobody else can have been elected yet."""
        return self.leads and self.member.may_answer(self._now())

    def transfer(self, to: MemberId) -> None:
        """Let this member lead. It does once it has all entries, or the present leader stays."""
        self.member.check_transfer(to)
        self._happens(Transfer(to))

    def helpers(self) -> list[MemberId]:
        """Other members that can be reached, the leader first."""
        reached = [each for each in self._reached if not self._links.complaint(each)]
        return sorted(reached, key=lambda each: (each != self.member.leader, each))

    def say(self, to: MemberId, message: RepairMessage) -> None:
        self._links.send(to, message)

    def yield_lead(self) -> None:
        """If this member leads, let another one that has most of the log and could."""
        best = self.successor() if self.member.may_append else None
        if best is not None:
            try:
                self.transfer(best)
            except FlareError as error:
                log.warning("leadership cannot be handed over yet: %s", error, extra=fields(to=best))

    def successor(self) -> MemberId | None:
        """Who could lead next, as far as the leader knows: that has most of the log."""
        now_s = self._now()
        could = [each for each in self.member.peers(now_s) if each.matched is not None]
        best = max(could, key=lambda each: (not each.is_damaged, each.matched or 0), default=None)
        return None if best is None or best.is_damaged else best.member

    def change(self, new: Membership) -> int:
        """These are the members from now on, once the group has decided on the entry whose index is returned.
        Raises a FlareError if that may not be now."""
        self.member.check_change(new)
        self._ledger.change(new)
        self._soon(Appended())
        return self._ledger.last_index

    def has_decided(self, index: int, term: int) -> bool:
        """Whether the group has decided on this entry of this term: another one may have taken its place."""
        return index <= self.member.commit and self._ledger.term_at(index) == term

    def status(self) -> GroupStatus:
        """The state of now."""
        member, ledger = self.member, self._ledger
        peers = tuple(member.peers(self._now()))
        return GroupStatus(
            group=self._group,
            self_id=self._me,
            standing=member.standing,
            term=member.term,
            leader=member.leader,
            membership=ledger.membership,
            first_index=ledger.first_index,
            last_index=ledger.last_index,
            synced_index=ledger.synced_index,
            commit=member.commit,
            answers=self.may_answer(),
            why_not_fit=self._why_not_fit,
            damage=ledger.damage_found,
            refused=self._links.refused,
            peers=peers,
            complaints=tuple((each, why) for each in self._reached if (why := self._links.complaint(each))),
        )

    # The hall of the links.

    def hello(self, to: MemberId) -> Hello:
        return Hello(self._group, self._me, to, self._peers(), self._has_changed())

    def why_not(self, hello: Hello) -> str:
        if hello.group != self._group:
            return f"it belongs to group {hello.group}, and this is {self._group}: see dLegerGroup of both"
        if hello.receiver != self._me:
            return f"it looks for {hello.receiver}, and this is {self._me}: see dLegerPeers of {hello.sender}"
        is_known = hello.sender in self._reached or hello.sender in self._settings.addresses
        if hello.sender == self._me or not (is_known or hello.changed):
            known = ", ".join(self._ledger.membership.ids)
            return f"{hello.sender} is not another member of {self._group}, which has {known}: add it first"
        if hello.peers != self._peers() and not hello.changed and not self._has_changed():
            return (
                f"its dLegerPeers={hello.peers}, and ours={self._peers()}: a group counts its majority over "
                "one list, so give all members the same"
            )
        if hello.sender not in self._reached:
            self._guests[hello.sender] = addresses_of(hello.peers).get(hello.sender, "")
            self._reach()
        return ""

    def heard(self, sender: MemberId, message: Message | RepairMessage) -> None:
        self._heard_s[sender] = self._now()
        if isinstance(message, EntriesRequest | EntriesAnswer):
            self.about_repairs(sender, message)
            return
        if self._is_saving and isinstance(message, Push) and message.run is not None:
            # It waits, and its entries lie in a buffer that will be written over.
            message = replace(message, run=replace(message.run, data=bytes(message.run.data)))
        self._happens(Heard(sender, message))

    def _peers(self) -> str:
        return ";".join(f"{each}-{address}" for each, address in sorted(self._settings.addresses.items()))

    def _has_changed(self) -> bool:
        return self._ledger.membership.index >= 0

    def _others(self) -> list[MemberId]:
        return [each for each in self._ledger.membership.ids if each != self._me]

    def _reach(self) -> None:
        self._reached = self.member.contacts
        self._links.reach({**self._guests, **self._reached})

    # What happens.

    def _now(self) -> float:
        return self._clock.monotonic_s()

    def _pace_s(self) -> float:
        return self._settings.pace.heartbeat_s

    def _soon(self, event: Event) -> None:
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

    def _now_happens(self, event: Event) -> None:
        self._asked.discard(type(event))
        self._happens(event)

    def _happens(self, event: Event) -> None:
        if self._is_stopped:
            return
        if self._is_saving:
            if len(self._waiting) < _WAITING_MAX:
                self._waiting.append(event)
            return
        self._do(deque(self.member.step(event, self._now(), self._rng)))

    def _do(self, actions: deque[Action]) -> None:
        """Do these in order. A ballot is saved aside, and the rest waits for it."""
        try:
            while actions:
                action = actions.popleft()
                if isinstance(action, SaveBallot):
                    self._is_saving = True
                    self._tasks.spawn("save-ballot", self._save(action.ballot, actions))
                    return
                self._DO[type(action)](self, action)
        except Exception as error:  # noqa: BLE001 - The rules hear of it, whatever it was, and it is told.
            self._not_done(error)
        self._allow()
        if self.member.contacts is not self._reached:
            self._reach()
        if self.member.why_silent and not self._why_not_fit:
            self._end_of_group()
        self._schedule()

    def _end_of_group(self) -> None:
        """The rules have found what cannot be, and take no part any more."""
        self._why_not_fit = self.member.why_silent
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
        may = self.member.may_append
        if may != self._may_append:
            self._may_append = may
            self._ledger.allow(may)

    async def _save(self, ballot: Ballot, rest: deque[Action]) -> None:
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
            rest_s = max(0.0, self.member.deadline - self._now())
            self._timer = self._loop.call_later(rest_s, self._happens, Tick())

    # What is done.

    def _tell(self, action: Tell) -> None:
        self._links.send(action.to, action.message)

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
        if self.member.standing is Standing.LEADER and not self.changed.is_set():
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

    _DO: Final[dict[type[Any], Callable[[MemberNode, Any], None]]] = {
        Tell: _tell,
        Write: _write,
        Truncate: _truncate,
        Empty: _empty,
        Commit: _commit,
        Lead: _lead,
        Follow: _follow,
    }

    # The disk, and connections that nothing comes from.

    def _look(self) -> None:
        pace = self._settings.pace
        failure, stalled_s = self._ledger.failure, self._ledger.stalled_s()
        if failure is not None:
            self._not_fit(str(failure))
        elif stalled_s > pace.election_s:
            self._not_fit(f"the disk has not synced anything for {stalled_s:.1f} s")
        elif self._why_not_fit and not self._is_broken:
            log.info("fit to lead again", extra=fields(member=self._me))
            self._why_not_fit = ""
            self._happens(Fit())
        now_s = self._now()
        for each in self._expected():
            if now_s - self._heard_s.setdefault(each, now_s) > _SILENT_ELECTIONS * pace.election_s:
                self._heard_s[each] = now_s
                self._links.renew(each)

    def _expected(self) -> list[MemberId]:
        """Who should be heard of: followers have nothing to say to each other."""
        leader = self.member.leader
        return [leader] if leader and leader != self._me else self._others()

    def _not_fit(self, why: str) -> None:
        was_fit, self._why_not_fit = not self._why_not_fit, why
        if was_fit:
            log.error("not fit to lead: %s", why, extra=fields(member=self._me))
            self._happens(Failing(why))
