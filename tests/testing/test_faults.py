"""Harm that is done on demand, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from flaremq.base.errors import FlareError, TopicNotFound, UsageError
from flaremq.client.sync import ClientSettings, Message, MessageQueue, Producer, ProducerSettings
from flaremq.testing.cluster import Process, eventually
from flaremq.testing.faults import Faults
from flaremq.testing.local import Clusters, LocalBroker, LocalCluster

pytest_plugins = ["flaremq.testing.plugin"]

IMPATIENT = ProducerSettings(attempts=1, timeout_s=0.2)
FIRST, SECOND = (MessageQueue("Orders", name, 0) for name in ("broker-a", "broker-b"))


def send(servers: LocalBroker | LocalCluster, count: int = 1, to: MessageQueue = FIRST) -> None:
    with Producer("shop", servers.namesrv) as producer:
        for number in range(count):
            producer.send(Message("Orders", b"order %d" % number), to=to)


# Processes.


def test_who_is_killed_comes_back_with_what_it_had(
    cluster: Clusters, faults: Faults, assert_sent: Callable[..., None]
) -> None:
    servers = cluster(1)
    servers.create_topic("Orders", queues=1)
    send(servers, 3)
    (broker,) = servers.brokers
    faults.kill(broker)
    assert not broker.is_running and (broker.store / "abort").exists()
    again = faults.restart(broker)
    assert servers.brokers == [again]
    assert (again.address, again.store) == (broker.address, broker.store)
    assert again.pid != broker.pid
    assert_sent("Orders", 3, within_s=30)
    faults.kill(broker)  # An older life of it is as good a name.
    assert not again.is_running
    log = broker.store / "commitlog" / f"{0:020}"
    torn = faults.tear(again, at=log.read_bytes().index(b"order 1"))
    assert torn.path == log and torn.before.startswith(b"order 1")
    assert faults.restart(again).is_running
    assert_sent("Orders", 1, within_s=30)


def test_the_broker_inside_the_process_cannot_be_killed(broker: LocalBroker, faults: Faults) -> None:
    with pytest.raises(UsageError, match=r"broker-a runs in the process of this test.*stop\(\).*`cluster`"):
        faults.kill(cast(Process, broker))
    with pytest.raises(UsageError, match="cannot be restarted"):
        faults.restart(cast(Process, broker))
    with pytest.raises(UsageError, match=r"'broker-a' cannot be killed: give one of `\.brokers`"):
        faults.kill(cast(Process, "broker-a"))
    assert broker.is_running


@pytest.mark.parametrize(("brokers", "namesrvs"), [(0, 1), (27, 1), (1, 0)])
def test_a_cluster_of_nothing_is_refused(cluster: Clusters, brokers: int, namesrvs: int) -> None:
    with pytest.raises(UsageError, match="expected 1 to"):
        cluster(brokers, namesrvs=namesrvs)


def test_a_wrong_option_of_a_cluster_is_told(cluster: Clusters) -> None:
    with pytest.raises(Exception, match="brokerNam"):
        cluster(1, brokerNam="x")


# Wires.


async def test_clients_are_cut_off_and_come_back(cluster: Clusters, faults: Faults) -> None:
    servers = cluster(2, cuttable=True)
    servers.create_topic("Orders", queues=1)
    client = ClientSettings(namesrv=servers.namesrv)
    with Producer("shop", settings=IMPATIENT, client=client) as producer:

        def sent(to: MessageQueue) -> bool:
            try:
                producer.send(Message("Orders", b"order"), to=to)
            except FlareError:
                return False
            return True

        async def reaches_both() -> bool:
            return sent(FIRST) and sent(SECOND)

        await eventually("both brokers are reached", reaches_both)
        for resets in (False, True):
            faults.partition("clients", servers.brokers[0], resets=resets)
            assert not sent(FIRST)
            await eventually("the other broker is reached", lambda: _so(sent(SECOND)))
            faults.heal()
            await eventually("both brokers are reached again", reaches_both)


async def test_a_broker_is_cut_off_from_its_nameserver(cluster: Clusters, faults: Faults) -> None:
    servers = cluster(2, cuttable=True)
    servers.create_topic("Orders", queues=1)
    namesrv, (broker, _) = servers.namesrvs[0], servers.brokers

    async def brokers_are(count: int) -> bool:
        try:
            return len(servers.admin.topics.route("Orders").queues) == count
        except TopicNotFound:
            return count == 0

    faults.partition(broker, namesrv, resets=True)
    await eventually("one broker is left", lambda: brokers_are(1))
    send(servers, to=SECOND)
    faults.heal()
    await eventually("the broker is known again", lambda: brokers_are(2))
    faults.partition(broker, resets=True)
    await eventually("one broker is left once more", lambda: brokers_are(1))
    with pytest.raises(UsageError, match="no wire between broker-a and broker-b"):
        faults.partition(*servers.brokers)


def test_what_cannot_be_cut_is_told(cluster: Clusters, faults: Faults) -> None:
    (broker,) = cluster(1).brokers
    with pytest.raises(UsageError, match="cuttable=True"):
        faults.partition("clients", broker)
    with pytest.raises(UsageError, match="name a broker or a NameServer too"):
        faults.partition("clients")
    faults.heal()


async def _so(is_so: bool) -> bool:
    return is_so


# Files.


def test_a_damaged_message_is_noticed_when_the_broker_starts(
    broker: LocalBroker, faults: Faults, assert_sent: Callable[..., None]
) -> None:
    broker.create_topic("Orders", queues=1)
    send(broker, 3)
    assert_sent("Orders", 3)
    broker.stop()
    log = broker.store / "commitlog" / f"{0:020}"
    (change,) = faults.corrupt(broker, at=log.read_bytes().rindex(b"order 2"))
    assert (change.path, change.before) == (log, b"o")
    assert change.after != b"o"
    broker.start()
    assert_sent("Orders", 2)  # It was the last, so the log ends before it.


def test_the_same_seed_damages_the_same_places(broker: LocalBroker, faults: Faults) -> None:
    send_first(broker)
    before = newest(broker).read_bytes()
    first = faults.corrupt(broker, count=5, seed=1)
    after = newest(broker).read_bytes()
    written = len(before.rstrip(b"\0"))
    assert before[written:] == after[written:]
    before, after = before[:written], after[:written]
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert changed == [change.at for change in first]
    for change in first:
        change.undo()
    assert newest(broker).read_bytes()[:written] == before
    assert faults.corrupt(broker, count=5, seed=1) == first
    assert faults.corrupt(newest(broker), seed=2)[0].at < written


def test_the_end_of_a_file_is_torn_off(broker: LocalBroker, faults: Faults) -> None:
    send_first(broker)
    before = newest(broker).read_bytes()
    change = faults.tear(broker, at=10)
    assert newest(broker).read_bytes() == before[:10] + bytes(len(before) - 10)
    change.undo()
    assert newest(broker).read_bytes() == before
    torn = faults.tear(broker, seed=1)
    assert 0 <= torn.at < len(before.rstrip(b"\0"))
    torn.undo()
    assert faults.tear(broker, seed=1) == torn


def test_only_what_nobody_uses_is_damaged(broker: LocalBroker, faults: Faults, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no commit log with messages"):
        faults.corrupt(broker)
    broker.create_topic("Orders", queues=1)
    send(broker)
    with pytest.raises(UsageError, match="is in use: stop or kill broker-a first"):
        faults.corrupt(broker)
    with pytest.raises(UsageError, match="is in use"):
        faults.tear(newest(broker))
    broker.stop()
    with pytest.raises(UsageError, match="expected a byte below"):
        faults.corrupt(broker, at=1 << 40)
    with pytest.raises(UsageError, match="count=0: expected 1 to"):
        faults.corrupt(broker, count=0)
    with pytest.raises(UsageError, match="nothing is written from byte"):
        faults.tear(broker, at=1 << 20)
    empty = tmp_path / "empty"
    empty.write_bytes(bytes(10))
    with pytest.raises(UsageError, match="holds nothing"):
        faults.tear(empty)


def send_first(broker: LocalBroker) -> None:
    """A broker that has messages and is stopped."""
    broker.create_topic("Orders", queues=1)
    send(broker, 3)
    broker.stop()


def newest(broker: LocalBroker) -> Path:
    return broker.store / "commitlog" / f"{0:020}"
