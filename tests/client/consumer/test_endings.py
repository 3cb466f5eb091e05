"""Starts that are thought better of, stops while somebody talks to us, and brokers that go without a word."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.consumer.fakebroker import TOPIC, FakeBroker, consuming
from tests.client.consumer.tools import FIRST, Seen
from tests.client.leaps import LoopClock, leaping, reach

from flaremq.base.errors import UsageError
from flaremq.client.client import Client
from flaremq.client.consumer.push import PushConsumer
from flaremq.client.settings import ClientSettings, ConsumerSettings


def test_a_broker_that_goes_without_a_word_is_told_of_in_words(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with FakeBroker() as broker, consuming(broker, Seen()):
            await reach(1)
            await broker.__aexit__()
            await reach(5)

    leaping(story())
    about = [each.message for each in caplog.records if "a pull at broker-a" in each.message]
    assert len(about) <= 2  # It was lost, and it cannot be reached.
    assert about[0].endswith("is gone: it was closed")


@pytest.mark.parametrize("shares_client", [True, False], ids=["shared-client", "own-client"])
def test_who_is_stopped_while_it_starts_says_so_and_leaves_nothing_behind(shares_client: bool) -> None:
    async def story() -> None:
        async with FakeBroker() as broker, Client(broker.address, clock=LoopClock()) as client:
            for steps in range(0, 60, 3):
                given: Client | ClientSettings = (
                    client if shares_client else ClientSettings(namesrv=broker.address)
                )
                consumer = PushConsumer("G", settings=ConsumerSettings(start_from=FIRST), client=given)
                consumer.subscribe(TOPIC, Seen())
                starting = asyncio.create_task(consumer.start())
                for _ in range(steps):
                    await asyncio.sleep(0)
                is_late = starting.done()
                await consumer.stop()
                if not is_late:
                    with pytest.raises(UsageError, match="was stopped"):
                        await starting
                assert not consumer.client.members.consumers and not consumer.assignment

    leaping(story())


def test_what_a_broker_says_to_who_just_stops_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with FakeBroker() as broker:
            for steps in range(40):
                consumer = PushConsumer("G", broker.address, settings=ConsumerSettings(start_from=FIRST))
                consumer.subscribe(TOPIC, Seen())
                await consumer.start()
                stopping = asyncio.create_task(consumer.stop())
                for _ in range(steps):
                    await asyncio.sleep(0)
                broker.tell_all()
                await stopping

    leaping(story())
    assert not [each.message for each in caplog.records if each.exc_info]
