"""A member of a group that follows our own rules: what they say goes over links to members of the same kind.

A member that was away when others came learns from them who they are, when they connect.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from flaremq.base.clock import Clock
from flaremq.dledger.frames import Hello
from flaremq.dledger.groupnode import Ballots, GroupLedger, GroupNode, GroupStatus
from flaremq.dledger.links import Links
from flaremq.dledger.member import Member
from flaremq.dledger.settings import RaftSettings, addresses_of
from flaremq.dledger.types import (
    Appended,
    Ballot,
    EntriesAnswer,
    EntriesRequest,
    Heard,
    MemberId,
    Membership,
    Message,
    Push,
    RepairMessage,
    Tell,
)
from flaremq.remoting.network import Network
from flaremq.remoting.settings import ServerSettings

_SILENT_ELECTIONS: Final = 3  # After so many election timeouts of silence a connection is made anew.


class MemberNode(GroupNode):
    """One member among members of this kind."""

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
        """As those of `GroupNode`."""
        super().__init__(settings, group, ledger, ballots, clock=clock, rng=rng, offload=offload)
        self._links = Links(self, network)
        self._heard_s: dict[MemberId, float] = {}
        self._guests: dict[MemberId, str] = {}
        """Members that we have not heard of, and where they are: we were away when they came."""
        self._reached: Mapping[MemberId, str] = {}
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

    @property
    def rules(self) -> Member:
        return self.member

    async def _connect(self, server: ServerSettings) -> None:
        await self._links.start(server)
        self._reach()

    async def _disconnect(self) -> None:
        await self._links.stop()

    @property
    def _disk_patience_s(self) -> float:
        return self._settings.pace.election_s

    @property
    def _pace_s(self) -> float:
        return self._settings.pace.heartbeat_s

    # What others ask.

    def helpers(self) -> list[MemberId]:
        """Other members that can be reached, the leader first."""
        reached = [each for each in self._reached if not self._links.complaint(each)]
        return sorted(reached, key=lambda each: (each != self.member.leader, each))

    def say(self, to: MemberId, message: RepairMessage) -> None:
        self._links.send(to, message)

    def change(self, new: Membership) -> int:
        self.member.check_change(new)
        self._ledger.change(new)
        self._soon(Appended())
        return self._ledger.last_index

    def status(self) -> GroupStatus:
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
            may_vote=member.is_voter,
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

    # What is done.

    def _stepped(self) -> None:
        if self.member.contacts is not self._reached:
            self._reach()

    def _carry_out(self, action: Any) -> None:
        if isinstance(action, Tell):
            self._links.send(action.to, action.message)
        else:
            super()._carry_out(action)

    # Connections that nothing comes from.

    def _look_at_links(self) -> None:
        now_s, limit_s = self._now(), _SILENT_ELECTIONS * self._settings.pace.election_s
        for each in self._expected():
            if now_s - self._heard_s.setdefault(each, now_s) > limit_s:
                self._heard_s[each] = now_s
                self._links.renew(each)

    def _expected(self) -> list[MemberId]:
        """Who should be heard of: followers have nothing to say to each other."""
        leader = self.member.leader
        return [leader] if leader and leader != self._me else self._others()
