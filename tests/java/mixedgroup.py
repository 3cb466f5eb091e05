"""Groups whose members are Apache's brokers and ours, each of which may stop, die, and change its kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.java.peers import Apache, Flare, Kind, Options, Peers, Server
from tests.java.toolchain import Toolchain

from flaremq.base.errors import FlareError
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import ClusterInfo
from flaremq.protocol.bodies.raft import RaftGroupStatus
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers.replicas import TransferLeadershipHeader
from flaremq.remoting.ports import free_port
from flaremq.testing.cluster import eventually
from flaremq.testing.fakes.wireclient import RefusedByServer, WireClient

NAME = "broker-a"
SMALL: Options = {
    "autoCreateTopicEnable": True,
    "mappedFileSizeCommitLog": 1 << 20,
    "maxMessageSize": 1 << 16,
    "mappedFileSizeConsumeQueue": 20_000 * 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "osPageCacheBusyTimeOutMills": 60_000,
    "waitTimeMillsInSendQueue": 30_000,
    "enableDLegerCommitLog": True,
    "dLegerGroup": NAME,
    "recheckReputOffsetFromCq": True,
}
SOON_S = 60.0


class MixedGroup:
    """Members by their ids. A member keeps its folder whatever runs on it."""

    ids = ("n0", "n1", "n2")

    def __init__(self, peers: Peers, toolchain: Toolchain, version: str = "5.3.3") -> None:
        self._peers = peers
        java = Apache(toolchain, version=version)
        self._makers: Mapping[str, Kind] = {"java": java, "ours": Flare(), "own rules": Flare()}
        self.namesrv = peers.namesrv(Flare())
        self.peers = ";".join(f"{each}-127.0.0.1:{free_port()}" for each in self.ids)
        self.members: dict[str, Server] = {}
        self.kinds: dict[str, str] = {}
        """What runs on a member, or did last."""
        self._folders: dict[str, Path] = {}

    def launch(self, member: str, kind: str, **more: object) -> Server:
        """A member that may not be ready yet."""
        options = {
            **SMALL,
            "dLegerPeers": self.peers,
            "dLegerSelfId": member,
            **({} if kind == "java" else {"dLegerProtocol": "dledger" if kind == "ours" else "flaremq"}),
            **more,
        }
        self.kinds[member] = kind
        folder = self._folders.get(member)
        if folder is not None:
            store = folder / "store"
            options |= {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
        server = self._peers.launch_broker(self._makers[kind], self.namesrv.address, NAME, options)
        server_folder = self._folders.setdefault(member, server.folder)
        server.folder, self.members[member] = server_folder, server
        return server

    def start(self, kinds: Mapping[str, str], **more: object) -> None:
        """Several members at once, as each waits for the others."""
        for member, kind in kinds.items():
            self.launch(member, kind, **more)
        for member in kinds:
            self.members[member].wait_ready(120.0)

    def stop(self, member: str) -> None:
        self.members.pop(member).stop()

    def kill(self, member: str) -> None:
        self.members.pop(member).kill()

    # What it is like.

    def leads(self, member: str) -> None:
        """Wait until NameServers know this one as the leader."""
        assert self.leader(*(each for each in self.ids if each != member)) == member

    def leader(self, *but: str) -> str:
        """Wait until NameServers know a leader that runs and is none of these."""
        found: list[str] = []

        async def is_known() -> bool:
            async with WireClient() as wire:
                answer = await wire.ask(self.namesrv.address, RequestCode.GET_BROKER_CLUSTER_INFO)
            assert answer.body is not None
            table = beans.decode(ClusterInfo, answer.body).broker_addr_table
            master = table[NAME].broker_addrs.get(0) if NAME in table else None
            found[:] = [each for each, server in self.members.items() if server.address == master]
            return bool(found) and found[0] not in but

        asyncio.run(eventually("a member leads", is_known, SOON_S))
        return found[0]

    def status(self, member: str) -> RaftGroupStatus:
        """Of a member of ours."""

        async def ask() -> RaftGroupStatus:
            async with WireClient() as wire:
                address = self.members[member].address
                answer = await wire.ask(address, RequestCode.FLAREMQ_GROUP_STATUS)
                return beans.decode(RaftGroupStatus, answer.body)

        return asyncio.run(ask())

    def transfer(self, member: str, to: str) -> None:
        """Ask this member of ours to hand over; returns when the other one leads."""

        async def ask() -> None:
            async with WireClient() as wire:
                header = TransferLeadershipHeader(member=to)
                code = RequestCode.FLAREMQ_GROUP_TRANSFER
                await wire.ask(self.members[member].address, code, header)

        asyncio.run(ask())

    def asked(self, member: str, code: RequestCode) -> bytes:
        """What a member answers, whoever runs it."""

        async def ask() -> bytes:
            async with WireClient() as wire:
                answer = await wire.ask(self.members[member].address, code)
                return bytes(answer.body or b"")

        return asyncio.run(ask())

    def until_asked(self, member: str, code: RequestCode, is_so: Callable[[bytes], bool]) -> None:
        async def holds() -> bool:
            return is_so(await asyncio.to_thread(self.asked, member, code))

        asyncio.run(eventually(f"{member} has copied what {code.name} tells", holds, SOON_S))

    def until_status(self, member: str, what: str, is_so: Callable[[RaftGroupStatus], bool]) -> None:
        async def holds() -> bool:
            try:
                return is_so(await asyncio.to_thread(self.status, member))
            except (FlareError, RefusedByServer, OSError):
                return False  # It changes its role.

        asyncio.run(eventually(what, holds, SOON_S))

    def log(self, member: str) -> bytes:
        """Up to the last byte that is not zero."""
        data = self._folders[member] / "store" / f"dledger-{member}" / "data"
        files = sorted(path for path in data.iterdir() if path.name.isdigit())
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0")

    def same_logs(self, *members: str, least: int = 0) -> None:
        """Wait until these members have the same bytes on their disks."""

        async def are_same() -> bool:
            logs = [self.log(each) for each in members]
            return len(logs[0]) >= least and all(each == logs[0] for each in logs)

        asyncio.run(eventually("the logs are the same", are_same, SOON_S))
