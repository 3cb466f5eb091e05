"""A program under test, with FlareMQ's pytest plugin: a real broker for each test, a clock, and assertions.

Run it with pytest. Your project would name the plugin in its conftest.py.
"""

from flaremq.client.sync import ConsumerSettings, Message, Producer, PushConsumer, ReceivedMessage
from flaremq.testing.asserts import Asserts
from flaremq.testing.clock import MovableClock
from flaremq.testing.local import LocalBroker

pytest_plugins = ["flaremq.testing.plugin"]


def place_orders(namesrv: str, *books: bytes) -> list[str]:
    """The program: what a shop does."""
    with Producer("shop", namesrv) as producer:
        return [producer.send(Message("Orders", book)).offset_id for book in books]


def billing(namesrv: str, billed: list[bytes]) -> PushConsumer:
    """The program: what its accountant does."""
    consumer = PushConsumer("billing", namesrv, settings=ConsumerSettings(commit_s=0.2))

    @consumer.subscribe("Orders")
    def bill(message: ReceivedMessage) -> None:
        billed.append(message.body)

    return consumer


def test_every_order_is_billed(broker: LocalBroker) -> None:
    broker.create_topic("Orders", queues=2)
    billed: list[bytes] = []
    with billing(broker.namesrv, billed):
        place_orders(broker.namesrv, b"Moby-Dick", b"Emma", b"Ulysses")
        broker.assert_consumed("Orders", 3, "billing", within_s=30)
    assert sorted(billed) == [b"Emma", b"Moby-Dick", b"Ulysses"]
    broker.assert_dead_letters("billing", 0)


def test_orders_wait_while_the_accountant_is_away(broker: LocalBroker, clock: MovableClock) -> None:
    (order,) = place_orders(broker.namesrv, b"Moby-Dick")
    clock.advance(3 * 86_400)  # A long weekend, for the broker.
    (later,) = place_orders(broker.namesrv, b"Emma")
    first, second = (broker.admin.messages.get(each).stored for each in (order, later))
    assert second.store_timestamp_ms - first.store_timestamp_ms >= 3 * 86_400_000
    assert_all_billed(broker)


def assert_all_billed(servers: Asserts) -> None:
    billed: list[bytes] = []
    with billing(servers.namesrv, billed):
        servers.assert_no_backlog("Orders", "billing", within_s=30)
    assert sorted(billed) == [b"Emma", b"Moby-Dick"]
