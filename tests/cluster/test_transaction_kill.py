"""Transactions and a broker that is killed: what is paid comes once, and nothing else comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from flaremq import Decision, Message, PushConsumer, ReceivedMessage, TransactionProducer
from flaremq.admin.admin import Admin
from flaremq.admin.values.transactions import HalfState
from flaremq.base.errors import FlareError
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.fakes.wireclient import WireClient

TOPIC = "Paid"
COUNT = 300
SOON = {"transactionCheckInterval": 1000, "transactionTimeOut": 2000}


async def test_a_kill_between_prepare_and_end_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Faults 27 and 28: also between a decision and the message that it makes visible."""
    paid: set[str] = set()
    came: Counter[tuple[str, int, int]] = Counter()

    def checker(message: ReceivedMessage) -> bool:
        return message.message_id in paid

    with Cluster(tmp_path) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        broker = await asyncio.to_thread(cluster.broker, "broker-a", namesrv.address, **SOON)
        async with WireClient() as wire:
            await wire.create_topic(broker.address, TOPIC, 4)

        async def buy(producer: TransactionProducer, number: int) -> None:
            """A third is not paid, and the end of a third is not told."""
            try:
                transaction = await producer.prepare(Message(TOPIC, b"%d" % number), timeout_s=2)
            except FlareError:
                return  # Whether it was stored or not: it is not paid.
            if number % 3:
                paid.add(transaction.id)
            else:
                transaction.roll_back()
            if number % 3 == 2:
                transaction.decision = Decision.UNKNOWN
            await producer.end(transaction)

        async with TransactionProducer("buyers", namesrv.address, checker=checker) as producer:
            for number in range(COUNT // 2):
                await buy(producer, number)
            under_way = [asyncio.create_task(buy(producer, n)) for n in range(COUNT // 2, COUNT)]
            await asyncio.sleep(0)
            await asyncio.to_thread(broker.kill)
            await asyncio.gather(*under_way)
            broker = await asyncio.to_thread(cluster.again, broker)
            consumer = PushConsumer("readers", namesrv=namesrv.address)

            @consumer.subscribe(TOPIC)
            async def note(message: ReceivedMessage) -> None:
                came[message.message_id, message.queue.queue_id, message.queue_offset] += 1

            async def all_came() -> bool:
                await producer.producer.client.beat()  # The broker asks producers that it knows.
                return {key for key, *_ in came} >= paid

            async with consumer:
                await eventually("all that was paid has come", all_came, 90)
        assert "Traceback" not in "\n".join(broker.lines)
    keys = Counter(key for key, *_ in came)
    assert keys.keys() == paid
    assert not {key for key, times in keys.items() if times > 1}, "a message is stored once"
    assert len(paid) > COUNT // 3


@pytest.mark.slow
async def test_a_decision_about_a_parked_transaction_survives_a_kill(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        options = {"transactionCheckInterval": 500, "transactionTimeOut": 500, "transactionCheckMax": 1}
        broker = await asyncio.to_thread(cluster.broker, "broker-a", namesrv.address, **options)
        async with WireClient() as wire, Admin(namesrv.address) as admin:
            await wire.create_topic(broker.address, TOPIC, 1)
            async with TransactionProducer("buyers", namesrv.address, checker=lambda _: None) as producer:
                for body in (b"yes", b"no", b"later"):
                    await producer.send(Message(TOPIC, body, keys=[body.decode()]), lambda _: None)

                async def are_parked() -> bool:
                    return len(await admin.transactions.list(HalfState.PARKED)) == 3

                await eventually("all are parked", are_parked)
            parked = await admin.transactions.list(HalfState.PARKED)
            ids = {each.message.keys[0]: each.message_id for each in parked}
            assert await admin.transactions.commit(ids["yes"])
            assert await admin.transactions.roll_back(ids["no"])
            await asyncio.to_thread(broker.kill)
            broker = await asyncio.to_thread(cluster.again, broker)
            left = await admin.transactions.list()
            assert [each.message_id for each in left] == [ids["later"]]
            assert not await admin.transactions.commit(ids["yes"])
            assert not await admin.transactions.roll_back(ids["no"])
            assert await admin.transactions.commit(ids["later"])
            found = await wire.read_all(broker.address, TOPIC, 0)
            assert [each.body for each in found] == [b"yes", b"later"]
