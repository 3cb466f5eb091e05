"""What an operator reads when mqadmin, of both versions, is asked about a cluster."""

import json
import re
import time
from dataclasses import dataclass

import pytest
from tests.java.clients import Draft, JavaClients, Printed, PushConsumer, Queue, Sent
from tests.java.conftest import Cluster, new_topic
from tests.java.peers import Kind

pytestmark = pytest.mark.java

VERSION = {"5.3.3": "V5_3_3", "5.5.0": "V5_5_0", "4.9.8": "V4_9_8"}
BROKER_VERSION = r"V\d+_\d+_\d+"
PATIENCE_MS = 80_000
"""A 4.x client that is sent elsewhere takes 10 s to believe it, and looks for its queues every 20 s."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Eight messages, two in each queue of a topic; a producer and a consumer, still there, that dealt with
    them."""

    operator: JavaClients
    cluster: Cluster
    queues: list[Queue]
    sent: list[Sent]
    producer_group: str
    consumer: PushConsumer

    @property
    def topic(self) -> str:
        return self.queues[0].topic

    def ask(self, *words: str) -> Printed:
        """What a command that does not fail prints."""
        printed = self.operator.mqadmin(*words)
        assert printed.err == ""
        return printed


@pytest.fixture(scope="module")
def scene(operator: JavaClients, cluster: Cluster) -> Scene:
    queues = new_topic("admin", operator, cluster)
    producer = operator.producer(f"producers-of-{queues[0].topic}")
    sent = producer.send(
        [
            Draft(topic=q.topic, body=f"body {n}".encode(), tags="TagA", keys=f"key-{n}", queue=q)
            for n, q in enumerate(queues * 2)
        ]
    )
    producer.heartbeat()
    consumer = operator.push(queues[0].topic, f"consumers-of-{queues[0].topic}")
    assert len(consumer.received(8)) == 8
    return Scene(operator, cluster, queues, sent, producer.group, consumer)


def settings(printed: Printed, separator: str) -> dict[str, str]:
    """Lines of "name: value" or "name = value"."""
    pairs = (line.split(separator, 1) for line in printed.lines() if separator in line)
    return {name.strip(): value.strip() for name, value in pairs}


@pytest.mark.smoke
def test_one_round_of_mqadmin(scene: Scene) -> None:
    assert scene.topic in scene.ask("topicList").lines()
    assert [row[1] for row in scene.ask("clusterList", "-m").rows()] == [scene.cluster.broker.name]
    assert "commitLogMaxOffset" in scene.ask("brokerStatus", "-b", scene.cluster.broker.address).out


def test_topic_list(scene: Scene) -> None:
    plain = scene.ask("topicList").lines()
    assert {scene.topic, "TBW102", "BenchmarkTest", "SCHEDULE_TOPIC_XXXX", "DefaultCluster"} <= set(plain)
    rows = scene.ask("topicList", "-c").rows()
    assert ["DefaultCluster", scene.topic, scene.consumer.group] in rows
    assert ["DefaultCluster", "BenchmarkTest"] in rows


def test_topic_route(scene: Scene) -> None:
    printed = scene.ask("topicRoute", "-t", scene.topic).out
    route = json.loads(re.sub(r"([{,])\s*(\d+):", r'\1"\2":', printed))
    (broker,), (queues,) = route["brokerDatas"], route["queueDatas"]
    assert broker["brokerAddrs"] == {"0": scene.cluster.broker.address}
    assert (broker["brokerName"], broker["cluster"]) == (scene.cluster.broker.name, "DefaultCluster")
    wanted = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
    assert queues == wanted


def test_topic_route_of_nothing(scene: Scene) -> None:
    printed = scene.operator.mqadmin("topicRoute", "-t", "there-is-no-such-topic")
    assert "CODE: 17" in printed.err
    assert "No topic route info in name server for the topic: there-is-no-such-topic" in printed.err


def test_topic_status(scene: Scene) -> None:
    rows = [row for row in scene.ask("topicStatus", "-t", scene.topic).rows() if row[0] != "Topic"]
    assert [row[:4] for row in rows] == [["broker-a", str(n), "0", "2"] for n in range(4)]
    today = time.strftime("%Y-%m-%d")
    assert {row[4] for row in rows} == {today}


def test_cluster_list(kind: Kind, scene: Scene) -> None:
    printed = scene.operator.mqadmin("clusterList")
    if (
        scene.operator.version > "5" or kind.name == "flaremq"
    ):  # Apache's 5.x broker makes 4.x's mqadmin stumble.
        assert printed.err == ""
    ((name, broker, broker_id, address, version, *_),) = printed.rows()
    assert (name, broker, broker_id, address) == (
        "DefaultCluster",
        "broker-a",
        "0",
        scene.cluster.broker.address,
    )
    assert re.fullmatch(BROKER_VERSION, version)
    ((*_, came_today, gone_today),) = scene.ask("clusterList", "-m").rows()
    assert int(came_today) >= 8 and int(gone_today) >= 8


def test_broker_status(scene: Scene) -> None:
    found = settings(scene.ask("brokerStatus", "-b", scene.cluster.broker.address), ":")
    assert re.fullmatch(BROKER_VERSION, found["brokerVersionDesc"])
    assert int(found["msgPutTotalTodayNow"]) >= 8
    assert int(found["msgGetTotalTodayNow"]) >= 8
    assert int(found["commitLogMaxOffset"]) > int(found["commitLogMinOffset"]) == 0
    assert found["dispatchBehindBytes"] == "0"
    assert abs(int(found["bootTimestamp"]) / 1000 - time.time()) < 3600
    assert 0 < float(found["commitLogDiskRatio"]) < 1
    assert re.match(r"[\d.]+", found["putTps"])
    assert re.match(r"[\d.]+ [\d.]+ [\d.]+|[\d.]+", found["getTotalTps"])
    assert re.fullmatch(r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]", found["runtime"])
    for name in ("sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "pageCacheLockTimeMills"):
        assert int(found[name]) >= 0


def test_consumer_progress(scene: Scene) -> None:
    reader = scene.operator.pull()
    for queue, offset in zip(scene.queues, (2, 1, 0, 2), strict=True):
        reader.pull(queue, 0)
        reader.commit(queue, offset)
    reader.heartbeat()
    scene.operator.await_route(f"%RETRY%{reader.group}", "broker-a")
    printed = scene.ask("consumerProgress", "-g", reader.group)
    rows = [row for row in printed.rows() if row[0] == scene.topic]
    assert [row[1:6] for row in rows] == [
        ["broker-a", "0", "2", "2", "0"],
        ["broker-a", "1", "2", "1", "1"],
        ["broker-a", "2", "2", "0", "2"],
        ["broker-a", "3", "2", "2", "0"],
    ]
    assert re.search(r"Diff Total: 3$", printed.out, re.MULTILINE)
    groups = {row[0]: row[1:] for row in scene.ask("consumerProgress").rows()}
    assert groups[scene.consumer.group][:4] == ["1", VERSION[scene.operator.version], "PUSH", "CLUSTERING"]


def test_consumer_connection(scene: Scene) -> None:
    printed = scene.ask("consumerConnection", "-g", scene.consumer.group)
    (client,) = [row for row in printed.rows() if "@" in row[0]]
    assert client[0].endswith(f"@{scene.consumer.name}")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", client[1])
    assert client[2:] == ["JAVA", VERSION[scene.operator.version]]
    assert [scene.topic, "*"] in printed.rows()
    assert [f"%RETRY%{scene.consumer.group}", "*"] in printed.rows()
    assert "ConsumeType: CONSUME_PASSIVELY" in printed.lines()
    assert "MessageModel: CLUSTERING" in printed.lines()
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in printed.lines()


def test_consumer_connection_of_nobody(scene: Scene) -> None:
    printed = scene.operator.mqadmin("consumerConnection", "-g", "nobody-is-in-this-group")
    assert re.search(r"CODE: (206|17) ", printed.err)


def test_producer_connection(scene: Scene) -> None:
    printed = scene.ask("producerConnection", "-g", scene.producer_group, "-t", scene.topic)
    ((number, client, address, *rest),) = printed.rows()
    assert (number, rest) == ("0001", ["JAVA", VERSION[scene.operator.version]])
    assert re.fullmatch(r".+@producer-\d+", client)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)


def assert_describes(printed: Printed, scene: Scene, number: int) -> None:
    found = settings(printed, ":")
    assert (found["Topic"], found["Tags"], found["Keys"]) == (scene.topic, "[TagA]", f"[key-{number}]")
    assert found["Queue ID"] == str(scene.sent[number].queue.queue_id)
    assert found["Queue Offset"] == str(scene.sent[number].queue_offset)
    assert found["Reconsume Times"] == "0"
    assert found["Store Host"] == scene.cluster.broker.address
    assert re.fullmatch(r"127\.0\.0\.1:\d+", found["Born Host"])
    assert f"UNIQ_KEY={scene.sent[number].message_id}" in found["Properties"]
    assert "MSG_REGION=DefaultRegion" in found["Properties"]


def test_a_message_by_its_id(scene: Scene) -> None:
    message_id = scene.sent[3].offset_message_id
    assert message_id is not None
    topic = ("-t", scene.topic) if scene.operator.version > "5" else ()
    printed = scene.ask("queryMsgById", "-i", message_id, *topic)
    assert_describes(printed, scene, 3)
    assert settings(printed, ":")["OffsetID"] == message_id
    assert re.search(
        f"consumerGroup={scene.consumer.group}, trackType=(CONSUMED|NOT_CONSUME_YET),", printed.out
    )


def test_a_message_by_its_unique_key(scene: Scene) -> None:
    printed = scene.ask("queryMsgByUniqueKey", "-i", scene.sent[4].message_id, "-t", scene.topic)
    assert_describes(printed, scene, 4)


def test_a_message_by_its_key(scene: Scene) -> None:
    printed = scene.ask("queryMsgByKey", "-t", scene.topic, "-k", "key-6")
    sent = scene.sent[6]
    (row,) = printed.rows()  # 5.5 has a column more, for an index in another database.
    assert row[:3] == [sent.message_id, str(sent.queue.queue_id), str(sent.queue_offset)]


def test_a_message_by_its_offset(scene: Scene) -> None:
    printed = scene.ask("queryMsgByOffset", "-t", scene.topic, "-b", "broker-a", "-i", "1", "-o", "1")
    assert_describes(printed, scene, 5)


def route_of(scene: Scene, topic: str) -> list[dict[str, object]]:
    printed = scene.ask("topicRoute", "-t", topic).out
    found: list[dict[str, object]] = json.loads(re.sub(r"([{,])\s*(\d+):", r'\1"\2":', printed))["queueDatas"]
    return found


def test_a_topic_is_made_changed_and_deleted(scene: Scene) -> None:
    topic, broker = f"{scene.topic}-changed", scene.cluster.broker
    printed = scene.ask("updateTopic", "-b", broker.address, "-t", topic, "-r", "3", "-w", "2")
    assert f"create topic to {broker.address} success." in printed.out
    assert f"topicName={topic}, readQueueNums=3, writeQueueNums=2, perm=RW-" in printed.out
    scene.operator.await_route(topic, broker.name)
    printed = scene.ask("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "5", "-w", "5", "-p", "4")
    assert f"create topic to {broker.address} success." in printed.out
    assert [row[0] for row in scene.ask("topicStatus", "-t", topic).rows()].count("broker-a") == 5
    printed = scene.ask("deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert f"delete topic [{topic}] from cluster [DefaultCluster] success." in printed.lines()
    assert f"delete topic [{topic}] from NameServer success." in printed.lines()
    assert topic not in scene.ask("topicList").lines()
    assert "CODE: 17" in scene.operator.mqadmin("topicRoute", "-t", topic).err


def test_a_group_is_given_its_settings(scene: Scene) -> None:
    group = f"set-{scene.operator.version.replace('.', '_')}"
    printed = scene.ask(
        "updateSubGroup", "-b", scene.cluster.broker.address, "-g", group, "-r", "7", "-q", "2"
    )
    assert f"create subscription group to {scene.cluster.broker.address} success." in printed.out
    assert re.search(rf"groupName={group}, consumeEnable=true", printed.out)
    assert "retryQueueNums=2, retryMaxTimes=7" in printed.out
    groups = [row[0] for row in scene.ask("consumerProgress").rows()]
    assert scene.consumer.group in groups


def test_a_group_is_sent_back_in_time(scene: Scene) -> None:
    queues = new_topic("reset", scene.operator, scene.cluster)
    producer = scene.operator.producer()
    producer.send([Draft(topic=q.topic, body=b"again", queue=q) for q in queues])
    consumer = scene.operator.push(queues[0].topic)
    assert len(consumer.received(4)) == 4
    printed = scene.ask("resetOffsetByTime", "-g", consumer.group, "-t", queues[0].topic, "-s", "0")
    assert f"group[{consumer.group}], topic[{queues[0].topic}], force[true]" in printed.lines()[0]
    assert sorted(row for row in printed.rows() if row[0] == "broker-a") == [
        ["broker-a", str(n), "0"] for n in range(4)
    ]
    received = consumer.received(8, PATIENCE_MS)
    assert sorted(m.queue.queue_id for m in received) == [0, 0, 1, 1, 2, 2, 3, 3]
    consumer.stop()


def test_a_broker_is_taken_out_of_service_and_back(scene: Scene) -> None:
    namesrv, broker = scene.cluster.namesrv.address, scene.cluster.broker.name
    answer = rf"{{}} write perm of broker\[{broker}\] in name server\[{re.escape(namesrv)}\] OK, (\d+)"
    wiped = re.search(answer.format("wipe"), scene.ask("wipeWritePerm", "-b", broker).out)
    assert wiped and int(wiped[1]) > 10
    try:
        assert [queues["perm"] for queues in route_of(scene, scene.topic)] == [4]
    finally:
        added = re.search(answer.format("add"), scene.ask("addWritePerm", "-b", broker).out)
    assert added and int(added[1]) == int(wiped[1])
    assert [queues["perm"] for queues in route_of(scene, scene.topic)] == [6]


def test_broker_config(scene: Scene) -> None:
    broker = scene.cluster.broker
    printed = scene.ask("getBrokerConfig", "-b", broker.address)
    assert broker.address in printed.lines()[0]
    found = settings(printed, " =  ")
    assert (found["brokerName"], found["brokerClusterName"], found["brokerId"]) == (
        "broker-a",
        "DefaultCluster",
        "0",
    )
    assert (found["listenPort"], found["namesrvAddr"]) == (str(broker.port), scene.cluster.namesrv.address)
    assert (found["flushDiskType"], found["brokerRole"]) == ("ASYNC_FLUSH", "ASYNC_MASTER")
    assert (found["maxMessageSize"], found["mappedFileSizeCommitLog"]) == ("4194304", str(64 << 20))
    assert found["storePathRootDir"] == str(broker.folder / "store")
    assert (found["autoCreateTopicEnable"], found["fileReservedTime"]) == ("true", "72")


def test_ha_status_of_a_master_without_slaves(operator: JavaClients, scene: Scene) -> None:
    if operator.version == "4.9.8":
        pytest.skip("mqadmin 4.9.8 has no haStatus")
    broker = scene.cluster.broker
    found = settings(scene.ask("haStatus", "-b", broker.address), "\t")
    assert (found["#MasterAddr"], found["#SlaveNum"], found["#InSyncSlaveNum"]) == (broker.address, "0", "0")
    assert int(found["#MasterCommitLogMaxOffset"]) > 0
