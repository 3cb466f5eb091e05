"""Stores that become ledgers of DLedger, and ledgers that become plain stores, beside RocketMQ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.java.clients import Draft, JavaClients, Queue, bodies
from tests.java.peers import FOR_TESTS, Apache, Flare, Kind, PeerFailed, Peers, Server

from flaremq.remoting.ports import free_port
from flaremq.testing.cluster import properties_file

pytestmark = pytest.mark.java
SMALL = {**FOR_TESTS, "mappedFileSizeCommitLog": 128 << 10, "maxMessageSize": 48 << 10}


@pytest.fixture
def java(era_java: JavaClients) -> JavaClients:
    return era_java


def member_options() -> dict[str, object]:
    """A group of one."""
    return {
        "enableDLegerCommitLog": True,
        "dLegerGroup": "broker-a",
        "dLegerPeers": f"n0-127.0.0.1:{free_port()}",
        "dLegerSelfId": "n0",
    }


def converted(store: Path, to: str) -> Path:
    target = store.parent / f"{store.name}-{to}"
    command = [str(Path(sys.executable).parent / "flaremq"), "store", "convert", str(store), "--to", to]
    done = subprocess.run([*command, "--into", str(target)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def on(peers: Peers, kind: Kind, broker: Server, store: Path, more: dict[str, object]) -> Server:
    """The same broker, on another store."""
    lines = (broker.folder / "conf.properties").read_text().splitlines()
    kept = dict(
        line.split("=", 1)
        for line in lines
        if "=" in line and not line.startswith(("enableDLeger", "dLeger"))
    )
    kept |= {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    properties_file(broker.folder, {**kept, **more})
    return peers.again(broker, kind)


def numbered(queues: list[Queue], count: int, first: int = 0) -> list[Draft]:
    return [
        Draft(
            topic="Moved",
            body=b"%03d" % n,
            keys=f"k{n}",
            tags="even" if n % 2 == 0 else "odd",
            queue=queues[n % 3],
        )
        for n in range(first, first + count)
    ]


def check(java: JavaClients, queues: list[Queue], count: int) -> None:
    """Every message is at its place, and is found by its key."""
    reader = java.pull("readers")
    for number, queue in enumerate(queues):
        expected = [f"{n:03}" for n in range(number, count, len(queues))]
        found = reader.pull(queue, 0, 64).messages
        assert [each.body.decode() for each in found] == expected
        assert [each.queue_offset for each in found] == list(range(len(expected)))
    for n in (0, count - 1):
        assert bodies(reader.query("Moved", f"k{n}")) == [f"{n:03}"]


def test_a_store_of_ours_becomes_a_ledger_of_apaches_and_comes_back(
    peers: Peers, java: JavaClients, apache: Apache
) -> None:
    namesrv = peers.namesrv(Flare())
    java.namesrv = namesrv.address
    broker = peers.broker(Flare(), namesrv.address, options=SMALL)
    queues = java.create_topic("Moved", broker.address, "broker-a", queues=3)
    java.producer().send(numbered(queues, 90))
    java.producer().send([Draft(topic="Moved", body=b"later", delay_level=4, queue=queues[0])])
    java.mqadmin("updateSubGroup", "-b", broker.address, "-g", "readers")
    java.pull("readers").commit(queues[1], 7)
    java.stop_all()
    broker.stop()

    ledger = converted(broker.folder / "store", "dledger")
    broker = on(peers, apache, broker, ledger, member_options())
    java.await_route("Moved", "broker-a")
    check(java, queues, 90)
    assert java.pull("readers").offset(queues[1], "committed") == 7
    java.push("Moved", "waiters").received_all(["later"])
    sent = java.producer().send(numbered(queues, 3, first=90)[1:])
    assert [each.status for each in sent] == ["SEND_OK"] * 2
    java.stop_all()
    broker.stop()

    plain = converted(ledger, "plain")
    broker = on(peers, Flare(), broker, plain, {})
    java.await_route("Moved", "broker-a")
    reader = java.pull("readers")
    for queue, known in zip(queues, (31, 31, 31), strict=True):
        assert reader.offset(queue, "max") == known
    assert bodies(reader.query("Moved", "k92")) == ["092"]
    assert reader.offset(queues[1], "committed") == 7


def test_a_ledger_that_apache_has_written_becomes_a_plain_store(
    peers: Peers, java: JavaClients, apache: Apache
) -> None:
    namesrv = peers.namesrv(Flare())
    java.namesrv = namesrv.address
    broker = peers.broker(apache, namesrv.address, options={**SMALL, **member_options()})
    queues = java.create_topic("Moved", broker.address, "broker-a", queues=3)
    java.producer().send(numbered(queues, 90))
    java.producer().send([Draft(topic="Big", body=b"x" * 40_000, keys=f"big{n}") for n in range(4)])
    java.stop_all()
    broker.stop()

    plain = converted(broker.folder / "store", "plain")
    for kind in (apache, Flare()):
        broker = on(peers, kind, broker, plain, {})
        java.await_route("Moved", "broker-a")
        check(java, queues, 90)
        assert len(java.pull().query("Big", "big3")) == 1
        java.stop_all()
        broker.stop()


def test_a_plain_store_that_apache_has_written_becomes_a_ledger_of_its_member_and_of_ours(
    peers: Peers, java: JavaClients, apache: Apache
) -> None:
    namesrv = peers.namesrv(Flare())
    java.namesrv = namesrv.address
    broker = peers.broker(apache, namesrv.address, options=SMALL)
    queues = java.create_topic("Moved", broker.address, "broker-a", queues=3)
    java.producer().send(numbered(queues, 90))
    java.mqadmin("updateSubGroup", "-b", broker.address, "-g", "readers")
    java.pull("readers").commit(queues[1], 7)
    java.stop_all()
    broker.stop()

    ledger = converted(broker.folder / "store", "dledger")
    for count, kind in ((90, apache), (93, Flare())):
        broker = on(peers, kind, broker, ledger, member_options())
        java.await_route("Moved", "broker-a")
        check(java, queues, count)
        assert java.pull("readers").offset(queues[1], "committed") == 7
        sent = java.producer().send(numbered(queues, 3, first=count))
        assert [each.status for each in sent] == ["SEND_OK"] * 3
        check(java, queues, count + 3)
        java.stop_all()
        broker.stop()


@pytest.mark.parametrize("to", ["plain", "dledger"])
def test_a_store_that_apache_has_divided_is_refused_by_our_member_and_converted(
    peers: Peers, java: JavaClients, apache: Apache, to: str
) -> None:
    """A broker of RocketMQ's that is put into DLedger mode on the plain store that it has."""
    namesrv = peers.namesrv(Flare())
    java.namesrv = namesrv.address
    broker = peers.broker(apache, namesrv.address, options=SMALL)
    store = broker.folder / "store"
    queues = java.create_topic("Moved", broker.address, "broker-a", queues=3)
    java.producer().send(numbered(queues, 45))
    java.stop_all()
    broker.stop()
    broker = on(peers, apache, broker, store, member_options())
    java.await_route("Moved", "broker-a")
    java.producer().send(numbered(queues, 45, first=45))
    java.stop_all()
    broker.stop()

    whole = converted(store, to)
    broker = on(peers, Flare(), broker, whole, member_options() if to == "dledger" else {})
    java.await_route("Moved", "broker-a")
    check(java, queues, 90)
    java.stop_all()
    broker.stop()
    with pytest.raises(PeerFailed, match="flaremq store convert"):
        on(peers, Flare(), broker, store, member_options())
