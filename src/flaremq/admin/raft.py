"""Raft groups: who leads, who is behind, and changes of either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.values.outcome import Answers
from flaremq.admin.values.raft import RaftMember, RaftPeerView, why_no_leader
from flaremq.base.errors import InvalidParameter, NotServed, Refused
from flaremq.client.api import body_of
from flaremq.protocol.bodies.raft import RaftGroupStatus
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.fields import Header
from flaremq.protocol.headers.replicas import ChangeMembersHeader, TransferLeadershipHeader

_CHANGE_S: Final = 10.0


class RaftGroups:
    """Without a broker's name, the group is found by itself if there is one only."""

    def __init__(self, servers: ServerCalls) -> None:
        self._servers = servers

    async def members(self, *, cluster: str | None = None, broker: str | None = None) -> Answers[RaftMember]:
        """All members of all groups that NameServers know, by broker and member. Brokers without a group are
        left out."""
        servers = await self._servers.all(cluster, broker)
        asked = await self._servers.try_each(servers, self._ask)
        found = [each for each in asked.found.values() if each is not None]
        return Answers(tuple(sorted(found, key=lambda each: (each.broker, each.member))), asked.failed)

    async def transfer(self, member: str, *, broker: str | None = None) -> None:
        """Let this member lead. Returns when it does; Refused if it could not in time."""
        header = TransferLeadershipHeader(member=member)
        await self._tell_leader(broker, RequestCode.FLAREMQ_GROUP_TRANSFER, header)

    async def add(self, member: str, address: str, *, broker: str | None = None) -> None:
        """Let a new member in, which others reach at this address. Returns when the group has decided so."""
        header = ChangeMembersHeader(member=member, address=address)
        await self._tell_leader(broker, RequestCode.FLAREMQ_GROUP_CHANGE, header)

    async def remove(self, member: str, *, broker: str | None = None) -> None:
        """Let a member go. Returns when the group has decided so."""
        await self._tell_leader(broker, RequestCode.FLAREMQ_GROUP_CHANGE, ChangeMembersHeader(member=member))

    async def _ask(self, server: ServerAddress) -> RaftMember | None:
        try:
            answer = await self._servers.api.ask(server.address, RequestCode.FLAREMQ_GROUP_STATUS)
        except NotServed:
            return None
        except Refused as error:
            if error.response_code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        return _member(server, body_of(RaftGroupStatus, answer))

    async def _tell_leader(self, broker: str | None, code: RequestCode, header: Header) -> None:
        leader = _leader_of(await self.members(broker=broker))
        await self._servers.api.ask(leader.address, code, header, timeout_s=_CHANGE_S)


def foreign_leader(members: Sequence[RaftMember]) -> str:
    """The id of a leader that tells nothing of its group, as RocketMQ's in a mixed one; empty if none is
    known."""
    told = {each.member for each in members}
    followed = {each.leader for each in members if each.caution and each.leader}
    return next(iter(sorted(followed - told)), "")


def _leader_of(members: Sequence[RaftMember]) -> RaftMember:
    groups = sorted({each.broker for each in members})
    if not groups:
        raise InvalidParameter("no broker here belongs to a Raft group: see `flaremq cluster brokers`")
    if len(groups) > 1:
        raise InvalidParameter(f"there are several groups: name one of {', '.join(groups)} (--broker)")
    leaders = [each for each in members if each.is_leader]
    if not leaders and (foreign := foreign_leader(members)):
        raise InvalidParameter(
            f"{groups[0]} is led by {foreign}, which tells nothing of its group, as members of RocketMQ's "
            "do not: only a leader of FlareMQ's can be asked for this. RocketMQ's hand over by "
            "themselves to a member that their preferredLeaderId names"
        )
    if not leaders:
        raise InvalidParameter(f"{groups[0]} has no leader at the moment: {why_no_leader(members)}")
    return max(leaders, key=lambda each: each.term)


def _member(server: ServerAddress, said: RaftGroupStatus) -> RaftMember:
    return RaftMember(
        broker=server.name,
        address=server.address,
        group=said.group,
        member=said.member,
        standing=said.standing,
        term=said.term,
        leader=said.leader,
        answers=said.answers,
        last_index=said.last_index,
        synced_index=said.synced_index,
        commit_index=said.commit_index,
        members=said.members,
        not_fit=said.not_fit,
        damage=said.damage,
        last_refusal=said.last_refusal,
        may_vote=said.may_vote,
        caution=said.caution,
        peers=tuple(
            RaftPeerView(each.member, each.behind, each.heard_seconds, each.complaint) for each in said.peers
        ),
    )
