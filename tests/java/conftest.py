"""Fixtures of the tests against the real RocketMQ: each runs on every version, or is skipped in one line.

The clients of all versions talk to FlareMQ's servers, or to Apache's if FLAREMQ_JAVA_SERVERS=apache: a test
that passes there asks of us what RocketMQ does.
"""

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.java.clients import Header, JavaClients, Queue
from tests.java.driver import JavaStores
from tests.java.peers import FOR_TESTS, Apache, Flare, Kind, Peers, Server
from tests.java.toolchain import BUILD_LIMIT_S, ERAS, MODULES, Toolchain, find_toolchain

COLD = {**FOR_TESTS, "accessMessageInMemoryMaxRatio": 0}
"""A broker that takes every message for an old one. A new group on a young queue is sent to its beginning
whatever it wants, so only here does it matter where a group wants to begin."""
HEADERS: tuple[Header, ...] = ("JSON", "ROCKETMQ")
_topics = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a fresh checkout waits for the build, so the usual limit would be too short."""
    for item in items:
        if item.get_closest_marker("java") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(BUILD_LIMIT_S + 120))


@pytest.fixture(scope="session")
def java_toolchain() -> Toolchain:
    found = find_toolchain()
    if isinstance(found, str):
        pytest.skip(f"no Java store to test against: {found}")
    return found


@pytest.fixture(scope="session", params=list(MODULES))
def java_store(request: pytest.FixtureRequest, java_toolchain: Toolchain) -> Iterator[JavaStores]:
    """Starts JVMs: `with java_store() as java:`. Its version is `java_store.version`."""
    stores = JavaStores(java_toolchain, request.param)
    yield stores
    stores.kill_all()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A NameServer and a broker."""

    namesrv: Server
    broker: Server


@pytest.fixture(scope="session")
def kind(java_toolchain: Toolchain) -> Kind:
    """Whose servers are tested."""
    return Apache(java_toolchain) if os.environ.get("FLAREMQ_JAVA_SERVERS") == "apache" else Flare()


@pytest.fixture(scope="session")
def cluster(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Shared by all tests, which therefore take topics and groups of their own."""
    with Peers(tmp_path_factory.mktemp("cluster")) as peers:
        namesrv = peers.namesrv(kind)
        yield Cluster(namesrv, peers.broker(kind, namesrv.address))


@pytest.fixture(scope="session")
def cold_cluster(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Peers(tmp_path_factory.mktemp("cold")) as peers:
        namesrv = peers.namesrv(kind)
        yield Cluster(namesrv, peers.broker(kind, namesrv.address, options=COLD))


def _speakers() -> list[tuple[str, Header]]:
    return [(version, header) for version in MODULES for header in HEADERS]


@pytest.fixture(scope="session", params=_speakers(), ids=lambda speaker: "-".join(speaker))
def jvm_of_clients(request: pytest.FixtureRequest, java_toolchain: Toolchain) -> Iterator[JavaClients]:
    version, header = request.param
    with JavaClients(java_toolchain, version, header) as clients:
        yield clients


@pytest.fixture
def java(jvm_of_clients: JavaClients, cluster: Cluster) -> Iterator[JavaClients]:
    """Clients of the shared cluster: `java.producer()`. Whatever a test starts is stopped behind it."""
    jvm_of_clients.namesrv = cluster.namesrv.address
    yield jvm_of_clients
    jvm_of_clients.stop_all()


@pytest.fixture
def cold_java(jvm_of_clients: JavaClients, cold_cluster: Cluster) -> Iterator[JavaClients]:
    jvm_of_clients.namesrv = cold_cluster.namesrv.address
    yield jvm_of_clients
    jvm_of_clients.stop_all()


@pytest.fixture(scope="session", params=list(MODULES))
def operator(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, cluster: Cluster
) -> Iterator[JavaClients]:
    """mqadmin of each version at the shared cluster, and clients: `operator.mqadmin("topicList")`."""
    with JavaClients(java_toolchain, request.param) as clients:
        clients.namesrv = cluster.namesrv.address
        yield clients
        clients.stop_all()


# Servers of RocketMQ's and ours, which a test starts by itself.


@pytest.fixture(scope="module", params=list(ERAS.values()), ids=list(ERAS))
def era(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A version of servers, and one of clients to go with it: 5.x's mqadmin asks what no 4.x broker knows."""
    versions: tuple[str, str] = request.param
    return versions


@pytest.fixture(scope="module")
def jvm_of_era(era: tuple[str, str], java_toolchain: Toolchain) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, era[1]) as started:
        yield started


@pytest.fixture
def era_java(jvm_of_era: JavaClients) -> Iterator[JavaClients]:
    """Clients whose NameServer the test names."""
    yield jvm_of_era
    jvm_of_era.stop_all()


@pytest.fixture
def apache(era: tuple[str, str], java_toolchain: Toolchain) -> Apache:
    return Apache(java_toolchain, version=era[0])


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    with Peers(tmp_path) as started:
        yield started


@pytest.fixture
def queues(request: pytest.FixtureRequest, java: JavaClients, cluster: Cluster) -> list[Queue]:
    """The four queues of a new topic."""
    return new_topic(request.node.name, java, cluster)


@pytest.fixture
def cold_queues(request: pytest.FixtureRequest, cold_java: JavaClients, cold_cluster: Cluster) -> list[Queue]:
    return new_topic(request.node.name, cold_java, cold_cluster)


def new_topic(wish: str, java: JavaClients, cluster: Cluster) -> list[Queue]:
    """A topic whose name begins as wished."""
    name = re.sub(r"[^a-zA-Z0-9]+", "_", wish).removeprefix("test_")[:60]
    return java.create_topic(f"{name}-{next(_topics)}", cluster.broker.address, cluster.broker.name)
