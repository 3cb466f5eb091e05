"""A whole master and a whole slave, with NameServer, client and real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.replicas.groups import HOST, Group, a_group
from tests.broker.replicas.pairs import replication
from tests.ha.nodes import until

from flaremq import Message, Producer
from flaremq.admin.admin import Admin
from flaremq.base.errors import BodyTooLarge
from flaremq.base.units import MiB
from flaremq.client.message import SendStatus
from flaremq.client.settings import ProducerSettings


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Group]:
    async with a_group(tmp_path) as group:
        yield group


async def send(pair: Group, *bodies: bytes, **settings: Any) -> list[SendStatus]:
    async with Producer("p", namesrv=pair.together.namesrv, **settings) as producer:
        return [(await producer.send(Message("Orders", body))).status for body in bodies]


async def test_a_sync_master_answers_ok_when_its_slave_has_the_message(pair: Group) -> None:
    master = await pair.broker(0, "SYNC_MASTER")
    slave = await pair.broker(1, "SLAVE", haMasterAddress=f"{HOST}:{master.port + 1}")
    await until(lambda: replication(slave).is_following())
    assert await send(pair, b"one", b"two") == [SendStatus.OK, SendStatus.OK]
    assert slave.store.log.end == master.store.log.end


async def test_fault_31_the_largest_message_with_full_properties_reaches_the_slave(pair: Group) -> None:
    sizes: dict[str, Any] = {"mappedFileSizeCommitLog": 8 * MiB, "maxMessageSize": 4 * MiB}
    master = await pair.broker(0, "SYNC_MASTER", **sizes)
    slave = await pair.broker(1, "SLAVE", haMasterAddress=f"{HOST}:{master.port + 1}", **sizes)
    await until(lambda: replication(slave).is_following())
    body, filling = bytes(4 * MiB), {"fill": "f" * 32_000}
    settings = ProducerSettings(compress_over=5 * MiB)
    async with Producer("p", namesrv=pair.together.namesrv, settings=settings) as producer:
        receipt = await producer.send(Message("Orders", body, properties=filling))
        with pytest.raises(BodyTooLarge):
            await producer.send(Message("Orders", body + b"1", properties=filling))
    assert receipt.status is SendStatus.OK
    logs = [each.store.log.slice(0, master.store.log.end) for each in (master, slave)]
    assert logs[0] == logs[1] and logs[0] is not None and len(logs[0]) > len(body)


async def test_a_sync_master_without_a_slave_says_so_at_once_and_keeps_the_message(pair: Group) -> None:
    master = await pair.broker(0, "SYNC_MASTER")
    assert await send(pair, b"one") == [SendStatus.NO_SLAVE]
    assert master.store.log.end > 0


async def test_a_slave_that_stops_reading_is_late(pair: Group) -> None:
    master = await pair.broker(0, "SYNC_MASTER", slaveTimeout=50, inSyncReplicas=2)
    assert await send(pair, b"one") == [SendStatus.SLAVE_LATE]
    assert master.store.log.end > 0


async def test_with_one_replica_in_sync_nothing_is_waited_for(pair: Group) -> None:
    await pair.broker(0, "SYNC_MASTER", inSyncReplicas=1)
    assert await send(pair, b"one") == [SendStatus.OK]


async def test_masters_and_slaves_are_shown_with_how_far_they_are(pair: Group) -> None:
    master = await pair.broker(0, "SYNC_MASTER")
    slave = await pair.broker(1, "SLAVE", haMasterAddress=f"{HOST}:{master.port + 1}")
    await until(lambda: replication(slave).is_following())
    await send(pair, b"one")
    async with Admin(pair.together.namesrv) as admin:
        first, second = await admin.brokers.ha()
    assert first.is_master and first.log_max_offset == master.store.log.end
    assert [(each.behind, each.in_sync) for each in first.slaves] == [(0, True)]
    assert not second.is_master and second.is_following and second.log_max_offset == first.log_max_offset
    assert second.master_address == f"{HOST}:{master.port + 1}"


async def test_a_slave_that_is_refused_says_why(pair: Group) -> None:
    master = await pair.broker(0, "ASYNC_MASTER")
    await send(pair, b"one")
    other = await pair.broker(
        1, "SLAVE", haMasterAddress=f"{HOST}:{master.port + 1}", mappedFileSizeCommitLog=2 << 20
    )
    await until(lambda: bool(replication(other).figures()["haWhyNot"]))
    async with Admin(pair.together.namesrv) as admin:
        (found,) = [each for each in await admin.brokers.ha() if not each.is_master]
    assert not found.is_following and "mappedFileSizeCommitLog=1048576" in found.state


@pytest.mark.parametrize("role", ["SYNC_MASTER", "SLAVE"])
async def test_settings_of_either_side_can_be_changed_while_it_runs(pair: Group, role: str) -> None:
    broker = await pair.broker(0 if role == "SYNC_MASTER" else 1, role)
    async with Admin(namesrv=pair.together.namesrv) as admin:
        await admin.brokers.update_config({"brokerPermission": "4"}, broker=f"{HOST}:{broker.port}")
        (shown,) = await admin.brokers.config(broker=f"{HOST}:{broker.port}")
    assert (shown.values["brokerPermission"], shown.values["brokerRole"]) == ("4", role)
    assert shown.values["slaveTimeout"] == "3000"


async def test_a_topic_is_known_at_a_slave_as_soon_as_its_first_message_is(pair: Group) -> None:
    """And not up to 3 s later: its master may be dead by then."""
    master = await pair.broker(0, "SYNC_MASTER")
    slave = await pair.broker(1, "SLAVE", haMasterAddress=f"{HOST}:{master.port + 1}")
    await until(lambda: replication(slave).is_following() and bool(slave.role.master))
    asked: list[str] = []
    for number in range(3):
        topic, began_s = f"Orders{number}", asyncio.get_running_loop().time()
        async with Producer("p", namesrv=pair.together.namesrv) as producer:
            await producer.send(Message(topic, b"one"))
        await until(lambda: slave.tables.topics.get(topic) is not None)  # noqa: B023
        if asyncio.get_running_loop().time() - began_s < 1.5:
            asked.append(topic)
    assert len(asked) >= 2, "one of three may have waited for a busy machine"
