"""Asserts about messages: they wait until it is so, and say what is missing if it never is."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest

from flaremq.base.errors import InvalidName, UsageError
from flaremq.client.sync import ConsumerSettings, Message, MessageQueue, Producer, PushConsumer, reject
from flaremq.testing import asserts
from flaremq.testing.fakes.wireclient import WireClient
from flaremq.testing.local import LocalBroker

pytest_plugins = ["flaremq.testing.plugin"]


@pytest.fixture
def orders(broker: LocalBroker) -> LocalBroker:
    """A broker with three orders in two queues, and a group that has consumed none of them."""
    broker.create_topic("Orders", queues=2)
    with Producer("shop", broker.namesrv) as producer:
        for queue_id in (0, 1, 1):
            producer.send(Message("Orders", b"one book"), to=MessageQueue("Orders", "broker-a", queue_id))
    commit(broker, 0, 0)
    return broker


def commit(broker: LocalBroker, queue_id: int, offset: int) -> None:
    async def say() -> None:
        async with WireClient() as client:
            await client.heartbeat(broker.address, "billing", "Orders")
            await client.commit(broker.address, "billing", "Orders", queue_id, offset)

    asyncio.run(say())


def table(*rows: str) -> str:
    """A pattern for a table, however wide its columns are."""
    return r"\n\s*".join(re.escape(row).replace(r"\ ", r"\s+") for row in rows)


def test_offsets_of_each_queue_tell_what_is_missing(orders: LocalBroker) -> None:
    commit(orders, 1, 1)
    wanted = table(
        "expected group 'billing' to consume 3 messages of 'Orders' within 0.1 s; it consumed 1",
        "queue committed end",
        "Orders broker-a:0 0 1",
        "Orders broker-a:1 1 2",
    )
    with pytest.raises(AssertionError, match=wanted):
        orders.assert_consumed("Orders", 3, "billing", within_s=0.1)
    with pytest.raises(AssertionError, match=r"no backlog of 'Orders' within .*; 2 messages left"):
        orders.assert_no_backlog("Orders", "billing", within_s=0.1)


def test_an_assert_waits_until_it_is_so(orders: LocalBroker) -> None:
    def consume() -> None:
        commit(orders, 0, 1)
        commit(orders, 1, 2)

    consumer = threading.Thread(target=consume)
    consumer.start()
    orders.assert_consumed("Orders", 3, "billing", within_s=60)
    orders.assert_no_backlog("Orders", "billing", within_s=60)
    consumer.join()


def test_more_than_expected_fails_at_once(orders: LocalBroker) -> None:
    commit(orders, 1, 2)
    with pytest.raises(AssertionError, match="to consume 1 message of 'Orders'; it consumed 2\n"):
        orders.assert_consumed("Orders", 1, "billing", within_s=1000)
    orders.assert_consumed("Orders", 1, "billing", at_least=True)
    with pytest.raises(AssertionError, match="to receive 2 messages; it received 3\n"):
        orders.assert_sent("Orders", 2, within_s=1000)


def test_what_is_not_there_has_nothing(orders: LocalBroker) -> None:
    orders.assert_sent("Nothing", 0)
    orders.assert_consumed("Orders", 0, "nobody")
    orders.assert_dead_letters("nobody", 0)
    with pytest.raises(
        AssertionError, match=r"'Nothing' to receive at least 1 message within 0 s; the topic does not exist"
    ):
        orders.assert_sent("Nothing", 1, at_least=True, within_s=0)
    with pytest.raises(AssertionError, match="Nothing"):
        orders.assert_no_backlog("Nothing", "billing", within_s=0)
    with pytest.raises(AssertionError, match="nobody"):
        orders.assert_no_backlog("Orders", "nobody", within_s=0)


def test_messages_that_are_given_up_are_counted(orders: LocalBroker) -> None:
    def handle(_message: object) -> None:
        raise reject("it is no order")

    consumer = PushConsumer("billing", orders.namesrv, settings=ConsumerSettings(commit_s=0.1))
    consumer.subscribe("Orders", handle)
    with consumer:
        orders.assert_dead_letters("billing", 3, within_s=60)
        orders.assert_no_backlog("Orders", "billing", within_s=60)
    with pytest.raises(AssertionError, match="'billing' to have 4 dead letters within 0 s; it has 3"):
        orders.assert_dead_letters("billing", 4, within_s=0)


def test_any_server_can_be_asked(orders: LocalBroker) -> None:
    commit(orders, 0, 1)
    commit(orders, 1, 2)
    asserts.assert_sent(orders.namesrv, "Orders", 3)
    asserts.assert_consumed(orders.namesrv, "Orders", 3, "billing")
    asserts.assert_no_backlog(orders.namesrv, "Orders", "billing")
    asserts.assert_dead_letters(orders.namesrv, "billing", 0)
    with pytest.raises(AssertionError, match="it received 3"):
        asserts.assert_sent(orders.namesrv, "Orders", 4, within_s=0)


def test_a_broker_that_is_away_is_no_count(orders: LocalBroker) -> None:
    orders.stop()
    with pytest.raises(AssertionError, match=r"3 messages.* within 0 s"):
        orders.assert_sent("Orders", 3, within_s=0)


def test_what_cannot_be_expected_is_told_at_once(orders: LocalBroker) -> None:
    with pytest.raises(UsageError, match="n=-1: expected a number"):
        orders.assert_sent("Orders", -1)
    with pytest.raises(InvalidName):
        orders.assert_sent("no such name!", 1, within_s=1000)
