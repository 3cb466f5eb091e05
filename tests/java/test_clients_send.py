"""DefaultMQProducer of both versions and both headers: every way to send, and what consumers then find."""

import os
import random

import pytest
from tests.java.clients import Draft, JavaClients, Queue, Sent, bodies
from tests.java.conftest import Cluster
from tests.java.jvm import JavaStoreError

pytestmark = pytest.mark.java


def drafts(queues: list[Queue], count: int, first: int = 0) -> list[Draft]:
    return [
        Draft(topic=queues[0].topic, body=f"body {number:03}".encode(), tags="TagA", keys=f"key-{number}")
        for number in range(first, first + count)
    ]


def assert_stored_in_line(results: list[Sent], queues: list[Queue]) -> None:
    """All were stored, and those of each queue one behind the other from its beginning."""
    assert {result.status for result in results} == {"SEND_OK"}
    for queue in queues:
        offsets = sorted(result.queue_offset for result in results if result.queue == queue)
        assert offsets == list(range(len(offsets)))


@pytest.mark.smoke
def test_what_is_sent_is_consumed(java: JavaClients, queues: list[Queue]) -> None:
    sent = java.producer().send(drafts(queues, 8))
    assert_stored_in_line(sent, queues)
    assert {result.queue for result in sent} == set(queues)
    received = java.push(queues[0].topic).received(8)
    assert bodies(received) == [f"body {number:03}" for number in range(8)]
    places = {(m.message_id, m.offset_message_id, m.queue, m.queue_offset) for m in received}
    assert places == {(r.message_id, r.offset_message_id, r.queue, r.queue_offset) for r in sent}


def test_a_message_keeps_all_that_its_sender_gave_it(java: JavaClients, queues: list[Queue]) -> None:
    draft = Draft(
        topic=queues[0].topic,
        body="grüße 你好 🎉".encode(),
        tags="TagÄ",
        keys="order-1 order-2",
        flag=77,
        properties={"colour": "bläu", "n": "5"},
        queue=queues[2],
    )
    (sent,) = java.producer().send([draft])
    assert (sent.status, sent.queue, sent.queue_offset) == ("SEND_OK", queues[2], 0)
    (message,) = java.pull().pull(queues[2], 0).messages
    assert (message.body, message.tags, message.keys, message.flag) == (
        draft.body,
        draft.tags,
        draft.keys,
        draft.flag,
    )
    assert (
        message.properties.items()
        >= {
            **draft.properties,
            "UNIQ_KEY": sent.message_id,
            "WAIT": "true",
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }.items()
    )
    assert message.message_id == sent.message_id
    assert message.offset_message_id == sent.offset_message_id


def test_asynchronous_sends_are_answered_each(java: JavaClients, queues: list[Queue]) -> None:
    sent = java.producer().send(drafts(queues, 100), "async")
    assert_stored_in_line(sent, queues)
    assert len({result.message_id for result in sent}) == 100
    assert len({result.offset_message_id for result in sent}) == 100
    received = java.push(queues[0].topic).received(100)
    assert {m.message_id for m in received} == {result.message_id for result in sent}


def test_one_way_sends_arrive(java: JavaClients, queues: list[Queue]) -> None:
    consumer = java.push(queues[0].topic)
    assert java.producer().send(drafts(queues, 30), "oneway") == []
    assert bodies(consumer.received(30)) == [f"body {number:03}" for number in range(30)]


def test_a_batch_lies_in_one_queue_in_its_order(java: JavaClients, queues: list[Queue]) -> None:
    topic, producer = queues[0].topic, java.producer()
    for queue in queues:
        producer.send([Draft(topic=topic, body=b"before", queue=queue)])
    batch = [Draft(topic=topic, body=b"b%d" % n, keys=f"batch-{n}", tags=f"T{n}") for n in range(5)]
    (sent,) = producer.send(batch, "batch")
    assert (sent.status, sent.queue_offset) == ("SEND_OK", 1)
    pulled = java.pull().pull(sent.queue, 1)
    assert [m.body for m in pulled.messages] == [b"b0", b"b1", b"b2", b"b3", b"b4"]
    assert [(m.keys, m.tags) for m in pulled.messages] == [(f"batch-{n}", f"T{n}") for n in range(5)]
    if java.version < "5":  # The 5.x client gives its batch new ids behind the back of its own result.
        assert [m.message_id for m in pulled.messages] == sent.message_id.split(",")
    assert [m.offset_message_id for m in pulled.messages] == (sent.offset_message_id or "").split(",")


def pulled_whole(java: JavaClients, queue: Queue, count: int) -> list[int]:
    """A pull answers with what is visible, and the last of many sends may become so a moment later."""
    found: list[int] = []
    while len(found) < count:
        found += [int(m.body) for m in java.pull().pull(queue, len(found)).messages]
    return found


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_selector_keeps_what_belongs_together_in_order(
    java: JavaClients, queues: list[Queue], how: str
) -> None:
    topic = queues[0].topic
    orders = [Draft(topic=topic, body=f"{n}".encode(), shard=f"customer-{n % 3}") for n in range(30)]
    producer, found = java.producer(), {}
    sent = producer.send(orders, "sync") if how == "sync" else producer.send(orders, "async")
    assert_stored_in_line(sent, queues)
    for customer in range(3):
        (queue,) = {result.queue for result in sent[customer::3]}
        found[queue] = pulled_whole(java, queue, sum(result.queue == queue for result in sent))
        if how == "sync":
            assert found[queue] == sorted(found[queue])
        assert set(found[queue]) >= set(range(customer, 30, 3))
    assert sum(map(len, found.values())) == 30


def test_a_large_body_travels_compressed(java: JavaClients, queues: list[Queue]) -> None:
    body = b"all work and no play " * 5_000
    java.producer().send([Draft(topic=queues[0].topic, body=body, queue=queues[0])])
    (message,) = java.pull().pull(queues[0], 0).messages
    assert message.body == body


def test_a_body_of_megabytes_arrives_whole(java: JavaClients, queues: list[Queue]) -> None:
    body = random.Random(7).randbytes(3 << 20)
    java.producer(sendMsgTimeout=20_000).send([Draft(topic=queues[0].topic, body=body, queue=queues[0])])
    (message,) = java.pull().pull(queues[0], 0).messages
    assert message.body == body


def test_a_body_beyond_the_limit_is_refused(java: JavaClients, queues: list[Queue]) -> None:
    producer = java.producer(maxMessageSize=8 << 20, sendMsgTimeout=20_000)
    with pytest.raises(JavaStoreError, match=r"(?i)CODE: 13 .*4194304|message body size"):
        producer.send([Draft(topic=queues[0].topic, body=os.urandom((4 << 20) + 1), queue=queues[0])])
    (sent,) = producer.send([Draft(topic=queues[0].topic, body=b"x", queue=queues[0])])
    assert (sent.status, sent.queue_offset) == ("SEND_OK", 0)


def test_a_queue_that_is_not_there_is_refused(java: JavaClients, queues: list[Queue]) -> None:
    beyond = Queue(queues[0].topic, queues[0].broker_name, 99)
    with pytest.raises(JavaStoreError, match=r"CODE: (1|29) .*99"):
        java.producer().send([Draft(topic=beyond.topic, body=b"x", queue=beyond)])


def test_a_new_topic_is_made_by_the_first_message(java: JavaClients, cluster: Cluster) -> None:
    topic = f"made-by-send-{java.version.replace('.', '_')}-{java.header}"
    producer = java.producer()
    (sent,) = producer.send([Draft(topic=topic, body=b"first")])
    assert (sent.status, sent.queue_offset) == ("SEND_OK", 0)
    java.await_route(topic, cluster.broker.name)
    consumer = java.pull()
    assert consumer.queues(topic) == [Queue(topic, cluster.broker.name, n) for n in range(4)]
    assert bodies(consumer.pull(sent.queue, 0).messages) == ["first"]
