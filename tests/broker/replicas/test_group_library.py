"""Groups of ours that follow the DLedger library's rules: their tables, and the way to our own rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.broker.replicas.groupmembers import leader_of, of_several, put, running, with_ballot

from flaremq.model.topic import TopicConfig
from flaremq.servers.groupbroker import GroupBroker
from flaremq.testing.cluster import eventually


async def all_committed(members: list[GroupBroker]) -> None:
    async def are_so() -> bool:
        ends = {each.store.log.confirmed for each in members}
        return len(ends) == 1 and all(each.node.status().caution for each in members)

    await eventually("all members know what is decided", are_so)


def follows_own_rules(member: GroupBroker) -> float:
    assert member.broker.composition is not None
    side: Any = member.broker.composition.replication
    (figure,) = (each for each in side.metrics() if each.name == "rocketmq_raft_own_rules")
    return float(figure.rows[0][1])


def known(members: list[GroupBroker], topic: str) -> list[bool]:
    return [each.tables.topics.get(topic) is not None for each in members]


@of_several
async def test_what_a_group_by_the_librarys_rules_has_stored_and_created_our_own_rules_go_on_with(
    tmp_path: Path,
) -> None:
    for each in ("n0", "n1", "n2"):
        with_ballot(tmp_path, each)
    async with running(tmp_path, 3, dLegerProtocol="dledger") as members:
        leader = await leader_of(members)
        for _ in range(20):
            await put(leader)
        leader.tables.topics.put(TopicConfig("Rare", 7, 7))
        await all_committed(members)

        async def is_known() -> bool:
            return all(known(members, "Rare"))

        await eventually("all members know the topic", is_known)
        to = next(each for each in members if each is not leader)
        leader.node.transfer(to.node.status().self_id)

        async def leads_now() -> bool:
            return to.leads

        await eventually("the other member serves", leads_now)
        assert to.tables.topics.version.state_version == 0
        assert follows_own_rules(to) == 0
        await put(to)
        end = to.store.log.confirmed
    async with running(tmp_path, 3) as members:
        leader = await leader_of(members)
        assert leader.store.log.confirmed >= end
        assert known([leader], "Rare") == [True]
        assert leader.node.status().caution == ""
        assert follows_own_rules(leader) == 1
