"""The ledger of a member of ours, opened by RocketMQ's DLedger, and the other way round."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.dledger.membertools import LoneMember
from tests.java.clients import Draft, JavaClients, Producer, Queue, Received
from tests.java.jvm import JavaStoreError
from tests.java.peers import FOR_TESTS, Apache, Flare, Peers, Server
from tests.java.test_convert import SMALL, member_options, numbered

from flaremq.dledger.types import Ballot, Membership
from flaremq.model import layout

pytestmark = pytest.mark.java
SIZES: Mapping[str, Any] = {
    "commitlog_file_size": SMALL["mappedFileSizeCommitLog"],
    "message_size_max": SMALL["maxMessageSize"],
    "consumequeue_file_size": FOR_TESTS["mappedFileSizeConsumeQueue"],
    "index_slots": FOR_TESTS["maxHashSlotNum"],
    "index_entries": FOR_TESTS["maxIndexNum"],
}


@pytest.fixture
def java(era_java: JavaClients) -> JavaClients:
    return era_java


def our_member(root: Path) -> LoneMember:
    return LoneMember(root, unit_file_size=layout.DLEDGER_INDEX_FILE_SIZE, **SIZES)


def seen(java: JavaClients, queues: list[Queue], count: int) -> None:
    reader = java.pull("readers")
    for number, queue in enumerate(queues):
        found = reader.pull(queue, 0, 64).messages
        expected = [f"{n:03}" for n in range(number, count, len(queues))]
        assert [each.body.decode() for each in found] == expected
        assert [each.queue_offset for each in found] == list(range(len(expected)))


def put_numbered(member: LoneMember, first: int, count: int) -> None:
    for n in range(first, first + count):
        member.put(b"%03d" % n, topic=b"Moved", queue_id=n % 3)


def test_a_ledger_goes_from_apaches_member_to_ours_and_back(
    peers: Peers, java: JavaClients, apache: Apache
) -> None:
    namesrv = peers.namesrv(Flare())
    java.namesrv = namesrv.address
    broker = peers.broker(apache, namesrv.address, options={**SMALL, **member_options()})
    queues = java.create_topic("Moved", broker.address, "broker-a", queues=3)
    java.producer().send(numbered(queues, 60))
    java.producer().send([Draft(topic="Big", body=b"x" * 40_000, keys=f"big{n}") for n in range(5)])
    java.stop_all()
    broker.stop()

    root = broker.folder / "store"
    with our_member(root) as member:
        assert member.ledger.damage == ""
        term = member.ledger.last_term + 1
        assert member.bodies(b"Moved", 1) == [b"%03d" % n for n in range(1, 60, 3)]
        ballot = member.ledger.ballots.load()
        assert ballot is not None and ballot.term < term
        member.ledger.ballots.save(Ballot(term, "n0"))
        member.lead(term)
        put_numbered(member, 60, 30)
        member.ledger.change(Membership({"n0": "127.0.0.1:1", "n1": "127.0.0.1:2"}))
        member.put(*[b"y" * 40_000] * 5, topic=b"Big")
        member.commit()
        member.synced()
        last = member.ledger.last_index

    broker = peers.again(broker, apache)
    java.await_route("Moved", "broker-a")
    seen(java, queues, 90)
    assert [each.status for each in java.producer().send(numbered(queues, 3, first=90))] == ["SEND_OK"] * 3
    seen(java, queues, 93)
    java.stop_all()
    broker.stop()

    with our_member(root) as member:
        assert (member.ledger.last_index, member.ledger.damage) == (last + 3, "")
        assert member.bodies(b"Moved", 2) == [b"%03d" % n for n in range(2, 93, 3)]
        newest = member.ledger.run(last, 1)
        assert newest is not None and newest.last_term == term


def test_apaches_member_reads_a_ledger_that_only_ours_has_written(
    peers: Peers, java: JavaClients, apache: Apache
) -> None:
    namesrv = peers.namesrv(Flare())
    java.namesrv = namesrv.address
    broker = peers.broker(apache, namesrv.address, options={**SMALL, **member_options()})
    queues = java.create_topic("Moved", broker.address, "broker-a", queues=3)
    java.stop_all()
    broker.stop()
    root = broker.folder / "store"
    for name in ("dledger-n0", "consumequeue", "index"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "checkpoint").unlink(missing_ok=True)
    with our_member(root) as member:
        member.lead(3)
        put_numbered(member, 0, 90)
        member.commit()
        member.store.show()
        member.ledger.ballots.save(Ballot(3, "n0"))
        member.synced()
    broker = peers.again(broker, apache)
    java.await_route("Moved", "broker-a")
    seen(java, queues, 90)
    java.stop_all()
    broker.stop()


@pytest.mark.parametrize("sent", [1, 40], ids=["in its first file", "in the middle of many"])
def test_apaches_member_opens_the_ledger_of_ours_that_was_killed(
    peers: Peers, java: JavaClients, apache: Apache, sent: int
) -> None:
    """Files that were made ahead are left behind: messages of 40 kB, of which three fill one."""
    namesrv = peers.namesrv(Flare())
    java.namesrv = namesrv.address
    broker = peers.broker(Flare(), namesrv.address, options={**SMALL, **member_options()})
    queues = java.create_topic("Big", broker.address, "broker-a", queues=1)
    bodies = until_killed(java.producer(), broker, sent)
    broker = peers.again(broker, apache)
    java.await_route("Big", "broker-a")
    assert set(bodies) <= {each.body for each in all_of(java, queues[0])}
    more = java.producer().send([Draft(topic="Big", body=b"z" * 40_000)])
    assert [each.status for each in more] == ["SEND_OK"]
    java.stop_all()
    broker.stop()


def until_killed(producer: Producer, broker: Server, count: int) -> list[bytes]:
    """Send, and kill the broker behind so many answers, in the middle of a send. What was acknowledged."""
    acknowledged: list[bytes] = []
    enough = threading.Event()

    def sends() -> None:
        with suppress(JavaStoreError):
            while True:
                body = b"%05d" % len(acknowledged) * 8000
                if [each.status for each in producer.send([Draft(topic="Big", body=body)])] == ["SEND_OK"]:
                    acknowledged.append(body)
                if len(acknowledged) >= count:
                    enough.set()

    thread = threading.Thread(target=sends)
    thread.start()
    assert enough.wait(60)
    broker.kill()
    thread.join()
    return acknowledged


def all_of(java: JavaClients, queue: Queue) -> list[Received]:
    reader, found = java.pull("readers"), list[Received]()
    while messages := reader.pull(queue, len(found), 32).messages:
        found += messages
    return found
