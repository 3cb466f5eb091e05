"""Where consumers read when a master is away, and how they come back; where producers never go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.client.consumer.fakebroker import BROKER, TOPIC, FakeBroker, consuming
from tests.client.consumer.tools import Seen
from tests.client.leaps import leaping, reach

from flaremq.base.errors import NoRoute
from flaremq.client.producer.producer import Producer
from flaremq.model.message import Message
from flaremq.protocol.codes import RequestCode, ResponseCode

PULL, BEAT, LOCK = RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ
COMMIT, SEND = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.SEND_MESSAGE_V2


@dataclass
class Three:
    namesrv: FakeBroker
    master: FakeBroker
    slave: FakeBroker

    def put(self, *bodies: bytes) -> None:
        """Messages arrive at the master, and are replicated."""
        self.master.put(*bodies)
        self.slave.put(*bodies)

    def name(self, *ids: int) -> None:
        """The members that the route names from now on."""
        known = {0: self.master.address, 1: self.slave.address}
        self.namesrv.members = {number: known[number] for number in ids}


@asynccontextmanager
async def three() -> AsyncIterator[Three]:
    async with FakeBroker() as namesrv, FakeBroker() as master, FakeBroker() as slave:
        made = Three(namesrv, master, slave)
        made.name(0, 1)
        yield made


def gone(master: FakeBroker) -> Any:
    """Its port is closed, and so are its connections."""
    return master.__aexit__()


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_consumers_beat_at_all_members_and_read_from_the_master() -> None:
    async def story() -> None:
        seen = Seen()
        async with three() as all_, consuming(all_.namesrv, seen):
            all_.put(b"1")
            await seen.count(1)
            assert all_.slave.times(BEAT) and all_.master.times(BEAT)
            assert not all_.slave.times(PULL)

    leaping(story())


def test_reading_goes_on_at_the_slave_though_the_route_still_names_the_master() -> None:
    async def story() -> None:
        seen = Seen()
        async with three() as all_, consuming(all_.namesrv, seen):
            all_.put(b"1", b"2")
            await seen.count(2)
            died_s = now_s()
            await gone(all_.master)
            all_.put(b"3")
            await seen.count(3, 5)
            assert now_s() - died_s < 3
            all_.put(b"4")
            await seen.count(4, 5)
            assert seen.bodies == [b"1", b"2", b"3", b"4"]  # No gap, and nothing twice.

    leaping(story())


def test_without_a_master_in_the_route_offsets_go_to_the_slave() -> None:
    async def story() -> None:
        seen = Seen()
        async with three() as all_, consuming(all_.namesrv, seen) as consumer:
            all_.put(b"1", b"2")
            await seen.count(2)
            all_.name(1)
            await gone(all_.master)
            all_.put(b"3")
            await seen.count(3, 40)
            await consumer.commit()
            assert all_.slave.committed == 3

    leaping(story())


def test_a_consumer_returns_when_the_slave_says_that_its_master_is_back() -> None:
    async def story() -> None:
        seen = Seen()
        async with three() as all_:
            all_.name(1)
            all_.slave.suggests = 1
            async with consuming(all_.namesrv, seen):
                all_.put(b"1")
                await seen.count(1, 5)
                assert not all_.master.times(PULL)
                all_.name(0, 1)
                all_.slave.suggests = 0
                all_.put(b"2")
                await reach(now_s() + 60)
                all_.put(b"3")
                await seen.count(3, 5)
                assert all_.master.times(PULL)
                assert seen.bodies == [b"1", b"2", b"3"]

    leaping(story())


def test_a_consumer_far_behind_reads_from_the_slave_that_the_master_suggests() -> None:
    async def story() -> None:
        seen = Seen()
        async with three() as all_:
            all_.master.suggests = all_.slave.suggests = 1
            async with consuming(all_.namesrv, seen):
                all_.put(b"1")
                await seen.count(1, 5)
                pulls = len(all_.master.times(PULL))
                for number in range(2, 6):
                    all_.put(b"%d" % number)
                    await seen.count(number, 5)
                assert len(all_.master.times(PULL)) == pulls
                assert len(all_.slave.times(PULL)) >= 4

    leaping(story())


def test_a_slave_that_refuses_pulls_is_not_asked_in_a_tight_loop() -> None:
    async def story() -> None:
        seen = Seen()
        async with three() as all_:
            all_.master.suggests = 1
            all_.slave.refuses_pulls = ResponseCode.SYSTEM_BUSY
            async with consuming(all_.namesrv, seen):
                for number in range(1, 11):
                    all_.put(b"%d" % number)
                    await seen.count(number, 5)
                await reach(61)
                assert len(all_.slave.times(PULL)) <= 7

    leaping(story())


def test_members_that_are_all_away_are_tried_at_the_usual_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with three() as all_, consuming(all_.namesrv, Seen(), error_delay_s=3.0) as consumer:
            await reach(1)
            calls: list[float] = []
            ask = consumer.client.api.pull

            async def counted(*given: Any) -> Any:
                calls.append(now_s())
                return await ask(*given)

            monkeypatch.setattr(consumer.client.api, "pull", counted)
            await gone(all_.master)
            await gone(all_.slave)
            await reach(61)
            assert 10 < len(calls) < 30

    leaping(story())


def test_an_orderly_consumer_waits_for_its_master() -> None:
    async def story() -> None:
        seen = Seen()
        async with three() as all_:
            all_.name(1)
            async with consuming(all_.namesrv, seen, orderly=True):
                all_.put(b"1")
                await reach(60)
                assert not seen.bodies and not all_.slave.times(LOCK)
                all_.name(0, 1)
                await seen.count(1, 60)

    leaping(story())


def test_a_producer_never_goes_to_a_slave() -> None:
    async def story() -> None:
        async with three() as all_:
            all_.name(1)
            async with Producer("P", all_.namesrv.address) as producer:
                with pytest.raises(NoRoute, match="masters"):
                    await producer.send(Message(TOPIC, b"1"))
            assert not all_.slave.times(SEND) and not all_.slave.times(BEAT)
            assert BROKER in producer.client.routes.brokers

    leaping(story())
