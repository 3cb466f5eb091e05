"""A slave that acts for its master, until that is back: whole brokers, with their ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.replicas.groups import Group, a_group
from tests.ha.nodes import until

from flaremq import Message, MessageQueue, Producer
from flaremq.broker.link import NameServerLink
from flaremq.model.record import decode_many
from flaremq.model.topic import TopicConfig
from flaremq.servers.together import Broker

TOPIC = "Orders"
MEMBER: dict[str, Any] = {
    "enableSlaveActingMaster": True,
    "enableRemoteEscape": True,
    "timerWheelEnable": True,
}
LONG_S = 90.0


def bodies(broker: Broker) -> list[bytes]:
    """All messages of the topic in the log, in order of their bodies."""
    store = broker.store
    view = store.log.slice(0, store.log.readable_end)
    found = decode_many(bytes(view)) if view is not None else ()
    return sorted(each.body for each in found if each.topic == TOPIC)


def count(broker: Broker) -> int:
    """How many messages of the topic consumers can see."""
    return sum(broker.store.max_offset(TOPIC.encode(), queue) for queue in range(4))


async def until_registered(group: Group, broker_id: int) -> None:
    members = group.namesrv.routes.member_group
    await until(lambda: broker_id in members("", "broker-a").broker_addrs, LONG_S)


async def send_delayed(group: Group, name: str) -> None:
    """One message by level and one by time, to the master."""
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with Producer("p", namesrv=group.together.namesrv) as producer:
        await producer.send(Message(TOPIC, f"{name} by level".encode(), delay_level=2), to=queue)
        await producer.send(Message(TOPIC, f"{name} by time".encode(), delay_s=5), to=queue)


async def killed(group: Group, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gone without a word: NameServers only see that its connection ends."""

    async def says_nothing(_self: NameServerLink) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr(NameServerLink, "unregister", says_nothing)
        await group.together.remove(broker)


async def test_an_acting_slave_delivers_elsewhere_and_nothing_comes_twice_when_the_master_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_group(tmp_path, supportActingMaster=True) as group:
        other = await group.broker(0, "ASYNC_MASTER", name="broker-b")
        master = await group.broker(0, "ASYNC_MASTER", **MEMBER)
        await until_registered(group, 0)
        slave = await group.broker(1, "SLAVE", **MEMBER)
        await until_registered(group, 1)
        master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await until(lambda: slave.tables.topics.get(TOPIC) is not None, LONG_S)
        await send_delayed(group, "first")
        await until(lambda: slave.store.log.end == master.store.log.end)
        port, before = master.port, bodies(master)
        await killed(group, master, monkeypatch)
        assert before == []

        other.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await until(lambda: count(other) >= 2, LONG_S)
        assert bodies(slave) == []

        master = await group.broker(0, "ASYNC_MASTER", listenPort=port, **MEMBER)
        await until_registered(group, 0)
        await until(lambda: slave.role.has_master, LONG_S)
        await send_delayed(group, "second")
        await until(lambda: count(master) >= 2, LONG_S)
        assert bodies(master) == [b"second by level", b"second by time"]
        assert bodies(other) == [b"first by level", b"first by time"]
        await until(lambda: slave.tables.delays.get(2) == 2, LONG_S)
        await until(lambda: count(slave) == 2, LONG_S)
        assert count(other) == count(master) == 2
