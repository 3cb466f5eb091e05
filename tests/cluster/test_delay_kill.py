"""Delayed messages and a broker that is killed: each comes at least once, and none early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from flaremq import ConsumeFromWhere, ConsumerSettings, Message, Producer, PushConsumer, ReceivedMessage
from flaremq.testing.cluster import Cluster, eventually
from flaremq.testing.fakes.wireclient import WireClient

TOPIC = "Delayed"
COUNT = 400
SPAN_MS = 5_000
WHEEL = "rmq_sys_wheel_timer"


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        pytest.param({"delay_level": 2}, {}, id="level", marks=pytest.mark.slow),
        pytest.param({"delay_s": 5.0}, {}, id="timer"),
        pytest.param({"delay_s": 5.0}, {"timerRollWindowSlot": 2}, id="timer that rolls"),
    ],
)
async def test_a_kill_while_messages_wait_roll_or_are_delivered_loses_none(
    tmp_path: Path, asked: dict[str, Any], options: dict[str, Any]
) -> None:
    came: dict[str, int] = {}

    def at_least(count: int) -> Callable[[], Awaitable[bool]]:
        async def have_come() -> bool:
            return len(came) >= count

        return have_come

    with Cluster(tmp_path) as cluster:
        namesrv = await asyncio.to_thread(cluster.namesrv)
        broker = await asyncio.to_thread(cluster.broker, "broker-a", namesrv.address, **options)
        async with WireClient() as client:
            await client.create_topic(broker.address, TOPIC, 4)
        sent: dict[str, int] = {}
        async with Producer("delayers", namesrv=namesrv.address) as producer:
            for number in range(COUNT):
                now_ms = int(time.time() * 1000)
                receipt = await producer.send(Message(TOPIC, b"%d" % number, **asked))
                sent[receipt.message_id] = now_ms
        assert len(sent) == COUNT, "each has an id of its own"
        await asyncio.to_thread(broker.kill)
        broker = await asyncio.to_thread(cluster.again, broker)
        if options:
            async with WireClient() as client:

                async def rolls_or_is_due() -> bool:
                    """After a slow restart all may be due, and none is put back any more."""
                    is_due = time.time() * 1000 > max(sent.values()) + SPAN_MS
                    return is_due or (await client.bounds(broker.address, WHEEL, 0))[1] > COUNT

                await eventually("the first is put back", rolls_or_is_due, 60)
            await asyncio.to_thread(broker.kill)
            broker = await asyncio.to_thread(cluster.again, broker)
        # From the first: where restarts take their time, some are delivered before the group begins.
        first = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = PushConsumer("readers", namesrv=namesrv.address, settings=first)

        @consumer.subscribe(TOPIC)
        async def note(message: ReceivedMessage) -> None:
            came.setdefault(message.message_id, message.store_timestamp_ms)

        async with consumer:
            await eventually("the first has come", at_least(1), 60)
            await asyncio.to_thread(broker.kill)  # Some are delivered, and the file says so of none.
            broker = await asyncio.to_thread(cluster.again, broker)
            await eventually("all have come", at_least(COUNT), 60)
        assert "Traceback" not in "\n".join(broker.lines)
    assert came.keys() == sent.keys()
    assert not {each: came[each] - sent[each] for each in sent if came[each] < sent[each] + SPAN_MS}
