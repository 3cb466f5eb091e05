"""Options of a broker that no other test would miss: each is set, and what it changes is looked at.

Which test answers for which option is listed in tests/test_options_obeyed.py.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clients import FakePeer, a_member, desk, settings_of, wants
from tests.broker.desks import DeskBench, Line, a_desk
from tests.protocol.samples import a_pull, a_send

from flaremq.base.errors import CallTimeout, NoPermission
from flaremq.base.live import Live
from flaremq.broker.app import Broker
from flaremq.broker.config import BrokerConfig
from flaremq.broker.settings import (
    BrokerServerSettings,
    BrokerSettings,
    FamilySettings,
    MetricsExporter,
)
from flaremq.broker.tables.broadcast import BroadcastOffsets, BroadcastPull
from flaremq.broker.tables.consumers import Consumers
from flaremq.broker.tables.producers import Producers
from flaremq.broker.tables.topics import presets
from flaremq.model import names
from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.protocol.bodies.group import MessageModel, SubscriptionData
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.remoting.caller import Caller
from flaremq.store.settings import FlushDisk
from flaremq.testing.clock import START_MS, ManualClock
from flaremq.testing.fakes.builders import small_settings

TOPIC = "TopicTest"
SEND = replace(a_send(e="0"), body=b"hello")
OK, BUSY = ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY


def a_waiting_pull(**changes: str) -> Command:
    given = {"queueId": "0", "queueOffset": "0", "sysFlag": "6", "subscription": "*"}
    return a_pull(**{**given, "suspendTimeoutMillis": "15000", **changes})


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


# Who.


async def test_the_region_is_told_in_answers_and_stored_with_messages(tmp_path: Path) -> None:
    async with a_desk(tmp_path, broker={"region": "eu-1"}) as made:
        made.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        (answer,) = await made.ask(SEND)
        assert answer.fields["MSG_REGION"] == "eu-1"
        assert made.messages()[0].properties["MSG_REGION"] == "eu-1"


def preset(name: str, **other: Any) -> TopicConfig | None:
    return next((each for each in presets(settings_of(**other)) if each.topic_name == name), None)


def test_topics_that_a_broker_always_has_follow_the_settings() -> None:
    own = preset("broker-a", broker_topic=False)
    assert own is not None and own.perm == 1
    assert preset("Traces", trace_topic=True, trace_topic_name="Traces") is not None
    revive = preset(names.revive_topic("DefaultCluster"), revive_queues=3)
    assert revive is not None and revive.write_queue_nums == 3


# Sending and pulling.


async def test_sends_before_the_time_that_was_set_are_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path, broker={"accept_sends_from_ms": START_MS + 1000}, clock=clock) as made:
        made.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        (refused,) = await made.ask(SEND)
        assert refused.code != OK and "startAcceptSendRequestTimeStamp" in (refused.remark or "")
        clock.advance_ms(1000)
        assert [answer.code for answer in await made.ask(SEND)] == [OK]


@pytest.mark.parametrize(
    ("how", "held_s"), [({}, 15.0), ({"long_polling": False, "short_polling_ms": 20}, 0.02)]
)
async def test_how_long_a_pull_waits_is_its_own_wish_or_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], held_s: float
) -> None:
    async with a_desk(tmp_path, broker=how) as made:
        made.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        held: list[float] = []
        monkeypatch.setattr(made.pulls.parked, "park", lambda *given: held.append(given[3]))
        await made.ask(a_waiting_pull())
        assert held == [held_s]


async def test_consumers_are_sent_to_slaves_unless_that_is_switched_off(tmp_path: Path) -> None:
    for number, (slave_read, suggested) in enumerate(((True, "1"), (False, "0"))):
        async with a_desk(tmp_path / str(number), broker={"slave_read": slave_read}) as made:
            made.tables.topics.put(TopicConfig(TOPIC, 4, 4))
            made.tables.subscriptions.put(GroupConfig("g1", broker_id=1))
            await made.ask(SEND)
            (answer,) = await made.ask(a_waiting_pull())
            assert (answer.code, answer.fields["suggestWhichBrokerId"]) == (OK, suggested)


def test_bit_maps_are_as_long_as_consumers_and_errors_need(tmp_path: Path) -> None:
    ways: list[Any] = [{}, {"bloom_consumers": 320}, {"bloom_error_rate": 1}]
    lengths = []
    for number, how in enumerate(ways):
        with desk(tmp_path / str(number), calculate_bit_maps=True, **how) as made:
            lengths.append(made.filters.bit_map_length)
    assert lengths[0] < lengths[2] < lengths[1]


def test_filters_of_a_group_that_left_are_kept_as_long_as_was_set(tmp_path: Path) -> None:
    with desk(tmp_path, filter_data_kept_ms=5000) as made:
        made.filters.register(
            "g", [SubscriptionData.of("T", "a > 1", expression_type="SQL92", sub_version=1)]
        )
        made.filters.unregister("g")
        made.filters.expire(made.clock.now_ms() + 4999)
        assert made.filters.get("T", "g") is not None
        made.filters.expire(made.clock.now_ms() + 5000)
        assert made.filters.get("T", "g") is None


# Broadcasting.


async def test_offsets_of_broadcasting_clients_are_noted_unless_that_is_switched_off(tmp_path: Path) -> None:
    for number, is_noted in enumerate((True, False)):
        async with a_desk(tmp_path / str(number), broker={"broadcast_offsets": is_noted}) as made:
            made.tables.topics.put(TopicConfig(TOPIC, 4, 4))
            line = Line()
            said = replace(wants("g1", TOPIC), message_model=MessageModel.BROADCASTING)
            made.tables.groups.heartbeat(a_member("c1", line), said)  # type: ignore[arg-type]
            await made.ask(SEND)
            await made.ask(a_waiting_pull(), line=line)
            assert bool(made.tables.broadcast._clients) is is_noted


async def test_broadcasting_clients_are_forgotten_when_their_time_is_over(tmp_path: Path) -> None:
    pull = BroadcastPull(topic="T", group="g", client_id="c1", queue_id=0, offset=5, from_proxy=False)
    by_proxy = replace(pull, from_proxy=True)
    with desk(tmp_path, broadcast_offset_expire_s=10, broadcast_offset_expire_max_s=20) as made:
        offsets = BroadcastOffsets(made.live, made.offsets, made.groups, made.store, made.clock)
        for is_online, kept_s in ((False, 10), (True, 20)):
            if is_online:
                made.groups.heartbeat(a_member("c1", FakePeer()), wants("g", "T"))
            offsets.update(pull)
            made.clock.advance_ms(kept_s * 1000 - 1)
            offsets.expire()
            assert offsets.first(by_proxy) == 5
            made.clock.advance_ms(1)
            offsets.expire()
            assert offsets.first(by_proxy) is None


# Clients.


async def test_clients_that_are_silent_for_too_long_are_dropped() -> None:
    settings, clock = Live(settings_of(channel_expired_ms=5000)), ManualClock()
    groups, producers = Consumers(settings, clock), Producers(settings)
    groups.heartbeat(a_member(last_seen_ms=clock.now_ms()), wants("g", "T"))
    producers.register("p", a_member(last_seen_ms=clock.now_ms()))
    for elapsed_ms, is_there in ((5000, True), (5001, False)):
        groups.expire(clock.now_ms() + elapsed_ms)
        producers.expire(clock.now_ms() + elapsed_ms)
        assert (groups.get("g") is not None) is is_there
        assert bool(producers.members("p")) is is_there


# NameServers and clocks.


def a_broker(root: Path, families: FamilySettings | None = None, **settings: Any) -> Broker:
    return Broker(
        BrokerConfig(
            broker=BrokerSettings(**{"ip1": "127.0.0.1", "broker_name": "broker-a", **settings}),
            server=BrokerServerSettings(listen_port=0, bind_address="127.0.0.1", drain_s=0),
            store=small_settings(root),
            families=families or FamilySettings(),
        )
    )


async def test_a_nameserver_that_never_answers_is_given_up_after_the_time_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def silent(_caller: Caller, _address: str, request: Command, timeout_s: float) -> Command:
        waits.append(timeout_s)
        raise CallTimeout(f"no answer to {request}")

    monkeypatch.setattr(Caller, "call", silent)
    broker = a_broker(tmp_path, namesrv="127.0.0.1:1", register_timeout_ms=1234)
    await broker.start()
    await until(lambda: waits)
    await broker.stop()
    assert 1.234 in waits


async def test_a_name_that_stands_for_several_nameservers_is_looked_up(
    tmp_path: Path,
) -> None:
    broker = a_broker(tmp_path, namesrv="localhost:1", namesrv_by_dns=True)
    await broker.start()
    try:
        assert broker.composition is not None
        namesrvs = broker.composition.namesrvs
        await namesrvs.refresh()
        assert "localhost:1" not in namesrvs.addresses
        assert {address.rpartition(":")[0] for address in namesrvs.addresses} <= {
            "127.0.0.1",
            "[::1]",
        }
    finally:
        await broker.stop()


# Figures, and what may be changed.


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return int(probe.getsockname()[1])


async def test_figures_are_shown_at_the_address_that_was_set(tmp_path: Path) -> None:
    port = free_port()
    broker = a_broker(
        tmp_path, metrics_exporter=MetricsExporter.PROM, metrics_host="127.0.0.2", metrics_port=port
    )
    await broker.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.2", port)
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        assert b"200" in await asyncio.wait_for(reader.readline(), 5)
        writer.close()
    finally:
        await broker.stop()


async def test_names_on_the_black_list_cannot_be_changed_from_afar(tmp_path: Path) -> None:
    broker = a_broker(tmp_path, config_black_list=("traceOn",))
    with pytest.raises(NoPermission, match="traceOn"):
        broker.configuration.update({"traceOn": "false"})


# How many requests may wait, and for how long.


async def test_sends_beyond_their_capacity_are_refused(tmp_path: Path) -> None:
    async with a_desk(tmp_path, families={"send_max": 2}, flush_disk=FlushDisk.SYNC_FLUSH) as made:
        made.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        line = Line()
        made.deliver(line, *(replace(SEND, opaque=number) for number in range(3)))
        made.turn.run()
        assert BUSY in {answer.code for answer in line.read()}
        await asyncio.wait_for(made.acks.drain(), 5)


async def test_pulls_beyond_their_capacity_are_refused(tmp_path: Path) -> None:
    async with a_desk(tmp_path, families={"pull_max": 1}) as made:
        made.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        answers = await made.ask(a_waiting_pull(), a_waiting_pull())
        assert [answer.code for answer in answers] == [BUSY]


AGES: list[tuple[str, Command]] = [
    ("send_age_ms", SEND),
    ("pull_age_ms", a_waiting_pull()),
    ("lite_pull_age_ms", replace(a_waiting_pull(), code=RequestCode.LITE_PULL_MESSAGE)),
]


async def aged(made: DeskBench, request: Command, waited_ms: int) -> list[int]:
    made.tables.topics.put(TopicConfig(TOPIC, 4, 4))
    made.turn._began_s -= 60.0  # The loop was late: connections are asked how late.
    return [answer.code for answer in await made.ask(request, line=Line(waited_ms=waited_ms))]


@pytest.mark.parametrize(("option", "request_"), AGES, ids=[name for name, _ in AGES])
async def test_a_request_that_has_lain_unread_for_longer_than_was_set_is_refused(
    tmp_path: Path, option: str, request_: Command
) -> None:
    async with a_desk(tmp_path, families={option: 7000}) as made:
        assert BUSY not in await aged(made, request_, 6900)
        assert await aged(made, request_, 7100) == [BUSY]


@pytest.mark.parametrize("request_", [request for _, request in AGES], ids=[name for name, _ in AGES])
async def test_no_request_is_refused_for_its_age_where_that_is_switched_off(
    tmp_path: Path, request_: Command
) -> None:
    async with a_desk(tmp_path, families={"fast_failure": False}) as made:
        assert BUSY not in await aged(made, request_, 3_600_000)


class Stuck:
    """A broker whose threads for slow work are all held until the test is done with them."""

    def __init__(self, broker: Broker, threads: int) -> None:
        self.broker = broker
        self._go_on = threading.Event()
        self.running = threading.Semaphore(0)
        for _ in range(threads):
            broker._offload._threads.submit(self._hold)

    def _hold(self) -> None:
        self.running.release()
        assert self._go_on.wait(60)

    def release(self) -> None:
        self._go_on.set()

    async def ask(self, request: Command, count: int) -> list[Command]:
        """The answers that came while the threads were held."""
        caller = Caller()
        calls = [
            asyncio.create_task(caller.call(f"127.0.0.1:{self.broker.port}", request, 30))
            for _ in range(count)
        ]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        first = [call.result() for call in calls if call.done()]
        self.release()
        await asyncio.gather(*calls)
        await caller.aclose()
        return first


QUERY = Command(
    code=RequestCode.QUERY_MESSAGE,
    ext_fields={"topic": TOPIC, "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"},
)
CAPACITIES: list[tuple[str, Command]] = [
    ("query_max", QUERY),
    ("consumer_max", Command(code=RequestCode.GET_ALL_CONSUMER_OFFSET)),
    ("admin_max", Command(code=RequestCode.GET_BROKER_RUNTIME_INFO)),
]


@pytest.mark.parametrize(("option", "request_"), CAPACITIES, ids=[name for name, _ in CAPACITIES])
async def test_requests_of_a_family_beyond_its_capacity_are_refused(
    tmp_path: Path, option: str, request_: Command
) -> None:
    limits: dict[str, Any] = {option: 1, "query_threads": 1}
    broker = a_broker(tmp_path, FamilySettings(**limits))
    await broker.start()
    stuck = Stuck(broker, 1)
    try:
        assert [answer.code for answer in await stuck.ask(request_, 2)] == [BUSY]
    finally:
        stuck.release()
        await broker.stop()


async def test_ends_of_transactions_have_a_limit(tmp_path: Path) -> None:
    broker = a_broker(tmp_path, FamilySettings(end_transaction_max=7))
    made = broker.compose()
    assert made.families.backlogs["endTransaction"].limit == 7


async def test_an_admin_request_that_stands_in_line_for_too_long_is_refused(
    tmp_path: Path,
) -> None:
    broker = a_broker(tmp_path, FamilySettings(admin_age_ms=20, query_threads=1))
    await broker.start()
    stuck = Stuck(broker, 1)
    try:
        info = Command(code=RequestCode.GET_BROKER_RUNTIME_INFO)
        (late,) = await stuck.ask(info, 17)  # 16 are served at once.
        assert late.code == BUSY and "period in queue: 20ms" in (late.remark or "")
    finally:
        stuck.release()
        await broker.stop()


async def test_slow_work_has_as_many_threads_as_were_set(tmp_path: Path) -> None:
    broker = a_broker(tmp_path, FamilySettings(query_threads=7))
    await broker.start()
    stuck = Stuck(broker, 8)
    try:
        assert all([await asyncio.to_thread(stuck.running.acquire, timeout=10) for _ in range(7)])
        assert not stuck.running.acquire(blocking=False)
    finally:
        stuck.release()
        await broker.stop()
