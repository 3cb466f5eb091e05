"""The remoting clients that npm has for RocketMQ: what they send arrives, and they get what was sent."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.java.clients import Draft, JavaClients
from tests.java.conftest import Cluster, new_topic
from tests.java.toolchain import Toolchain

pytestmark = pytest.mark.java

SOURCES = Path(__file__).parent / "node"
INSTALLED = Path(__file__).parent / "target" / "node"
INSTALL_LIMIT_S = 120
RUN_LIMIT_S = 60
PACKAGES = ("rocketmq", "ali-ons", "co")


@pytest.fixture(scope="session")
def node_clients() -> Path:
    """A folder with the script and the packages, installed once."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("no node and npm on the PATH")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for source in SOURCES.iterdir():
        shutil.copy(source, INSTALLED)
    if all((INSTALLED / "node_modules" / name).exists() for name in PACKAGES):
        return INSTALLED
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    try:
        subprocess.run(
            command, cwd=INSTALLED, capture_output=True, text=True, check=True, timeout=INSTALL_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not finish within {INSTALL_LIMIT_S} s: can it reach its registry?")
    except subprocess.CalledProcessError as failed:
        pytest.skip(f"npm cannot install the clients: {failed.stderr.strip().splitlines()[-1:]}")
    return INSTALLED


@pytest.fixture
def java5(java_toolchain: Toolchain, cluster: Cluster) -> Iterator[JavaClients]:
    with JavaClients(java_toolchain, "5.3.3") as clients:
        clients.namesrv = cluster.namesrv.address
        yield clients


@pytest.mark.parametrize("package", ["rocketmq", "ali-ons"])
def test_a_node_client_sends_and_consumes(
    java5: JavaClients, cluster: Cluster, node_clients: Path, package: str
) -> None:
    queues = new_topic(f"node-{package}", java5, cluster)
    topic, group = queues[0].topic, f"node-of-{queues[0].topic}"
    for queue in queues:
        java5.producer().send([Draft(topic=topic, body=b"not for it", tags="TagC", queue=queue)])
    words = ["node", "client.js", package, cluster.namesrv.address, topic, group, "12"]
    run = subprocess.run(
        words, cwd=node_clients, capture_output=True, text=True, check=False, timeout=RUN_LIMIT_S
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout.splitlines()[-1])
    assert [result["status"] for result in answer["sent"]] == ["SEND_OK"] * 12
    wanted = {(f"node {n}", "TagA", f"key-{n}", answer["sent"][n]["id"]) for n in range(12)}
    assert {(m["body"], m["tags"], str(m["keys"]), m["id"]) for m in answer["received"]} == wanted
    reader = java5.pull()
    found = [message for queue in queues for message in reader.pull(queue, 1).messages]
    assert {(m.body.decode(), m.tags, m.keys, m.offset_message_id) for m in found} == wanted
