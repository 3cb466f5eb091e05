"""Peers that send nonsense, half of something, too much, or nothing: each harms itself alone.

After each of them every port serves as before, and whatever was acknowledged can be read.
"""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from tests.remoting.live import BODY_MAX, DOORS, TOPIC, Live, Rude, Servers, inside, servers

from flaremq.base.units import KiB, MiB
from flaremq.protocol.codes import FRAME_SIZE_MAX, RequestCode, ResponseCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame
from flaremq.store.flags import Flag
from flaremq.testing.fakes.wireclient import RefusedByServer, Want, WireClient, pull_request, send_request


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers(tmp_path_factory.mktemp("servers")) as found:
        yield found


@pytest.fixture
async def peers(running: Servers, request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    """Afterwards all doors still serve, and nobody has made anything fail that was not ready for it."""
    topic = "Topic_" + sha1(request.node.name.encode()).hexdigest()[:10]
    async with running.live(topic) as found:
        await found.serves()
        yield found
        await found.serves()
    assert not running.failures()


door = pytest.mark.parametrize("door", DOORS)


# Nonsense.


@door
async def test_random_bytes_close_their_connection_and_no_other(peers: Live, door: str) -> None:
    rng = random.Random(door)
    rude = [await Rude.at(peers.port(door)) for _ in range(30)]
    for each in rude:
        await each.say(rng.randbytes(rng.choice((1, 3, 8, 9, 100, 5000, 300_000))))
    await peers.serves()
    for each in rude:
        each.say_no_more()
        await each.hears_the_end()
        each.hang_up()


@door
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(struct.pack(">iI", FRAME_SIZE_MAX, 0), id="one byte over the largest frame"),
        pytest.param(struct.pack(">iI", 2**31 - 1, 0), id="the largest number"),
        pytest.param(struct.pack(">iI", -1, 0), id="less than nothing"),
        pytest.param(struct.pack(">iI", 0, 0), id="no room for its own head"),
        pytest.param(struct.pack(">iI", 20, 2 << 24 | 10), id="serialization 2"),
        pytest.param(struct.pack(">iI", 20, 255 << 24 | 10), id="serialization 255"),
        pytest.param(struct.pack(">iI", 20, 0xFFFFFF), id="a header beyond its frame"),
        pytest.param(struct.pack(">iI", 20, 16) + b"{'code':310,....", id="a header that is no JSON"),
        pytest.param(struct.pack(">iI", 20, 1 << 24 | 16) + b"\xff" * 16, id="a compact header of 0xff"),
        pytest.param(b"GET /health HTTP/1.1\r\nHost: broker\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60), id="half a TLS greeting"),
        pytest.param(b"PROXY TCP4 nonsense\r\n" + bytes(80), id="a wrong note of a proxy"),
    ],
)
async def test_what_is_no_frame_is_answered_by_closing(peers: Live, door: str, head: bytes) -> None:
    rude = await Rude.at(peers.port(door))
    await rude.say(head)
    if head[:1] == b"\x16":
        rude.say_no_more()  # The rest of a greeting could still come, unless we say so.
    await rude.hears_the_end()
    rude.hang_up()


@door
async def test_an_unknown_code_is_told_so(peers: Live, door: str) -> None:
    rude = await Rude.at(peers.port(door))
    codes = (0, -1, 9999, 2**31 - 1, -(2**31))
    answers = await rude.ask(*(Command(code=code, opaque=n) for n, code in enumerate(codes)))
    assert [each.opaque for each in answers] == list(range(len(codes)))
    assert {each.code for each in answers} == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
    rude.hang_up()


@door
async def test_answers_that_nobody_asked_for_are_ignored(peers: Live, door: str) -> None:
    rude = await Rude.at(peers.port(door))
    codes = (0, RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, 9999)
    for code in codes:
        await rude.say(encode_frame(Command(code=code, opaque=code, flag=1, body=b"x")))
    (answer,) = await rude.ask(Command(code=9999, opaque=77))
    assert answer.opaque == 77
    rude.hang_up()


def flipped(rng: random.Random, frame: bytes) -> bytes:
    """The same with a few wrong bytes behind its lengths, so that it still ends where it should."""
    damaged = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        damaged[rng.randrange(8, len(damaged))] = rng.choice((0, 1, 2, 34, 44, 45, 57, 92, 123, 125, 255))
    return bytes(damaged)


async def say_flipped(peers: Live, door: str, rounds: int) -> None:
    rng = random.Random(door)
    want = Want(topic=peers.topic, queue_id=1, offset=0)
    plain = (
        send_request(peers.topic, 1, b"x", properties="KEYS\x01k\x02UNIQ_KEY\x01u\x02"),
        pull_request(want),
    )
    frames = [encode_frame(replace(each, serialize_type=kind)) for each in plain for kind in SerializeType]
    rude = await Rude.at(peers.port(door))
    for _ in range(rounds):
        await rude.say(b"".join(flipped(rng, rng.choice(frames)) for _ in range(rng.randrange(1, 6))))
        try:
            (answer,) = await rude.ask(Command(code=9998))
            while "9998" not in (answer.remark or ""):
                answer = await rude.hear()
        except (AssertionError, ConnectionError):  # It was no frame at all, and the connection is closed.
            rude.hang_up()
            rude = await Rude.at(peers.port(door))
    rude.hang_up()


@door
async def test_frames_with_wrong_bytes_are_answered_or_end_their_connection(peers: Live, door: str) -> None:
    await say_flipped(peers, door, 300)


@pytest.mark.slow
@door
async def test_very_many_frames_with_wrong_bytes_do_no_harm(peers: Live, door: str) -> None:
    await say_flipped(peers, door, 20_000)


# Half of something.


@door
@pytest.mark.parametrize("rudely", [False, True], ids=["closed", "reset"])
async def test_half_a_frame_leaves_nothing(peers: Live, door: str, rudely: bool) -> None:
    frame = encode_frame(send_request(peers.topic, 0, b"half" * 100))
    for size in (1, 4, 7, 8, 9, 60, len(frame) - 401, len(frame) - 1):
        rude = await Rude.at(peers.port(door))
        await rude.say(frame[:size])
        rude.hang_up(rudely=rudely)
    found = await peers.read(0)
    assert not [each for each in found if each.body.startswith(b"half")]


@door
async def test_probes_that_only_connect_are_no_matter(peers: Live, door: str) -> None:
    for rudely in (False, True) * 50:
        (await Rude.at(peers.port(door))).hang_up(rudely=rudely)


async def test_a_peer_that_asks_and_leaves_harms_nobody(peers: Live) -> None:
    """It is gone before its answers can be written, those that wait for new messages included."""
    for n in range(20):
        rude = await Rude.at(peers.port("main"))
        want = Want(topic=peers.topic, queue_id=1, offset=0, suspend_ms=20_000)
        requests = [
            pull_request(want),
            send_request(peers.topic, 1, b"x"),
            Command(code=RequestCode.HEART_BEAT),
        ]
        await rude.say(b"".join(map(encode_frame, requests)))
        rude.hang_up(rudely=n % 2 == 0)
    await peers.client.send(peers.address(), peers.topic, 1, b"wakes those who are gone")


@door
async def test_bytes_that_drip_in_are_put_together_while_others_are_served(peers: Live, door: str) -> None:
    requests = [send_request(peers.topic, 2, b"drip%d" % n, opaque=n) for n in range(40)]
    frames = [encode_frame(each) for each in requests]
    rude = [await Rude.at(peers.port(door)) for _ in frames]
    for at in range(max(map(len, frames))):
        for each, frame in zip(rude, frames, strict=True):
            await each.say(frame[at : at + 1])
        if at % 40 == 0:
            await peers.send(b"between drips")
    answers = [await each.hear() for each in rude]
    assert [answer.opaque for answer in answers] == list(range(40))
    not_served = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert {answer.code for answer in answers} == {not_served if door == "namesrv" else 0}
    for each in rude:
        each.hang_up()


async def test_a_peer_that_fell_silent_is_let_go(tmp_path: Path) -> None:
    """A machine that lost its power says no goodbye: its connection is closed when it has been idle."""
    async with inside(tmp_path, idle_max_s=1) as broker:
        for port in (broker.port, broker.port - 2):
            silent, half = await Rude.at(port), await Rude.at(port)
            await half.say(encode_frame(send_request(TOPIC, 0, b"x"))[:50])
            for each in (silent, half):
                assert await each.hears_the_end() == b""
                each.hang_up()


async def test_a_peer_that_will_say_no_more_still_hears_its_answers(peers: Live) -> None:
    rude = await Rude.at(peers.port("main"))
    await rude.say(b"".join(encode_frame(send_request(peers.topic, 3, b"last", opaque=n)) for n in range(50)))
    rude.say_no_more()
    heard = await rude.hears_the_end()
    stored = len(await peers.read(3))
    assert stored == 50
    assert heard.count(b'"queueOffset"') == 50
    rude.hang_up()


# Too much.


@pytest.mark.parametrize("queue_id", [4, 99, 2**31 - 1])
async def test_a_queue_that_is_not_there_is_told_so(peers: Live, queue_id: int) -> None:
    with pytest.raises(RefusedByServer, match=str(queue_id)) as refused:
        await peers.client.send(peers.address(), peers.topic, queue_id, b"x")
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    with pytest.raises(RefusedByServer, match=str(queue_id)):
        await peers.client.pull(peers.address(), Want(topic=peers.topic, queue_id=queue_id, offset=0))


@pytest.mark.parametrize("queue_id", [-1, -5, -(2**31)])
async def test_any_queue_is_one_that_can_be_read(peers: Live, queue_id: int) -> None:
    sent = await peers.client.send(peers.address(), peers.topic, queue_id, b"anywhere")
    assert 0 <= sent.queue_id < 4
    found = await peers.read(sent.queue_id)
    if sent.queue_id == 0:
        peers.accepted.append((sent.queue_offset, b"anywhere"))
    assert found[sent.queue_offset].message_id == sent.message_id


@pytest.mark.parametrize("size", [BODY_MAX + 1, 300 * KiB, 2 * MiB])
async def test_a_body_that_is_too_large_is_refused_and_its_connection_goes_on(peers: Live, size: int) -> None:
    rude = await Rude.at(peers.port("main"))
    requests = [
        send_request(peers.topic, 1, body, opaque=n) for n, body in enumerate((b"a", bytes(size), b"b"))
    ]
    answers = {each.opaque: each for each in await rude.ask(*requests)}
    assert [answers[n].code for n in range(3)] == [0, ResponseCode.MESSAGE_ILLEGAL, 0]
    assert str(BODY_MAX) in (answers[1].remark or "")
    found = await peers.read(1)
    assert [each.body for each in found] == [b"a", b"b"]
    rude.hang_up()


async def test_a_full_disk_refuses_sends_and_goes_on_reading(tmp_path: Path) -> None:
    async with inside(tmp_path) as broker, WireClient() as client:
        addresses = [f"127.0.0.1:{port}" for port in (broker.port, broker.port - 2)]
        await client.send(addresses[0], TOPIC, 0, b"before")
        broker.store.flags.set(Flag.DISK_FULL, "/store is 97 % full, limit is 90: delete something")
        for address in addresses:
            with pytest.raises(RefusedByServer, match="97 % full"):
                await client.send(address, TOPIC, 0, b"refused")
        assert [m.body for m in await client.read_all(addresses[0], TOPIC, 0)] == [b"before"]
        broker.store.flags.clear(Flag.DISK_FULL)
        await client.send(addresses[1], TOPIC, 0, b"after")
        assert [m.body for m in await client.read_all(addresses[0], TOPIC, 0)] == [b"before", b"after"]
