"""What NameServers know of a group, and how a member says that it is alive."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.replicas.wires import MemberBench

from flaremq.protocol import beans
from flaremq.protocol.bodies.route import BrokerData, TopicRouteData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.testing.clock import settle

MASTER, FIRST = "10.0.0.1:10911", "10.0.0.2:10911"


async def test_what_any_name_server_knows_counts() -> None:
    bench = MemberBench(1, "n:1;n:2;n:3")
    bench.wires.knows_group("n:1", {1: FIRST})
    bench.wires.knows_group("n:2", {0: MASTER})
    assert await bench.members.ask() == {0: MASTER, 1: FIRST}
    assert bench.wires.asked[0][1].fields == {"clusterName": "C", "brokerName": "broker-a"}


async def test_without_an_answer_nothing_is_known() -> None:
    assert await MemberBench(1).members.ask() is None


def old_namesrv(bench: MemberBench, **members: BrokerData) -> None:
    """One that knows no groups, but routes."""
    route = TopicRouteData(broker_datas=tuple(members.values()))

    def reply(request: Command) -> Command:
        if not members:
            return response_to(request, ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        return response_to(request, body=beans.encode(route))

    bench.wires.peers["n:1"] = {RequestCode.GET_ROUTEINFO_BY_TOPIC: reply}


async def test_an_old_name_server_is_asked_for_a_route() -> None:
    bench = MemberBench(1)
    others = BrokerData(cluster="D", broker_name="broker-a", broker_addrs={0: "elsewhere:1"})
    ours = BrokerData(cluster="C", broker_name="broker-a", broker_addrs={0: MASTER, 1: FIRST})
    old_namesrv(bench, a=others, b=ours)
    assert await bench.members.ask() == {0: MASTER, 1: FIRST}
    assert await bench.members.ask() == {0: MASTER, 1: FIRST}
    routes = bench.wires.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert routes[0].fields["topic"] == "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    assert len(bench.wires.requests(RequestCode.GET_BROKER_MEMBER_GROUP)) == 1
    old_namesrv(bench)
    assert await bench.members.ask() == {}


async def test_a_name_server_that_was_renewed_is_asked_for_the_group_again() -> None:
    bench = MemberBench(1)
    old_namesrv(bench)
    await bench.members.ask()
    del bench.wires.peers["n:1"]
    await bench.members.ask()
    bench.wires.knows_group("n:1", {0: MASTER})
    assert await bench.members.ask() == {0: MASTER}


async def test_old_name_servers_are_asked_for_routes_only_where_that_is_wished() -> None:
    bench = MemberBench(1, old_namesrvs=False)
    old_namesrv(bench, a=BrokerData(cluster="C", broker_name="broker-a", broker_addrs={0: MASTER}))
    assert await bench.members.ask() is None
    await bench.members.say_alive()
    ((_, said, _),) = bench.wires.said
    assert said.code == RequestCode.BROKER_HEARTBEAT
    assert said.fields == {"clusterName": "C", "brokerAddr": MASTER, "brokerName": "broker-a"}


async def test_every_name_server_is_told_that_a_member_is_alive() -> None:
    bench = MemberBench(1, "n:1;n:2;n:3")
    bench.wires.peers |= {"n:1": {}, "n:3": {}}
    await bench.members.say_alive()
    assert [(at, each.code) for at, each, _ in bench.wires.said] == [
        ("n:1", RequestCode.QUERY_DATA_VERSION),
        ("n:3", RequestCode.QUERY_DATA_VERSION),
    ]
    request = bench.wires.said[0][1]
    assert request.fields["brokerId"] == "1"
    assert request.body == b'{"counter":3,"stateVersion":0,"timestamp":7}'


async def test_a_heartbeat_has_the_time_that_was_set() -> None:
    bench = MemberBench(1, heartbeat_timeout_ms=250)
    bench.wires.peers["n:1"] = {}
    await bench.members.say_alive()
    assert bench.wires.said[0][2] == 0.25


@pytest.mark.parametrize("option", ["heartbeat_ms", "ask_members_ms"])
def test_members_ask_and_are_heard_as_often_as_was_set(option: str) -> None:
    other: dict[str, Any] = {option: 70}
    periods = {task.name: task.period_s for task in MemberBench(1, **other).duty.tasks()}
    name = {"heartbeat_ms": "say-alive", "ask_members_ms": "ask-members"}[option]
    assert periods[name] == 0.07
    assert list(MemberBench(1, acting_master=False).duty.tasks()) == []


async def test_a_member_is_not_heard_before_it_may_be_found() -> None:
    bench = MemberBench(1)
    bench.wires.peers["n:1"] = {}
    (heartbeat,) = (task.work for task in bench.duty.tasks() if task.name == "say-alive")
    await heartbeat()  # type: ignore[misc]
    assert not bench.wires.said
    bench.duty.begin()
    await heartbeat()  # type: ignore[misc]
    await settle()
    assert len(bench.wires.said) == 1
