"""Apache RocketMQ's servers and ours in one cluster: neither notices who the other is."""

import pytest
from tests.java.clients import Draft, JavaClients, Queue, bodies
from tests.java.peers import Apache, Flare, Kind, Peers, Server

pytestmark = pytest.mark.java


@pytest.fixture
def java(era_java: JavaClients) -> JavaClients:
    return era_java


def numbered(topic: str, queues: list[Queue], count: int, first: int = 0) -> list[Draft]:
    return [
        Draft(topic=topic, body=f"{n:03}".encode(), keys=f"k{n}", queue=queues[n % len(queues)])
        for n in range(first, first + count)
    ]


def texts(*numbers: int) -> list[str]:
    return [f"{number:03}" for number in numbers]


@pytest.mark.parametrize("ours", ["broker", "namesrv"])
def test_a_broker_at_the_namesrv_of_the_other_kind(
    peers: Peers, java: JavaClients, apache: Apache, ours: str
) -> None:
    kinds: tuple[Kind, Kind] = (apache, Flare()) if ours == "broker" else (Flare(), apache)
    namesrv = peers.namesrv(kinds[0])
    broker = peers.broker(kinds[1], namesrv.address)
    java.namesrv = namesrv.address
    java.await_route("TBW102", "broker-a")
    (row,) = java.mqadmin("clusterList", "-m").rows()
    assert row[:2] == ["DefaultCluster", "broker-a"]
    producer = java.producer()
    producer.send([Draft(topic="Mixed", body=b"made by the first message")])
    java.await_route("Mixed", "broker-a")
    queues = [Queue("Mixed", "broker-a", n) for n in range(4)]
    consumer = java.push("Mixed", "mixed-group")
    producer.send(numbered("Mixed", queues, 12))
    assert bodies(consumer.received(13)) == [*texts(*range(12)), "made by the first message"]
    java.stop_all()
    broker.stop()
    assert "CODE: 17" in java.mqadmin("topicRoute", "-t", "Mixed").err


def cluster_of_both(peers: Peers, apache: Apache) -> tuple[str, dict[str, Server]]:
    """A NameServer and a broker of each kind; both brokers know both NameServers."""
    namesrvs = ";".join(peers.namesrv(kind).address for kind in (apache, Flare()))
    brokers = {
        "broker-ours": peers.broker(Flare(), namesrvs, "broker-ours"),
        "broker-theirs": peers.broker(apache, namesrvs, "broker-theirs"),
    }
    return namesrvs, brokers


def test_one_cluster_of_both_kinds(peers: Peers, java: JavaClients, apache: Apache) -> None:
    namesrvs, brokers = cluster_of_both(peers, apache)
    for namesrv in namesrvs.split(";"):
        java.namesrv = namesrv
        for name in brokers:
            java.await_route("TBW102", name)
        rows = java.mqadmin("clusterList").rows()
        assert sorted((row[1], row[3]) for row in rows) == sorted((n, b.address) for n, b in brokers.items())
    java.namesrv = namesrvs
    printed = java.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Both", "-r", "2", "-w", "2")
    for name, broker in brokers.items():
        assert f"create topic to {broker.address} success." in printed.out
        java.await_route("Both", name)
    producer = java.producer()
    queues = producer.queues("Both")
    assert queues == [Queue("Both", name, n) for name in sorted(brokers) for n in range(2)]

    first, second = (java.push("Both", "both-group") for _ in range(2))
    halves = [member.assigned("Both", 2) for member in (first, second)]
    assert sorted(halves[0] + halves[1]) == queues
    assert {result.status for result in producer.send(numbered("Both", queues, 40))} == {"SEND_OK"}
    assert bodies([*first.received(20), *second.received(20)]) == texts(*range(40))

    printed = java.mqadmin("topicStatus", "-t", "Both")
    assert printed.err == ""
    status = [row for row in printed.rows() if row[0] in brokers]
    assert [row[:4] for row in status] == [[q.broker_name, str(q.queue_id), "0", "10"] for q in queues]
    reader = java.pull()
    assert reader.queues("Both") == queues
    for number in (0, 3):  # The first is with our broker, the fourth with theirs.
        assert bodies(reader.query("Both", f"k{number}")) == texts(number)


def test_the_folder_of_a_broker_changes_hands(peers: Peers, java: JavaClients, apache: Apache) -> None:
    """Messages, topics, groups and offsets that one kind has written the other goes on with, both ways."""
    namesrv = peers.namesrv(Flare())
    java.namesrv = namesrv.address
    broker = peers.broker(apache, namesrv.address)
    queues = java.create_topic("Handed", broker.address, "broker-a", queues=3)
    java.mqadmin("updateSubGroup", "-b", broker.address, "-g", "handed-group", "-r", "5")
    java.producer().send(numbered("Handed", queues, 9))
    reader = java.pull("handed-group")
    reader.pull(queues[0], 0)
    reader.commit(queues[0], 2)
    kinds: list[Kind] = [Flare(), apache]
    for turn, kind in enumerate(kinds):
        java.stop_all()
        broker.stop()
        broker = peers.again(broker, kind)
        java.await_route("Handed", "broker-a")
        reader, producer = java.pull("handed-group"), java.producer()
        assert reader.queues("Handed") == queues
        assert reader.offset(queues[0], "committed") == 2 + turn
        reader.commit(queues[0], 3)
        known = 9 + 3 * turn
        for number in range(known):
            assert bodies(reader.query("Handed", f"k{number}")) == texts(number)
        sent = producer.send(numbered("Handed", queues, 3, first=known))
        assert [result.queue_offset for result in sent] == [known // 3] * 3
        found = [m for queue in queues for m in reader.pull(queue, 0).messages]
        assert bodies(found) == texts(*range(known + 3))
