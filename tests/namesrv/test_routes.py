from __future__ import annotations

from typing import Any

from flaremq.model.topic import DataVersion, TopicConfig
from flaremq.namesrv.routes import BrokerRegistration, LowestChange, Registered, Routes
from flaremq.protocol.bodies.route import QueueData

T0 = 1_700_000_000_000


def topics(*names: str, perm: int = 6) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, 4, 4, perm) for name in names}


def registration(**other: Any) -> BrokerRegistration:
    given: dict[str, Any] = {
        "cluster": "C",
        "broker_name": "broker-a",
        "broker_id": 0,
        "address": "10.0.0.1:10911",
        "ha_address": "10.0.0.1:10912",
        "topics": topics("A", "B"),
        "data_version": DataVersion(0, 1, T0),
    }
    return BrokerRegistration(**{**given, **other})


def routes_with(*registrations: BrokerRegistration) -> Routes:
    routes = Routes()
    for each in registrations:
        assert routes.register(each, T0, peer=each.address) is not None
    return routes


def test_a_registered_topic_has_a_route() -> None:
    route = routes_with(registration()).route("A")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}
    assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].perm) == (4, 6)


def test_an_unknown_topic_has_none() -> None:
    assert routes_with(registration()).route("Nobody") is None


def test_two_brokers_serve_one_topic() -> None:
    other = registration(broker_name="broker-b", address="10.0.0.2:10911")
    route = routes_with(registration(), other).route("A")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["broker-a", "broker-b"]


def test_a_slave_is_told_its_master_and_brings_no_topics() -> None:
    routes = routes_with(registration())
    slave = registration(broker_id=1, address="10.0.0.9:10911", topics=topics("A", "Z"))
    assert routes.register(slave, T0, "slave") == Registered("10.0.0.1:10911", "10.0.0.1:10912")
    assert routes.route("Z") is None
    route = routes.route("A")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.9:10911"}


def test_a_stranger_with_a_single_topic_is_refused() -> None:
    routes = Routes()
    assert routes.register(registration(topics=topics("A")), T0, "p") is None
    assert routes.topics() == ()


def test_a_slave_that_becomes_master_leaves_its_old_id() -> None:
    slave = registration(broker_id=1, address="10.0.0.9:10911")
    routes = routes_with(registration(), slave)
    routes.register(registration(address="10.0.0.9:10911", data_version=DataVersion(1, 1, T0)), T0, "p")
    info = routes.cluster_info()
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: "10.0.0.9:10911"}


def test_an_older_claim_to_an_id_is_passed_over() -> None:
    routes = routes_with(registration(data_version=DataVersion(5, 1, T0)))
    late = registration(address="10.0.0.9:10911", data_version=DataVersion(4, 1, T0))
    assert routes.register(late, T0, "p") == Registered()
    assert routes.cluster_info().broker_addr_table["broker-a"].broker_addrs == {0: "10.0.0.1:10911"}


def test_changed_queue_numbers_show_and_missing_topics_stay() -> None:
    routes = routes_with(registration())
    wider = {"A": TopicConfig("A", 8, 8, 6), "C": TopicConfig("C", 1, 1, 6)}
    routes.register(registration(topics=wider, data_version=DataVersion(0, 2, T0)), T0, "p")
    route = routes.route("A")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 8
    assert set(routes.topics()) == {"A", "B", "C"}


def test_missing_topics_go_when_asked_to() -> None:
    routes = Routes(delete_missing_topics=True)
    routes.register(registration(), T0, "p")
    routes.register(registration(topics=topics("B", "C"), data_version=DataVersion(0, 2, T0)), T0, "p")
    assert set(routes.topics()) == {"B", "C"}


def test_a_silent_broker_expires_and_a_heard_one_does_not() -> None:
    routes = routes_with(registration(), registration(broker_name="broker-b", address="10.0.0.2:10911"))
    routes.heard("C", "10.0.0.2:10911", T0 + 100_000)
    assert routes.expire(T0 + 120_000) == []
    assert routes.expire(T0 + 120_001) == ["10.0.0.1:10911"]
    route = routes.route("A")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["broker-b"]


def test_a_broker_may_ask_for_another_time() -> None:
    routes = routes_with(registration(timeout_ms=10_000))
    assert routes.expire(T0 + 10_001) == ["10.0.0.1:10911"]
    assert routes.cluster_info().broker_addr_table == {}
    assert routes.topics() == ()


def test_a_closed_connection_takes_its_broker_away() -> None:
    routes = routes_with(registration())
    assert routes.lost("someone else") == []
    assert routes.lost("10.0.0.1:10911") == ["10.0.0.1:10911"]
    assert routes.route("A") is None


def test_unregistering_another_address_changes_nothing() -> None:
    routes = routes_with(registration())
    routes.unregister("C", "broker-a", 0, "10.0.0.7:10911")
    assert routes.route("A") is not None
    routes.unregister("C", "broker-a", 0, "10.0.0.1:10911")
    assert routes.route("A") is None


def test_write_permission_is_wiped_and_given_back() -> None:
    routes = routes_with(registration())
    assert routes.wipe_write_permission("broker-a") == 2
    route = routes.route("A")
    assert route is not None
    assert route.queue_datas[0].perm == 4
    assert routes.add_write_permission("broker-a") == 2
    assert routes.wipe_write_permission("nobody") == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    other = registration(cluster="D", broker_name="broker-d", address="10.0.0.4:10911")
    routes = routes_with(registration(), other)
    routes.delete_topic("A", "D")
    route = routes.route("A")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["broker-a"]
    routes.delete_topic("A")
    assert routes.route("A") is None
    assert routes.topics_of_cluster("D") == ("B",)


def test_clusters_and_brokers_are_listed_as_system_names() -> None:
    names, address = routes_with(registration()).system_names()
    assert names == ("C", "broker-a")
    assert address == "10.0.0.1:10911"


# Groups whose lowest slave acts for a missing master.

MASTER, FIRST, SECOND = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def member(broker_id: int, **other: Any) -> BrokerRegistration:
    address = f"10.0.0.{broker_id + 1}:10911"
    ha_address = f"10.0.0.{broker_id + 1}:10912"
    given = {"broker_id": broker_id, "address": address, "ha_address": ha_address, "acting_master": True}
    return registration(**{**given, **other})


def acting_group(*ids: int, **other: Any) -> tuple[Routes, list[LowestChange]]:
    changes: list[LowestChange] = []
    routes = Routes(acting_masters=True, on_lowest=changes.append)
    for broker_id in ids:
        assert routes.register(member(broker_id, **other), T0, peer=broker_id) is not None
    return routes, changes


def shown(routes: Routes, topic: str = "A") -> tuple[dict[int, str], int]:
    """The members that the route of a topic names, and what may be done there."""
    route = routes.route(topic)
    assert route is not None
    return dict(route.broker_datas[0].broker_addrs), route.queue_datas[0].perm


def test_the_lowest_slave_takes_the_place_of_a_lost_master_and_nothing_can_be_sent_there() -> None:
    routes, _ = acting_group(0, 1, 2)
    assert shown(routes) == ({0: MASTER, 1: FIRST, 2: SECOND}, 6)
    routes.lost(0)
    assert shown(routes) == ({0: FIRST, 2: SECOND}, 4)
    routes.lost(1)
    assert shown(routes) == ({0: SECOND}, 4)
    routes.register(member(0), T0, peer=0)
    assert shown(routes) == ({0: MASTER, 2: SECOND}, 6)


def test_a_lowest_slave_that_comes_first_brings_topics_that_can_only_be_read() -> None:
    routes, _ = acting_group(2)
    assert shown(routes) == ({0: SECOND}, 4)
    routes.register(member(1, topics=topics("A", "B", "C"), data_version=DataVersion(0, 2, T0)), T0, 1)
    assert shown(routes, "C") == ({0: FIRST, 2: SECOND}, 4)


def test_a_topic_registered_alone_by_a_member_without_master_cannot_be_written() -> None:
    routes, _ = acting_group(1)
    routes.register_topic("New", [QueueData(broker_name="broker-a", perm=6)])
    assert shown(routes, "New")[1] == 4


def test_members_are_asked_for_by_a_topic_that_shows_their_true_ids() -> None:
    name = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    routes, _ = acting_group(0, 1, topics=topics("A", name))
    routes.lost(0)
    assert shown(routes, name)[0] == {1: FIRST}
    assert routes.member_group("C", "broker-a").broker_addrs == {1: FIRST}


def test_nobody_acts_where_the_name_server_or_the_group_does_not_wish_so() -> None:
    routes, _ = acting_group(0, 1)
    routes.acting_masters = False
    routes.lost(0)
    assert shown(routes) == ({1: FIRST}, 4)
    unwilling, changes = acting_group(0, 1, acting_master=False)
    unwilling.lost(0)
    assert shown(unwilling) == ({1: FIRST}, 6)
    assert not changes


def test_members_are_told_when_another_one_has_the_lowest_id() -> None:
    routes, changes = acting_group(2, 1, 3)
    (came,) = changes
    assert came == LowestChange(lowest_id=1, lowest_address=FIRST, ha_address="10.0.0.2:10912", to=(SECOND,))
    routes.lost(1)
    assert changes[1] == LowestChange(
        lowest_id=2, lowest_address=SECOND, offline_address=FIRST, to=(SECOND, "10.0.0.4:10911")
    )
    routes.lost(3)
    assert len(changes) == 2
    routes.lost(2)
    assert len(changes) == 2


def test_a_member_is_gone_as_soon_as_the_time_that_it_named_is_over() -> None:
    routes, changes = acting_group(0, 1, timeout_ms=10_000)
    routes.heard("C", FIRST, T0 + 5_000)
    assert routes.silent(T0 + 10_001) == [0]
    assert routes.expire(T0 + 10_001) == [MASTER]
    assert (changes[0].lowest_id, changes[0].offline_address) == (1, MASTER)
