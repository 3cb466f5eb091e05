from __future__ import annotations

from typing import Any

from flaremq.model.topic import DataVersion, TopicConfig
from flaremq.namesrv.routes import BrokerRegistration, Registered, Routes

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
