"""Members of ours in groups of RocketMQ's: they follow, lead and hand over, and nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Mapping
from typing import Self

import pytest
from tests.cli.commands import flaremq
from tests.java.clients import JavaClients
from tests.java.mixedgroup import NAME, MixedGroup
from tests.java.peers import Peers
from tests.java.test_raft_clients import QUICK, Sales, has_all, reads
from tests.java.toolchain import Toolchain

from flaremq.admin.sync import Admin
from flaremq.admin.values.topics import TopicSettings
from flaremq.base.errors import FlareError, SendFailed
from flaremq.client.message import SendStatus
from flaremq.client.settings import ConsumerSettings, ProducerSettings
from flaremq.client.sync import LitePullConsumer, Producer
from flaremq.model.message import Message
from flaremq.model.topic import GroupConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.group import ConsumeFromWhere, ConsumerOffsetSerializeWrapper
from flaremq.protocol.bodies.raft import RaftGroupStatus
from flaremq.protocol.codes import RequestCode
from flaremq.testing.cluster import eventually
from flaremq.testing.patience import load_factor

pytestmark = pytest.mark.java
TOPIC = "Orders"
LIMIT_S = 60.0


@pytest.fixture
def group(request: pytest.FixtureRequest, peers: Peers, java_toolchain: Toolchain) -> MixedGroup:
    """With members of RocketMQ 5.3.3, or of the version that the test asks for."""
    return MixedGroup(peers, java_toolchain, version=getattr(request, "param", "5.3.3"))


def send(group: MixedGroup, begin: int, count: int) -> None:
    """Messages of which each is acknowledged in the end, whoever leads meanwhile."""
    settings = ProducerSettings(timeout_s=10.0)
    with Producer("sellers", namesrv=group.namesrv.address, settings=settings) as seller:
        for number in range(begin, begin + count):
            message = Message(TOPIC, b"order %06d" % number)
            limit_s = time.monotonic() + LIMIT_S * load_factor()
            while True:
                try:
                    assert seller.send(message).status is SendStatus.OK
                    break
                except SendFailed:
                    if time.monotonic() > limit_s:
                        raise


def send_batches(group: MixedGroup, count: int) -> None:
    """Batches of six messages: a file holds 19, and ends within the next one."""
    settings = ProducerSettings(timeout_s=10.0)
    with Producer("sellers", namesrv=group.namesrv.address, settings=settings) as seller:
        for _ in range(count):
            batch = [Message(TOPIC, b"large".ljust(9_000, b".")) for _ in range(6)]
            assert seller.send_batch(batch).status is SendStatus.OK


class Seller:
    """Sends one message after another in a thread, and knows which were acknowledged."""

    def __init__(self, group: MixedGroup) -> None:
        self._namesrv = group.namesrv.address
        self.acknowledged: list[bytes] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._sell)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _sell(self) -> None:
        settings = ProducerSettings(timeout_s=5.0)
        with Producer("sellers", namesrv=self._namesrv, settings=settings) as seller:
            for number in itertools.count():
                if self._ends.is_set():
                    return
                body = b"order %06d" % number
                try:
                    if seller.send(Message(TOPIC, body)).status is SendStatus.OK:
                        self.acknowledged.append(body)
                except FlareError:
                    continue  # It may be stored, or not.

    def sells(self, more: int) -> None:
        """Wait until so many more messages are acknowledged."""
        wanted = len(self.acknowledged) + more

        async def are_there() -> bool:
            return len(self.acknowledged) >= wanted

        asyncio.run(eventually(f"{wanted} messages are acknowledged", are_there, LIMIT_S))


def read_all(group: MixedGroup) -> list[bytes]:
    """What a new group of consumers gets."""
    settings = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    found: list[bytes] = []
    with LitePullConsumer("auditors", namesrv=group.namesrv.address, settings=settings) as consumer:
        consumer.subscribe(TOPIC)
        while batch := consumer.poll(timeout_s=10):
            found += [each.body for each in batch]
    return found


@pytest.mark.parametrize("group", ["5.3.3", "5.5.0", "4.9.7"], indirect=True)
def test_our_member_follows_a_leader_of_apaches_byte_for_byte_and_leads_when_that_one_dies(
    group: MixedGroup,
) -> None:
    group.start({"n0": "java", "n1": "java"})
    leader = group.leader()
    send(group, 0, 200)
    group.start({"n2": "ours"})
    send(group, 200, 200)
    send_batches(group, 60)
    group.same_logs("n0", "n1", "n2", least=60 * 6 * 9_000)
    assert group.log("n2").count(b"order ") == 400
    group.until_status("n2", "it votes", lambda now: now.may_vote)
    status = group.status("n2")
    assert (status.standing, status.leader) == ("follower", leader)
    assert "only as safe as its members that run Apache's DLedger: n0, n1" in status.caution
    shown = flaremq("cluster", "group", "-n", group.namesrv.address)
    assert shown.status == 0, shown.out + shown.err
    assert f"{NAME} is led by {leader}, which tells nothing of its group" in shown.err
    assert "a mixed group is only as safe as its members that run Apache's DLedger" in shown.err
    refused = flaremq("cluster", "group", "transfer", "n2", "-n", group.namesrv.address)
    assert "only a leader of FlareMQ's can be asked" in refused.complaint
    group.kill(leader)
    assert group.leader(leader) in ("n0", "n1", "n2")
    send(group, 400, 100)
    other = next(each for each in ("n0", "n1") if each != leader)
    group.same_logs(other, "n2")
    assert group.log("n2").count(b"order ") >= 500


def test_a_member_of_our_own_rules_does_not_get_into_a_group_of_apaches(group: MixedGroup) -> None:
    group.start({"n0": "java", "n1": "java"})
    group.leader()
    send(group, 0, 20)
    group.start({"n2": "own rules"})
    group.until_status(
        *("n2", "it has refused them"), lambda now: "speak the DLedger library's protocol" in now.last_refusal
    )
    send(group, 20, 20)
    status = group.status("n2")
    assert (status.leader, status.last_index) == ("", -1)
    assert all(each.complaint for each in status.peers)


@pytest.mark.parametrize("batches", [False, True], ids=["singly", "in batches"])
def test_apaches_leader_hands_over_to_our_member_which_leads_and_may_be_killed(
    group: MixedGroup, batches: bool
) -> None:
    group.start({"n1": "java", "n2": "java"}, preferredLeaderId="n0", enableBatchPush=batches)
    group.leader()
    send(group, 0, 100)
    group.start({"n0": "ours"}, preferredLeaderId="n0", enableBatchPush=batches)
    group.leads("n0")
    send_batches(group, 60)
    send(group, 100, 300)
    group.same_logs("n0", "n1", "n2", least=60 * 6 * 9_000)
    group.kill("n0")
    group.leader("n0")
    send(group, 400, 100)
    group.start({"n0": "ours"}, preferredLeaderId="n0", enableBatchPush=batches)
    group.leads("n0")
    send(group, 500, 10)
    group.same_logs("n0", "n1", "n2")
    log = group.log("n0")
    assert all(log.count(b"order %06d" % number) for number in range(510))


def test_our_leader_hands_over_to_a_member_of_apaches_when_it_is_asked_to_and_when_it_stops(
    group: MixedGroup,
) -> None:
    group.start({"n1": "java", "n2": "java"}, preferredLeaderId="n0")
    group.leader()
    send(group, 0, 10)
    group.start({"n0": "ours"})
    group.leads("n0")
    send(group, 10, 40)
    group.transfer("n0", "n1")  # Which hands back, as it prefers n0.
    group.leads("n0")
    send(group, 50, 50)
    began_s = time.monotonic()
    group.stop("n0")
    assert group.leader("n0") in ("n1", "n2")
    assert time.monotonic() - began_s < 6.0 * load_factor(), "it was missed, and has not handed over"
    send(group, 100, 50)
    group.same_logs("n1", "n2")
    log = group.log("n1")
    assert all(log.count(b"order %06d" % number) for number in range(150))


def consume(group: MixedGroup, count: int) -> set[bytes]:
    """So many messages that this group of consumers has not had yet, and which it will not get again."""
    settings = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    found: set[bytes] = set()
    with LitePullConsumer("billing", namesrv=group.namesrv.address, settings=settings) as consumer:
        consumer.subscribe(TOPIC)
        while len(found) < count:
            batch = consumer.poll(timeout_s=LIMIT_S)
            assert batch, f"{len(found)} of {count} messages came"
            found |= {each.body for each in batch}
        consumer.commit()
    return found


def offsets_in(body: bytes) -> Mapping[int, int]:
    """How far the group of consumers is in each queue, by a broker's table."""
    table = beans.decode(ConsumerOffsetSerializeWrapper, body).offset_table
    return table.get(f"{TOPIC}@billing", {})


def orders(begin: int, end: int) -> set[bytes]:
    return {b"order %06d" % number for number in range(begin, end)}


def test_topics_groups_and_offsets_go_from_apaches_leader_to_ours_and_back(group: MixedGroup) -> None:
    group.start({"n1": "java", "n2": "java"}, preferredLeaderId="n0")
    group.leader()
    with Admin(namesrv=group.namesrv.address) as admin:
        admin.topics.create("Early", TopicSettings(read_queues=5, write_queues=5))
        admin.groups.create(GroupConfig("billing", retry_max_times=3))
        send(group, 0, 50)
        assert consume(group, 50) == orders(0, 50)
        group.start({"n0": "ours"}, preferredLeaderId="n0")
        group.leads("n0")
        assert {each.read_queues for each in admin.topics.get("Early").brokers.values()} == {5}
        assert {each.retry_max_times for each in admin.groups.get("billing").brokers.values()} == {3}
        send(group, 50, 50)
        assert consume(group, 50) == orders(50, 100)
        admin.topics.create("Late", TopicSettings(read_queues=6, write_queues=6))
        told = group.asked("n0", RequestCode.GET_ALL_CONSUMER_OFFSET)
        offsets = offsets_in(told)
        assert offsets and sum(offsets.values()) == 100
        for each in ("n1", "n2"):
            group.until_asked(each, RequestCode.GET_ALL_TOPIC_CONFIG, lambda body: b'"Late"' in body)
            group.until_asked(
                *(each, RequestCode.GET_ALL_CONSUMER_OFFSET),
                lambda body: offsets_in(body) == offsets,
            )
        group.kill("n0")
        assert group.leader("n0") in ("n1", "n2")
        send(group, 100, 50)
        assert consume(group, 50) == orders(100, 150)
        assert {each.read_queues for each in admin.topics.get("Late").brokers.values()} == {6}


def test_a_group_of_apaches_is_replaced_member_by_member_under_load_and_then_follows_our_rules(
    group: MixedGroup,
) -> None:
    group.start({"n0": "java", "n1": "java", "n2": "java"})
    with Admin(namesrv=group.namesrv.address) as admin, Seller(group) as seller:
        group.leader()
        admin.topics.create("Rare", TopicSettings(read_queues=7, write_queues=7))
        seller.sells(100)
        leader = group.leader()
        for member in [*(each for each in group.ids if each != leader), leader]:
            group.stop(member)
            group.start({member: "ours"})
            group.until_status(member, "it votes and has the log", lambda now: is_whole(now))
            seller.sells(100)
        last = group.leader()
        group.until_status(last, "all are ours", lambda now: "all members are FlareMQ's" in now.caution)
        for member in [*(each for each in group.ids if each != last), last]:
            group.stop(member)
        group.start(dict.fromkeys(group.ids, "own rules"))
        group.leader()
        seller.sells(100)
        assert group.status(group.leader()).caution == ""
        assert {each.read_queues for each in admin.topics.get("Rare").brokers.values()} == {7}
    group.same_logs(*group.ids)
    found = set(read_all(group))
    assert not [body for body in seller.acknowledged if body not in found]


def is_whole(now: RaftGroupStatus) -> bool:
    return now.may_vote and bool(now.leader) and now.commit_index >= 0 and not now.not_fit


def replace_followers(group: MixedGroup, count: int) -> None:
    """Members of ours in the place of so many of Apache's."""
    leader = group.leader()
    for member in [each for each in group.ids if each != leader][:count]:
        group.stop(member)
        group.start({member: "ours"})
        group.until_status(member, "it votes and has the log", is_whole)


async def test_javas_clients_lose_nothing_while_leaders_of_either_kind_are_killed(
    java_toolchain: Toolchain, group: MixedGroup
) -> None:
    await asyncio.to_thread(group.start, dict.fromkeys(group.ids, "java"))
    leader = await asyncio.to_thread(group.leader)
    with JavaClients(java_toolchain, "5.3.3") as tills, JavaClients(java_toolchain, "5.3.3") as readers:
        tills.namesrv = readers.namesrv = group.namesrv.address
        address = group.members[leader].address
        await asyncio.to_thread(tills.create_topic, TOPIC, address, NAME, 4)
        sales = Sales(await asyncio.to_thread(lambda: tills.producer(**QUICK)))
        selling = asyncio.create_task(sales.run())
        try:
            await sales.more(50)
            await asyncio.to_thread(replace_followers, group, 2)
            consumer = await reads(readers, "steady")
            led = list[str]()
            for _ in range(4):
                led.append(await asyncio.to_thread(group.leader))
                kind = group.kinds[led[-1]]
                await asyncio.to_thread(group.kill, led[-1])
                await asyncio.to_thread(group.leader, led[-1])
                await sales.more(100)
                await asyncio.to_thread(group.start, {led[-1]: kind})
                await sales.more(20)
            assert {group.kinds[each] for each in led} >= {"java", "ours"}
            async with sales.paused():
                await has_all(consumer, sales.places)
        finally:
            selling.cancel()
            await asyncio.wait([selling])
