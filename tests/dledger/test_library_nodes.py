"""Members that speak the library's protocol, over real sockets: whom they let in, and whom they refuse."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.dledger.pretendgroup import MemoryLedger
from tests.dledger.test_links import Host, met

from flaremq.base.clock import SystemClock
from flaremq.base.errors import ConfigError, InvalidParameter
from flaremq.dledger.library.messages import (
    Addressed,
    BeatCall,
    BeatReply,
    LibraryCall,
    LibraryCode,
    LibraryReply,
    MetadataCall,
    MetadataReply,
    Result,
    code_of,
    decode_reply,
    encode_call,
)
from flaremq.dledger.library.node import LibraryNode
from flaremq.dledger.library.state import LibraryPace
from flaremq.dledger.settings import RaftSettings
from flaremq.dledger.types import Ballot, Membership, Standing
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.remoting.network import Network
from flaremq.remoting.ports import free_port
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.cluster import eventually

QUICK = LibraryPace(
    heartbeat_s=0.05,
    lost_s=1.0,
    answers_s=0.8,
    vote_wait_s=(0.02, 0.2),
    round_s=(0.5, 0.6),
    push_s=0.3,
    rest_s=0.05,
    commit_s=0.02,
)


class NodeLedger(MemoryLedger):
    """Synced at once."""

    failure = None
    damage_found = ""

    def __init__(self, members: Membership) -> None:
        super().__init__(members)
        self.committed = -1
        self.may_append = False
        self.grown: Callable[[], None] = lambda: None

    def append_run(self, run: object) -> None:
        super().append_run(run)  # type: ignore[arg-type]
        self._synced()

    def _synced(self) -> None:
        self.synced_index = self.last_index
        self.grown()

    def put(self, body: bytes) -> None:
        self.append(self.last_term, body)
        self._synced()

    def commit_to(self, index: int) -> None:
        self.committed = max(self.committed, min(index, self.last_index))

    def lead(self, term: int) -> None:
        self.append(term, b"leads")
        self._synced()

    def follow(self) -> None:
        self.may_append = False

    def allow(self, may_append: bool) -> None:
        self.may_append = may_append

    def empty(self, first: int, position: int, previous_term: int = -1) -> None:
        super().empty(first, position)

    def change(self, membership: Membership) -> None:
        raise AssertionError(membership)

    def stalled_s(self) -> float:
        return 0.0

    def watch(self, appended: Callable[[], None], synced: Callable[[], None]) -> Callable[[], None]:
        def grown() -> None:
            appended()
            synced()

        self.grown = grown
        return lambda: None


class BallotInMemory:
    def save(self, ballot: Ballot) -> None:
        self.ballot = ballot


def a_node(me: str, peers: str, *, group: str = "orders") -> tuple[LibraryNode, NodeLedger]:
    settings = RaftSettings(enabled=True, group=group, peers=peers, self_id=me, protocol="dledger")
    ledger = NodeLedger(settings.membership)

    async def offload(work: Callable[[], None]) -> None:
        work()

    node = LibraryNode(
        *(settings, group, ledger, BallotInMemory(), Ballot()),
        may_vote=True,
        network=Network(),
        clock=SystemClock(),
        rng=random.Random(1),
        offload=offload,
        pace=QUICK,
    )
    return node, ledger


def listed(*ids: str) -> str:
    return ";".join(f"{each}-127.0.0.1:{free_port('127.0.0.1')}" for each in ids)


def port_of(me: str, peers: str) -> int:
    return int(next(each for each in peers.split(";") if each.startswith(f"{me}-")).rpartition(":")[2])


@asynccontextmanager
async def started(*nodes: tuple[LibraryNode, NodeLedger]) -> AsyncIterator[None]:
    begun = []
    try:
        for node, _ in nodes:
            status = node.status()
            port = int(status.membership.addresses[status.self_id].rpartition(":")[2])
            await node.start(ServerSettings(listen_port=port, bind_address="127.0.0.1"))
            begun.append(node)
        yield
    finally:
        for node in begun:
            await node.stop()


async def until(what: str, is_so: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return is_so()

    await eventually(what, holds)


async def asked(port: int, call: LibraryCall, between: Addressed) -> LibraryReply:
    """The answer of the member at this port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode_frame(Command(code=code_of(call), opaque=7, body=encode_call(call, between))))
    decoder, found = FrameDecoder(), list[Command]()
    async with asyncio.timeout(10):
        while not found:
            found = decoder.feed(await reader.read(65536))
    writer.close()
    assert found[0].opaque == 7 and found[0].code == Result.SUCCESS
    return decode_reply(call, found[0].body)


async def test_three_members_elect_a_leader_whose_entries_all_of_them_get() -> None:
    peers = listed("n0", "n1", "n2")
    nodes = [a_node(each, peers) for each in ("n0", "n1", "n2")]
    async with started(*nodes):
        await until("one leads", lambda: any(node.may_answer() for node, _ in nodes))
        leader, ledger = next(each for each in nodes if each[0].may_answer())
        assert ledger.may_append
        for n in range(200):
            ledger.put(b"message %d" % n)
        await until("all have all", lambda: all(each.committed == 200 for _, each in nodes))
        assert all(each.entries == ledger.entries for _, each in nodes)
        other = next(node for node, _ in nodes if node is not leader)
        leader.transfer(other.status().self_id)
        await until("the other one leads", other.may_answer)
        assert "all members are FlareMQ's" in other.status().caution
        assert other.status().standing is Standing.LEADER


async def test_a_member_tells_who_belongs_to_its_group_and_that_it_is_ours() -> None:
    peers = listed("n0", "n1")
    async with started(a_node("n0", peers)):
        said = await asked(port_of("n0", peers), MetadataCall(), Addressed("orders", "", "n0"))
    assert isinstance(said, MetadataReply)
    assert said.is_ours
    assert ";".join(f"{each}-{at}" for each, at in sorted(said.peers.items())) == peers


@pytest.mark.parametrize(
    ("between", "code", "said"),
    [
        (Addressed("bills", "n1", "n0"), Result.UNKNOWN_GROUP, "n1: it belongs to group bills, and this is"),
        (Addressed("orders", "n1", "n2"), Result.UNKNOWN_MEMBER, "n1: it looks for n2, and this is n0"),
        (Addressed("orders", "n9", "n0"), Result.UNKNOWN_MEMBER, "n9: n9 is not another member of orders"),
        (Addressed("orders", "n0", "n0"), Result.UNKNOWN_MEMBER, "n0: n0 is not another member of orders"),
    ],
)
async def test_who_does_not_belong_to_the_group_is_refused_by_name(
    between: Addressed, code: Result, said: str
) -> None:
    peers = listed("n0", "n1", "n2")
    node, ledger = a_node("n0", peers)
    async with started((node, ledger)):
        reply = await asked(port_of("n0", peers), BeatCall(9, between.sender), between)
        assert reply == BeatReply(code)
        assert node.status().refused.startswith(said)
        assert node.term < 9


async def test_a_member_that_counts_its_majority_over_another_list_is_refused_by_name() -> None:
    peers = listed("n0", "n1", "n2")
    fewer = ";".join(peers.split(";")[:2])
    (one, _), (other, _) = nodes = a_node("n0", peers), a_node("n1", fewer)
    async with started(*nodes):
        await until("it is refused", lambda: f"its dLegerPeers={fewer}" in one.status().refused)
        complaints = dict(one.status().complaints)
        assert "a group counts its majority over one list" in complaints["n1"]
        reply = await asked(port_of("n0", peers), BeatCall(9, "n1"), Addressed("orders", "n1", "n0"))
        assert reply == BeatReply(Result.UNKNOWN_MEMBER)
        assert one.leader == "" and one.term < 9
        await until("it refuses as well", lambda: f"its dLegerPeers={peers}" in other.status().refused)


async def test_a_member_of_our_own_rules_is_refused_by_name_and_hears_why() -> None:
    peers = listed("n0", "n1")
    node, _ = made = a_node("n0", peers)
    stranger = Host("n1", group="orders")
    async with started(made), met(stranger):
        stranger.links.reach({"n0": f"127.0.0.1:{port_of('n0', peers)}"})
        await until("it is told", lambda: "dLegerProtocol=dledger" in stranger.links.complaint("n0"))
        assert node.status().refused.startswith("n1 at 127.0.0.1:")
        assert "n1 follows FlareMQ's own rules (dLegerProtocol=flaremq)" in node.status().refused


async def test_a_member_of_our_own_rules_names_one_of_the_librarys_when_it_refuses_it() -> None:
    stranger = Host("n1")
    peers = f"{listed('n0')};n1-{stranger.address}"
    node, _ = made = a_node("n0", peers)
    async with met(stranger), started(made):
        await until("it is refused", lambda: "DLedger library" in stranger.links.refused)
        await until("it knows", lambda: "dLegerProtocol" in dict(node.status().complaints).get("n1", ""))


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x7f\xff\xff\xff\x00\x00\x00\x20",
        encode_frame(Command(code=LibraryCode.PUSH, body=b"[[[")),
        encode_frame(Command(code=LibraryCode.PUSH, body=b'{"entry":{"size":-1,"body":""}}')),
        encode_frame(Command(code=10, body=b"{}")),
        b"FMQR\xff\xff\xff\xff" + bytes(70_000),
        b"FMQR\x00\x00\x00\x01\x63",
    ],
    ids=["http", "size", "no-json", "no-entry", "other-code", "own-rules-size", "own-rules-kind"],
)
async def test_whoever_is_no_member_is_cut_off_and_named(first: bytes) -> None:
    peers = listed("n0", "n1", "n2")
    node, _ = made = a_node("n0", peers)
    async with started(made):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of("n0", peers))
        writer.write(first)
        async with asyncio.timeout(10):
            try:
                assert await reader.read() == b""
            except ConnectionError:
                assert writer.transport is not None
        writer.close()
        assert node.status().refused.startswith("127.0.0.1:")


async def test_the_members_of_a_mixed_group_cannot_be_changed() -> None:
    node, _ = a_node("n0", listed("n0", "n1"))
    with pytest.raises(InvalidParameter, match="with dLegerProtocol=dledger they are those of dLegerPeers"):
        node.change(Membership({"n0": "a:1"}))


async def test_a_member_whose_log_names_other_members_does_not_start() -> None:
    settings = RaftSettings(enabled=True, peers=listed("n0", "n1"), self_id="n0", protocol="dledger")
    ledger = NodeLedger(Membership({"n0": "a:1", "n5": "b:2"}, 7))

    async def offload(work: Callable[[], None]) -> None:
        work()

    with pytest.raises(ConfigError, match="by the log the members are n0-a:1;n5-b:2"):
        LibraryNode(
            *(settings, "orders", ledger, BallotInMemory(), Ballot()),
            may_vote=True,
            network=Network(),
            clock=SystemClock(),
            rng=random.Random(1),
            offload=offload,
        )
