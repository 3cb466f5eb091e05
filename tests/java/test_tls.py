"""Java's clients with TLS at our NameServer and our broker, which take nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.java.clients import Draft, JavaClients, bodies
from tests.java.toolchain import MODULES, Toolchain

from flaremq.testing.cluster import Cluster, Process

pytestmark = pytest.mark.java

CERTS = Path(__file__).parents[1] / "remoting" / "certs"
CERT, KEY = str(CERTS / "cert.pem"), str(CERTS / "key.pem")
SERVERS: dict[str, Any] = {
    "tls.server.mode": "enforcing",
    "tls.server.certPath": CERT,
    "tls.server.keyPath": KEY,
    "tls.server.need.client.auth": "require",
    "tls.server.trustCertPath": CERT,
}
CALLERS: dict[str, Any] = {
    "tls.client.authServer": "true",
    "tls.client.trustCertPath": CERT,
    "tls.client.certPath": CERT,
    "tls.client.keyPath": KEY,
}
JAVA = {"tls.enable": "true", "tls.test.mode.enable": "false", **CALLERS}


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Process]]:
    """Both sides show certificates and look at each other's."""
    with Cluster(tmp_path_factory.mktemp("tls")) as cluster:
        namesrv = cluster.namesrv(**SERVERS)
        yield namesrv, cluster.broker(namesrv=namesrv.address, **SERVERS, **CALLERS)


@pytest.mark.smoke
@pytest.mark.parametrize("version", list(MODULES))
def test_what_java_sends_with_tls_java_consumes_with_tls(
    java_toolchain: Toolchain, enforcing: tuple[Process, Process], version: str
) -> None:
    namesrv, broker = enforcing
    with JavaClients(java_toolchain, version, properties=JAVA) as java:
        java.namesrv = namesrv.address
        topic = f"tls-{version.replace('.', '-')}"
        java.create_topic(topic, broker.address, broker.name)
        drafts = [Draft(topic=topic, body=f"body {number:03}".encode()) for number in range(50)]
        drafts.append(Draft(topic=topic, body=b"z" * 1_000_000))
        sent = java.producer().send(drafts)
        assert {each.status for each in sent} == {"SEND_OK"}
        received = java.push(topic).received(len(drafts))
        assert sorted(bodies(received)) == sorted(each.body.decode() for each in drafts)


def test_a_java_client_without_tls_is_not_served(
    java_toolchain: Toolchain, enforcing: tuple[Process, Process]
) -> None:
    namesrv, broker = enforcing
    with JavaClients(java_toolchain, next(iter(MODULES))) as java:
        java.namesrv = namesrv.address
        with pytest.raises(Exception, match=r"(?i)connect|closed|timeout|remoting"):
            java.create_topic("plain", broker.address, broker.name)
