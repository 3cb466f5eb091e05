"""Groups that are sent to other offsets: in three ways, by what their brokers can do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.admin.ghost import NAME, haunt
from tests.admin.member import Member
from tests.admin.test_groups import A0, A1, B0, B1, fill

from flaremq.admin.admin import Admin
from flaremq.admin.values.groups import OffsetMove, OffsetReset, Position
from flaremq.base.errors import GroupNotFound, Incomplete, InvalidParameter, TopicNotFound, UsageError
from flaremq.model.message import MessageQueue
from flaremq.model.topic import GroupConfig
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient


async def offsets(wire: WireClient, servers: Embedded, group: str = "billing") -> list[int | None]:
    """Of a0, a1, b0, b1."""
    return [
        await wire.committed(address, group, "orders", queue_id)
        for address in servers.addresses
        for queue_id in (0, 1)
    ]


@pytest.fixture
async def billing(admin: Admin, servers: Embedded, wire: WireClient) -> None:
    """Three messages in each queue, of which the group has consumed one in a0 and two in b1."""
    await fill(admin, servers, wire)
    await admin.groups.create(GroupConfig("billing"))
    await wire.commit(servers.addresses[0], "billing", "orders", 0, 1)
    await wire.commit(servers.addresses[1], "billing", "orders", 1, 2)


@pytest.mark.usefixtures("billing")
async def test_a_dry_run_says_what_would_be_and_does_nothing(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    found = await admin.groups.reset("billing", "orders", Position.end(), dry_run=True)
    assert found == OffsetReset(
        "billing",
        "orders",
        (OffsetMove(A0, 1, 3), OffsetMove(A1, None, 3), OffsetMove(B0, None, 3), OffsetMove(B1, 2, 3)),
        applied=False,
    )
    assert await offsets(wire, servers) == [1, None, None, 2]


@pytest.mark.usefixtures("billing")
async def test_a_group_goes_to_the_end_to_the_begin_and_to_a_time(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    assert (await admin.groups.skip("billing", "orders")).applied
    assert await offsets(wire, servers) == [3, 3, 3, 3]
    found = await admin.groups.reset("billing", "orders", Position.begin())
    assert [(move.old, move.new) for move in found.moves] == [(3, 0)] * 4
    assert await offsets(wire, servers) == [0, 0, 0, 0]
    newest_ms = max(each.last_update_ms or 0 for each in (await admin.topics.stats("orders")).queues)
    await admin.groups.reset("billing", "orders", Position.time(newest_ms + 1))
    assert await offsets(wire, servers) == [3, 3, 3, 3]


@pytest.mark.usefixtures("billing")
async def test_single_queues_go_to_single_offsets_and_the_others_stay(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    found = await admin.groups.reset("billing", "orders", Position.offsets({A0: 3, B0: 2}))
    assert found.moves == (OffsetMove(A0, 1, 3), OffsetMove(B0, None, 2))
    assert await offsets(wire, servers) == [3, None, 2, 2]


@pytest.mark.usefixtures("billing")
async def test_offsets_that_cannot_be_are_refused_with_those_that_can(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    with pytest.raises(InvalidParameter, match=r"offset 4 of orders broker-a:0: expected 0 to 3"):
        await admin.groups.reset("billing", "orders", Position.offsets({A0: 4}))
    other = MessageQueue("orders", "broker-a", 2)
    with pytest.raises(InvalidParameter, match=r"no queue 2 on 'broker-a'.*broker-a 0 to 1"):
        await admin.groups.reset("billing", "orders", Position.offsets({other: 0}))
    for wrong in ({}, {A0: -1}):
        with pytest.raises(InvalidParameter):
            Position.offsets(wrong)
    with pytest.raises(InvalidParameter):
        Position.time(-1)
    with pytest.raises(GroupNotFound):
        await admin.groups.reset("biling", "orders", Position.begin())
    with pytest.raises(TopicNotFound):
        await admin.groups.reset("billing", "order", Position.begin())
    assert await offsets(wire, servers) == [1, None, None, 2]


@pytest.mark.usefixtures("billing")
async def test_members_that_are_connected_are_no_hindrance_to_a_broker_that_sets_offsets_itself(
    admin: Admin, servers: Embedded, wire: WireClient, member: Member
) -> None:
    await member.join(servers.addresses, "billing", "orders")
    await admin.groups.reset("billing", "orders", Position.offsets({A1: 2}))
    assert await offsets(wire, servers) == [1, 2, None, 2]


@pytest.mark.usefixtures("billing")
async def test_nothing_is_moved_while_a_broker_of_the_topic_is_away(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await haunt(wire, servers.namesrv, "orders")
    with pytest.raises(Incomplete) as caught:
        await admin.groups.reset("billing", "orders", Position.end())
    assert list(caught.value.failed) == [NAME]
    assert await offsets(wire, servers) == [1, None, None, 2]


class TestBrokersThatCannotSetOffsetsThemselves:
    """As those before 5.1, and later ones that are told not to."""

    @pytest.fixture
    async def servers(self, tmp_path: Path) -> object:
        async with Embedded(tmp_path, brokers=2, options={"useServerSideResetOffset": False}) as found:
            yield found

    @pytest.mark.usefixtures("billing")
    async def test_offsets_are_committed_for_a_group_that_is_not_connected(
        self, admin: Admin, servers: Embedded, wire: WireClient
    ) -> None:
        await admin.groups.reset("billing", "orders", Position.offsets({A1: 2}))
        assert await offsets(wire, servers) == [1, 2, None, 2]
        found = await admin.groups.skip("billing", "orders")
        assert [move.new for move in found.moves] == [3] * 4
        assert await offsets(wire, servers) == [3, 3, 3, 3]

    @pytest.mark.usefixtures("billing")
    async def test_members_that_are_connected_are_told_a_time(
        self, admin: Admin, servers: Embedded, wire: WireClient, member: Member
    ) -> None:
        await admin.groups.skip("billing", "orders")
        await member.join(servers.addresses, "billing", "orders")
        found = await admin.groups.reset("billing", "orders", Position.begin())
        assert [(move.old, move.new) for move in found.moves] == [(3, 0)] * 4
        assert {each.queue_id for each in await member.told(4)} == {0, 1}
        with pytest.raises(Incomplete, match="stop them first"):
            await admin.groups.reset("billing", "orders", Position.offsets({A1: 2, B0: 1}))
        with pytest.raises(UsageError, match="stop them first"):
            await admin.groups.reset("billing", "orders", Position.offsets({A1: 2}))
        await admin.groups.create(GroupConfig("other"))
        await admin.groups.clone("billing", "other", "orders")
        assert await offsets(wire, servers, "other") == [3, 3, 3, 3]
        with pytest.raises(Incomplete, match="stop them first"):
            await admin.groups.clone("other", "billing", "orders")
