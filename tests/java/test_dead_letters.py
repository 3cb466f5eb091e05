"""Failed messages: of Java's consumers at our broker, of ours at Apache's; and parked transactions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import flaremq
from tests.client.consumer.tools import Seen, a_topic, joined, send
from tests.java.clients import Draft, JavaClients, Queue
from tests.java.peers import FOR_TESTS, Apache, Flare, Peers
from tests.java.test_our_consumers import Place
from tests.java.toolchain import Toolchain

from flaremq.client.consumer.outcome import Later, reject
from flaremq.client.message import ReceivedMessage
from flaremq.client.sync import TransactionProducer
from flaremq.model.message import Message
from flaremq.testing.cluster import eventually

pytestmark = pytest.mark.java

LIMIT_S = 90.0
LIMIT_MS = 90_000
SOON = {
    **FOR_TESTS,
    "transactionCheckInterval": 5000,
    "transactionTimeOut": 1000,
    "transactionCheckMax": 2,
}


def wait(what: str, is_so: Callable[[], bool]) -> None:
    async def check() -> bool:
        return await asyncio.to_thread(is_so)  # Commands have event loops of their own.

    asyncio.run(eventually(what, check, LIMIT_S))


@pytest.fixture(scope="module", params=["5.3.3", "5.5.0", "4.9.7"])
def place(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    kind = Apache(java_toolchain, version=request.param)
    with Peers(tmp_path_factory.mktemp("apache")) as peers:
        namesrv = peers.namesrv(kind)
        yield Place(namesrv.address, peers.broker(kind, namesrv.address, options=SOON).address)


def ours(place: Place, *words: object) -> Any:
    return flaremq(*words, "-n", place.namesrv, "--json").document


def letters(place: Place, group: str) -> list[dict[str, Any]]:
    found = flaremq("dlq", "show", group, "-n", place.namesrv, "--json")
    return [] if found.status else found.document["letters"]


async def fail_there(place: Place, group: str, topic: str, **settings: Any) -> Seen:
    """A consumer of ours at Apache's broker: all messages become dead letters."""

    def fail(message: ReceivedMessage) -> None:
        if message.body == b"refused":
            raise reject("no such customer")
        raise Later(f"attempt {message.reconsume_times + 1}", delay_level=1)

    async def are_dead() -> bool:
        return len(await asyncio.to_thread(letters, place, group)) == 2

    seen = Seen(fail)
    async with a_topic(place, topic, 1) as producer, joined(place, group, topic, seen, **settings):
        await send(producer, topic, [b"refused", b"late"], tags="t", keys=["k"])
        await eventually("both are dead letters", are_dead, LIMIT_S)
    return seen


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_our_consumers_give_their_reasons_at_apaches_broker(place: Place, orderly: bool) -> None:
    group = topic = f"Reasons-{orderly}"
    seen = asyncio.run(fail_there(place, group, topic, attempts_max=2, orderly=orderly, suspend_s=0.1))
    found = {each["body"]: each for each in letters(place, group)}
    assert (found["late"]["reason"], found["late"]["attempts"]) == ("attempt 2", 2)
    assert (found["refused"]["reason"], found["refused"]["attempts"]) == ("no such customer", 1)
    assert {each["origin_topic"] for each in found.values()} == {topic}
    ids = {each.message_id for each in seen.messages}
    assert {each["message_id"] for each in found.values()} == ids
    assert [each["keys"] for each in found.values()] == [["k"], ["k"]]


def test_dead_letters_are_resent_and_purged_at_apaches_broker(place: Place) -> None:
    group = topic = "Resent"
    asyncio.run(fail_there(place, group, topic, attempts_max=2))
    (listed,) = ours(place, "dlq", "list", "-g", group)["groups"]
    assert {each["reason"] for each in listed["reasons"]} == {"attempt #", "no such customer"}
    assert ours(place, "dlq", "resend", group, "--reason", "attempt", "--yes")["resent"] == 1
    wait("it is listed no more", lambda: len(letters(place, group)) == 1)
    assert ours(place, "dlq", "resend", group, "--reason", "attempt", "--yes")["count"] == 0
    tail = flaremq("tail", topic, "--from", "begin", "--no-follow", "-n", place.namesrv)
    assert sum("late" in line for line in tail.lines) == 2
    assert ours(place, "dlq", "purge", group, "--yes")["purged"] == 1
    wait("none is listed", lambda: letters(place, group) == [])


def test_parked_transactions_are_decided_once_at_apaches_broker(place: Place) -> None:
    told: dict[bytes, bool] = {}

    def checker(message: ReceivedMessage) -> bool | None:
        return told.get(message.body)

    def states() -> dict[str, str]:
        found = ours(place, "transaction", "list")["transactions"]
        return {each["keys"][0]: each["state"] for each in found}

    def delivered() -> list[str]:
        lines = flaremq("tail", "Paid", "--from", "begin", "--no-follow", "-n", place.namesrv).lines
        return sorted(line.split()[-1] for line in lines)

    assert flaremq("topic", "create", "Paid", "-q", 1, "-n", place.namesrv).status == 0
    ids: dict[str, str] = {}
    with TransactionProducer("buyers", place.namesrv, checker=checker) as producer:
        for name in ("yes", "no", "again"):
            producer.send(Message("Paid", name.encode(), keys=[name]), lambda _: None)
        wait("all are parked", lambda: list(states().values()) == ["parked"] * 3)
        for each in ours(place, "transaction", "list", "--parked")["transactions"]:
            ids[each["keys"][0]] = each["message_id"]
            assert each["checks"] >= 2
        assert ours(place, "transaction", "commit", ids["yes"], "--yes")["changed"] is True
        assert ours(place, "transaction", "commit", ids["yes"], "--yes")["changed"] is False
        assert ours(place, "transaction", "rollback", ids["no"], "--yes")["changed"] is True
        wait("only one is left", lambda: states() == {"again": "parked"})
        assert ours(place, "transaction", "commit", ids["yes"], "--yes")["changed"] is False
        assert (
            "rolled back before"
            in flaremq("transaction", "commit", ids["no"], "--yes", "-n", place.namesrv).complaint
        )
        told[b"again"] = True
        ours(place, "transaction", "resume", ids["again"])
        wait("its producer was asked again", lambda: delivered() == ["again", "yes"])
        wait("all have ended", lambda: states() == {})
    assert delivered() == ["again", "yes"]


@pytest.mark.parametrize(
    "names", [("ours", "5.3.3"), ("5.3.3", "ours"), ("ours", "5.5.0"), ("5.5.0", "ours")], ids="-to-".join
)
def test_parked_transactions_in_a_folder_are_decided_under_its_next_owner(
    java_toolchain: Toolchain, tmp_path: Path, names: tuple[str, str]
) -> None:
    first, second = (Flare() if each == "ours" else Apache(java_toolchain, version=each) for each in names)
    told: dict[bytes, bool] = {}
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(Flare())
        broker = peers.broker(first, namesrv.address, options=SOON)
        there = Place(namesrv.address, broker.address)

        def parked() -> dict[str, str]:
            found = flaremq("transaction", "list", "--parked", "-n", there.namesrv, "--json")
            listed = [] if found.status else found.document["transactions"]  # It may not be known yet.
            return {each["keys"][0]: each["message_id"] for each in listed}

        def delivered() -> list[str]:
            lines = flaremq("tail", "Paid", "--from", "begin", "--no-follow", "-n", there.namesrv).lines
            return sorted(line.split()[-1] for line in lines)

        assert flaremq("topic", "create", "Paid", "-q", 1, "-n", there.namesrv).status == 0
        with TransactionProducer(
            "buyers", namesrv.address, checker=lambda message: told.get(message.body)
        ) as producer:
            for name in ("yes", "no", "again"):
                producer.send(Message("Paid", name.encode(), keys=[name]), lambda _: None)
            wait("all are parked", lambda: len(parked()) == 3)
            ids = parked()
            broker.stop()
            peers.again(broker, second)
            wait("all are parked there", lambda: parked() == ids)
            assert ours(there, "transaction", "commit", ids["yes"], "--yes")["changed"] is True
            wait("it is delivered", lambda: delivered() == ["yes"])
            if names[1] != "ours":  # RocketMQ notes an end late, and may park the others once more meanwhile.
                return
            assert ours(there, "transaction", "rollback", ids["no"], "--yes")["changed"] is True
            told[b"again"] = True
            producer.send(Message("Paid", b"hello"), lambda _: False)  # This broker has to know whom to ask.
            ours(there, "transaction", "resume", ids["again"])
            wait("its producer was asked", lambda: delivered() == ["again", "yes"])
            wait("all have ended", lambda: ours(there, "transaction", "list")["transactions"] == [])
        assert delivered() == ["again", "yes"]


@pytest.fixture(params=["4.9.8", "5.3.3", "5.5.0"])
def java(request: pytest.FixtureRequest, java_toolchain: Toolchain) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, request.param) as clients:
        yield clients


def test_what_a_java_consumer_gives_up_is_resent_to_it_by_our_command(
    java: JavaClients, tmp_path: Path
) -> None:
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(Flare())
        broker = peers.broker(Flare(), namesrv.address, options=FOR_TESTS)
        there = Place(namesrv.address, broker.address)
        java.namesrv = namesrv.address
        queue = Queue("Orders", broker.name, 0)
        java.create_topic("Orders", broker.address, broker.name, 1)
        java.producer().send([Draft(topic="Orders", body=b"one", keys="k1", queue=queue)])
        how = {"refuseFirst": 2, "retryLevel": 1}
        consumer = java.push("Orders", "billing", how=how, maxReconsumeTimes=1)
        assert [each.accepted for each in consumer.received(2, LIMIT_MS)] == [False, False]
        wait("it is a dead letter", lambda: len(letters(there, "billing")) == 1)
        (letter,) = letters(there, "billing")
        assert (letter["reason"], letter["attempts"], letter["origin_topic"]) == (None, 2, "Orders")
        assert ours(there, "dlq", "resend", "billing", "--yes")["resent"] == 1
        *_, again = consumer.received(3, LIMIT_MS)
        assert (again.body, again.keys, again.reconsume_times) == (b"one", "k1", 0)
        assert again.properties["RESENT_FROM"] == letter["offset_id"]
        java.stop_all()


def test_a_java_consumer_waits_as_the_policy_of_its_group_says(java: JavaClients, tmp_path: Path) -> None:
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(Flare())
        broker = peers.broker(Flare(), namesrv.address, options=FOR_TESTS)
        java.namesrv = namesrv.address
        java.create_topic("Orders", broker.address, broker.name, 1)
        words = ("group", "create", "hasty", "--retry-after", "1s", "-n", namesrv.address)
        assert flaremq(*words).status == 0
        first = java.push("Orders", "hasty")  # The member that makes a retry topic looks for it after 20 s.
        java.await_route("%RETRY%hasty", broker.name)
        first.stop()
        java.producer().send([Draft(topic="Orders", body=b"one", queue=Queue("Orders", broker.name, 0))])
        began_s = time.monotonic()
        received = java.push("Orders", "hasty", how={"refuseFirst": 1}).received(2, LIMIT_MS)
        assert [each.reconsume_times for each in received] == [0, 1]
        assert time.monotonic() - began_s < 9, "the first delay level would be 10 s"
        java.stop_all()


def test_javas_admin_resumes_a_parked_transaction_at_our_broker(java: JavaClients, tmp_path: Path) -> None:
    told: dict[bytes, bool] = {}
    with Peers(tmp_path) as peers:
        namesrv = peers.namesrv(Flare())
        options = {**SOON, "transactionCheckInterval": 1000}
        broker = peers.broker(Flare(), namesrv.address, options=options)
        there = Place(namesrv.address, broker.address)
        java.namesrv = namesrv.address
        java.create_topic("Paid", broker.address, broker.name, 1)
        with TransactionProducer(
            "buyers", namesrv.address, checker=lambda message: told.get(message.body)
        ) as producer:
            producer.send(Message("Paid", b"one"), lambda _: None)

            def parked() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = ours(there, "transaction", "list", "--parked")["transactions"]
                return found

            wait("it is parked", lambda: len(parked()) == 1)
            told[b"one"] = True
            assert java.resume_half("TRANS_CHECK_MAX_TIME_TOPIC", parked()[0]["offset_id"])
            wait("it has ended", lambda: ours(there, "transaction", "list")["transactions"] == [])
        (message,) = java.push("Paid").received(1, LIMIT_MS)
        assert message.body == b"one"
        java.stop_all()
