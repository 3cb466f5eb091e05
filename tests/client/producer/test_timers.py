"""Messages for a later moment, as a program sends, receives and cancels them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.client.consumer.tools import Seen, a_topic, joined

from flaremq.base.errors import InvalidParameter, UsageError
from flaremq.client import sync
from flaremq.client.message import Recall
from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message
from flaremq.model.timers import Handle
from flaremq.testing.clock import MovableClock
from flaremq.testing.embedded import Embedded, EmbeddedThread

HOUR_S = 3600


@pytest.fixture(scope="module")
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, clock: MovableClock) -> Iterator[EmbeddedThread]:
    """Brokers whose time can be moved."""
    with EmbeddedThread(tmp_path_factory.mktemp("servers"), brokers=2, clock=clock) as running:
        yield running


def in_an_hour(clock: MovableClock) -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1000, tz=UTC) + timedelta(hours=1)


@pytest.mark.parametrize("way", ["delay_s", "deliver_at", "seconds since 1970"])
async def test_a_message_comes_at_its_moment_and_tells_it(
    servers: EmbeddedThread, clock: MovableClock, topic: str, way: str
) -> None:
    moment = in_an_hour(clock)
    asked = {
        "delay_s": Message(topic, b"later", delay_s=HOUR_S),
        "deliver_at": Message(topic, b"later", deliver_at=moment),
        "seconds since 1970": Message(topic, b"later", deliver_at=moment.timestamp()),
    }[way]
    seen = Seen()
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen):
        receipt = await producer.send(asked)
        await producer.send(Message(topic, b"now"))
        await seen.count(1)
        clock.advance(HOUR_S)
        await seen.count(2)
    assert seen.bodies == [b"now", b"later"]
    (_, late) = seen.messages
    assert late.message_id == receipt.message_id
    assert late.topic == topic
    assert late.deliver_at_ms is not None
    assert abs(late.deliver_at_ms - moment.timestamp() * 1000) < 10_000
    assert late.store_timestamp_ms >= late.deliver_at_ms


async def test_a_cancelled_message_does_not_come(
    servers: EmbeddedThread, clock: MovableClock, topic: str
) -> None:
    seen = Seen()
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen):
        first = await producer.send(Message(topic, b"never", delay_s=HOUR_S))
        await producer.send(Message(topic, b"later", delay_s=HOUR_S))
        assert await producer.recall(first) is Recall.CANCELLED
        clock.advance(2 * HOUR_S)
        await seen.count(1)
        assert await producer.recall(first) is Recall.TOO_LATE
    assert seen.bodies == [b"later"]


async def test_many_at_once_have_their_handles_too(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic, 4) as producer:
        receipts = await producer.send_many(Message(topic, b"%d" % n, delay_s=HOUR_S) for n in range(100))
        handles = {receipt.recall_handle for receipt in receipts}
        assert len(handles) == 100
        assert None not in handles


async def test_a_handle_works_from_another_producer_as_text(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic, 1) as producer:
        handle = (await producer.send(Message(topic, b"x", delay_s=HOUR_S))).recall_handle
    assert isinstance(handle, str)
    async with Producer("another", servers.namesrv) as other:
        assert await other.recall(handle) is Recall.CANCELLED
        forged = Handle.parse(handle)._replace(unique_key="none")
        assert await other.recall(str(forged)) is Recall.UNKNOWN
        with pytest.raises(InvalidParameter, match="not a recall handle"):
            await other.recall("nonsense")


async def test_a_message_that_does_not_wait_cannot_be_cancelled(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic, 1) as producer:
        receipt = await producer.send(Message(topic, b"now"))
        with pytest.raises(UsageError, match="delay_s or deliver_at"):
            await producer.recall(receipt)


def test_the_blocking_producer_does_the_same(servers: EmbeddedThread, topic: str) -> None:
    with sync.Producer("blocking", servers.namesrv) as producer:
        receipt = producer.send(Message(topic, b"x", delay_s=HOUR_S))
        assert producer.recall(receipt) is Recall.CANCELLED


async def test_the_first_message_that_a_broker_lets_wait_can_be_cancelled_at_once(tmp_path: Path) -> None:
    async with Embedded(tmp_path) as fresh, Producer("PID_fresh", fresh.namesrv) as producer:
        receipt = await producer.send(Message("Fresh", b"x", delay_s=HOUR_S))
        assert await producer.recall(receipt) is Recall.CANCELLED
