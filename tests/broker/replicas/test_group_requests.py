"""What operators ask of a member of a group, and the words of its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.nobody import Nobody
from tests.broker.replicas.groupmembers import HOST, leader_of, leads, running

from flaremq.base.errors import GroupUnsettled, InvalidParameter
from flaremq.broker.replicas.raftside import RaftSide
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.ports import free_port
from flaremq.servers.groupbroker import GroupBroker
from flaremq.testing.cluster import eventually


async def ask(of: GroupBroker, code: RequestCode, **fields: str) -> Command:
    made = of.broker.composition
    assert made is not None and isinstance(made.replication, RaftSide)
    ((_, handlers),) = made.replication.handlers()
    answer = await handlers[code](Nobody(), Command(code=code, ext_fields=fields))
    assert answer is not None
    return answer


async def test_a_member_that_leads_or_is_unknown_is_no_heir(tmp_path: Path) -> None:
    async with running(tmp_path) as (member,):
        await leads(member)
        with pytest.raises(InvalidParameter, match="n0 leads already"):
            await ask(member, RequestCode.FLAREMQ_GROUP_TRANSFER, member="n0")
        with pytest.raises(InvalidParameter, match="n5 is no member"):
            await ask(member, RequestCode.FLAREMQ_GROUP_TRANSFER, member="n5")


async def test_a_change_that_changes_nothing_says_who_the_members_are(tmp_path: Path) -> None:
    address = f"{HOST}:{free_port()}"
    async with running(tmp_path, dLegerPeers=f"n0-{address}") as (member,):
        await leads(member)
        with pytest.raises(InvalidParameter, match="n5 is no member: expected one of n0"):
            await ask(member, RequestCode.FLAREMQ_GROUP_CHANGE, member="n5")
        with pytest.raises(InvalidParameter, match=f"n0 is a member already, at {HOST}"):
            await ask(member, RequestCode.FLAREMQ_GROUP_CHANGE, member="n0", address=address)


async def test_members_come_and_go(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as members:
        leader = await leader_of(members)

        other = next(each for each in members if each is not leader)
        name = other._config.group.self_id

        async def goes() -> bool:
            try:
                answer = await ask(leader, RequestCode.FLAREMQ_GROUP_CHANGE, member=name)
            except GroupUnsettled:  # The third member is not heard of just now.
                return False
            return answer.code == ResponseCode.SUCCESS

        await eventually("the member goes", goes)
        assert name not in leader.node.status().membership.ids
