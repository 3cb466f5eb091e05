"""Peers that cost: many that do nothing, those that never read, those that promise much, and a full disk.

The servers are processes of their own, so that their memory can be told from that of the test.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from hashlib import sha1
from pathlib import Path

import pytest
from tests.remoting.live import TOPIC, Live, Rude, Servers, servers
from tests.store.smalldisk import small_disk

from flaremq.base.units import KiB, MiB
from flaremq.protocol.command import Command, oneway, response_to
from flaremq.protocol.frame import encode_frame
from flaremq.remoting.router import Family, Peer, Router
from flaremq.remoting.server import Server
from flaremq.remoting.settings import ServerSettings
from flaremq.testing.cluster import Cluster, Process, eventually
from flaremq.testing.fakes.wireclient import RefusedByServer, Want, WireClient, pull_request

IDLE_WANTED = 10_000
IDLE_MIN = 1_000
ASKS, TELLS = 9001, 9002
FILES_NEEDED = 300
"""Of this process and of the servers, beside the connections."""


def memory(process: Process) -> int:
    """Bytes that are its own: maps of store files come and go with the page cache."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * KiB
    raise AssertionError("no RssAnon")


@pytest.fixture(scope="module")
def files_allowed() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # Before the servers start: they inherit it.
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def running(files_allowed: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers(tmp_path_factory.mktemp("servers")) as found:
        yield found


@pytest.fixture
async def peers(running: Servers, request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    topic = "Topic_" + sha1(request.node.name.encode()).hexdigest()[:10]
    async with running.live(topic) as found:
        await found.serves()
        yield found
        await found.serves()
    assert not running.failures()


@pytest.mark.parametrize("door", ["main", "namesrv"])
async def test_connections_that_do_nothing_cost_little(
    files_allowed: int, running: Servers, peers: Live, door: str
) -> None:
    count = min(IDLE_WANTED, files_allowed - FILES_NEEDED)
    if count < IDLE_MIN:
        pytest.skip(f"this process may have {files_allowed} files: raise ulimit -n above {IDLE_MIN}")
    server = running.namesrv if door == "namesrv" else running.broker
    before = memory(server)
    with ExitStack() as idle:

        def connect() -> None:
            for _ in range(count):
                idle.enter_context(socket.create_connection(("127.0.0.1", peers.port(door)), 60))

        await asyncio.to_thread(connect)
        await peers.serves()
        assert memory(server) - before < count * 20 * KiB
    await peers.serves()


async def test_frames_that_are_announced_and_never_come_cost_nothing(running: Servers, peers: Live) -> None:
    """16 MiB each, if one took their word for it."""
    before = memory(running.broker)
    rude = [await Rude.at(peers.port("main")) for _ in range(300)]
    for each in rude:
        await each.say(struct.pack(">iI", 16 * MiB - 100, 100) + bytes(50))
    await peers.serves()
    assert memory(running.broker) - before < 300 * 1 * MiB
    for each in rude:
        each.hang_up()


async def test_a_peer_that_reads_late_gets_all_its_answers(peers: Live) -> None:
    for n in range(32):
        await peers.client.send(peers.address(), peers.topic, 1, b"%04d" % n + bytes(8000))
    rude = await Rude.at(peers.port("main"), receive_buffer=4096)
    pulls = [pull_request(Want(topic=peers.topic, queue_id=1, offset=0), opaque=n) for n in range(100)]
    saying = asyncio.create_task(rude.say(b"".join(map(encode_frame, pulls))))
    for _ in range(5):
        await peers.serves()
    heard = [await rude.hear() for _ in pulls]
    await saying
    assert sorted(each.opaque for each in heard) == list(range(100))
    assert len({len(each.body or b"") for each in heard}) == 1
    rude.hang_up()


async def test_a_peer_that_never_reads_its_answers_harms_only_itself(running: Servers, peers: Live) -> None:
    for _ in range(64):
        await peers.client.send(peers.address(), peers.topic, 1, bytes(8000))
    before = memory(running.broker)
    pulls = encode_frame(pull_request(Want(topic=peers.topic, queue_id=1, offset=0))) * 2000
    rude = [await Rude.at(peers.port("main"), receive_buffer=4096) for _ in range(5)]
    for each in rude:
        said = -1
        while said:  # Until nothing more is taken: the other side has stopped to read.
            said = each.try_to_say(pulls)
            await peers.serves()
    grown = memory(running.broker) - before
    for each in rude:
        each.hang_up()
    assert grown < 5 * 20 * MiB


async def test_many_peers_that_ask_for_much_at_once_and_never_read_bring_no_server_down(
    running: Servers, peers: Live
) -> None:
    """Together they fill the buffer of a turn, which is served in the middle of their reading."""
    for _ in range(64):
        await peers.client.send(peers.address(), peers.topic, 1, bytes(8000))
    pulls = encode_frame(pull_request(Want(topic=peers.topic, queue_id=1, offset=0))) * 2000
    rude = [await Rude.at(peers.port("main"), receive_buffer=4096) for _ in range(60)]
    os.kill(running.broker.pid, signal.SIGSTOP)  # So that all of it is there when it reads.
    try:
        for each in rude:
            while each.try_to_say(pulls):
                pass
    finally:
        os.kill(running.broker.pid, signal.SIGCONT)
    await peers.serves()
    for each in rude:
        each.hang_up()
    await peers.serves()
    assert running.broker.is_running


@pytest.mark.slow
async def test_memory_that_peers_took_who_never_read_is_given_back(running: Servers, peers: Live) -> None:
    """Most of it. All is freed, and malloc_trim returns what the C library had. But a megabyte of small
    objects of Python's stays as long as one of them lives, and some that are still in use lie between."""
    for _ in range(64):
        await peers.client.send(peers.address(), peers.topic, 1, bytes(8000))
    before = memory(running.broker)
    pulls = encode_frame(pull_request(Want(topic=peers.topic, queue_id=1, offset=0))) * 2000
    rude = [await Rude.at(peers.port("main"), receive_buffer=4096) for _ in range(100)]
    for each in rude:
        while each.try_to_say(pulls):
            await peers.serves()
    grown = memory(running.broker) - before
    for each in rude:
        each.hang_up()
    assert grown > 50 * MiB

    async def is_given_back() -> bool:
        return memory(running.broker) - before < grown / 2

    await eventually("most of the memory is given back", is_given_back)


async def test_nothing_is_looked_up_for_a_peer_that_does_not_read_and_then_is_gone() -> None:
    """What it told without wanting an answer is done all the same: it may have been its last will."""
    done: Counter[int] = Counter()

    async def answer_much(_peer: Peer, request: Command) -> Command:
        done[request.code] += 1
        return response_to(request, body=bytes(64 * KiB))

    router = Router()
    router.serve(Family("test", 10_000), {ASKS: answer_much, TELLS: answer_much})
    server = Server(ServerSettings(bind_address="127.0.0.1", drain_s=1), router)
    await server.start()
    rude = await Rude.at(server.port, receive_buffer=4096)
    asks = [encode_frame(Command(code=ASKS, opaque=n)) for n in range(500)]
    tells = [encode_frame(oneway(Command(code=TELLS, opaque=n))) for n in range(100)]
    await rude.say(b"".join(asks + tells))

    async def is_full() -> bool:
        return server._under_way > 100 and all(each.is_full for each in server.connections)

    await eventually("the peer is given no more", is_full)
    rude.hang_up(rudely=True)

    async def is_idle() -> bool:
        return not server.connections and not server._under_way

    await eventually("all is done", is_idle)
    assert done[ASKS] < 250
    assert done[TELLS] == 100
    await server.stop()


async def test_a_disk_that_really_fills_up_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Sends are refused where the space ends, reads go on; with space again all goes on, restart included."""
    with small_disk(tmp_path / "disk", 32 * MiB) as disk, Cluster(tmp_path / "cluster") as cluster:
        broker = cluster.broker(
            storePathRootDir=disk / "store",
            mappedFileSizeCommitLog=4 * MiB,
            maxMessageSize=1 * MiB,
            cleanResourceInterval=100,
            diskMaxUsedSpaceRatio=75,
            fileReservedTime=72,
            cleanFileForciblyEnable=False,
        )
        filler = disk / "filler"
        filler.write_bytes(bytes(8 * MiB))
        async with WireClient() as client:
            told: dict[int, bytes] = {}

            async def filled() -> str:
                for n in range(2000):
                    body = b"%06d" % n + bytes(100_000)
                    try:
                        sent = await client.send(broker.address, TOPIC, 0, body)
                    except RefusedByServer as refused:
                        return str(refused)
                    told[sent.queue_offset] = body
                raise AssertionError("the disk does not get full")

            why = await filled()
            assert "disk" in why or "space" in why, why
            assert {m.queue_offset: m.body for m in await client.read_all(broker.address, TOPIC, 0)} == told
            filler.unlink()

            async def takes_again() -> bool:
                try:
                    sent = await client.send(broker.address, TOPIC, 0, b"again")
                except RefusedByServer:
                    return False
                told[sent.queue_offset] = b"again"
                return True

            await eventually("with space sends are taken again", takes_again)
            assert await asyncio.to_thread(broker.stop) == 0
            broker = await asyncio.to_thread(cluster.again, broker)
            assert {m.queue_offset: m.body for m in await client.read_all(broker.address, TOPIC, 0)} == told
            assert broker.is_running
