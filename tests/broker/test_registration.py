"""Registering: with real NameServers, and with scripted ones that do not do what they should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.errors import CallTimeout, ConnectFailed
from flaremq.base.live import Live
from flaremq.broker.link import Calls
from flaremq.broker.namesrvs import NameServers
from flaremq.broker.offload import Offload
from flaremq.broker.registration import Registration
from flaremq.broker.settings import BrokerSettings, Place
from flaremq.model.record import crc31
from flaremq.model.topic import DataVersion, TopicConfig
from flaremq.namesrv.app import NameServer
from flaremq.namesrv.settings import NamesrvSettings
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.bodies.route import RegisterBrokerBody, decode_registration
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command, response_to
from flaremq.remoting.caller import Caller
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.clock import settle


class Topics:
    """A table of topics that counts its changes."""

    def __init__(self, *names: str) -> None:
        self.version = DataVersion(0, 1, 5)
        self._table = {name: TopicConfig(name, 4, 4) for name in names}
        self.listeners: list[Callable[[list[TopicConfig]], None]] = []

    def get(self, name: str) -> TopicConfig | None:
        return self._table.get(name)

    def all(self) -> Mapping[str, TopicConfig]:
        return self._table

    def put(self, config: TopicConfig) -> None:
        self._table[config.topic_name] = config
        self.version = self.version.next(6)
        for listener in self.listeners:
            listener([config])

    def remove(self, name: str) -> None:
        config = self._table.pop(name)
        self.version = self.version.next(6)
        for listener in self.listeners:
            listener([config])


class Clock:
    """Sleepers that wake when told to. What sleeps is known by how long it wants to."""

    def __init__(self) -> None:
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self.sleepers.append((seconds, future))
        await future

    async def wake(self, seconds: float) -> int:
        woken = [future for wanted, future in self.sleepers if wanted == seconds and not future.done()]
        for future in woken:
            future.set_result(None)
        await settle()
        return len(woken)


class Scripted:
    """NameServers that note what they are asked, and answer as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Command]] = []
        self.gone: set[str] = set()
        self.hung: set[str] = set()
        self.order: dict[str, str] = {}
        self.code = 0
        self.refuse_next = 0
        self.data_version: DataVersion | None = None
        self.masters: dict[str, tuple[str, str]] = {}
        """By NameServer, where it says the master of a slave is."""
        self.arrived = asyncio.Event()

    async def call(self, address: str, request: Command, timeout_s: float) -> Command:
        self.asked.append((address, request))
        self.arrived.set()
        if address in self.gone:
            raise ConnectFailed(f"{address} cannot be reached")
        if address in self.hung:
            await asyncio.Event().wait()
        if self.refuse_next:
            self.refuse_next -= 1
            return response_to(request, ResponseCode.SYSTEM_ERROR, "register broker failed")
        if request.code == RequestCode.QUERY_DATA_VERSION:
            given = beans.decode(DataVersion, request.body)
            changed = "true" if self.data_version != given else "false"
            return response_to(request, ext_fields={"changed": changed})
        body = beans.encode(KVTable(table=self.order)) if self.order else None
        names = "masterAddr", "haServerAddr"
        said = dict(zip(names, self.masters.get(address, ()), strict=False))
        return response_to(request, self.code, ext_fields=said, body=body)

    def requests(self, code: int, address: str | None = None) -> list[Command]:
        return [each for at, each in self.asked if each.code == code and address in (None, at)]

    def bodies(self, address: str | None = None) -> list[RegisterBrokerBody]:
        asked = self.requests(RequestCode.REGISTER_BROKER, address)
        return [decode_registration(each.body, each.version) for each in asked]

    def topics(self, address: str | None = None) -> list[list[str]]:
        return [list(each.topic_config_serialize_wrapper.topic_config_table) for each in self.bodies(address)]


def settings(**other: Any) -> BrokerSettings:
    given: dict[str, Any] = {
        "broker_name": "broker-a",
        "cluster_name": "C",
        "ip1": "10.0.0.1",
        "ip2": "10.0.0.2",
    }
    return BrokerSettings(**{**given, **other})


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(1)
    yield offload
    offload.close()


class Bench:
    """A registration with everything around it that a test looks at."""

    def __init__(self, offload: Offload, caller: Calls, addresses: str, topics: Topics, **other: Any) -> None:
        self.clock, self.topics, self.namesrvs = Clock(), topics, NameServers(addresses)
        self.masters: list[tuple[str, str]] = []
        self.live = Live(settings(**other))
        self.it = Registration(
            self.live,
            topics,
            self.namesrvs,
            caller,
            offload,
            place=lambda: Place.of(self.live.now, 10911),
            on_master=lambda address, ha_address: self.masters.append((address, ha_address)),
            sleep=self.clock.sleep,
        )
        topics.listeners.append(self.it.topics_changed)


@asynccontextmanager
async def started(
    offload: Offload, caller: Calls, addresses: str = "a:1", **other: Any
) -> AsyncIterator[Bench]:
    bench = Bench(offload, caller, addresses, other.pop("topics", Topics("A", "B")), **other)
    await bench.it.start()
    try:
        yield bench
    finally:
        await bench.it.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Bodies are made in another thread, so a count of turns does not tell when they are."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_a_member_of_a_group_says_that_one_may_act_for_its_master(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, acting_master=True, not_active_ms=4_000):
        (request,) = scripted.requests(RequestCode.REGISTER_BROKER)
        assert request.fields["enableActingMaster"] == "true"
        assert request.fields["heartbeatTimeoutMillis"] == "4000"


async def test_a_broker_tells_who_it_is_and_what_it_has(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted):
        (request,) = scripted.requests(RequestCode.REGISTER_BROKER)
        assert request.fields == {
            "brokerName": "broker-a",
            "brokerAddr": "10.0.0.1:10911",
            "clusterName": "C",
            "haServerAddr": "10.0.0.2:10912",
            "brokerId": "0",
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": str(crc31(request.body or b"")),
        }
        assert scripted.topics() == [["A", "B"]]
        assert scripted.bodies()[0].topic_config_serialize_wrapper.data_version == DataVersion(0, 1, 5)
    assert len(scripted.requests(RequestCode.UNREGISTER_BROKER)) == 1


def test_an_ipv6_address_has_its_brackets() -> None:
    assert Place.of(settings(ip1="::1", ip2="::2"), 10911) == Place("[::1]:10911", "[::2]:10912")


async def test_it_registers_again_with_every_period(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, register_period_ms=1) as bench:
        assert await bench.clock.wake(10.0) == 1
        await until(lambda: len(scripted.topics()) == 2)
    assert scripted.topics() == [["A", "B"], ["A", "B"]]


async def test_changed_topics_are_told_at_once_and_together(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted) as bench:
        for name in ("X", "Y", "X"):
            bench.topics.put(TopicConfig(name, 2, 2))
        await until(lambda: len(scripted.topics()) == 2)
        await settle()
    assert scripted.topics()[1:] == [["X", "Y"]]
    assert scripted.bodies()[1].topic_config_serialize_wrapper.data_version == bench.topics.version


async def test_a_deleted_topic_is_not_brought_back(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted) as bench:
        bench.topics.remove("A")
        await settle()
    assert scripted.topics() == [["A", "B"]]


async def test_a_nameserver_that_does_not_know_us_is_told_everything(offload: Offload) -> None:
    scripted = Scripted()
    scripted.gone = {"a:1"}
    async with started(offload, scripted) as bench:
        scripted.gone.clear()
        for name in ("X", "Y"):
            bench.topics.put(TopicConfig(name, 2, 2))
            await settle()
        assert len(scripted.topics()) == 1  # It is not asked again at once, whatever there is to tell.
        await bench.clock.wake(1.0)
        await until(lambda: len(scripted.topics()) == 2)
        assert scripted.topics()[-1] == ["A", "B", "X", "Y"]


async def test_a_change_that_is_refused_is_followed_by_everything(offload: Offload) -> None:
    """So it is when a NameServer was started anew: a single topic of a new broker it does not take."""
    scripted = Scripted()
    async with started(offload, scripted) as bench:
        scripted.refuse_next = 1
        bench.topics.put(TopicConfig("X", 2, 2))
        await until(lambda: len(scripted.topics()) == 3)
    assert scripted.topics() == [["A", "B"], ["X"], ["A", "B", "X"]]


async def test_a_lost_connection_means_to_register_again_soon(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted) as bench:
        bench.it.connection_lost("a:1")
        bench.it.connection_lost("elsewhere:1")
        await until(lambda: any(wanted == 1.0 for wanted, _ in bench.clock.sleepers))
        assert len(scripted.topics()) == 1
        await bench.clock.wake(1.0)
        await until(lambda: len(scripted.topics()) == 2)


async def test_a_hung_nameserver_delays_neither_start_nor_others(offload: Offload) -> None:
    scripted = Scripted()
    scripted.hung = {"hung:1"}
    scripted.gone = {"gone:1"}
    async with started(offload, scripted, "hung:1;gone:1;good:1", register_timeout_ms=20) as bench:
        await until(lambda: scripted.topics("good:1") == [["A", "B"]])
        bench.topics.put(TopicConfig("X", 2, 2))
        await until(lambda: len(scripted.topics("good:1")) == 2)
    told = [address for address, each in scripted.asked if each.code == RequestCode.UNREGISTER_BROKER]
    assert told == ["good:1"]


async def test_without_a_nameserver_a_broker_starts_all_the_same(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, "") as bench:
        bench.topics.put(TopicConfig("X", 2, 2))
        await settle()
        assert not scripted.asked
        bench.namesrvs.set("late:1")
        await until(lambda: len(scripted.topics("late:1")) == 1)


async def test_nameservers_come_and_go_while_a_broker_runs(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, "a:1;b:1") as bench:
        bench.namesrvs.set("b:1;c:1")
        await until(lambda: len(scripted.topics("c:1")) == 1)
        await until(lambda: bool(scripted.requests(RequestCode.UNREGISTER_BROKER, "a:1")))
        bench.topics.put(TopicConfig("X", 2, 2))
        await until(lambda: len(scripted.topics()) == 5)
    assert [len(scripted.topics(address)) for address in ("a:1", "b:1", "c:1")] == [1, 2, 2]


async def test_a_broker_that_may_not_be_written_says_so_of_each_topic(offload: Offload) -> None:
    scripted = Scripted()
    topics = Topics("B")
    topics.put(TopicConfig("TBW102", 8, 8, perm=7))
    async with started(offload, scripted, topics=topics) as bench:
        bench.live.now = replace(bench.live.now, permission=4)
        bench.it.register_now()
        await until(lambda: len(scripted.topics()) == 2)
    perms = [
        [each.perm for each in body.topic_config_serialize_wrapper.topic_config_table.values()]
        for body in scripted.bodies()
    ]
    assert perms == [[6, 7], [4, 4]]


async def test_order_of_a_topic_comes_from_the_nameserver(offload: Offload) -> None:
    scripted = Scripted()
    scripted.order = {"A": "broker-a:4", "Unknown": "broker-a:4"}
    async with started(offload, scripted) as bench:
        await until(lambda: len(scripted.topics()) == 2)
        await settle()
        config = bench.topics.get("A")
        assert config is not None and config.order
    assert scripted.topics() == [["A", "B"], ["A"]]


async def test_unforced_it_asks_first_and_registers_only_if_something_differs(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, force_register=False) as bench:
        scripted.data_version = bench.topics.version
        await bench.clock.wake(30.0)
        await until(lambda: len(scripted.requests(RequestCode.QUERY_DATA_VERSION)) == 1)
        await settle()
        assert len(scripted.topics()) == 1
        scripted.data_version = DataVersion(0, 99, 99)
        await bench.clock.wake(30.0)
        await until(lambda: len(scripted.topics()) == 2)


async def test_what_all_topics_have_in_common_is_told_unasked(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, force_register=False) as bench:
        scripted.data_version = bench.topics.version
        bench.it.register_now()
        await until(lambda: len(scripted.topics()) == 2)


async def test_a_bug_in_one_round_does_not_end_all_others(offload: Offload) -> None:
    class Broken(Scripted):
        async def call(self, address: str, request: Command, timeout_s: float) -> Command:
            if not self.asked:
                self.asked.append((address, request))
                raise RuntimeError("a bug")
            return await super().call(address, request, timeout_s)

    broken = Broken()
    async with started(offload, broken) as bench:
        await bench.clock.wake(2.0)  # Sooner than after a whole period.
        await until(lambda: len(broken.topics()) == 2)


async def test_many_topics_are_split_but_never_at_the_first_time(offload: Offload) -> None:
    scripted = Scripted()
    topics = Topics(*"ABCDE")
    async with started(
        offload, scripted, topics=topics, split_registration=True, split_registration_size=2
    ) as bench:
        bench.it.register_now()
        await until(lambda: len(scripted.topics()) == 4)
    assert scripted.topics() == [list("ABCDE"), ["A", "B"], ["C", "D"], ["E"]]


async def test_a_compressed_body_says_so(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, compressed_register=True):
        (request,) = scripted.requests(RequestCode.REGISTER_BROKER)
        assert request.fields["compressed"] == "true"
        assert bytes(request.body or b"")[0] == 0x78
        assert scripted.topics() == [["A", "B"]]


async def test_changes_may_go_topic_by_topic(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, single_topic_register=True) as bench:
        bench.topics.put(TopicConfig("X", 2, 2))
        await until(lambda: bool(scripted.requests(RequestCode.REGISTER_TOPIC_IN_NAMESRV)))
        assert scripted.requests(RequestCode.REGISTER_TOPIC_IN_NAMESRV)[0].fields["topic"] == "X"
    assert len(scripted.topics()) == 1


async def test_a_call_that_times_out_is_tried_again(offload: Offload) -> None:
    class Slow(Scripted):
        async def call(self, address: str, request: Command, timeout_s: float) -> Command:
            if not self.asked:
                self.asked.append((address, request))
                raise CallTimeout("no answer")
            return await super().call(address, request, timeout_s)

    slow = Slow()
    async with started(offload, slow) as bench:
        await bench.clock.wake(2.0)  # Sooner than after a whole period.
        await until(lambda: len(slow.topics()) == 2)


# Slaves.

X, Y = ("10.0.0.7:10911", "10.0.0.7:10912"), ("10.0.0.8:10911", "10.0.0.8:10912")
GONE = ("", "")


async def test_a_slave_registers_with_its_id_and_its_own_ha_address(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, broker_id=2):
        (request,) = scripted.requests(RequestCode.REGISTER_BROKER)
        assert (request.fields["brokerId"], request.fields["haServerAddr"]) == ("2", "10.0.0.2:10912")


async def test_a_slave_hears_once_where_its_master_is_and_again_when_that_changes(offload: Offload) -> None:
    scripted = Scripted()
    scripted.masters = {"a:1": X}
    async with started(offload, scripted, broker_id=1) as bench:
        for said in (X, Y, None, X):
            before = len(scripted.topics())
            scripted.masters = {} if said is None else {"a:1": said}
            await bench.clock.wake(5.0 if bench.it.lacks_master else 30.0)
            await until(partial(lambda before: len(scripted.topics()) > before, before))
            await settle()
    assert bench.masters == [X, Y, GONE, X]


async def test_of_nameservers_that_disagree_the_newest_news_counts(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, "a:1;b:1", broker_id=1) as bench:

        async def say(**masters: tuple[str, str]) -> list[tuple[str, str]]:
            bench.masters.clear()
            for name, (address, ha_address) in masters.items():
                bench.it.master_named(f"{name}:1", address, ha_address)
            return bench.masters.copy()

        assert await say(a=GONE, b=GONE) == []
        assert await say(a=X) == [X]
        assert await say(b=Y) == [Y]
        assert await say(a=X, b=Y) == []  # Neither has changed its mind.
        assert await say(b=GONE) == [X]
        assert await say(a=GONE) == [GONE]
        assert await say(b=Y) == [Y]


async def test_a_slave_asks_soon_again_while_there_is_no_master(offload: Offload) -> None:
    scripted = Scripted()
    async with started(offload, scripted, broker_id=1, force_register=False) as bench:
        assert not bench.masters
        scripted.data_version = bench.topics.version
        scripted.masters = {"a:1": X}
        assert await bench.clock.wake(5.0) == 1
        await until(lambda: bench.masters == [X])
        await settle()
        assert await bench.clock.wake(5.0) == 0
        scripted.masters = {"a:1": Y}
        await bench.clock.wake(30.0)  # Although nothing else differs.
        await until(lambda: bench.masters == [X, Y])


async def test_a_master_is_not_told_of_a_master(offload: Offload) -> None:
    scripted = Scripted()
    scripted.masters = {"a:1": X}
    async with started(offload, scripted) as bench:
        await settle()
        assert not bench.masters


def perms(namesrv: NameServer, topic: str) -> list[int]:
    route = namesrv.routes.route(topic)
    return [each.perm for each in route.queue_datas] if route is not None else []


async def test_a_real_nameserver_knows_the_broker_until_it_stops(offload: Offload, tmp_path: Path) -> None:
    paths = NamesrvSettings(
        kv_config_path=tmp_path / "kv.json", config_store_path=tmp_path / "namesrv.properties"
    )
    namesrv = NameServer(paths, ServerSettings(bind_address="127.0.0.1", drain_s=1))
    await namesrv.start()
    caller = Caller()
    try:
        async with started(offload, caller, f"127.0.0.1:{namesrv.port}") as bench:
            route = namesrv.routes.route("A")
            assert route is not None
            assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}
            bench.topics.put(TopicConfig("X", 2, 3))
            await until(lambda: namesrv.routes.route("X") is not None)
            bench.live.now = replace(bench.live.now, permission=4)
            bench.it.register_now()
            await until(lambda: perms(namesrv, "X") == [4])
        assert namesrv.routes.route("A") is None
    finally:
        await caller.aclose()
        await namesrv.stop()
