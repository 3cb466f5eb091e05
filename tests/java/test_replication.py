"""Masters and slaves of either kind: the same log, byte for byte, whoever follows whom."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.java.peers import Apache, Flare, Kind, Options, Peers, Server
from tests.java.toolchain import Toolchain

from flaremq.client.message import SendStatus
from flaremq.client.settings import ProducerSettings
from flaremq.client.sync import Producer
from flaremq.model.message import Message
from flaremq.testing.cluster import eventually

pytestmark = pytest.mark.java

SMALL: Options = {
    "autoCreateTopicEnable": True,
    "mappedFileSizeCommitLog": 1 << 20,
    "maxMessageSize": 1 << 16,
    "mappedFileSizeConsumeQueue": 20_000 * 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "osPageCacheBusyTimeOutMills": 60_000,
    "waitTimeMillsInSendQueue": 30_000,
    "haSendHeartbeatInterval": 1000,
}
PAIRS = [("ours", version) for version in ("4.9.7", "5.3.3", "5.5.0")]
PAIRS += [(version, "ours") for version in ("4.9.7", "5.3.3", "5.5.0")]


def kind_of(toolchain: Toolchain, name: str) -> Kind:
    return Flare() if name == "ours" else Apache(toolchain, version=name)


def content(server: Server) -> bytes:
    """The log of a broker up to its last byte that is not zero."""
    files = sorted((server.folder / "store" / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files if path.name.isdigit()).rstrip(b"\0")


def first_offset(server: Server) -> int:
    files = sorted((server.folder / "store" / "commitlog").iterdir())
    return min(int(path.name) for path in files if path.name.isdigit())


def same_log(master: Server, slave: Server, least: int) -> None:
    """Wait until the slave has all that its master has."""

    async def is_same() -> bool:
        wanted = content(master)
        return len(wanted) >= least and content(slave) == wanted

    asyncio.run(eventually("the logs are the same", is_same, 60.0))


def send(namesrv: Server, begin: int, count: int) -> set[SendStatus]:
    settings = ProducerSettings(timeout_s=20.0)  # A slave of RocketMQ may take 5 s to connect again.
    with Producer("replication", namesrv=namesrv.address, settings=settings) as producer:
        messages = [
            Message("Orders", f"message {number} ".encode().ljust(2000, b"."))
            for number in range(begin, begin + count)
        ]
        return {result.status for result in producer.send_many(messages)}


class Pair:
    """A master and a slave of one name, which may be stopped and started again."""

    def __init__(self, peers: Peers, toolchain: Toolchain, master: str, slave: str, role: str) -> None:
        self._peers = peers
        self._kinds = {0: kind_of(toolchain, master), 1: kind_of(toolchain, slave)}
        self.namesrv = peers.namesrv(Flare())
        sync = {"inSyncReplicas": 2} if role == "SYNC_MASTER" and not master.startswith("4") else {}
        self._options: dict[int, Options] = {
            0: {**SMALL, "brokerRole": role, **sync},
            1: {**SMALL, "brokerRole": "SLAVE", "brokerId": 1},
        }
        self._folders: dict[int, Path] = {}

    def start(self, broker_id: int) -> Server:
        options = dict(self._options[broker_id])
        folder = self._folders.get(broker_id)
        if folder is not None:
            options |= {
                "storePathRootDir": folder / "store",
                "storePathCommitLog": folder / "store" / "commitlog",
            }
        server = self._peers.broker(self._kinds[broker_id], self.namesrv.address, "broker-a", options)
        server.folder = self._folders.setdefault(broker_id, server.folder)
        return server


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
@pytest.mark.parametrize(("master_kind", "slave_kind"), PAIRS)
def test_a_slave_has_the_bytes_of_its_master_after_restarts_of_both(
    java_toolchain: Toolchain, tmp_path: Path, master_kind: str, slave_kind: str, role: str
) -> None:
    with Peers(tmp_path) as peers:
        pair = Pair(peers, java_toolchain, master_kind, slave_kind, role)
        master, slave = pair.start(0), pair.start(1)
        send(pair.namesrv, 0, 1)  # The first answer may come before the slave does.
        same_log(master, slave, 2000)
        assert send(pair.namesrv, 1, 1000) == {SendStatus.OK}
        same_log(master, slave, 2_000_000)
        slave.stop()
        send(pair.namesrv, 1001, 300)
        slave = pair.start(1)
        same_log(master, slave, 2_600_000)
        master.stop()
        master = pair.start(0)
        same_log(master, slave, 2_600_000)
        send(pair.namesrv, 1301, 1)
        same_log(master, slave, 2_602_000)
        if role == "SYNC_MASTER":
            assert send(pair.namesrv, 1302, 300) == {SendStatus.OK}
        else:
            send(pair.namesrv, 1302, 300)
        same_log(master, slave, 3_200_000)
