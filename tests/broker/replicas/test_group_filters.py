"""Filters of consumers at a member of a group, whose store outlives the broker on top of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.broker.nobody import Nobody
from tests.broker.replicas.groupmembers import HOST, leads, running

from flaremq.broker.tables.producers import ClientMember
from flaremq.filter.bloom import is_hit
from flaremq.filter.groupfilter import GroupFilter
from flaremq.model.topic import TopicConfig
from flaremq.protocol.bodies.group import ConsumerData, SubscriptionData
from flaremq.protocol.codes import LanguageCode
from flaremq.remoting.ports import free_port
from flaremq.servers.groupbroker import GroupBroker
from flaremq.store.drafts import NewMessage
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.testing.cluster import eventually

TOPIC = "Orders"


def subscribe(member: GroupBroker, group: str, expression: str) -> GroupFilter:
    """Join as a consumer does, with a heartbeat."""
    client = ClientMember(
        peer=Nobody(), client_id=group, language=LanguageCode.JAVA, version=479, last_seen_ms=0
    )
    wanted = SubscriptionData.of(TOPIC, expression, "SQL92", sub_version=5)
    member.tables.groups.heartbeat(client, ConsumerData(group_name=group, subscription_data_set=(wanted,)))
    made = member.tables.filters.get(TOPIC, group)
    assert made is not None
    return made


async def bit_map_of_next(member: GroupBroker, properties: bytes) -> bytes:
    """Send a message. The bit map beside its queue entry."""
    key = TOPIC.encode(), 0
    member.store.put(NewMessage(topic=key[0], body=b"x", properties=properties), wait=False)
    number = member.store.max_offset(*key)

    async def has_entry() -> bool:
        return member.store.max_offset(*key) > number

    await eventually("the message is in its queue", has_entry)
    queue, ext = member.store.queues.get(*key), member.store.queues.ext(key)
    assert isinstance(queue, ConsumeQueue)
    entry = queue.entry(number)
    assert entry is not None and ext is not None
    unit = ext.get(entry[2])
    assert unit is not None
    return unit.bit_map


async def test_bit_maps_know_the_filters_of_now_and_those_of_groups_that_are_away(tmp_path: Path) -> None:
    """A map that was made without a group hides the message from it."""
    how: dict[str, Any] = {
        "enableCalcFilterBitMap": True,
        "enableConsumeQueueExt": True,
        "dLegerPeers": f"n0-{HOST}:{free_port()}",
    }
    async with running(tmp_path, **how) as (member,):
        await leads(member)
        member.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        old = subscribe(member, "G-old", "price < 50")
        assert is_hit(await bit_map_of_next(member, b"price\x0130\x02"), old.bits.mask)
    async with running(tmp_path, **how) as (member,):
        await leads(member)
        new = subscribe(member, "G-new", "price > 5")
        bits = await bit_map_of_next(member, b"price\x0130\x02")
        assert is_hit(bits, old.bits.mask)
        assert is_hit(bits, new.bits.mask)
