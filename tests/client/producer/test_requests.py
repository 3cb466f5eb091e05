"""Requests and replies, as programs on both sides use them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.consumer.tools import a_topic, joined

from flaremq.admin.sync import Admin
from flaremq.base.errors import NoReply, NoRequester, UsageError
from flaremq.client import sync
from flaremq.client.message import ReceivedMessage
from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message
from flaremq.testing.embedded import EmbeddedThread

LARGE = 100_000


@asynccontextmanager
async def an_echo(
    servers: EmbeddedThread, topic: str, answer: Callable[[bytes], bytes] = bytes.upper
) -> AsyncIterator[list[ReceivedMessage]]:
    """A consumer that answers every message of a topic, from a client of its own."""
    seen: list[ReceivedMessage] = []
    async with a_topic(servers, topic, 4), Producer("repliers", servers.namesrv) as replier:

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message)
            await replier.reply(message, answer(message.body))

        async with joined(servers, f"G-{topic}", topic, handle):
            yield seen


async def test_a_request_gets_its_reply(servers: EmbeddedThread, topic: str) -> None:
    async with an_echo(servers, topic), Producer("askers", servers.namesrv) as producer:
        reply = await producer.request(Message(topic, b"hello", keys=["k"]), timeout_s=20)
    assert reply.body == b"HELLO"
    assert reply.properties["MSG_TYPE"] == "reply"
    assert re.fullmatch(r"[\d.]+:\d+", reply.born_host)


async def test_many_requests_at_once_each_get_their_own_reply(servers: EmbeddedThread, topic: str) -> None:
    async with an_echo(servers, topic), Producer("askers", servers.namesrv) as producer:
        asked = [Message(topic, b"question %d" % n) for n in range(100)]
        replies = await asyncio.gather(*(producer.request(each, timeout_s=30) for each in asked))
    assert [reply.body for reply in replies] == [b"QUESTION %d" % n for n in range(100)]
    assert not producer.client.members.requests


async def test_large_replies_are_compressed_on_their_way(servers: EmbeddedThread, topic: str) -> None:
    async with (
        an_echo(servers, topic, lambda body: body * LARGE),
        Producer("askers", servers.namesrv) as producer,
    ):
        reply = await producer.request(Message(topic, b"x"), timeout_s=20)
    assert reply.body == b"x" * LARGE


async def test_without_a_reply_the_request_says_so_in_time(servers: EmbeddedThread, topic: str) -> None:
    async with a_topic(servers, topic, 1), Producer("askers", servers.namesrv) as producer:
        with pytest.raises(NoReply, match=r"no reply to message for .* within 0.5 s"):
            await producer.request(Message(topic, b"hello?"), timeout_s=0.5)
        assert not producer.client.members.requests


async def test_a_reply_to_a_client_that_is_gone_is_told(servers: EmbeddedThread, topic: str) -> None:
    got: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    async def handle(message: ReceivedMessage) -> None:
        got.put_nowait(message)

    async with (
        a_topic(servers, topic, 1),
        Producer("repliers", servers.namesrv) as replier,
        joined(servers, f"G-{topic}", topic, handle),
    ):
        async with Producer("askers", servers.namesrv) as producer:
            with pytest.raises(NoReply):
                await producer.request(Message(topic, b"x"), timeout_s=0.5)
        message = await got.get()
        with pytest.raises(NoRequester, match="is gone"):
            await replier.reply(message, b"too late")


async def test_a_late_reply_harms_nobody(
    servers: EmbeddedThread, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    got: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    async def handle(message: ReceivedMessage) -> None:
        got.put_nowait(message)

    async with (
        a_topic(servers, topic, 1),
        Producer("repliers", servers.namesrv) as replier,
        joined(servers, f"G-{topic}", topic, handle),
        Producer("askers", servers.namesrv) as producer,
    ):
        with pytest.raises(NoReply):
            await producer.request(Message(topic, b"x"), timeout_s=0.5)
        request = await got.get()
        await replier.reply(request, b"too late")
        await replier.reply(request, b"again")
    assert f"to a message for {topic!r} came too late" in caplog.text
    assert caplog.text.count("too late") == 1 and "a second one" in caplog.text


async def test_only_requests_can_be_answered(servers: EmbeddedThread, topic: str) -> None:
    got: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    async def handle(message: ReceivedMessage) -> None:
        got.put_nowait(message)

    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, handle):
        await producer.send(Message(topic, b"x"))
        with pytest.raises(UsageError, match="does not ask for a reply"):
            await producer.reply(await got.get(), b"y")


@pytest.mark.parametrize("asked", [{"delay_s": 5}, {"deliver_at": time.time() + 3600}])
async def test_a_request_that_comes_after_the_time_for_its_reply_is_refused(
    servers: EmbeddedThread, topic: str, asked: dict[str, Any]
) -> None:
    async with Producer("askers", servers.namesrv) as producer:
        with pytest.raises(UsageError, match=r"delivered in [\d.]+ s, but its reply is awaited for 3 s"):
            await producer.request(Message(topic, b"x", **asked), 3)


def test_the_blocking_producer_asks_and_answers_as_well(servers: EmbeddedThread, topic: str) -> None:
    with Admin(servers.namesrv) as admin:
        admin.topics.create(topic)
    with sync.Producer("askers", servers.namesrv) as producer:
        consumer = sync.PushConsumer(f"G-{topic}", servers.namesrv)

        def handle(message: ReceivedMessage) -> None:
            producer.reply(message, message.body[::-1])

        consumer.subscribe(topic, handle)
        with consumer:
            assert producer.request(Message(topic, b"abc"), timeout_s=30).body == b"cba"
