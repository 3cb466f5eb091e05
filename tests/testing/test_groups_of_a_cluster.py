"""Raft groups in the clusters of the pytest kit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flaremq.base.errors import UsageError
from flaremq.client.sync import Message, Producer, ProducerSettings
from flaremq.testing.cluster import Process, eventually
from flaremq.testing.faults import Faults
from flaremq.testing.local import Clusters, LocalCluster
from flaremq.testing.patience import load_factor

pytest_plugins = ["flaremq.testing.plugin"]


async def led(servers: LocalCluster, *but: Process) -> Process:
    found: list[Process | None] = []

    async def is_led() -> bool:
        found[:] = [servers.leader()]
        return found[0] is not None and found[0] not in but

    await eventually("a member leads", is_led, 60)
    assert found[0] is not None
    return found[0]


async def test_a_broker_with_replicas_is_a_group_that_outlives_its_leader(
    cluster: Clusters, faults: Faults, assert_sent: Callable[..., None]
) -> None:
    servers = cluster(replicas=3)
    assert [each.name for each in servers.brokers] == ["broker-a-n0", "broker-a-n1", "broker-a-n2"]
    first = await led(servers)
    assert first in servers.brokers
    servers.create_topic("Orders", queues=2)
    settings = ProducerSettings(timeout_s=20 * load_factor())
    with Producer("shop", servers.namesrv, settings=settings) as producer:
        producer.send(Message("Orders", b"one"))
        faults.kill(first)
        assert not first.is_running
        second = await led(servers, first)
        assert second is not first and second in servers.brokers
        producer.send(Message("Orders", b"two"))
    await asyncio.to_thread(assert_sent, "Orders", 2, at_least=True)


async def test_a_group_without_a_majority_has_no_leader(cluster: Clusters, faults: Faults) -> None:
    servers = cluster(replicas=3)
    first = await led(servers)
    left = [each for each in servers.brokers if each is not first]
    faults.kill(first)
    faults.kill(left[0])

    async def is_leaderless() -> bool:
        return servers.leader() is None

    await eventually("nobody leads", is_leaderless, 60)
    assert left[1].is_running
    servers.again(first)
    assert (await led(servers)).name in {first.name, left[1].name}


@pytest.mark.slow
async def test_each_broker_of_a_cluster_has_a_group_of_its_own(cluster: Clusters) -> None:
    servers = cluster(2, replicas=2)
    assert len(servers.brokers) == 4
    await led(servers)
    for name in ("broker-a", "broker-b"):

        async def is_led(name: str = name) -> bool:
            found = servers.leader(name)
            return found is not None and found.name.startswith(name)

        await eventually(f"{name} is led", is_led, 60)


@pytest.mark.parametrize("replicas", [0, 8])
def test_a_group_of_too_few_or_too_many_is_refused(cluster: Clusters, replicas: int) -> None:
    with pytest.raises(UsageError, match=f"replicas={replicas}: expected 1 to 7"):
        cluster(replicas=replicas)


def test_a_group_cannot_be_cut(cluster: Clusters) -> None:
    with pytest.raises(UsageError, match=r"replicas=3: .* leave out cuttable=True"):
        cluster(replicas=3, cuttable=True)
