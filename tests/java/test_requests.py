"""Requests and replies between Java's clients and ours, at our broker and at Apache's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.java.clients import Draft, JavaClients, Queue
from tests.java.peers import Apache, Flare, Peers
from tests.java.toolchain import Toolchain

from flaremq.client.message import ReceivedMessage
from flaremq.client.settings import ConsumerSettings
from flaremq.client.sync import Message, Producer, PushConsumer
from flaremq.protocol.bodies.group import ConsumeFromWhere

pytestmark = pytest.mark.java

FIRST = ConsumerSettings(start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


def test_java_asks_and_java_answers_at_our_broker(java: JavaClients, queues: list[Queue]) -> None:
    topic = queues[0].topic
    replier = java.producer()
    java.push(topic, how={"replyBy": replier.name})
    asker = java.producer()
    for number in range(3):
        assert asker.request(Draft(topic=topic, body=b"q%d" % number)) == f"re: q{number}"


def test_java_asks_and_we_answer(java: JavaClients, queues: list[Queue]) -> None:
    topic = queues[0].topic
    with Producer("ours", java.namesrv) as replier:
        consumer = PushConsumer("our-repliers", java.namesrv, settings=FIRST)

        @consumer.subscribe(topic)
        def answer(message: ReceivedMessage) -> None:
            replier.reply(message, b"ours: " + message.body)

        with consumer:
            assert java.producer().request(Draft(topic=topic, body=b"x" * 5000)) == "ours: " + "x" * 5000


def test_we_ask_and_java_answers(java: JavaClients, queues: list[Queue]) -> None:
    topic = queues[0].topic
    java.push(topic, how={"replyBy": java.producer().name})
    with Producer("ours", java.namesrv) as asker:
        assert asker.request(Message(topic, b"hello"), timeout_s=30).body == b"re: hello"


@pytest.fixture
def clients(java_toolchain: Toolchain) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, "5.3.3") as clients:
        yield clients


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_we_ask_and_java_answers_at_apaches_broker(
    java_toolchain: Toolchain, clients: JavaClients, tmp_path: Path, version: str
) -> None:
    kind = Apache(java_toolchain, version=version)
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(Flare())
        clients.namesrv = namesrv.address
        broker = peers.broker(kind, namesrv.address)
        clients.create_topic("Asked", broker.address, broker.name)
        clients.push("Asked", how={"replyBy": clients.producer().name})
        with Producer("ours", namesrv.address) as asker:
            assert asker.request(Message("Asked", b"hello"), timeout_s=30).body == b"re: hello"
        clients.stop_all()


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_we_ask_and_answer_at_apaches_broker(java_toolchain: Toolchain, tmp_path: Path, version: str) -> None:
    kind = Apache(java_toolchain, version=version)
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(kind)
        peers.broker(kind, namesrv.address)
        with Producer("askers", namesrv.address) as asker, Producer("repliers", namesrv.address) as replier:
            asker.send(Message("Asked", b"makes the topic"))
            consumer = PushConsumer("our-repliers", namesrv.address, settings=FIRST)

            @consumer.subscribe("Asked")
            def answer(message: ReceivedMessage) -> None:
                if message.get("CORRELATION_ID"):
                    replier.reply(message, b"ours: " + message.body)

            with consumer:
                assert asker.request(Message("Asked", b"hello"), timeout_s=60).body == b"ours: hello"
