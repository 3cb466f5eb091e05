"""Two NameServers and two broker groups under load, while servers fail, come and go.

Each time no acknowledged message is lost, every group reads each of them once, and a place in a queue
names one message for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cluster.load import Load, stored

from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.namesrv import WipeWritePermOfBrokerRequestHeader
from flaremq.testing.cluster import Cluster, Process, eventually
from flaremq.testing.fakes.wireclient import WireClient

TOPIC = "TopicCluster"
QUEUES = 3
GROUPS = ("GID_1", "GID_2")


class Site:
    """The servers by name, and what an operator does with them."""

    def __init__(self, cluster: Cluster, client: WireClient) -> None:
        self._cluster = cluster
        self.client = client
        self.namesrvs: list[Process] = []
        self.brokers: dict[str, Process] = {}

    async def open(self) -> None:
        starts = [asyncio.to_thread(self._cluster.namesrv, f"namesrv-{n}") for n in (1, 2)]
        self.namesrvs = list(await asyncio.gather(*starts))
        await asyncio.gather(self.add_broker("broker-a"), self.add_broker("broker-b"))

    @property
    def addresses(self) -> list[str]:
        return [each.address for each in self.namesrvs]

    async def add_broker(self, name: str) -> None:
        broker = await asyncio.to_thread(
            self._cluster.broker, name, ";".join(self.addresses), registerNameServerPeriod=10_000
        )
        self.brokers[name] = broker
        await self.client.create_topic(broker.address, TOPIC, QUEUES)

    async def kill(self, name: str) -> None:
        await asyncio.to_thread(self.brokers[name].kill)

    async def again(self, name: str) -> None:
        self.brokers[name] = await asyncio.to_thread(self._cluster.again, self.brokers[name])

    async def wipe_write(self, namesrv: str, broker_name: str) -> None:
        """Take the right to write from a broker, at one NameServer."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answer = await self.client.ask(namesrv, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        assert int(answer.fields["wipeTopicCount"]) >= 1

    async def routed_to(self, *names: str) -> None:
        """Every NameServer that runs knows these brokers, and no others, for the topic."""

        async def is_so() -> bool:
            alive = [each.address for each in self.namesrvs if each.is_running]
            found = [await self.client.route(address, TOPIC) for address in alive]
            return all(
                route is not None and {each.broker_name for each in route.broker_datas} == set(names)
                for route in found
            )

        await eventually(f"the topic is at {names}", is_so)

    async def checked(self, load: Load) -> None:
        """Sends end, everything is read, and the notes of all clients are compared with what is stored."""
        await load.stop_sending()
        await load.all_read(*GROUPS)
        addresses = {name: broker.address for name, broker in self.brokers.items()}
        load.notes.check(await stored(self.client, TOPIC, addresses, QUEUES))
        load.notes.check_all_read()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with Cluster(tmp_path) as cluster:
        async with WireClient() as client:
            site = Site(cluster, client)
            await site.open()
            await site.routed_to("broker-a", "broker-b")
            yield site
            printed = [line for broker in site.brokers.values() for line in broker.lines]
            assert not [line for line in printed if "Traceback" in line]


async def under_load(load: Load) -> None:
    load.produce("p1", "p2", "p3")
    load.consume(*GROUPS)
    await load.written_to("broker-a", "broker-b")
    await load.more(100, "broker-a")
    await load.more(100, "broker-b")


async def test_running_clients_need_no_name_server(site: Site) -> None:
    async with Load(TOPIC, site.addresses) as load:
        await under_load(load)
        await asyncio.to_thread(site.namesrvs[0].kill)
        await load.more(300)
        await site.routed_to("broker-a", "broker-b")  # The other one has not noticed either.
        await asyncio.to_thread(site.namesrvs[1].kill)
        await load.more(200, "broker-a")
        await load.more(200, "broker-b")
        assert not load.notes.refused
        await site.checked(load)


@pytest.mark.slow  # A broker that found nobody at once comes again when its period is over.
async def test_name_servers_that_come_back_empty_are_told_again(site: Site) -> None:
    async with Load(TOPIC, site.addresses) as load:
        await under_load(load)
        for each in site.namesrvs:
            await asyncio.to_thread(each.kill)
        starts = [asyncio.to_thread(site._cluster.again, each) for each in site.namesrvs]
        site.namesrvs = list(await asyncio.gather(*starts))
        await site.routed_to("broker-a", "broker-b")
        await load.more(100)
        assert not load.notes.refused
        await site.checked(load)


async def test_sends_go_on_at_another_broker_and_what_one_held_comes_back_with_it(site: Site) -> None:
    async with Load(TOPIC, site.addresses) as load:
        await under_load(load)
        await site.kill("broker-a")
        await load.written_to("broker-b")
        await load.more(200, "broker-b")
        await site.again("broker-a")
        await load.more(100, "broker-a")
        await site.checked(load)


@pytest.mark.slow
async def test_a_broker_that_joins_is_used_after_one_refresh_of_routes(site: Site) -> None:
    async with Load(TOPIC, site.addresses) as load:
        await under_load(load)
        await site.add_broker("broker-c")
        await load.written_to("broker-a", "broker-b", "broker-c")
        await load.more(100, "broker-c")
        assert not load.notes.refused
        await site.checked(load)


async def test_a_broker_is_drained_and_removed_without_a_loss(site: Site) -> None:
    async with Load(TOPIC, site.addresses) as load:
        await under_load(load)
        for address in site.addresses:
            await site.wipe_write(address, "broker-a")
        await load.written_to("broker-b")
        await load.more(50)  # What was under way while routes were refreshed has arrived.
        drained = load.notes.sent_at["broker-a"]
        await load.more(300)
        assert load.notes.sent_at["broker-a"] == drained
        at_a = {place for place in load.notes.sent if place.queue.broker == "broker-a"}
        await load.until(
            "what the drained broker holds is read",
            lambda: all(at_a <= load.notes.read[group].keys() for group in GROUPS),
        )
        held = await stored(site.client, TOPIC, {"broker-a": site.brokers["broker-a"].address}, QUEUES)
        assert await asyncio.to_thread(site.brokers.pop("broker-a").stop) == 0
        await site.routed_to("broker-b")
        await load.more(100)
        await load.stop_sending()
        await load.all_read(*GROUPS)
        assert not load.notes.refused
        left = {"broker-b": site.brokers["broker-b"].address}
        load.notes.check(held | await stored(site.client, TOPIC, left, QUEUES))
        load.notes.check_all_read()
