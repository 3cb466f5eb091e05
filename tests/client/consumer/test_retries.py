"""Messages that could not be consumed: again, again and then no more; and handlers that take too long."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.client.consumer.tools import Seen, a_topic, joined, numbered, send

from flaremq.base.errors import ConnectFailed
from flaremq.client.consumer import delivery
from flaremq.client.consumer.outcome import Later, Verdict, reject
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.consumer.sendback import Returns
from flaremq.client.message import ReceivedMessage
from flaremq.model.message import StoredMessage
from flaremq.model.names import dlq_topic, is_retry
from flaremq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.fakes.wireclient import WireClient


async def dead(servers: EmbeddedThread, group: str) -> list[StoredMessage]:
    """What lies with the dead letters of a group."""
    async with WireClient() as wire:
        found = [await wire.read_all(address, dlq_topic(group), 0) for address in servers.addresses]
    return [message for each in found for message in each]


async def are_dead(servers: EmbeddedThread, group: str, bodies: set[bytes]) -> None:
    async def is_so() -> bool:
        return {message.body for message in await dead(servers, group)} == bodies

    await eventually("the dead letters are these", is_so)


async def test_a_message_whose_handler_fails_comes_again(servers: EmbeddedThread, topic: str) -> None:
    def fail(message: ReceivedMessage) -> None:
        if message.reconsume_times < 2:
            raise ValueError("not yet")

    seen = Seen(fail)
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen):
        (receipt,) = await send(producer, topic, [b"one"], tags="t")
        await seen.count(3)
    assert [message.reconsume_times for message in seen.messages] == [0, 1, 2]
    assert {message.topic for message in seen.messages} == {topic}
    assert {message.message_id for message in seen.messages} == {receipt.message_id}
    assert is_retry(seen.messages[1].queue.topic)


async def test_of_a_run_only_the_failed_ones_come_again(servers: EmbeddedThread, topic: str) -> None:
    bad = {b"m7", b"m31"}

    def fail(message: ReceivedMessage) -> None:
        if message.body in bad and not message.reconsume_times:
            raise ValueError("bad")

    seen = Seen(fail)
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen):
        await send(producer, topic, numbered(60))
        await seen.count(62)
    assert sorted(seen.bodies) == sorted([*numbered(60), *bad])


async def test_later_can_be_returned_as_well_as_raised(servers: EmbeddedThread, topic: str) -> None:
    times: list[int] = []

    def handler(message: ReceivedMessage) -> Later | None:
        times.append(message.reconsume_times)
        return Later(delay_level=1) if not message.reconsume_times else None

    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, handler):
        await send(producer, topic, [b"one"])

        async def came_again() -> bool:
            return times == [0, 1]

        await eventually("it came again", came_again)


async def test_after_so_many_deliveries_a_message_is_dead(servers: EmbeddedThread, topic: str) -> None:
    group = f"G-{topic}"

    def fail(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise ValueError("never")

    seen = Seen(fail)
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, group, topic, seen, attempts_max=3),
    ):
        await send(producer, topic, [b"bad", b"good"])
        await are_dead(servers, group, {b"bad"})
    assert sorted(seen.bodies) == [b"bad"] * 3 + [b"good"]


async def test_what_is_rejected_is_dead_at_once(servers: EmbeddedThread, topic: str) -> None:
    group = f"G-{topic}"

    def refuse(message: ReceivedMessage) -> None:
        raise reject("no such customer")

    seen = Seen(refuse)
    async with a_topic(servers, topic, 1) as producer, joined(servers, group, topic, seen):
        await send(producer, topic, [b"one"])
        await are_dead(servers, group, {b"one"})
    assert seen.bodies == [b"one"]


async def test_a_broker_that_does_not_take_a_message_back_gets_it_as_a_new_one(
    servers: EmbeddedThread, topic: str
) -> None:
    def fail(message: ReceivedMessage) -> None:
        if message.reconsume_times < 1:
            raise ValueError("not yet")

    seen = Seen(fail)
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen) as consumer:
        await refuse_send_back(consumer)
        await send(producer, topic, [b"one"], tags="t", keys=["k"])
        await seen.count(2)
    again = seen.messages[1]
    assert (again.topic, again.tags, again.keys, again.reconsume_times) == (topic, "t", ("k",), 1)
    assert again.message_id == seen.messages[0].message_id


async def refuse_send_back(consumer: PushConsumer) -> None:
    async def refused(address: str, header: ConsumerSendMsgBackRequestHeader) -> bool:
        raise ConnectFailed(f"{address} is away, says the test")

    consumer.client.api.send_back = refused  # type: ignore[method-assign]


async def test_what_nobody_takes_back_is_tried_here_again_and_holds_the_offset(
    servers: EmbeddedThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "AGAIN_S", 0.05)
    taken: list[bytes] = []

    async def none(self: Returns, message: ReceivedMessage, verdict: Verdict) -> bool:
        taken.append(message.body)
        return False

    monkeypatch.setattr(Returns, "give_back", none)
    times: dict[bytes, int] = {}

    def fail(message: ReceivedMessage) -> None:
        times[message.body] = times.get(message.body, 0) + 1
        if times[message.body] < 3:
            raise ValueError("not yet")

    seen = Seen(fail)
    async with a_topic(servers, topic, 1) as producer, joined(servers, f"G-{topic}", topic, seen) as consumer:
        (receipt,) = await send(producer, topic, [b"one"])
        await seen.count(1)
        assert consumer.positions(topic)[receipt.queue] == 0
        await seen.count(3)

        async def is_done() -> bool:
            return consumer.positions(topic)[receipt.queue] == 1

        await eventually("it is done", is_done)
    assert taken == [b"one"] * 2


async def test_a_retry_of_a_topic_that_is_not_subscribed_to_any_more_is_not_lost(
    servers: EmbeddedThread, topic: str
) -> None:
    group, other = f"G-{topic}", f"{topic}-o"

    async def hang(message: ReceivedMessage) -> None:
        raise ValueError("no")

    async with a_topic(servers, topic, 1) as producer, a_topic(servers, other, 1):
        first = Seen(hang)
        async with joined(servers, group, topic, first, attempts_max=5) as consumer:
            await send(producer, topic, [b"one"])
            await first.count(1)
            consumer.suspend()
        async with joined(servers, group, other, Seen(), attempts_max=5):
            await are_dead(servers, group, {b"one"})


async def test_a_handler_that_takes_too_long_loses_its_message_and_not_the_offset(
    servers: EmbeddedThread, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    release = asyncio.Event()

    async def hang(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            await release.wait()

    seen = Seen(hang)
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, f"G-{topic}", topic, seen, consume_timeout_s=0.1) as consumer,
    ):
        (receipt,) = await send(producer, topic, [b"slow"])
        await seen.count(2)

        async def is_passed() -> bool:
            return consumer.positions(topic)[receipt.queue] == 1

        await eventually("the offset is behind it", is_passed)
        release.set()
    assert caplog.text.count("has held message") == 1
    assert [message.reconsume_times for message in seen.messages] == [0, 1]


async def test_what_is_broadcast_and_fails_is_dropped_with_a_warning(
    servers: EmbeddedThread, topic: str, caplog: pytest.LogCaptureFixture, tmp_path: object
) -> None:
    def fail(message: ReceivedMessage) -> None:
        raise ValueError("no")

    seen = Seen(fail)
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(*(servers, f"G-{topic}", topic, seen), broadcasting=True, offsets_folder=tmp_path) as consumer,
    ):
        (receipt,) = await send(producer, topic, [b"one"])
        await seen.count(1)

        async def is_passed() -> bool:
            return consumer.positions(topic).get(receipt.queue) == 1

        await eventually("the offset is behind it", is_passed)
    assert "1 failed message dropped" in caplog.text
    assert seen.bodies == [b"one"]


# Reasons.


async def letters(servers: EmbeddedThread, group: str, count: int) -> list[StoredMessage]:
    async def are_there() -> bool:
        return len(await dead(servers, group)) >= count

    await eventually("the dead letters are there", are_there)
    return await dead(servers, group)


async def test_a_retry_and_a_dead_letter_say_why(servers: EmbeddedThread, topic: str) -> None:
    def fail(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            raise ValueError("no price\nin line 7")
        if message.reconsume_times == 1:
            raise Later("the shop is closed")
        raise KeyError

    seen, group = Seen(fail), f"G-{topic}"
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, group, topic, seen, attempts_max=3),
    ):
        await send(producer, topic, [b"one"])
        (letter,) = await letters(servers, group, 1)
        reader = Seen()
        async with joined(servers, f"R-{topic}", dlq_topic(group), reader):
            await reader.count(1)
    (dead_letter,) = reader.messages
    assert dead_letter.failure is not None and dead_letter.failure.reason == "KeyError"
    failures = [message.failure for message in seen.messages]
    reasons = [None if each is None else each.reason for each in failures]
    assert reasons == [None, "ValueError: no price in line 7", "the shop is closed"]
    assert letter.properties["FAILURE_REASON"] == "KeyError"
    assert letter.reconsume_times == 3
    assert letter.properties["RETRY_TOPIC"] == topic


async def test_a_dead_letter_says_why_where_brokers_store_no_reasons(
    servers: EmbeddedThread, topic: str
) -> None:
    def fail(message: ReceivedMessage) -> None:
        raise ValueError(f"attempt {message.reconsume_times + 1}")

    seen, group = Seen(fail), f"G-{topic}"
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, group, topic, seen, attempts_max=3) as consumer,
    ):
        real = consumer.client.api.send_back

        async def ignorant(address: str, header: ConsumerSendMsgBackRequestHeader) -> bool:
            return await real(address, replace(header, failure_reason=None))

        consumer.client.api.send_back = ignorant  # type: ignore[method-assign]
        await send(producer, topic, [b"one"], tags="t", keys=["k"])
        (letter,) = await letters(servers, group, 1)
    assert letter.properties["FAILURE_REASON"] == "ValueError: attempt 3"
    assert (letter.reconsume_times, letter.tags, letter.keys) == (3, "t", ("k",))
    assert letter.unique_key == seen.messages[0].message_id


async def test_an_orderly_consumer_gives_the_reason_and_the_number_of_its_attempts(
    servers: EmbeddedThread, topic: str
) -> None:
    def fail(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise ValueError(f"attempt {message.reconsume_times + 1}")
        if message.body == b"refused":
            raise reject("no such customer")

    seen, group = Seen(fail), f"G-{topic}"
    async with (
        a_topic(servers, topic, 1) as producer,
        joined(servers, group, topic, seen, orderly=True, attempts_max=3, suspend_s=0.01),
    ):
        await send(producer, topic, [b"bad", b"refused", b"good"])
        found = await letters(servers, group, 2)
        await seen.count(5)
    said = {each.body: (each.properties["FAILURE_REASON"], each.reconsume_times) for each in found}
    assert said == {b"bad": ("ValueError: attempt 3", 3), b"refused": ("no such customer", 1)}


async def test_new_messages_are_not_held_up_by_a_storm_of_retries(
    servers: EmbeddedThread, topic: str
) -> None:
    """Fault 32."""
    storm, attempts = numbered(150), 4
    came: dict[bytes, int] = {}
    at_new = 0

    def fail(message: ReceivedMessage) -> None:
        nonlocal at_new
        came[message.body] = came.get(message.body, 0) + 1
        if message.body == b"new":
            at_new = sum(came.values())
            return
        raise ValueError("everything fails")

    seen, group = Seen(fail), f"G-{topic}"
    async with (
        a_topic(servers, topic, 2) as producer,
        joined(servers, group, topic, seen, attempts_max=attempts, concurrency=2),
    ):
        await send(producer, topic, storm)
        await seen.count(len(storm) + 50)  # Retries are under way.
        before = len(seen.messages)
        await send(producer, topic, [b"new"])
        await seen.all_of([b"new"])
        assert at_new < before + 150, "it overtook most of the retries"
        found = await letters(servers, group, len(storm))
    assert came == {**dict.fromkeys(storm, attempts), b"new": 1}
    assert {each.body for each in found} == set(storm)
    assert {each.properties["FAILURE_REASON"] for each in found} == {"ValueError: everything fails"}
    assert {each.reconsume_times for each in found} == {attempts}
