"""Topics through an admin, on two real brokers."""

from __future__ import annotations

import pytest
from tests.admin.ghost import NAME, haunt

from flaremq.admin.admin import Admin
from flaremq.admin.values.topics import MessageType, Perm, TopicChange, TopicKind, TopicSettings
from flaremq.base.errors import Incomplete, InvalidName, InvalidParameter, TopicNotFound
from flaremq.model.message import MessageQueue
from flaremq.model.topic import GroupConfig
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient

FOUR = TopicSettings(read_queues=4, write_queues=4)


async def test_a_topic_is_made_on_all_masters_and_can_be_used_at_once(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    assert await admin.topics.create("orders", FOUR) == ("broker-a", "broker-b")
    route = await admin.topics.route("orders")
    assert [(each.broker, each.read_queues, each.write_queues, each.perm) for each in route.queues] == [
        ("broker-a", 4, 4, Perm.READ_WRITE),
        ("broker-b", 4, 4, Perm.READ_WRITE),
    ]
    assert [each.addresses for each in route.brokers] == [{0: address} for address in servers.addresses]
    await wire.send(servers.addresses[1], "orders", 3, b"hello")

    async def is_there() -> bool:
        return (await admin.topics.stats("orders")).count == 1

    await eventually("the message is in its queue", is_there)
    stats = await admin.topics.stats("orders")
    assert not stats.failed and len(stats.queues) == 8
    (used,) = [each for each in stats.queues if each.count]
    assert used.queue == MessageQueue("orders", "broker-b", 3)
    assert (used.min_offset, used.max_offset) == (0, 1)
    assert used.last_update_ms is not None
    assert {each.last_update_ms for each in stats.queues if not each.count} == {None}


async def test_one_broker_alone_can_be_meant_by_name_or_address(admin: Admin, servers: Embedded) -> None:
    assert await admin.topics.create("here", FOUR, broker="broker-b") == ("broker-b",)
    assert await admin.topics.create("there", FOUR, broker=servers.addresses[0]) == ("broker-a",)
    assert [each.name for each in (await admin.topics.route("here")).brokers] == ["broker-b"]
    assert [each.name for each in (await admin.topics.route("there")).brokers] == ["broker-a"]


async def test_settings_are_told_as_they_were_made(admin: Admin) -> None:
    made = TopicSettings(read_queues=3, write_queues=2, perm=Perm.READ, attributes={"message.type": "FIFO"})
    await admin.topics.create("orders", made, cluster="DefaultCluster")
    found = await admin.topics.get("orders")
    assert found.brokers == {"broker-a": made, "broker-b": made}
    assert found.kind is TopicKind.NORMAL
    assert found.brokers["broker-a"].message_type is MessageType.FIFO
    assert found.order_conf is None


async def test_a_change_leaves_the_rest_as_it_was(admin: Admin) -> None:
    await admin.topics.create("orders", TopicSettings(attributes={"message.type": "DELAY"}))
    change = TopicChange(write_queues=3, perm=Perm.READ)
    assert await admin.topics.update("orders", change, broker="broker-a") == ("broker-a",)
    found = (await admin.topics.get("orders")).brokers
    assert found["broker-a"] == TopicSettings(
        read_queues=8, write_queues=3, perm=Perm.READ, attributes={"message.type": "DELAY"}
    )
    assert found["broker-b"] == TopicSettings(attributes={"message.type": "DELAY"})
    await admin.topics.update("orders", TopicChange(attributes={"message.type": None}))
    assert {each.message_type for each in (await admin.topics.get("orders")).brokers.values()} == {None}
    await admin.topics.set_perm("orders", Perm.READ_WRITE)
    assert {each.perm for each in (await admin.topics.route("orders")).queues} == {Perm.READ_WRITE}


async def test_an_ordered_topic_is_told_to_producers(admin: Admin) -> None:
    await admin.topics.create("orders", TopicSettings(read_queues=4, write_queues=4, order=True))
    assert (await admin.topics.get("orders")).order_conf == "broker-a:4;broker-b:4"
    assert (await admin.topics.route("orders")).order_conf is None
    await admin.namesrvs.update_config({"orderMessageEnable": "true"})
    assert (await admin.topics.route("orders")).order_conf == "broker-a:4;broker-b:4"
    await admin.topics.update("orders", TopicChange(write_queues=2), broker="broker-b")
    assert (await admin.topics.get("orders")).order_conf == "broker-a:4;broker-b:2"
    await admin.topics.update("orders", TopicChange(order=False), broker="broker-a")
    assert (await admin.topics.route("orders")).order_conf == "broker-b:2"
    ordered = {name: each.order for name, each in (await admin.topics.get("orders")).brokers.items()}
    assert ordered == {"broker-a": True, "broker-b": True}  # A NameServer speaks for all brokers.
    await admin.topics.set_order_conf("orders", " broker-b:2; broker-a:1;")
    assert (await admin.topics.route("orders")).order_conf == "broker-a:1;broker-b:2"
    await admin.topics.delete("orders")
    assert await admin.namesrvs.kv_get("ORDER_TOPIC_CONFIG", "orders") is None


@pytest.mark.parametrize("conf", ["", ";", "broker-a", "broker-a:many", ":4"])
async def test_an_order_that_cannot_be_read_is_refused(admin: Admin, conf: str) -> None:
    with pytest.raises(InvalidParameter, match="order"):
        await admin.topics.set_order_conf("orders", conf)


async def test_the_list_says_of_what_kind_each_topic_is(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await admin.topics.create("orders", FOUR)
    await wire.heartbeat(servers.addresses[0], "billing", "orders")
    await admin.topics.create("%DLQ%billing", FOUR)
    found = {each.name: each for each in await admin.topics.list()}
    assert found["orders"].kind is TopicKind.NORMAL
    assert found["orders"].clusters == ("DefaultCluster",)
    assert found["%DLQ%billing"].kind is TopicKind.DLQ
    own = ("TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")
    assert {found[name].kind for name in own if name in found} == {TopicKind.SYSTEM}
    assert list(found) == sorted(found)
    assert "orders" in [each.name for each in await admin.topics.list(cluster="DefaultCluster")]


async def test_a_deleted_topic_is_gone_everywhere(admin: Admin, servers: Embedded) -> None:
    await admin.topics.create("orders", FOUR)
    assert await admin.topics.delete("orders") == ("broker-a", "broker-b", servers.namesrv)
    assert "orders" not in [each.name for each in await admin.topics.list()]
    with pytest.raises(TopicNotFound, match="orders"):
        await admin.topics.route("orders")
    with pytest.raises(TopicNotFound, match="orders"):
        await admin.topics.delete("orders")


async def test_consumers_and_producers_of_a_topic(admin: Admin, servers: Embedded, wire: WireClient) -> None:
    await admin.topics.create("orders", FOUR)
    await wire.heartbeat(servers.addresses[0], "billing", "orders")
    await admin.groups.create(GroupConfig("shipping"))
    await wire.commit(servers.addresses[1], "shipping", "orders", 0, 0)
    assert list(await admin.topics.consumers("orders")) == ["billing", "shipping"]
    assert list(await admin.topics.producers("orders", "nobody")) == []


@pytest.mark.parametrize("name", ["", "or ders", "x" * 128])
async def test_a_name_that_cannot_be_is_refused_before_anybody_is_asked(admin: Admin, name: str) -> None:
    for call in (admin.topics.create, admin.topics.get, admin.topics.stats, admin.topics.delete):
        with pytest.raises(InvalidName):
            await call(name)


async def test_an_unknown_place_is_told_with_those_that_are_known(admin: Admin) -> None:
    with pytest.raises(InvalidParameter, match=r"cluster 'Other'.*DefaultCluster"):
        await admin.topics.create("orders", cluster="Other")
    with pytest.raises(InvalidParameter, match=r"broker 'broker-c'.*broker-a, broker-b"):
        await admin.topics.create("orders", broker="broker-c")
    with pytest.raises(InvalidParameter, match="70000"):
        TopicSettings(read_queues=70_000)


async def test_what_a_broker_refuses_is_told_in_its_words(admin: Admin) -> None:
    with pytest.raises(InvalidParameter, match="conflict with system topic"):
        await admin.topics.create("TBW102", broker="broker-a")
    with pytest.raises(Incomplete, match="done nowhere, failed on 2") as caught:
        await admin.topics.create("TBW102")
    assert caught.value.done == () and set(caught.value.failed) == {"broker-a", "broker-b"}


async def test_a_broker_that_is_away_is_named_and_the_others_have_done_it(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await admin.topics.create("orders", FOUR)
    address = await haunt(wire, servers.namesrv, "orders")
    with pytest.raises(Incomplete) as caught:
        await admin.topics.create("payments", FOUR)
    assert caught.value.done == ("broker-a", "broker-b")
    assert list(caught.value.failed) == [NAME]
    assert address in str(caught.value) and caught.value.retriable
    stats = await admin.topics.stats("orders")
    assert {each.queue.broker_name for each in stats.queues} == {"broker-a", "broker-b"}
    assert list(stats.failed) == [NAME]
    assert list((await admin.topics.get("orders")).failed) == [NAME]
    assert list((await admin.topics.consumers("orders")).failed) == [NAME]


async def test_a_deletion_that_did_not_reach_all_brokers_can_be_finished(
    admin: Admin, servers: Embedded
) -> None:
    await admin.topics.create("orders", FOUR)
    async with WireClient() as wire:
        await haunt(wire, servers.namesrv, "orders")
        with pytest.raises(Incomplete, match="done on broker-a, broker-b"):
            await admin.topics.delete("orders")
        assert (await admin.topics.route("orders")).topic == "orders"

    async def is_forgotten() -> bool:
        return len(await admin.brokers.list(runtime=False)) == 2

    await eventually("the dead broker is forgotten", is_forgotten)
    await admin.topics.delete("orders")
    with pytest.raises(TopicNotFound):
        await admin.topics.route("orders")
