"""Groups through an admin: settings, members, how far they are."""

from __future__ import annotations

import pytest
from tests.admin.ghost import NAME, haunt
from tests.admin.member import Member

from flaremq.admin.admin import Admin
from flaremq.admin.values.groups import GroupChange, Position
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import (
    ConsumerOffline,
    GroupNotFound,
    Incomplete,
    InvalidName,
    InvalidParameter,
    NotServed,
    TopicNotFound,
)
from flaremq.model.message import MessageQueue
from flaremq.model.topic import GroupConfig
from flaremq.protocol.bodies.group import ConsumeFromWhere, ConsumeType, MessageModel
from flaremq.protocol.bodies.pop import MessageRequestMode
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient

TWO = TopicSettings(read_queues=2, write_queues=2)
A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0, B1 = MessageQueue("orders", "broker-b", 0), MessageQueue("orders", "broker-b", 1)


async def fill(admin: Admin, servers: Embedded, wire: WireClient, count: int = 3) -> None:
    """So many messages in each queue of "orders", two on each broker."""
    await admin.topics.create("orders", TWO)
    for address in servers.addresses:
        for queue_id in range(2):
            for n in range(count):
                await wire.send(address, "orders", queue_id, f"{n}".encode())

    async def is_full() -> bool:
        return (await admin.topics.stats("orders")).count == 4 * count

    await eventually("all messages are in their queues", is_full)


# Settings.


async def test_a_group_is_made_changed_and_deleted_on_all_masters(admin: Admin) -> None:
    assert await admin.groups.create(GroupConfig("billing", retry_max_times=7)) == ("broker-a", "broker-b")
    change = GroupChange(retry_queue_nums=2, consume_enable=False)
    assert await admin.groups.update("billing", change, broker="broker-b") == ("broker-b",)
    found = (await admin.groups.get("billing")).brokers
    assert found == {
        "broker-a": GroupConfig("billing", retry_max_times=7),
        "broker-b": GroupConfig("billing", retry_max_times=7, retry_queue_nums=2, consume_enable=False),
    }
    assert await admin.groups.delete("billing") == ("broker-a", "broker-b")
    with pytest.raises(GroupNotFound, match="billing"):
        await admin.groups.get("billing")


async def test_to_look_at_a_group_does_not_make_it(admin: Admin) -> None:
    for call in (admin.groups.get, admin.groups.progress, admin.groups.delete):
        with pytest.raises(GroupNotFound, match="nobody"):
            await call("nobody")
    with pytest.raises(GroupNotFound):
        await admin.groups.update("nobody", GroupChange(retry_max_times=1))
    assert "nobody" not in [each.name for each in await admin.groups.list()]


async def test_the_list_says_where_groups_are_and_which_are_the_systems(admin: Admin) -> None:
    await admin.groups.create(GroupConfig("billing"))
    await admin.groups.create(GroupConfig("shipping"), broker="broker-b")
    found = {each.name: each for each in await admin.groups.list()}
    assert found["billing"].brokers == ("broker-a", "broker-b")
    assert found["shipping"].brokers == ("broker-b",)
    assert not found["billing"].is_system
    assert found["TOOLS_CONSUMER"].is_system and found["CID_RMQ_SYS_TRANS"].is_system
    assert [each.name for each in await admin.groups.summaries()] == ["billing", "shipping"]


async def test_a_deleted_group_leaves_neither_offsets_nor_topics(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await fill(admin, servers, wire)
    await wire.heartbeat(servers.addresses[0], "billing", "orders")
    await wire.commit(servers.addresses[0], "billing", "orders", 0, 2)
    await wire.unregister(servers.addresses[0], "billing")

    async def has_retry_topic() -> bool:
        return "%RETRY%billing" in [each.name for each in await admin.topics.list()]

    await eventually("the retry topic is known", has_retry_topic)
    await admin.groups.delete("billing")
    assert not await has_retry_topic()
    assert await wire.committed(servers.addresses[0], "billing", "orders", 0) is None


@pytest.mark.parametrize("name", ["", "bil ling", "x" * 121])
async def test_a_name_that_cannot_be_is_refused_before_anybody_is_asked(admin: Admin, name: str) -> None:
    for call in (admin.groups.get, admin.groups.progress, admin.groups.members, admin.groups.delete):
        with pytest.raises(InvalidName):
            await call(name)
    with pytest.raises(InvalidName):
        await admin.groups.create(GroupConfig(name))


# Members.


async def test_members_are_told_once_with_all_brokers_that_know_them(
    admin: Admin, servers: Embedded, member: Member
) -> None:
    await admin.topics.create("orders", TWO)
    await member.join(servers.addresses, "billing", "orders")
    found = await admin.groups.members("billing")
    (one,) = found.members
    assert (one.client_id, one.language, one.version_name) == (member.client_id, "PYTHON", "V5_3_3")
    assert one.brokers == ("broker-a", "broker-b")
    assert one.address.startswith("127.0.0.1:")
    assert ("orders", "*", "TAG") in [
        (each.topic, each.expression, each.kind) for each in found.subscriptions
    ]
    assert found.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert found.message_model is MessageModel.CLUSTERING
    assert found.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    (summary,) = await admin.groups.summaries()
    assert (summary.name, summary.members, summary.version_name) == ("billing", 1, "V5_3_3")


async def test_a_group_without_members_is_offline(admin: Admin) -> None:
    await admin.groups.create(GroupConfig("billing"))
    with pytest.raises(ConsumerOffline, match=r"billing.*start a consumer"):
        await admin.groups.members("billing")
    with pytest.raises(ConsumerOffline):
        await admin.groups.running("billing", "somebody")


async def test_a_member_tells_how_it_does(admin: Admin, servers: Embedded, member: Member) -> None:
    await admin.topics.create("orders", TWO)
    await member.join(servers.addresses, "billing", "orders")
    member.queues = {A0: 5, B1: 7}
    info = await admin.groups.running("billing", member.client_id)
    assert info.properties == {"who": member.client_id}
    assert {queue: each.commit_offset for queue, each in info.mq_table.items()} == {A0: 5, B1: 7}
    assert info.jstack is None
    assert (await admin.groups.running("billing", member.client_id, stacks=True)).jstack == "a stack"
    (told,) = await admin.groups.positions("billing", "orders")
    assert (told.client_id, dict(told.offsets)) == (member.client_id, {A0: 5, B1: 7})
    with pytest.raises(InvalidParameter, match=rf"no member 'other'.*{member.client_id}"):
        await admin.groups.running("billing", "other")


# How far it is.


async def test_progress_of_a_group_that_is_connected(
    admin: Admin, servers: Embedded, wire: WireClient, member: Member
) -> None:
    await fill(admin, servers, wire)
    await member.join(servers.addresses, "billing", "orders")
    member.queues = {A0: 1, A1: 3}
    await wire.commit(servers.addresses[0], "billing", "orders", 0, 1)
    await wire.commit(servers.addresses[0], "billing", "orders", 1, 3)
    found = await admin.groups.progress("billing")
    rows = {each.queue: each for each in found.queues if each.queue.topic == "orders"}
    assert [(rows[queue].consumer_offset, rows[queue].lag) for queue in (A0, A1)] == [(1, 2), (3, 0)]
    assert rows[A0].owner == member.client_id
    assert rows[A0].broker_offset == 3 and rows[A0].last_consumed_ms is not None
    assert found.members == 1 and found.dead_letters == 0 and not found.failed
    assert found.topics["orders"] == found.lag
    unasked = await admin.groups.progress("billing", owners=False)
    assert {each.owner for each in unasked.queues} == {None}
    (summary,) = [each for each in await admin.groups.summaries() if each.name == "billing"]
    assert summary.lag == found.lag


async def test_progress_of_a_group_that_is_not_connected(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await fill(admin, servers, wire)
    await admin.groups.create(GroupConfig("billing"))
    assert (await admin.groups.progress("billing")).queues == ()
    await wire.commit(servers.addresses[1], "billing", "orders", 1, 2)
    found = await admin.groups.progress("billing", "orders")
    rows = {each.queue: each for each in found.queues}
    assert (rows[B1].consumer_offset, rows[B1].lag, rows[B1].owner) == (2, 1, None)
    assert found.members == 0
    assert list(await admin.groups.topics("billing")) == ["orders"]
    spans = {each.queue: each for each in await admin.groups.spans("billing", "orders")}
    assert set(spans) == {A0, A1, B0, B1}
    first_ms, last_ms = spans[B1].first_ms, spans[B1].last_ms
    assert first_ms is not None and last_ms is not None and first_ms <= last_ms


async def test_retries_and_dead_letters_are_counted(
    admin: Admin, servers: Embedded, wire: WireClient, member: Member
) -> None:
    await fill(admin, servers, wire)
    address = servers.addresses[0]
    await member.join(servers.addresses, "billing", "orders", "%RETRY%billing")
    for letter in (await wire.read_all(address, "orders", 0))[:2]:
        header = ConsumerSendMsgBackRequestHeader(
            offset=letter.physical_offset, group="billing", delay_level=-1
        )
        await wire.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
    await wire.send(address, "%RETRY%billing", 0, b"again")
    await wire.commit(address, "billing", "%RETRY%billing", 0, 0)

    async def are_counted() -> bool:
        found = await admin.groups.progress("billing")
        return (found.dead_letters, found.retry_lag) == (2, 1)

    await eventually("two dead letters and one retry", are_counted)


async def test_a_broker_that_is_away_stands_beside_what_the_others_say(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await admin.groups.create(GroupConfig("billing"))
    async with WireClient() as registrar:
        await haunt(registrar, servers.namesrv)
        assert list((await admin.groups.progress("billing")).failed) == [NAME]
        assert list((await admin.groups.list()).failed) == [NAME]
        with pytest.raises(Incomplete) as caught:
            await admin.groups.create(GroupConfig("shipping"))
        assert caught.value.done == ("broker-a", "broker-b")


# What it may do.


async def test_a_group_is_forbidden_a_topic_and_allowed_again(admin: Admin) -> None:
    await admin.topics.create("orders", TWO)
    await admin.groups.create(GroupConfig("billing"))
    assert await admin.groups.forbidden("billing", "orders") == ()
    assert await admin.groups.forbid("billing", "orders") == ("broker-a", "broker-b")
    assert await admin.groups.forbidden("billing", "orders") == ("broker-a", "broker-b")
    await admin.groups.allow("billing", "orders")
    assert await admin.groups.forbidden("billing", "orders") == ()


async def test_what_a_broker_does_not_have_is_said_so(admin: Admin) -> None:
    await admin.topics.create("orders", TWO, broker="broker-a")
    with pytest.raises(NotServed, match="SET_MESSAGE_REQUEST_MODE"):
        await admin.groups.set_mode("billing", "orders", MessageRequestMode.POP)


async def test_a_group_begins_where_another_one_is(
    admin: Admin, servers: Embedded, wire: WireClient, member: Member
) -> None:
    await fill(admin, servers, wire)
    await admin.groups.create(GroupConfig("billing", retry_max_times=3))
    await wire.commit(servers.addresses[0], "billing", "orders", 1, 2)
    assert await admin.groups.clone("billing", "copy", "orders") == ("broker-a", "broker-b")
    assert await wire.committed(servers.addresses[0], "copy", "orders", 1) == 2
    assert await wire.committed(servers.addresses[0], "copy", "orders", 0) is None
    assert {each.retry_max_times for each in (await admin.groups.get("copy")).brokers.values()} == {3}
    await admin.groups.reset("billing", "orders", Position.offsets({A1: 1}))
    await member.join(servers.addresses, "live", "orders")
    await admin.groups.clone("billing", "live")
    assert await wire.committed(servers.addresses[0], "live", "orders", 1) == 1
    with pytest.raises(InvalidParameter):
        await admin.groups.clone("billing", "billing")
    with pytest.raises(GroupNotFound):
        await admin.groups.clone("nobody", "copy")
    with pytest.raises(TopicNotFound):
        await admin.groups.clone("billing", "copy", "order")
