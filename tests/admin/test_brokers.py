"""Brokers, clusters and NameServers through an admin."""

from __future__ import annotations

import time

import pytest
from tests.admin.ghost import NAME, haunt
from tests.admin.test_groups import fill

from flaremq.admin.admin import Admin
from flaremq.admin.values.brokers import ClusterBrokers
from flaremq.admin.values.topics import Perm
from flaremq.base.errors import ConnectFailed, InvalidParameter, NoPermission, UsageError
from flaremq.model.topic import GroupConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import HeartbeatData, ProducerData
from flaremq.protocol.codes import RequestCode
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient


async def test_clusters_and_their_brokers(admin: Admin, servers: Embedded) -> None:
    assert await admin.brokers.clusters() == (ClusterBrokers("DefaultCluster", ("broker-a", "broker-b")),)
    found = await admin.brokers.list()
    assert [(each.cluster, each.name, each.id, each.address) for each in found] == [
        ("DefaultCluster", "broker-a", 0, servers.addresses[0]),
        ("DefaultCluster", "broker-b", 0, servers.addresses[1]),
    ]
    assert not found.failed and all(each.is_master for each in found)
    runtime = found[0].runtime
    assert runtime is not None
    assert (runtime.version, runtime.active) == ("V5_3_3", True)
    assert runtime.put_tps == 0.0 and runtime.get_tps == 0.0
    assert runtime.boot_ms is not None and abs(runtime.boot_ms / 1000 - time.time()) < 600
    assert runtime.disk_ratio is not None and 0 < runtime.disk_ratio < 1
    assert runtime.earliest_ms is None and runtime.dispatch_behind == 0
    assert runtime.table["brokerVersionDesc"] == "V5_3_3"
    (only,) = await admin.brokers.list(broker="broker-b", runtime=False)
    assert (only.name, only.runtime) == ("broker-b", None)


async def test_a_broker_that_does_not_answer_is_listed_all_the_same(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    address = await haunt(wire, servers.namesrv)
    found = await admin.brokers.list()
    assert [(each.name, each.runtime is None) for each in found] == [
        ("broker-a", False),
        ("broker-b", False),
        (NAME, True),
    ]
    assert address in str(found.failed[NAME])
    with pytest.raises(ConnectFailed, match=address):
        await admin.brokers.runtime(NAME)


async def test_a_broker_that_no_nameserver_knows_is_asked_by_its_address(
    admin: Admin, servers: Embedded
) -> None:
    assert (await admin.brokers.runtime(servers.addresses[1])).version == "V5_3_3"
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1 "):
        await admin.brokers.runtime("127.0.0.1:1")


async def test_settings_are_read_and_changed(admin: Admin) -> None:
    changes = {"defaultTopicQueueNums": "6"}
    assert await admin.brokers.update_config(changes) == ("broker-a", "broker-b")
    assert await admin.brokers.update_config({"defaultTopicQueueNums": "5"}, broker="broker-b") == (
        "broker-b",
    )
    found = {each.server: each.values for each in await admin.brokers.config()}
    assert {name: values["defaultTopicQueueNums"] for name, values in found.items()} == {
        "broker-a": "6",
        "broker-b": "5",
    }
    assert found["broker-a"]["brokerName"] == "broker-a"
    with pytest.raises(NoPermission):
        await admin.brokers.update_config({"brokerConfigPath": "/tmp/x"}, broker="broker-a")
    with pytest.raises(InvalidParameter, match="no settings"):
        await admin.brokers.update_config({})


async def test_how_far_all_groups_are_on_one_broker(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await fill(admin, servers, wire)
    await admin.groups.create(GroupConfig("billing"))
    await wire.commit(servers.addresses[0], "billing", "orders", 1, 2)
    found = await admin.brokers.consume_stats("broker-a")
    rows = {(each.group, each.queue.queue_id): each.lag for each in found.queues}
    assert rows == {("billing", 0): 3, ("billing", 1): 1}
    assert (found.broker, found.lag) == ("broker-a", 4)
    assert (await admin.brokers.consume_stats("broker-a", ordered=True)).queues == ()


async def test_rates_leave_out_brokers_that_have_none(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await admin.topics.create("orders")
    await wire.send(servers.addresses[0], "orders", 0, b"hello")
    found = await admin.brokers.rates("TOPIC_PUT_NUMS", "orders")
    assert [each.broker for each in found] == ["broker-a"] and not found.failed
    assert list(await admin.brokers.rates("TOPIC_PUT_NUMS", "nothing")) == []


async def test_producers_that_are_connected(admin: Admin, servers: Embedded, wire: WireClient) -> None:
    await admin.topics.create("orders")
    data = HeartbeatData(client_id=wire.client_id, producer_data_set=(ProducerData(group_name="shop"),))
    for address in servers.addresses:
        await wire.ask(address, RequestCode.HEART_BEAT, None, beans.encode(data))
    (found,) = await admin.brokers.producers()
    assert (found.group, found.client_id, found.language) == ("shop", wire.client_id, "PYTHON")
    assert found.address.startswith("127.0.0.1:") and found.version_name == "V5_3_3"
    (connection,) = await admin.topics.producers("orders", "shop")
    assert (connection.client_id, connection.brokers) == (wire.client_id, ("broker-a", "broker-b"))


async def test_what_brokers_should_clean_up(admin: Admin) -> None:
    both = ("broker-a", "broker-b")
    assert await admin.brokers.clean_expired_queues() == both
    assert await admin.brokers.clean_unused_topics(cluster="DefaultCluster") == both
    assert await admin.brokers.delete_expired_files(broker="broker-a") == ("broker-a",)


async def test_producers_are_kept_away_from_a_broker_and_may_come_back(
    admin: Admin, servers: Embedded
) -> None:
    await admin.topics.create("orders")

    async def perms() -> list[Perm]:
        return [each.perm for each in (await admin.topics.route("orders")).queues]

    wiped = await admin.brokers.wipe_write_perm("broker-a")
    assert list(wiped) == [servers.namesrv] and wiped[servers.namesrv] > 0
    assert await perms() == [Perm.READ, Perm.READ_WRITE]
    assert await admin.brokers.add_write_perm(servers.addresses[0]) == wiped
    assert await perms() == [Perm.READ_WRITE, Perm.READ_WRITE]
    with pytest.raises(InvalidParameter, match="no NameServer knows"):
        await admin.brokers.wipe_write_perm("127.0.0.1:1")


async def test_a_master_without_slaves_says_so(admin: Admin) -> None:
    found = await admin.brokers.ha_status("broker-a")
    assert found.is_master and found.slaves == () and found.state == ""
    assert {each.broker for each in await admin.brokers.ha()} == {"broker-a", "broker-b"}


# NameServers.


async def test_settings_of_nameservers(admin: Admin, servers: Embedded) -> None:
    assert await admin.namesrvs.addresses() == (servers.namesrv,)
    assert await admin.namesrvs.update_config({"orderMessageEnable": "true"}) == (servers.namesrv,)
    (found,) = await admin.namesrvs.config()
    assert found.address == servers.namesrv
    assert found.values["orderMessageEnable"] == "true"
    with pytest.raises(NoPermission):
        await admin.namesrvs.update_config({"kvConfigPath": "/tmp/x"})


async def test_texts_that_nameservers_keep(admin: Admin, servers: Embedded) -> None:
    assert await admin.namesrvs.kv_get("mine", "a") is None
    assert dict(await admin.namesrvs.kv_list("mine")) == {}
    assert await admin.namesrvs.kv_put("mine", "a", "größer: 1 = 1") == (servers.namesrv,)
    await admin.namesrvs.kv_put("mine", "b", "2")
    assert await admin.namesrvs.kv_get("mine", "a") == "größer: 1 = 1"
    assert dict(await admin.namesrvs.kv_list("mine")) == {"a": "größer: 1 = 1", "b": "2"}
    await admin.namesrvs.kv_delete("mine", "a")
    assert dict(await admin.namesrvs.kv_list("mine")) == {"b": "2"}
    for namespace, key, value in (("", "a", "1"), ("mine", " ", "1"), ("mine", "a", "")):
        with pytest.raises(InvalidParameter):
            await admin.namesrvs.kv_put(namespace, key, value)


async def test_a_stopped_admin_says_so(servers: Embedded) -> None:
    admin = Admin(servers.namesrv)
    await admin.start()
    await admin.stop()
    await admin.stop()
    for call in (admin.start, admin.topics.list, admin.brokers.list, admin.namesrvs.config):
        with pytest.raises(UsageError, match="create another one"):
            await call()


async def test_unused_topics_are_no_more_after_a_cleaning(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    """The queues of a topic that is known stay."""
    await fill(admin, servers, wire, count=1)
    await admin.brokers.clean_unused_topics()

    async def still_there() -> bool:
        return (await admin.topics.stats("orders")).count == 4

    await eventually("the messages are there", still_there)
