"""A member of a mixed group at work: the library's rules, and links that speak its protocol.

What it knows of the others is who answered as a member of FlareMQ's, and who did not: as long as one runs
Apache's library, the group is only as safe as that one is, and says so.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from flaremq.base.clock import Clock
from flaremq.base.errors import ConfigError, InvalidParameter
from flaremq.base.logs import fields
from flaremq.dledger.frames import Hello
from flaremq.dledger.groupnode import Ballots, GroupLedger, GroupNode, GroupStatus
from flaremq.dledger.library.links import LibraryLinks, LibraryTicket
from flaremq.dledger.library.messages import (
    Addressed,
    LibraryCall,
    LibraryReply,
    MetadataCall,
    MetadataReply,
    PushCall,
    Result,
)
from flaremq.dledger.library.rules import LibraryMember
from flaremq.dledger.library.state import Answered, Ask, Asked, Drain, LibraryPace, PushLimits, ReplyTo
from flaremq.dledger.settings import RaftSettings
from flaremq.dledger.types import Ballot, MemberId, Membership, RepairMessage
from flaremq.remoting.network import Network
from flaremq.remoting.settings import ServerSettings

log = logging.getLogger(__name__)

_BATCH_BYTES: Final = 4 << 10  # As the library's maxBatchPushSize.


class LibraryNode(GroupNode):
    """One member among members of the library."""

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
        pace: LibraryPace | None = None,
    ) -> None:
        """As those of `GroupNode`. Raises ConfigError if the members have changed since the group was begun:
        the library knows only those of the configuration."""
        super().__init__(settings, group, ledger, ballots, clock=clock, rng=rng, offload=offload)
        self._membership = settings.membership
        self._others = tuple(each for each in self._membership.ids if each != self._me)
        self._check_members(ledger.membership)
        self._pace = pace or LibraryPace()
        self._links = LibraryLinks(self, network, clock)
        self._kinds: dict[MemberId, bool] = {}
        """Whether a member that we have met is one of FlareMQ's."""
        self._caution = ""
        self._complaint = ""
        self.member = LibraryMember(
            self._me,
            ledger,
            ballot,
            self._pace,
            self._now(),
            members=self._membership.addresses,
            rng=self._rng,
            may_vote=may_vote,
            preferred=settings.preferred_ids,
            limits=PushLimits(batch_bytes=_BATCH_BYTES if settings.batch_push else 0),
        )
        self._know_kinds()

    def _check_members(self, members: Membership) -> None:
        if members.index >= 0 and dict(members.addresses) != dict(self._membership.addresses):
            now = ";".join(f"{each}-{members.addresses[each]}" for each in members.ids)
            raise ConfigError(
                f"dLegerPeers={self._settings.peers}, and by the log the members are {now}: with "
                "dLegerProtocol=dledger they cannot change, so give all members that list"
            )

    @property
    def rules(self) -> LibraryMember:
        return self.member

    async def _connect(self, server: ServerSettings) -> None:
        others = {each: self._membership.addresses[each] for each in self._others}
        await self._links.start(server, others)

    async def _disconnect(self) -> None:
        await self._links.stop()

    @property
    def _disk_patience_s(self) -> float:
        return self._pace.lost_s / 2

    @property
    def _pace_s(self) -> float:
        return self._pace.heartbeat_s / 2

    # What others ask.

    def helpers(self) -> list[MemberId]:
        """Nobody: the library's members do not give entries to followers that have lost some."""
        return []

    def say(self, to: MemberId, message: RepairMessage) -> None:
        """Nothing is said of damage in this protocol."""

    def change(self, new: Membership) -> int:
        names = ", ".join(new.ids)
        raise InvalidParameter(
            f"the members cannot become {names}: with dLegerProtocol=dledger they are those of dLegerPeers, "
            "as Apache's library knows no others. Stop all members, give them another list, and start them"
        )

    def status(self) -> GroupStatus:
        member, ledger = self.member, self._ledger
        complaints = [(each, why) for each in self._others if (why := self._links.complaint(each))]
        if member.complaint:
            complaints.append((member.leader, member.complaint))
        return GroupStatus(
            group=self._group,
            self_id=self._me,
            standing=member.standing,
            term=member.term,
            leader=member.leader,
            membership=self._membership,
            first_index=ledger.first_index,
            last_index=ledger.last_index,
            synced_index=ledger.synced_index,
            commit=member.commit,
            answers=self.may_answer(),
            why_not_fit=self._why_not_fit,
            damage=ledger.damage_found,
            refused=self._links.refused,
            peers=tuple(member.peers(self._now())),
            complaints=tuple(complaints),
            may_vote=member.is_voter,
            caution=self._caution,
        )

    @property
    def tables_term(self) -> int:
        """None: RocketMQ's brokers say 0 in every term, and a NameServer that knows the tables of a leader
        with a higher number would not believe a leader of RocketMQ's."""
        return 0

    # The hall of the links.

    def between(self, receiver: MemberId) -> Addressed:
        return Addressed(self._group, self._me, receiver)

    def refusal(self, call: LibraryCall, between: Addressed) -> Result | None:
        if between.group != self._group:
            why, code = (
                f"it belongs to group {between.group}, and this is {self._group}",
                Result.UNKNOWN_GROUP,
            )
        elif between.receiver != self._me:
            why, code = f"it looks for {between.receiver}, and this is {self._me}", Result.UNKNOWN_MEMBER
        elif not isinstance(call, MetadataCall) and between.sender not in self._others:
            why = f"{between.sender or 'somebody without a name'} is not another member of {self._group}"
            code = Result.UNKNOWN_MEMBER
        else:
            return None
        self._links.turned_away(
            between.sender or "somebody", f"{why}: see dLegerGroup and dLegerPeers of both"
        )
        return code

    def asked(self, sender: MemberId, call: LibraryCall, ticket: LibraryTicket) -> None:
        if isinstance(call, MetadataCall):
            peers, leader = self._membership.addresses, self.member.leader
            ticket.reply(MetadataReply(Result.SUCCESS, leader, peers, True))
            return
        self._happens(Asked(sender, call, ticket))
        if isinstance(call, PushCall):
            self._soon(Drain())

    def answered(self, member: MemberId, call: LibraryCall, reply: LibraryReply | None) -> None:
        self._happens(Answered(member, call, reply))

    def why_not(self, member: MemberId, reply: MetadataReply) -> str:
        if reply.code == Result.UNKNOWN_GROUP:
            return f"it is no member of group {self._group}: see dLegerGroup of both"
        if reply.code == Result.UNKNOWN_MEMBER:
            return f"it is not {member}: see dLegerSelfId there, and dLegerPeers of both"
        theirs, ours = _listed(reply.peers), _listed(self._membership.addresses)
        if theirs != ours:
            why = (
                f"its dLegerPeers={theirs}, and ours={ours}: a group counts its majority over one list, so "
                "give all members the same"
            )
            self._links.turned_away(member, why)
            return why
        self._kinds[member] = reply.is_ours
        self._know_kinds()
        return ""

    def protocol_refusal(self, hello: Hello | None) -> str:
        who = "it" if hello is None else hello.sender
        return (
            f"{who} follows FlareMQ's own rules (dLegerProtocol=flaremq), and {self._me} those of Apache's "
            "DLedger library (dLegerProtocol=dledger): a group follows one kind, so give all members the same"
        )

    def _know_kinds(self) -> None:
        """How safe the group is depends on who its members are."""
        java = [each for each in self._others if self._kinds.get(each) is False]
        unknown = [each for each in self._others if each not in self._kinds]
        if java:
            caution = (
                "a mixed group is only as safe as its members that run Apache's DLedger: "
                f"{', '.join(java)}. They acknowledge messages before those are on their disks, and may "
                "forget their votes with the power"
            )
        elif unknown:
            caution = (
                "the group follows the rules of Apache's DLedger library, and is only as safe as they are; "
                f"not reached yet: {', '.join(unknown)}"
            )
        else:
            caution = (
                "all members are FlareMQ's, and follow the rules of Apache's DLedger library: for safer ones "
                "stop all of them, and start them with dLegerProtocol=flaremq"
            )
        if caution != self._caution:
            self._caution = caution
            log.warning("%s", caution, extra=fields(group=self._group, member=self._me))

    # What is done.

    def _stepped(self) -> None:
        if self.member.complaint != self._complaint:
            self._complaint = self.member.complaint
            if self._complaint:
                log.error("%s", self._complaint, extra=fields(member=self._me))

    def _carry_out(self, action: Any) -> None:
        if isinstance(action, Ask):
            self._links.ask(action.to, action.call)
        elif isinstance(action, ReplyTo):
            assert isinstance(action.ticket, LibraryTicket)
            action.ticket.reply(action.reply)
        else:
            super()._carry_out(action)

    def _look_at_links(self) -> None:
        """They look after themselves: every question has its deadline."""


def _listed(peers: Mapping[MemberId, str]) -> str:
    return ";".join(f"{each}-{peers[each]}" for each in sorted(peers))
