"""The ledger of a member of ours, opened by RocketMQ's DLedger, and the other way round."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.dledger.membertools import LoneMember
from tests.java.clients import Draft, JavaClients, Queue
from tests.java.peers import FOR_TESTS, Apache, Flare, Peers
from tests.java.test_convert import SMALL, member_options, numbered
from tests.java.toolchain import ERAS, Toolchain

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


@pytest.fixture(scope="module", params=list(ERAS.values()), ids=list(ERAS))
def era(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A version of servers, and one of clients to go with it."""
    versions: tuple[str, str] = request.param
    return versions


@pytest.fixture(scope="module")
def clients(era: tuple[str, str], java_toolchain: Toolchain) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, era[1]) as started:
        yield started


@pytest.fixture
def java(clients: JavaClients) -> Iterator[JavaClients]:
    yield clients
    clients.stop_all()


@pytest.fixture
def apache(era: tuple[str, str], java_toolchain: Toolchain) -> Apache:
    return Apache(java_toolchain, version=era[0])


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    with Peers(tmp_path) as started:
        yield started


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
