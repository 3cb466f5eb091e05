"""Failed messages and kills, of a broker that stores them again and of `flaremq dlq resend`: none is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.admin.test_deadletters import die

from flaremq import (
    ConsumeFromWhere,
    ConsumerSettings,
    Later,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from flaremq.admin.admin import Admin
from flaremq.admin.messages.deadletters import MARKED_AT_ONCE
from flaremq.admin.values.deadletters import LetterFilter
from flaremq.model.message import StoredMessage
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.fakes.wireclient import WireClient
from flaremq.testing.patience import load_factor

COUNT = 250
TOPIC, GROUP = "Orders", "billing"


async def copies(wire: WireClient, address: str) -> list[StoredMessage]:
    return [each for each in await wire.read_all(address, TOPIC, 0) if each.get("RESENT_FROM")]


async def test_a_killed_command_loses_none_and_repeats_few(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        broker = await asyncio.to_thread(cluster.broker, "broker-a", namesrv.address)
        async with WireClient() as wire, Admin(namesrv.address) as admin:
            await wire.create_topic(broker.address, TOPIC, 1)
            await wire.heartbeat(broker.address, GROUP, TOPIC)
            for number in range(COUNT):
                sent = await wire.send(broker.address, TOPIC, 0, b"%d" % number)
                await die(wire, broker.address, sent.message_id, "no")

            async def is_known() -> bool:
                return {TOPIC, f"%DLQ%{GROUP}"} <= {each.name for each in await admin.topics.list()}

            await eventually("the topics are known", is_known)
            words = ["dlq", "resend", GROUP, "--yes", "-n", namesrv.address]
            command = subprocess.Popen([sys.executable, "-m", "flaremq.cli.main", *words])

            async with asyncio.timeout(60 * load_factor()):
                while (await wire.bounds(broker.address, TOPIC, 0))[1] < COUNT + 2 * MARKED_AT_ONCE:
                    await asyncio.sleep(0)  # It sends a thousand in a second.
            command.kill()
            await asyncio.to_thread(command.wait)
            first = len(await copies(wire, broker.address))
            assert first < COUNT, "it was killed in the middle"
            left = sum(each.count for each in await admin.dead_letters.list())
            assert COUNT - first <= left <= COUNT - first + MARKED_AT_ONCE
            done = await admin.dead_letters.resend(LetterFilter(group=GROUP))
            assert (done.sent, done.failed) == (left, {})
            bodies = Counter(each.body for each in await copies(wire, broker.address))
            assert bodies.keys() == {b"%d" % number for number in range(COUNT)}
            assert bodies.total() <= COUNT + MARKED_AT_ONCE
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(cluster.again, broker)
            assert list(await admin.dead_letters.list()) == []


@pytest.mark.slow
async def test_a_broker_that_is_killed_while_messages_are_given_back_loses_none(tmp_path: Path) -> None:
    refused: set[bytes] = set()
    again: set[bytes] = set()

    async def handle(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            refused.add(message.body)
            raise Later("not yet", delay_level=1)
        again.add(message.body)

    async def begun() -> bool:
        return len(refused) >= COUNT // 3

    async def all_came_again() -> bool:
        return len(again) == COUNT

    with Cluster(tmp_path) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        broker = await asyncio.to_thread(
            cluster.broker, "broker-a", namesrv.address, messageDelayLevel="1s 5s"
        )
        async with WireClient() as wire:
            await wire.create_topic(broker.address, TOPIC, 2)
        async with Producer("shop", namesrv.address) as producer:
            await producer.send_many([Message(TOPIC, b"%d" % number) for number in range(COUNT)])
        first = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, concurrency=4)
        consumer = PushConsumer(GROUP, namesrv.address, settings=first)
        consumer.subscribe(TOPIC, handle)
        async with consumer:
            await eventually("messages are given back", begun)
            await asyncio.to_thread(broker.kill)
            broker = await asyncio.to_thread(cluster.again, broker)
            await eventually("all have come again", all_came_again, 120)
    assert again == refused == {b"%d" % number for number in range(COUNT)}
