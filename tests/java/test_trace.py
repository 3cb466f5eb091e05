"""Message trace: records of Java's clients at our broker, of ours at Apache's, each read by both sides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.java.clients import Draft, JavaClients
from tests.java.conftest import Cluster
from tests.java.peers import FOR_TESTS, Apache, Flare, Peers
from tests.java.toolchain import Toolchain

from flaremq.admin.sync import Admin
from flaremq.admin.values.trace import Journey, JourneyStep, StepKind
from flaremq.base.errors import MessageNotFound
from flaremq.client.consumer.outcome import Later
from flaremq.client.message import ReceivedMessage
from flaremq.client.settings import ConsumerSettings, Trace
from flaremq.client.sync import Producer, PushConsumer, TransactionProducer
from flaremq.model.message import Message
from flaremq.model.names import TRACE_TOPIC
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.testing.cluster import eventually

pytestmark = pytest.mark.java

VERSIONS = ("4.9.8", "5.3.3", "5.5.0")
LIMIT_MS = 60_000
RECALLS = {"com.rocketmq.recall.default.trace.enable": "true"}
"""Without it, Java's producers do not trace recalls."""


@pytest.fixture(scope="module", params=VERSIONS)
def clients(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, cluster: Cluster
) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, request.param, properties=RECALLS) as clients:
        clients.namesrv = cluster.namesrv.address
        yield clients


def journey(namesrv: str, message_id: str, steps: int, trace_topic: str = TRACE_TOPIC) -> Journey:
    """Once it has so many steps that have ended. Java sends its records within 5 s."""
    found: list[Journey] = []

    async def is_there() -> bool:
        try:
            with Admin(namesrv) as admin:
                found.append(admin.messages.trace(message_id, None, trace_topic))
        except MessageNotFound:
            return False
        ended = [step for step in found[-1].steps if step.success is not None or step.kind is StepKind.END]
        return len(ended) >= steps

    asyncio.run(eventually(f"the journey of {message_id} has {steps} steps", is_there, 60.0))
    return found[-1]


def shown(steps: Iterable[JourneyStep]) -> list[tuple[Any, ...]]:
    return [(step.kind, step.group, step.success, step.attempt) for step in steps]


def test_we_read_the_journey_that_java_records(clients: JavaClients, cluster: Cluster) -> None:
    number = clients.version.replace(".", "")
    topic = f"Traced-{number}"
    clients.create_topic(topic, cluster.broker.address, cluster.broker.name)
    producer = clients.producer(f"pg-{number}", trace=TRACE_TOPIC)
    (sent,) = producer.send([Draft(topic=topic, body=b"12345", tags="A", keys="k1 k2")])
    consumer = clients.push(topic, f"cg-{number}", how={"refuseFirst": 1, "trace": TRACE_TOPIC})
    consumer.received(2, LIMIT_MS)
    found = journey(cluster.namesrv.address, sent.message_id, 3)
    assert (found.topic, found.tags, found.keys) == (topic, "A", ("k1", "k2"))
    assert shown(found.steps) == [
        (StepKind.SEND, f"pg-{number}", True, None),
        (StepKind.DELIVERY, f"cg-{number}", False, 1),
        (StepKind.DELIVERY, f"cg-{number}", True, 2),
    ]
    assert (found.steps[0].broker, found.steps[0].body_size) == (cluster.broker.address, 5)
    assert found.steps[1].detail == "FAILED"
    printed = clients.mqadmin("queryMsgTraceById", "-i", sent.message_id).out
    assert printed.count("Pub ") == 1 and printed.count("Sub ") == 2 and f"cg-{number}" in printed
    consumer.stop()
    ordered = producer.send([Draft(topic=topic, body=b"%d" % n, shard="s", keys="o") for n in range(3)])
    orderly = clients.push(
        topic, f"og-{number}", how={"orderly": True, "refuseFirst": 1, "trace": TRACE_TOPIC}
    )
    orderly.received(5, LIMIT_MS)
    steps = journey(cluster.namesrv.address, ordered[2].message_id, 2).steps
    assert shown(steps)[-1] == (StepKind.DELIVERY, f"og-{number}", True, 1)
    (late,) = producer.send([Draft(topic=topic, body=b"late", delay_level=1)])
    orderly.received(6, LIMIT_MS)
    sends = journey(cluster.namesrv.address, late.message_id, 2).steps
    assert sends[0].detail == "DELAY" and sends[1].kind is StepKind.DELIVERY
    clients.stop_all()


def test_batches_transactions_and_recalls_of_java(clients: JavaClients, cluster: Cluster) -> None:
    number, namesrv = clients.version.replace(".", ""), cluster.namesrv.address
    topic, mine = f"Ended-{number}", f"MyTrace-{number}"
    clients.create_topic(topic, cluster.broker.address, cluster.broker.name)
    producer = clients.producer(f"pg-{number}", trace=mine)
    (batch,) = producer.send([Draft(topic=topic, body=b"%d" % n) for n in range(3)], "batch")
    (step,) = journey(namesrv, batch.message_id, 1, mine).steps
    assert (step.kind, step.success) == (StepKind.SEND, True)
    transactional = clients.transactional(f"tg-{number}", {"yes": "COMMIT_MESSAGE"}, trace=mine)
    (half,) = transactional.send([Draft(topic=topic, body=b"yes", keys="t")], "transaction")
    steps = journey(namesrv, half.message_id, 2, mine).steps
    assert [step.kind for step in steps] == [StepKind.HALF, StepKind.END]
    assert (steps[1].detail, steps[1].from_check) == ("COMMIT_MESSAGE", False)
    if not clients.version.startswith("4"):
        (waits,) = producer.send([Draft(topic=topic, body=b"x", timer={"TIMER_DELAY_SEC": "60"})])
        assert waits.recall_handle is not None
        producer.recall(topic, waits.recall_handle)
        recalled = journey(namesrv, waits.message_id, 2, mine).steps
        assert shown(recalled)[1] == (StepKind.RECALL, f"pg-{number}", True, None)
    clients.stop_all()


def test_a_lite_pull_of_java_is_a_delivery(clients: JavaClients, cluster: Cluster) -> None:
    number = clients.version.replace(".", "")
    topic = f"Polled-{number}"
    clients.create_topic(topic, cluster.broker.address, cluster.broker.name)
    lite = clients.lite(topic, f"lg-{number}", enableMsgTrace=True)
    (sent,) = clients.producer().send([Draft(topic=topic, body=b"x")])
    assert lite.poll_until(1)
    (step,) = journey(cluster.namesrv.address, sent.message_id, 1).steps
    assert shown([step]) == [(StepKind.DELIVERY, f"lg-{number}", True, 1)]
    clients.stop_all()


def trace_ours(namesrv: str, topic: str, trace: Trace) -> tuple[str, str, list[str]]:
    """Ids of a message that is delivered twice, of one of a transaction, and of 1500 with long keys."""
    done = threading.Event()
    settings = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer("our-consumers", namesrv, settings=settings, trace=trace)

    @consumer.subscribe(topic, tags="A")
    def handle(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise Later("again", delay_level=1)
        done.set()

    with TransactionProducer("our-producers", namesrv, checker=lambda _: None, trace=trace) as producer:
        transaction = producer.prepare(Message(topic, b"t"))
        producer.end(transaction)
    with Producer("our-producers", namesrv, trace=trace) as plain:
        sent = plain.send(Message(topic, b"12345", tags="A", keys=["k1"]))
        drafts = [Message(topic, b"x", keys=[f"{n:04}-{'k' * 60}"]) for n in range(1500)]
        many = plain.send_many(drafts)
    with consumer:
        assert done.wait(60)
    return sent.message_id, transaction.id, [each.message_id for each in many]


@pytest.mark.parametrize("version", ["ours", "5.3.3", "5.5.0"])
@pytest.mark.parametrize("trace_topic", [TRACE_TOPIC, "OurTrace"])
def test_javas_tools_read_what_our_clients_record(
    java_toolchain: Toolchain, tmp_path: Path, version: str, trace_topic: str
) -> None:
    kind = Flare() if version == "ours" else Apache(java_toolchain, version=version)
    tools = "5.3.3" if version == "ours" else version
    with Peers(tmp_path) as peers, JavaClients(java_toolchain, tools) as clients:
        namesrv = peers.namesrv(kind)
        clients.namesrv = namesrv.address
        broker = peers.broker(kind, namesrv.address, options=FOR_TESTS)
        clients.create_topic("Ours", broker.address, broker.name)
        trace = Trace(topic=trace_topic, interval_s=0.2)
        sent, half, many = trace_ours(namesrv.address, "Ours", trace)
        found = journey(namesrv.address, sent, 3, trace_topic)
        assert shown(found.steps) == [
            (StepKind.SEND, "our-producers", True, None),
            (StepKind.DELIVERY, "our-consumers", False, 1),
            (StepKind.DELIVERY, "our-consumers", True, 2),
        ]
        assert len(journey(namesrv.address, half, 2, trace_topic).steps) == 2
        words = ("queryMsgTraceById", "-t", trace_topic, "-i")
        printed = clients.mqadmin(*words, sent)
        rows = [row for row in printed.rows() if row[0] in ("Pub", "Sub")]
        assert [(row[0], row[1], row[-1]) for row in rows] == [
            ("Pub", "our-producers", "success"),
            ("Sub", "our-consumers", "failed"),
            ("Sub", "our-consumers", "success"),
        ]
        assert all(row[2] == "127.0.0.1" for row in rows)
        for message_id in (many[0], many[700], many[-1]):
            assert clients.mqadmin(*words, message_id).out.count("Pub ") == 1


def test_a_trace_message_of_nearly_128_000_bytes_is_read(clients: JavaClients, cluster: Cluster) -> None:
    """Java packs ten records into one; above 128,000 bytes its own producer refuses them."""
    topic, keys = f"Large-{clients.version.replace('.', '')}", " ".join(f"{n:04}" for n in range(2490))
    clients.create_topic(topic, cluster.broker.address, cluster.broker.name)
    drafts = [Draft(topic=topic, body=b"%d" % n, keys=keys) for n in range(20)]
    sent = clients.producer(trace=TRACE_TOPIC).send(drafts)
    for each in (sent[0], sent[-1]):
        (step,) = journey(cluster.namesrv.address, each.message_id, 1).steps
        assert step.success
    with Admin(cluster.namesrv.address) as admin:
        sizes = [len(found.body) for found in admin.messages.by_key(TRACE_TOPIC, sent[-1].message_id)]
    assert max(sizes) > 120_000
    clients.stop_all()
