"""Routes: which queues can be written and read, and where brokers are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flaremq.base.errors import NoRoute, TopicNotFound, Unreachable
from flaremq.client.routes import RouteCache, guessed, route_of
from flaremq.model.message import MessageQueue
from flaremq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData

TWO = TopicRouteData(
    queue_datas=(
        QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=2, perm=6),
        QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=6),
    ),
    broker_datas=(
        BrokerData(broker_name="a", broker_addrs={0: "a:1", 1: "a:2"}),
        BrokerData(broker_name="b", broker_addrs={2: "b:2"}),
    ),
)


class Told:
    """An Api that knows routes, and counts who asks."""

    def __init__(self, **known: TopicRouteData) -> None:
        self.known: dict[str, TopicRouteData | Exception] = {**known}
        self.asked: list[str] = []
        self.namesrvs = type("Chosen", (), {"chosen": "ns:9876"})

    async def route(self, topic: str) -> TopicRouteData | None:
        self.asked.append(topic)
        await asyncio.sleep(0)
        found = self.known.get(topic)
        if isinstance(found, Exception):
            raise found
        return found


def routes_of(told: Any) -> RouteCache:
    return RouteCache(told)


def test_queues_come_in_the_order_of_their_brokers_and_only_masters_are_written_to() -> None:
    route = route_of("T", TWO)
    assert route.writable == (MessageQueue("T", "a", 0),)
    assert route.readable == (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0))


def test_queues_without_permission_are_not_used() -> None:
    queue = QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=4)
    data = TopicRouteData(queue_datas=(queue,), broker_datas=TWO.broker_datas)
    assert route_of("T", data).writable == ()
    assert len(route_of("T", data).readable) == 1


def test_an_ordered_topic_has_the_queues_that_its_settings_say() -> None:
    data = TopicRouteData(order_topic_conf="a:1;gone:2", queue_datas=TWO.queue_datas)
    assert route_of("T", data).writable == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "gone", 0),
        MessageQueue("T", "gone", 1),
    )


def test_a_new_topic_gets_no_more_queues_than_asked_for() -> None:
    eight = QueueData(broker_name="a", read_queue_nums=8, write_queue_nums=8, perm=7)
    route = guessed("New", TopicRouteData(queue_datas=(eight,), broker_datas=TWO.broker_datas), 4)
    assert [queue.queue_id for queue in route.writable] == [0, 1, 2, 3]
    assert route.is_guess


async def test_many_who_ask_at_once_share_one_answer() -> None:
    told = Told(T=TWO)
    routes = routes_of(told)
    found = await asyncio.gather(*(routes.get("T") for _ in range(10)))
    assert told.asked == ["T"]
    assert all(route is found[0] for route in found)


async def test_one_who_is_cancelled_does_not_take_the_answer_from_the_others() -> None:
    routes = routes_of(Told(T=TWO))
    first, second = (asyncio.create_task(routes.get("T")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).topic == "T"


async def test_an_unknown_topic_is_not_found_by_consumers_and_guessed_by_producers() -> None:
    routes = routes_of(Told(TBW102=TWO))
    with pytest.raises(TopicNotFound, match="create it"):
        await routes.get("New")
    assert (await routes.get_for_send("New", 4)).is_guess


async def test_a_guess_is_asked_about_again_by_consumers() -> None:
    told = Told(TBW102=TWO)
    routes = routes_of(told)
    await routes.get_for_send("New", 4)
    told.known["New"] = TWO
    assert not (await routes.get("New")).is_guess


async def test_a_topic_without_a_master_has_no_route_for_sends() -> None:
    data = TopicRouteData(queue_datas=TWO.queue_datas, broker_datas=TWO.broker_datas[1:])
    with pytest.raises(NoRoute, match="master"):
        await routes_of(Told(T=data)).get_for_send("T", 4)


async def test_a_change_is_told_once_and_a_repetition_never() -> None:
    told = Told(T=TWO)
    routes = routes_of(told)
    changed: list[str] = []
    routes.on_change.append(changed.append)
    await routes.refresh("T")
    await routes.refresh("T")
    assert changed == ["T"]
    told.known["T"] = TopicRouteData(queue_datas=TWO.queue_datas, broker_datas=TWO.broker_datas[:1])
    await routes.refresh("T")
    assert changed == ["T", "T"]


async def test_a_route_that_cannot_be_asked_for_stays_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    told = Told(T=TWO, U=TWO)
    routes = routes_of(told)
    await routes.refresh_all(["T", "U"])
    told.known.update(T=Unreachable("nobody"), U=Unreachable("nobody"))
    await routes.refresh_all()
    assert routes.known("T") is not None
    assert [record.getMessage() for record in caplog.records] == [
        "could not refresh the route of T and 1 other: nobody"
    ]


async def test_a_topic_that_cannot_be_asked_for_does_not_stop_the_others() -> None:
    told = Told(U=TWO, V=TWO)
    told.known["T"] = Unreachable("not now")
    routes = routes_of(told)
    await routes.refresh_all(["T", "U", "V"])
    assert set(routes.topics) == {"U", "V"}


async def test_where_no_name_server_is_there_not_every_topic_waits_for_it() -> None:
    told = Told()
    topics = [f"T{number}" for number in range(1000)]
    told.known.update({topic: Unreachable("nobody") for topic in topics})
    await routes_of(told).refresh_all(topics)
    assert len(told.asked) < 20


async def test_brokers_that_no_route_names_any_more_are_forgotten_and_their_addresses_told() -> None:
    told, gone = Told(T=TWO, U=TWO), list[str]()
    routes = routes_of(told)
    routes.on_gone.append(gone.append)
    await routes.refresh_all(["T", "U"])
    only_a = TopicRouteData(queue_datas=TWO.queue_datas[1:], broker_datas=TWO.broker_datas[:1])
    told.known["T"] = only_a
    await routes.refresh_all()
    assert (set(routes.brokers), gone) == ({"a", "b"}, [])
    told.known["U"] = only_a
    await routes.refresh_all()
    assert (set(routes.brokers), gone) == ({"a"}, ["b:2"])
    told.known["U"] = TopicRouteData(
        queue_datas=only_a.queue_datas, broker_datas=(BrokerData(broker_name="a", broker_addrs={0: "a:1"}),)
    )
    await routes.refresh_all()
    assert gone == ["b:2", "a:2"]


async def test_a_broker_is_found_by_its_id_and_a_missing_slave_by_the_next() -> None:
    routes = routes_of(Told(T=TWO))
    await routes.refresh("T")
    assert (routes.master("a"), routes.master("b"), routes.master("c")) == ("a:1", None, None)
    assert routes.address("a", 1) == "a:2"
    assert routes.address("b", 1) == "b:2"
    assert routes.address("b") == "b:2"
    assert routes.address("c") is None
