"""`flaremq message trace`."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from tests.cli.conftest import Ask

from flaremq.admin.values.trace import Journey, JourneyStep, StepKind
from flaremq.cli.messages import trace as room
from flaremq.client.settings import Trace
from flaremq.client.sync import Message, Producer, PushConsumer, ReceivedMessage
from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread


def test_the_journey_of_a_message_is_a_time_line(ask: Ask, servers: EmbeddedThread) -> None:
    soon, done = Trace(interval_s=0.05), threading.Event()
    with Producer("shop", servers.namesrv, trace=soon) as producer:
        sent = producer.send(Message("Orders", b"12345", tags="A", keys=["o-1"]))
    consumer = PushConsumer("billing", servers.namesrv, trace=soon)

    @consumer.subscribe("Orders")
    def handle(message: ReceivedMessage) -> None:
        done.set()

    with consumer:
        assert done.wait(20)

    async def is_there() -> bool:
        return len(ask("message", "trace", sent.message_id).lines) == 3

    asyncio.run(eventually("both steps are recorded", is_there))
    ended = ask("message", "trace", sent.message_id)
    title, first, second = ended.lines
    assert title == f"Message {sent.message_id} of Orders, tag A, keys o-1"
    host = r"127\.0\.0\.1:\d+"
    assert re.search(rf"  sent by shop \({host}\) to {host} in \d+ ms, 5 bytes$", first)
    assert re.search(rf" \+[\d.]+ m?s  delivered to billing \({host}\), attempt 1: ok after \d+ ms$", second)
    document = ask("message", "trace", sent.message_id, "--json").document
    assert [step["kind"] for step in document["steps"]] == ["send", "delivery"]
    assert ask("queryMsgTraceById", "-i", sent.message_id, "--json").document == document
    assert ask("queryMsgTraceById", "-i", sent.message_id, "-b", 0, "-e", 1).status == 1


def test_a_message_without_trace_is_one_line(ask: Ask) -> None:
    assert "has no trace" in ask("message", "trace", "7F" * 16).complaint
    named = ask("message", "trace", "7F" * 16, "--trace-topic", "Mine").complaint
    assert "topic 'Mine' does not exist" in named


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            JourneyStep(kind=StepKind.SEND, at_ms=0, group="g", success=False, took_ms=3, broker="b:1"),
            "not sent by g: b:1 did not store it safely, after 3 ms",
        ),
        (
            JourneyStep(kind=StepKind.DELIVERY, at_ms=0, group="g", attempt=2),
            "delivered to g, attempt 2: no end recorded yet",
        ),
        (
            JourneyStep(
                kind=StepKind.DELIVERY, at_ms=0, group="g", success=False, took_ms=1, detail="EXCEPTION"
            ),
            "delivered to g: failed after 1 ms (the handler raised)",
        ),
        (
            JourneyStep(kind=StepKind.END, at_ms=0, group="g", detail="ROLLBACK_MESSAGE", from_check=True),
            "transaction of g rolled back, as the broker asked",
        ),
        (JourneyStep(kind=StepKind.RECALL, at_ms=0, group="g", success=True), "cancelled by g"),
        (JourneyStep(kind=StepKind.DEAD_LETTER, at_ms=0, group="g", broker="b"), "dead letter of g at b"),
    ],
)
def test_each_step_is_a_sentence(step: JourneyStep, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    room._draw(Journey(message_id="ID", topic=None, tags=None, keys=(), steps=(step,), records=()))
    assert capsys.readouterr().out.rstrip().endswith(words)
