"""A pipeline that is fed for long: messages that are written already, and failures told on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.client.producer.test_packing import PACKER

from flaremq.base.errors import ManyFailed
from flaremq.client.producer.packing import PackedMessage, message_text
from flaremq.client.producer.pipeline import SendPipeline
from flaremq.client.producer.producer import Producer
from flaremq.client.settings import ProducerSettings
from flaremq.model.message import Message, MessageQueue
from flaremq.testing.embedded import Embedded, EmbeddedThread


@pytest.fixture
async def producer(servers: EmbeddedThread) -> AsyncIterator[Producer]:
    async with Producer("fed", servers.namesrv) as running:
        yield running


def ready(topic: str, number: int, to: MessageQueue | None = None) -> PackedMessage:
    message, message_id = Message(topic, b"%d" % number, tags="t"), f"{number:032X}"
    return PackedMessage(topic, message.body, message_text(message, message_id), message_id, to)


async def test_messages_that_are_ready_are_stored_with_their_own_ids(producer: Producer, topic: str) -> None:
    first, *_ = await producer.queues(topic)
    pipeline = SendPipeline(producer, 32, 3.0)
    for at in range(0, 320, 32):
        await pipeline.feed([ready(topic, n, first if n % 2 else None) for n in range(at, at + 32)])
    await pipeline.finish()
    await pipeline.check()
    receipt = await producer.send_ready([ready(topic, n) for n in (400, 401)], first)
    assert receipt.queue == first and receipt.queue_offset >= 160
    assert receipt.message_id == f"{400:032X},{401:032X}"


async def test_one_that_is_ready_is_packed_like_the_message_that_it_is() -> None:
    message = Message("T", b"x" * 10, tags="t", keys=["k"], properties={"a": "b"})
    made = PackedMessage("T", message.body, message_text(message, "0" * 32), "0" * 32)
    assert PACKER.pack(made) == PACKER.pack(message, "0" * 32)
    assert PACKER.pack_ready([made]) == PACKER.pack(made)
    batch = PACKER.pack_ready([made, made])
    assert batch.is_batch and len(batch.body) == 2 * made.batched_size


async def test_what_fails_for_good_is_told_while_more_is_fed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings = ProducerSettings(timeout_s=1.0)
    async with (
        Embedded(tmp_path_factory.mktemp("one")) as one,
        Producer("fed", one.namesrv, settings=settings) as producer,
    ):
        pipeline = SendPipeline(producer, 64, 1.0, keeps=False)
        await pipeline.feed([ready("Fed", n) for n in range(10)])
        await pipeline.finish()
        await pipeline.check()
        address = one.addresses[0]
        await one.stop("broker-a")

        async def feed() -> None:
            for at in range(10, 1000, 10):
                await pipeline.feed([ready("Fed", n) for n in range(at, at + 10)])
                await pipeline.check()

        with pytest.raises(ManyFailed) as caught:
            await feed()
        assert address in str(caught.value)
        assert "not stored" in str(caught.value)
        pipeline.close()
