"""Our admin at Apache's servers, 5.x and 4.x, and at ours: what it says is what mqadmin says."""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.java.clients import Draft, JavaClients, Printed, PushConsumer, Queue, Sent
from tests.java.peers import Apache, Flare, Kind, Peers, Server
from tests.java.toolchain import Toolchain

from flaremq.admin.sync import Admin
from flaremq.admin.values.groups import GroupChange, Position
from flaremq.admin.values.messages import Scan, TimeRange, TrackState
from flaremq.admin.values.topics import Perm, TopicChange, TopicKind, TopicSettings
from flaremq.base.errors import (
    ConsumerOffline,
    GroupNotFound,
    MessageNotFound,
    NoPermission,
    NotServed,
    TopicNotFound,
)
from flaremq.client.settings import ClientSettings
from flaremq.model.message import MessageQueue
from flaremq.model.topic import GroupConfig
from flaremq.protocol.bodies.group import CMResult, ConsumeType, MessageModel
from flaremq.protocol.bodies.pop import MessageRequestMode
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import WireClient

pytestmark = pytest.mark.java

FOUR = TopicSettings(read_queues=4, write_queues=4)
PATIENCE_MS = 80_000
"""A 4.x client that is sent elsewhere takes 10 s to believe it, and looks for its queues every 20 s."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Eight messages, two in each queue of "orders", and a consumer and a producer of Java that are there."""

    admin: Admin
    java: JavaClients
    version: str
    namesrv: Server
    broker: Server
    queues: list[Queue]
    sent: list[Sent]
    producer_group: str
    consumer: PushConsumer

    @property
    def is_4(self) -> bool:
        return self.version.startswith("4")

    def ask(self, *words: str) -> Printed:
        return self.java.mqadmin(*words)


def servers_of(version: str, toolchain: Toolchain) -> Kind:
    return Flare() if version == "ours" else Apache(toolchain, version=version)


@pytest.fixture(scope="module", params=["ours", "5.3.3", "5.5.0", "4.9.7"])
def scene(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """mqadmin of 5.x asks what no 4.x broker knows, so that each has one of its age."""
    kind = servers_of(request.param, java_toolchain)
    clients = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}.get(request.param, "5.3.3")
    with Peers(tmp_path_factory.mktemp("ours")) as peers, JavaClients(java_toolchain, clients) as java:
        namesrv = peers.namesrv(kind)
        broker = peers.broker(kind, namesrv.address)
        java.namesrv = namesrv.address
        with Admin(settings=ClientSettings(namesrv=namesrv.address, timeout_s=20)) as admin:
            wait("the broker is known", lambda: len(admin.brokers.list(runtime=False)) == 1)
            assert admin.topics.create("orders", FOUR) == ("broker-a",)
            queues = [Queue("orders", "broker-a", n) for n in range(4)]
            producer = java.producer("shop")
            drafts = [
                Draft(topic="orders", body=f"body {n}".encode(), tags="A", keys=f"key-{n} all", queue=queue)
                for n, queue in enumerate(queues * 2)
            ]
            sent = producer.send(drafts)
            consumer = java.push("orders", "billing")
            assert len(consumer.received(8)) == 8
            yield Scene(admin, java, request.param, namesrv, broker, queues, sent, producer.group, consumer)


def wait(what: str, is_so: Callable[[], bool]) -> None:
    """For what Java does a moment late: registrations, offsets, indexes."""

    async def looked() -> bool:
        return is_so()

    asyncio.run(eventually(what, looked, 60))


def wait_consumed(scene: Scene, group: str = "billing") -> None:
    def is_so() -> bool:
        found = scene.admin.groups.progress(group, "orders").queues
        return [each.consumer_offset for each in found] == [2] * 4

    wait(f"{group} has consumed all", is_so)


@pytest.mark.smoke
def test_a_round_with_apaches_servers(java_toolchain: Toolchain, tmp_path: Path) -> None:
    with Peers(tmp_path) as peers:
        kind = Apache(java_toolchain)
        namesrv = peers.namesrv(kind)
        broker = peers.broker(kind, namesrv.address)
        with Admin(settings=ClientSettings(namesrv=namesrv.address, timeout_s=20)) as admin:
            wait("the broker is known", lambda: len(admin.brokers.list(runtime=False)) == 1)
            admin.topics.create("orders", FOUR)
            assert admin.topics.get("orders").brokers == {"broker-a": FOUR}
            # Java counts its rates once a second, and until then refuses to tell anything.
            wait("the broker has counted once", lambda: not admin.brokers.list().failed)
            (found,) = admin.brokers.list()
            assert found.address == broker.address and found.runtime is not None
            assert found.runtime.version == "V5_3_3"
            admin.groups.create(GroupConfig("billing"))
            moves = admin.groups.reset("billing", "orders", Position.end()).moves
            assert [move.new for move in moves] == [0] * 4
            admin.topics.delete("orders")
            with pytest.raises(TopicNotFound):
                admin.topics.route("orders")


# Topics.


def test_topics_are_those_of_mqadmin(scene: Scene) -> None:
    listed = {each.name: each.kind for each in scene.admin.topics.list()}
    assert set(scene.ask("topicList").lines()) == set(listed)
    assert listed["orders"] is TopicKind.NORMAL
    assert listed["%RETRY%billing"] is TopicKind.RETRY
    own = {"TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX", "DefaultCluster_REPLY_TOPIC"}
    assert {listed[name] for name in own} == {TopicKind.SYSTEM}


def test_queues_hold_what_mqadmin_says(scene: Scene) -> None:
    rows = [row[:4] for row in scene.ask("topicStatus", "-t", "orders").rows() if row[0] == "broker-a"]
    stats = scene.admin.topics.stats("orders")
    assert rows == [
        [each.queue.broker_name, str(each.queue.queue_id), str(each.min_offset), str(each.max_offset)]
        for each in stats.queues
    ]
    assert stats.count == 8 and all(each.last_update_ms for each in stats.queues)
    wait_consumed(scene)
    assert "billing" in scene.admin.topics.consumers("orders")
    assert "orders" not in scene.admin.topics.consumers("orders")


def test_a_topic_is_made_changed_and_deleted(scene: Scene) -> None:
    admin = scene.admin
    attributes = {} if scene.is_4 else {"message.type": "FIFO"}
    made = TopicSettings(read_queues=3, write_queues=2, order=True, attributes=attributes)
    admin.topics.create("made", made)
    found = admin.topics.get("made")
    assert found.brokers == {"broker-a": made} and found.order_conf == "broker-a:2"
    admin.topics.update("made", TopicChange(perm=Perm.READ, order=False))
    changed = admin.topics.get("made")
    assert changed.order_conf is None
    assert changed.brokers["broker-a"] == TopicSettings(
        read_queues=3, write_queues=2, perm=Perm.READ, attributes=attributes
    )
    printed = scene.ask("topicRoute", "-t", "made").out
    assert re.search(r'"perm":\s*4', printed) and re.search(r'"readQueueNums":\s*3', printed)
    admin.topics.delete("made")
    assert "made" not in scene.ask("topicList").lines()
    with pytest.raises(TopicNotFound):
        admin.topics.get("made")


def test_producers_are_told(scene: Scene) -> None:
    (found,) = scene.admin.topics.producers("orders", "shop")
    ((_, client, address, language, version),) = scene.ask(
        "producerConnection", "-g", "shop", "-t", "orders"
    ).rows()
    assert (found.client_id, found.language, found.version_name) == (client, language, version)
    assert found.address == address
    assert list(scene.admin.topics.producers("orders", "nobody")) == []
    assert "shop" in [each.group for each in scene.admin.brokers.producers()]


# Groups.


def test_progress_is_that_of_mqadmin(scene: Scene) -> None:
    wait_consumed(scene)
    found = scene.admin.groups.progress("billing")
    printed = scene.ask("consumerProgress", "-g", "billing")
    rows = [row[:6] for row in printed.rows() if len(row) > 6 and row[1] == "broker-a"]
    assert sorted(rows) == sorted(
        [
            each.queue.topic,
            each.queue.broker_name,
            str(each.queue.queue_id),
            str(each.broker_offset),
            str(each.consumer_offset),
            str(each.lag),
        ]
        for each in found.queues
    )
    (member,) = scene.admin.groups.members("billing").members
    owners = {each.owner for each in found.queues if each.queue.topic == "orders"}
    assert owners == {member.client_id} and found.members == 1 and not found.failed
    (line,) = [each for each in scene.admin.groups.summaries() if each.name == "billing"]
    groups = {row[0]: row[1:] for row in scene.ask("consumerProgress").rows()}
    assert groups["billing"][:4] == [str(line.members), str(line.version_name), "PUSH", "CLUSTERING"]


def test_members_are_those_of_mqadmin(scene: Scene) -> None:
    found = scene.admin.groups.members("billing")
    printed = scene.ask("consumerConnection", "-g", "billing")
    ((client, address, language, version),) = [row for row in printed.rows() if "@" in row[0]]
    (member,) = found.members
    assert (member.client_id, member.language, member.version_name) == (client, language, version)
    assert member.address == address
    assert {each.topic for each in found.subscriptions} == {"orders", "%RETRY%billing"}
    assert found.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert found.message_model is MessageModel.CLUSTERING
    info = scene.admin.groups.running("billing", client, stacks=True)
    assert {queue.queue_id for queue in info.mq_table if queue.topic == "orders"} == {0, 1, 2, 3}
    assert info.jstack
    (told,) = scene.admin.groups.positions("billing", "orders")
    assert told.client_id == client and set(told.offsets.values()) == {2}
    with pytest.raises(ConsumerOffline):
        scene.admin.groups.members("nobody")


def test_a_group_is_made_changed_and_deleted(scene: Scene) -> None:
    admin = scene.admin
    admin.groups.create(GroupConfig("made", retry_max_times=7))
    admin.groups.update("made", GroupChange(retry_queue_nums=2))
    (found,) = admin.groups.get("made").brokers.values()
    assert (found.retry_max_times, found.retry_queue_nums) == (7, 2)
    assert "made" in [each.name for each in admin.groups.list()]
    admin.groups.delete("made")
    with pytest.raises(GroupNotFound):
        admin.groups.get("made")
    assert {each.name for each in admin.groups.list() if each.is_system} >= {"TOOLS_CONSUMER"}


def test_a_group_that_is_not_connected_is_moved(scene: Scene) -> None:
    admin, a0 = scene.admin, MessageQueue("orders", "broker-a", 0)
    admin.groups.create(GroupConfig("offline"))
    plan = admin.groups.reset("offline", "orders", Position.end(), dry_run=True)
    assert [move.new for move in plan.moves] == [2] * 4 and not plan.applied
    assert admin.groups.skip("offline", "orders").moves == plan.moves
    assert [each.lag for each in admin.groups.progress("offline", "orders").queues] == [0] * 4
    admin.groups.reset("offline", "orders", Position.offsets({a0: 1}))
    assert [each.lag for each in admin.groups.progress("offline", "orders").queues] == [1, 0, 0, 0]
    admin.groups.reset("offline", "orders", Position.begin())
    assert admin.groups.progress("offline").lag == 8
    assert list(admin.groups.topics("offline")) == ["orders"]
    spans = admin.groups.spans("offline", "orders")
    assert len(spans) == 4 and all(each.first_ms and each.last_ms for each in spans)
    newest_ms = max(each.last_ms or 0 for each in spans)
    admin.groups.reset("offline", "orders", Position.time(newest_ms + 1))
    admin.groups.clone("offline", "copy")
    there = [each.consumer_offset for each in admin.groups.progress("offline", "orders").queues]
    assert there == [1 if scene.is_4 else 2] * 4  # Before version 5 the nearest message is meant.
    assert [each.consumer_offset for each in admin.groups.progress("copy", "orders").queues] == there


def test_a_group_that_is_connected_is_moved(scene: Scene) -> None:
    consumer = scene.java.push("orders", "moved")
    assert len(consumer.received(8)) == 8
    wait_consumed(scene, "moved")
    found = scene.admin.groups.reset("moved", "orders", Position.begin())
    assert [(move.old, move.new) for move in found.moves] == [(2, 0)] * 4
    assert len(consumer.received(16, PATIENCE_MS)) == 16
    consumer.stop()


def test_what_4_does_not_have_is_said(scene: Scene) -> None:
    admin = scene.admin
    admin.groups.create(GroupConfig("careful"))
    if scene.is_4:
        with pytest.raises(NotServed):
            admin.groups.forbid("careful", "orders")
        with pytest.raises(NotServed):
            admin.brokers.ha_status("broker-a")
        with pytest.raises(NotServed):
            admin.groups.set_mode("careful", "orders", MessageRequestMode.POP)
        return
    assert admin.groups.forbid("careful", "orders") == ("broker-a",)
    assert admin.groups.forbidden("careful", "orders") == ("broker-a",)
    admin.groups.allow("careful", "orders")
    assert admin.groups.forbidden("careful", "orders") == ()
    if scene.version != "ours":
        assert admin.brokers.ha_status("broker-a").is_master
        admin.groups.set_mode("careful", "orders", MessageRequestMode.POP, pop_share_queues=1)


# Messages.


def test_messages_are_found_as_mqadmin_finds_them(scene: Scene) -> None:
    admin, sent = scene.admin, scene.sent[3]
    assert sent.offset_message_id is not None
    by_key = admin.messages.by_key
    wait("all messages are in the index", lambda: len(by_key("orders", "all")) == 8)
    found = admin.messages.get(sent.offset_message_id)
    assert (found.body, found.tags, found.keys) == (b"body 3", "A", ("key-3", "all"))
    assert (found.message_id, found.offset_id) == (sent.message_id, sent.offset_message_id)
    assert admin.messages.get(sent.message_id, "orders") == found
    assert list(admin.messages.by_key("orders", "key-3")) == [found]
    assert admin.messages.by_offset(found.queue, found.queue_offset) == found
    topic = () if scene.is_4 else ("-t", "orders")
    printed = scene.ask("queryMsgById", "-i", sent.offset_message_id, *topic).out
    assert re.search(rf"Queue ID:\s+{found.queue.queue_id}\s", printed)
    assert re.search(rf"CommitLog Offset:\s+{found.stored.physical_offset}\s", printed)
    with pytest.raises(MessageNotFound):
        admin.messages.get("7F000001303918B4AAC2000000000FFF", "orders")
    with pytest.raises(MessageNotFound, match="no broker has it"):
        admin.messages.get(found.offset_id[:-16] + f"{10**9:016X}")
    with pytest.raises(MessageNotFound, match="no message at 2"):
        admin.messages.by_offset(found.queue, 2)


def test_a_scan_reads_all_of_a_topic(scene: Scene) -> None:
    found = list(scene.admin.messages.scan(Scan(topic="orders")))
    assert [each.body for each in found] == [f"body {n}".encode() for n in (0, 4, 1, 5, 2, 6, 3, 7)]
    first_ms, last_ms = min(each.stored_ms for each in found), max(each.stored_ms for each in found)
    for within, count in (
        (TimeRange(first_ms, last_ms), 8),
        (TimeRange(last_ms + 1), 0),
        (TimeRange(0, first_ms - 1), 0),
    ):
        assert len(list(scene.admin.messages.scan(Scan(topic="orders", within=within)))) == count
    assert list(scene.admin.messages.scan(Scan(topic="orders", tags="B"))) == []


def test_a_message_is_tracked_and_consumed_on_demand(scene: Scene) -> None:
    (message, *_) = scene.admin.messages.scan(Scan(topic="orders", count_max=1))
    wait_consumed(scene)
    tracks = {each.group: each for each in scene.admin.messages.track(message)}
    assert (tracks["billing"].state, tracks["billing"].online) == (TrackState.CONSUMED, True)
    before = len(scene.consumer.received(8))
    result = scene.admin.messages.consume_directly(message, "billing")
    assert result.result is CMResult.CR_SUCCESS and result.auto_commit
    assert len(scene.consumer.received(before + 1)) == before + 1


async def give_up(address: str, offset: int, group: str) -> None:
    header = ConsumerSendMsgBackRequestHeader(
        offset=offset, group=group, delay_level=-1, origin_topic="orders", max_reconsume_times=16
    )
    async with WireClient() as wire:
        await wire.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)


def test_a_dead_letter_goes_to_its_group_once_more(scene: Scene) -> None:
    admin = scene.admin
    consumer = scene.java.push("orders", "undertaker")
    assert len(consumer.received(8)) == 8
    (message, *_) = admin.messages.scan(Scan(topic="orders", count_max=1))
    asyncio.run(give_up(scene.broker.address, message.stored.physical_offset, "undertaker"))

    def known() -> bool:
        return "%DLQ%undertaker" in [each.name for each in admin.topics.list()]

    wait("the dead letter has a topic", known)
    wait("the dead letter is there", lambda: admin.topics.stats("%DLQ%undertaker").count == 1)
    assert admin.groups.progress("undertaker").dead_letters == 1
    (letter,) = admin.messages.scan(Scan(topic="%DLQ%undertaker"))
    admin.messages.resend(letter)

    def came() -> list[tuple[bytes, str]]:
        ids = [(each.message_id, each.body, each.queue.topic) for each in consumer.received(9)]
        return [(body, topic) for message_id, body, topic in ids if message_id == message.message_id]

    wait("it comes once more", lambda: len(came()) == 2)
    assert came()[-1] == (message.body, "orders")
    consumer.stop()
    admin.groups.delete("undertaker")
    assert not known()


# Brokers and NameServers.


def test_brokers_are_those_of_mqadmin(scene: Scene) -> None:
    (cluster,) = scene.admin.brokers.clusters()
    assert (cluster.name, cluster.brokers) == ("DefaultCluster", ("broker-a",))
    (found,) = scene.admin.brokers.list()
    (row,) = scene.ask("clusterList").rows()
    assert found.runtime is not None
    assert row[:5] == [found.cluster, found.name, str(found.id), found.address, str(found.runtime.version)]
    assert found.runtime.put_today is not None and found.runtime.put_today >= 8
    assert found.runtime.get_tps is not None
    # 4.x reads twice the largest message to find it, and has no answer while its log is shorter than that.
    assert (found.runtime.earliest_ms is None) == scene.is_4
    (*_, put_today, get_today) = scene.ask("clusterList", "-m").rows()[0]
    assert (int(put_today), int(get_today)) >= (found.runtime.put_today, found.runtime.get_today or 0)


def test_settings_are_read_and_changed(scene: Scene) -> None:
    admin = scene.admin
    (settings,) = admin.brokers.config()
    assert settings.values["listenPort"] == str(scene.broker.port)
    admin.brokers.update_config({"defaultTopicQueueNums": "5"})
    printed = scene.ask("getBrokerConfig", "-b", scene.broker.address).out
    assert re.search(r"defaultTopicQueueNums\s*=\s*5\b", printed)
    admin.brokers.update_config({"defaultTopicQueueNums": "8"})
    (namesrv,) = admin.namesrvs.config()
    assert namesrv.values["listenPort"] == str(scene.namesrv.port)
    admin.namesrvs.kv_put("mine", "a", "größer = 1")
    assert admin.namesrvs.kv_get("mine", "a") == "größer = 1"
    assert admin.namesrvs.kv_list("mine") == {"a": "größer = 1"}
    admin.namesrvs.kv_delete("mine", "a")
    assert admin.namesrvs.kv_get("mine", "a") is None


def test_write_permission_is_taken_and_given(scene: Scene) -> None:
    admin = scene.admin
    wiped = admin.brokers.wipe_write_perm("broker-a")
    try:
        assert [each.perm for each in admin.topics.route("orders").queues] == [Perm.READ]
    finally:
        assert admin.brokers.add_write_perm("broker-a") == wiped
    assert [each.perm for each in admin.topics.route("orders").queues] == [Perm.READ_WRITE]
    assert wiped[scene.namesrv.address] > 5


def test_figures_of_a_broker(scene: Scene) -> None:
    admin = scene.admin
    stats = admin.brokers.consume_stats("broker-a")
    assert ("billing", "orders") in {(each.group, each.queue.topic) for each in stats.queues}
    (rates,) = admin.brokers.rates("TOPIC_PUT_NUMS", "orders")
    assert rates.broker == "broker-a" and rates.minute.sum >= 0
    assert list(admin.brokers.rates("TOPIC_PUT_NUMS", "there-is-none")) == []
    for clean in (admin.brokers.clean_expired_queues, admin.brokers.clean_unused_topics):
        assert clean() == ("broker-a",)
    assert admin.brokers.delete_expired_files() == ("broker-a",)
    if not scene.is_4:  # It takes them.
        with pytest.raises(NoPermission):
            admin.brokers.update_config({"brokerConfigPath": "/tmp/x"})
