"""What operators see of, and do to, a real consumer that runs."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from tests.cli.commands import flaremq
from tests.cli.conftest import Ask

from flaremq.client.consumer.outcome import reject
from flaremq.client.message import ReceivedMessage
from flaremq.client.settings import ClientSettings, ConsumerSettings
from flaremq.client.sync import Client, PushConsumer
from flaremq.protocol.bodies.group import ConsumeFromWhere
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.patience import load_factor

GROUP = "billing"
TOPIC = "bills"
LIMIT_S = 30.0


class Billing:
    """Consumes all bills; throws away what is poison, and fails with what is hard."""

    def __init__(self, namesrv: str) -> None:
        self.came: queue.Queue[ReceivedMessage] = queue.Queue()
        settings = ConsumerSettings(
            start_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, commit_s=0.1, poll_s=1
        )
        self.client = Client(settings=ClientSettings(namesrv=namesrv, heartbeat_s=1))
        self.consumer = PushConsumer(GROUP, settings=settings, client=self.client)
        self.consumer.subscribe(TOPIC, self._handle, tags="Bill || Poison")
        self.is_poison = True

    def _handle(self, message: ReceivedMessage) -> None:
        self.came.put(message)
        if message.tags == "Poison" and self.is_poison:
            raise reject("it smells")
        if message.body == b"hard":
            raise ValueError("no way")

    def wait_for(self, body: bytes) -> ReceivedMessage:
        while True:
            message = self.came.get(timeout=LIMIT_S * load_factor())
            if message.body == body:
                return message


@pytest.fixture(scope="module")
def billing(servers: EmbeddedThread) -> Iterator[Billing]:
    assert flaremq("topic", "create", TOPIC, "-q", 2, "-n", servers.namesrv).status == 0
    found = Billing(servers.namesrv)
    with found.client, found.consumer:
        yield found


def sent(ask: Ask, body: str, tags: str = "Bill") -> dict[str, Any]:
    ended = ask("send", TOPIC, body, "--tags", tags, "--json")
    assert ended.status == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def until(what: Callable[[], bool]) -> None:
    """Commands take their time: asking again is all the waiting there is."""
    deadline_s = monotonic() + LIMIT_S * load_factor()
    while not what():
        assert monotonic() < deadline_s, "it did not come to be"


def test_its_members_and_what_they_do_are_told(ask: Ask, billing: Billing) -> None:
    sent(ask, "first")
    billing.wait_for(b"first")
    me = billing.client.client_id
    clients = ask("group", "clients", GROUP, "--json").document
    (client,) = clients["clients"]
    assert (client["client_id"], client["language"]) == (me, "PYTHON")
    assert client["brokers"] == ["broker-a", "broker-b"]
    assert (clients["type"], clients["model"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert clients["from"] == "CONSUME_FROM_FIRST_OFFSET"
    subscribed = {each["topic"]: each["expression"] for each in clients["subscriptions"]}
    assert subscribed == {TOPIC: "Bill || Poison", f"%RETRY%{GROUP}": "*"}

    running = ask("group", "running", GROUP, "--json").document["clients"][me]
    queues = {(each["broker"], each["queue_id"]) for each in running["queues"] if each["topic"] == TOPIC}
    route = ask("topic", "route", TOPIC, "--json").document
    assert len(queues) == sum(each["read_queues"] for each in route["queues"])
    assert sum(each["offset"] for each in running["queues"] if each["topic"] == TOPIC) >= 1
    assert TOPIC in running["rates"] and running["stacks"] is None
    shown = ask("group", "running", GROUP, me, "--stacks").out
    assert shown.startswith(me) and "MainThread" in shown and "rebalance" in shown


def test_its_lag_falls_to_nothing_and_its_queues_have_an_owner(ask: Ask, billing: Billing) -> None:
    sent(ask, "counted")
    billing.wait_for(b"counted")
    until(lambda: ask("group", "progress", GROUP, "--topic", TOPIC, "--json").document["lag"] == 0)
    progress = ask("group", "progress", GROUP, "--topic", TOPIC, "--json").document
    assert {each["owner"] for each in progress["queues"]} == {billing.client.client_id}
    assert "1 member." in ask("group", "progress", GROUP).out


def test_it_consumes_a_message_once_more_when_it_is_told_to(ask: Ask, billing: Billing) -> None:
    receipt = sent(ask, "twice")
    billing.wait_for(b"twice")
    said = ask("message", "consume", receipt["offset_id"], "-g", GROUP, "--json").document
    assert (said["result"], said["client_id"]) == ("CR_SUCCESS", billing.client.client_id)
    billing.wait_for(b"twice")
    words = ("message", "consume", receipt["message_id"], "-t", TOPIC, "-g", GROUP)
    assert "CR_SUCCESS" in ask(*words, "--client", billing.client.client_id).out
    assert billing.client.client_id in ask(*words, "--client", "nobody").complaint
    assert "start a consumer" in ask(*words[:-1], "nobody").complaint


def test_a_handler_that_fails_is_heard_of(ask: Ask, billing: Billing) -> None:
    receipt = sent(ask, "hard")
    said = ask("message", "consume", receipt["offset_id"], "-g", GROUP, "--json").document
    assert said["result"] == "CR_THROW_EXCEPTION" and "no way" in said["remark"]


def test_a_dead_letter_is_found_and_comes_again(ask: Ask, billing: Billing) -> None:
    receipt = sent(ask, "spoiled", tags="Poison")
    billing.wait_for(b"spoiled")
    letters: list[dict[str, Any]] = []

    def is_dead() -> bool:
        ended = ask("message", "query", f"%DLQ%{GROUP}", "--json")
        found = ended.document["messages"] if ended.status == 0 else []
        letters[:] = [each for each in found if each["message_id"] == receipt["message_id"]]
        return bool(letters)

    until(is_dead)
    (letter,) = letters
    assert letter["body"] == "spoiled"
    assert letter["properties"]["RETRY_TOPIC"] == TOPIC
    assert " dead letter" in ask("group", "progress", GROUP).out
    assert "would send" in ask("message", "resend", letter["offset_id"], "--dry-run").out
    assert "--yes" in ask("message", "resend", letter["offset_id"]).complaint
    billing.is_poison = False
    done = ask("message", "resend", letter["offset_id"], "--yes", "--json").document
    assert (done["done"], done["topic"]) == (True, f"%RETRY%{GROUP}")
    again = billing.wait_for(b"spoiled")
    assert (again.topic, again.message_id) == (TOPIC, receipt["message_id"])
    assert "expected a dead letter" in ask("message", "resend", receipt["offset_id"], "--yes").complaint


def test_it_is_sent_back_while_it_runs(ask: Ask, billing: Billing) -> None:
    sent(ask, "again")
    billing.wait_for(b"again")
    dry = ask("group", "reset", GROUP, TOPIC, "--to", "begin", "--dry-run", "--json").document
    assert not dry["done"]
    done = ask("group", "reset", GROUP, TOPIC, "--to", "begin", "--yes", "--json").document
    assert done["done"]
    billing.wait_for(b"again")


def test_who_consumed_a_message_is_told(ask: Ask, billing: Billing) -> None:
    receipt = sent(ask, "tracked")
    billing.wait_for(b"tracked")

    def is_consumed() -> bool:
        (group,) = ask("message", "get", receipt["offset_id"], "--track", "--json").document["groups"]
        return bool(group["state"] == "consumed" and group["online"])

    until(is_consumed)
