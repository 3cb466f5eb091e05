"""The health of a cluster: what is a problem, and what the verdict is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.admin.ghost import NAME, haunt

from flaremq.admin.admin import Admin
from flaremq.admin.brokers import runtime_of
from flaremq.admin.health import _judged
from flaremq.admin.values.groups import Position
from flaremq.admin.values.health import ClusterHealth, HealthLimits, HealthVerdict
from flaremq.admin.wording import bytes_of
from flaremq.base.errors import InvalidParameter
from flaremq.client.settings import ClientSettings
from flaremq.model.topic import GroupConfig
from flaremq.remoting.ports import free_port
from flaremq.testing.embedded import Embedded
from flaremq.testing.fakes.wireclient import WireClient


def problems(found: ClusterHealth) -> list[tuple[str, str]]:
    return [(each.kind, each.subject) for each in found.problems]


async def test_a_cluster_whose_servers_all_do_well_is_healthy(admin: Admin, servers: Embedded) -> None:
    found = await admin.health.check()
    assert (found.verdict, found.problems, found.unchecked) == (HealthVerdict.HEALTHY, (), ())
    assert [each.name for each in found.brokers] == ["broker-a", "broker-b"]
    assert found.namesrvs == {servers.namesrv: True}


async def test_a_registered_broker_that_does_not_answer_is_a_problem(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await haunt(wire, servers.namesrv)
    found = await admin.health.check()
    assert found.verdict is HealthVerdict.DEGRADED
    assert ("broker", NAME) in problems(found)


async def test_slaves_without_a_master_are_a_problem(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await haunt(wire, servers.namesrv, broker_id=1)
    assert ("master", NAME) in problems(await admin.health.check())


async def test_a_broker_that_is_expected_and_not_registered_is_missed(admin: Admin) -> None:
    found = await admin.health.check(expected={"broker-b": "seen before", "broker-c": "seen yesterday"})
    assert found.verdict is HealthVerdict.DEGRADED
    (only,) = found.problems
    assert (only.kind, only.subject) == ("missing", "broker-c")
    assert "seen yesterday" in only.text


async def test_a_slave_that_is_expected_beside_its_master_is_missed(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    await haunt(wire, servers.namesrv, broker_id=1)
    found = await admin.health.check(expected={f"{NAME}:1": "seen before", "broker-a:1": "seen before"})
    assert [each.subject for each in found.problems if each.kind == "missing"] == ["broker-a:1"]


async def test_a_broker_that_an_ordered_topic_is_bound_to_is_missed(admin: Admin) -> None:
    await admin.topics.set_order_conf("ordered", "broker-a:2;broker-x:2")
    (only,) = (await admin.health.check()).problems
    assert (only.kind, only.subject) == ("missing", "broker-x")
    assert "ordered" in only.text


async def test_parts_that_fail_and_lag_over_the_limit_are_problems(
    admin: Admin, servers: Embedded, wire: WireClient
) -> None:
    servers.brokers[0].store.flags.trouble("index", OSError("no space"))
    await admin.topics.create("orders")
    await wire.send(servers.addresses[0], "orders", 0, b"x")
    await admin.groups.create(GroupConfig("billing"))
    await admin.groups.reset("billing", "orders", Position.begin())
    found = await admin.health.check(HealthLimits(lag_max=0))
    assert problems(found) == [("degraded", "broker-a"), ("lag", "billing")]
    assert "no space" in found.problems[0].text
    assert problems(await admin.health.check(HealthLimits(lag_max=1))) == [("degraded", "broker-a")]


async def test_without_any_broker_it_is_down(admin: Admin, servers: Embedded) -> None:
    for name in ("broker-a", "broker-b"):
        await servers.stop(name)
    assert (await admin.health.check()).verdict is HealthVerdict.DOWN


async def test_a_name_server_that_does_not_answer_is_a_problem_and_without_any_it_is_down(
    servers: Embedded,
) -> None:
    away = f"127.0.0.1:{free_port()}"
    settings = ClientSettings(namesrv=f"{away};{servers.namesrv}")
    async with Admin(settings=settings) as admin:
        found = await admin.health.check()
        assert (found.verdict, problems(found)) == (HealthVerdict.DEGRADED, [("namesrv", away)])
    async with Admin(away) as admin:
        assert (await admin.health.check()).verdict is HealthVerdict.DOWN


async def test_name_servers_that_disagree_are_a_problem(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with (
        Embedded(tmp_path_factory.mktemp("one"), brokers=1) as one,
        Embedded(tmp_path_factory.mktemp("two"), brokers=2) as two,
        Admin(settings=ClientSettings(namesrv=f"{one.namesrv};{two.namesrv}")) as admin,
    ):
        found = await admin.health.check()
    assert ("registration", "broker-b") in problems(found)


@pytest.mark.parametrize(
    ("table", "settings", "kind"),
    [
        ({"commitLogDiskRatio": "0.74"}, {}, None),
        ({"commitLogDiskRatio": "0.75"}, {}, "disk"),
        ({"consumeQueueDiskRatio": "0.95"}, {}, "disk"),
        ({"commitLogDiskRatio": "0.80"}, {"diskMaxUsedSpaceRatio": "85"}, None),
        ({"commitLogDiskRatio": "0.80"}, {"diskSpaceWarningLevelRatio": "0.79"}, "disk"),
        ({"commitLogDiskRatio": "0.20"}, {"diskSpaceWarningLevelRatio": "11"}, None),
        ({"dispatchBehindBytes": str(256 << 20)}, {}, None),
        ({"dispatchBehindBytes": str((256 << 20) + 1)}, {}, "dispatch"),
        ({"remainHowManyDataToFlush": "255.9 MiB"}, {}, None),
        ({"remainHowManyDataToFlush": "1.5 GiB"}, {}, "flush"),
        ({"sendThreadPoolQueueSize": "10", "sendThreadPoolQueueCapacity": "100"}, {}, None),
        ({"sendThreadPoolQueueSize": "50", "sendThreadPoolQueueCapacity": "100"}, {}, "backlog"),
        (
            {
                "pullThreadPoolQueueSize": "1",
                "pullThreadPoolQueueCapacity": "100",
                "pullThreadPoolQueueHeadWaitTimeMills": "1001",
            },
            {},
            "backlog",
        ),
        ({"degraded": "dispatch: no memory"}, {}, "degraded"),
        ({"haState": "REFUSED", "haWhyNot": "the files have another size"}, {}, "replication"),
        ({"haState": "WAITING", "haWhyNot": ""}, {}, "replication"),
    ],
)
def test_figures_of_a_broker_are_judged_by_limits(
    table: dict[str, str], settings: dict[str, str], kind: str | None
) -> None:
    found: list[Any] = [each for each, _ in _judged(runtime_of(table), settings, HealthLimits())]
    assert found == ([] if kind is None else [kind])


def test_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="expected 0 or more"):
        HealthLimits(lag_max=-1)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0 B", 0), ("512 B", 512), ("1.5 MiB", 3 << 19), ("2.0 KiB", 2048), ("much", None), (None, None)],
)
def test_sizes_for_people_are_read(text: str | None, size: int | None) -> None:
    assert bytes_of(text) == size
