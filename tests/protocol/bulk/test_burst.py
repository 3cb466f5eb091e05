"""Splitting what many connections delivered: every frame a row, and no connection harms another."""

from __future__ import annotations

import gc
from array import array
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.samples import Sample, samples
from tests.protocol.bulk.turns import Turn, a_turn, deliveries
from tests.protocol.samples import a_pull, a_send, commands

from flaremq.base.errors import Malformed
from flaremq.protocol.bulk import burst
from flaremq.protocol.bulk.columns import (
    PAIRS_MAX,
    Broken,
    Chunk,
    Frame,
    Kind,
    Pair,
    Plain,
    chunks_table,
)
from flaremq.protocol.codes import SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.protocol.bulk._burst")
SEND, PULL = encode_frame(a_send()), encode_frame(a_pull())


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def fields(turn: Turn, row: int) -> dict[bytes, bytes]:
    """The ext fields of a frame as they lie in the buffer."""
    frame, found = turn.frame(row), {}
    for p in range(frame[Frame.FIRST_PAIR], frame[Frame.FIRST_PAIR] + frame[Frame.PAIRS]):
        at, size, value_at, value_size, _ = turn.pairs[p * Pair.WIDTH : (p + 1) * Pair.WIDTH]
        found[turn.data[at : at + size]] = turn.data[value_at : value_at + value_size]
    return found


def test_frames_of_many_connections_become_rows_in_order(twin: Any) -> None:
    turn = a_turn(twin, SEND + PULL, b"", SEND)
    assert [turn.frame(row)[Frame.CHUNK] for row in range(3)] == [0, 0, 2]
    assert [turn.frame(row)[Frame.CODE] for row in range(3)] == [310, 11, 310]
    assert [turn.frame(row)[Frame.OPAQUE] for row in range(3)] == [7, 9, 7]
    assert [turn.frame(row)[Frame.AT] for row in range(3)] == [0, len(SEND), len(SEND + PULL)]
    for row in range(3):
        assert turn.chunk(row)[Chunk.REST :] == [turn.chunk(row)[Chunk.END], 0, Broken.NOTHING]


def test_a_row_tells_where_everything_lies(twin: Any) -> None:
    turn = a_turn(twin, SEND)
    frame = turn.frame(0)
    assert frame[Frame.END] == len(SEND)
    assert SEND[frame[Frame.BODY_AT] :] == b"hello"
    assert (frame[Frame.FLAG], frame[Frame.VERSION], frame[Frame.LANGUAGE], frame[Frame.PLAIN]) == (
        0,
        479,
        0,
        0,
    )
    assert fields(turn, 0)[b"b"] == b"TopicTest"
    assert fields(turn, 0)[b"i"] == b"UNIQ_KEY\\u0001U1\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA\\u0002"


@pytest.mark.parametrize("sample", samples(), ids=str)
def test_real_frames_are_split_as_they_are_decoded(sample: Sample) -> None:
    for module in TWINS:
        turn, command = a_turn(module, sample.frame), sample.command
        frame = turn.frame(0)
        assert frame[Frame.PLAIN] == Plain.NO
        assert frame[Frame.SERIALIZE] == command.serialize_type
        seen = (frame[Frame.CODE], frame[Frame.OPAQUE], frame[Frame.FLAG], frame[Frame.VERSION])
        assert seen == (command.code, command.opaque, command.flag, command.version)
        assert frame[Frame.LANGUAGE] == command.language
        assert turn.data[frame[Frame.BODY_AT] : frame[Frame.END]] == (command.body or b"")
        assert [name.decode() for name in fields(turn, 0)] == list(command.fields)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 20, len(SEND) - 1])
def test_a_frame_that_is_not_whole_waits_and_says_how_long_it_will_be(twin: Any, size: int) -> None:
    turn = a_turn(twin, PULL + SEND[:size])
    assert turn.count == 1
    assert turn.chunk(0)[Chunk.REST] == len(PULL)
    assert turn.chunk(0)[Chunk.NEEDED] == (len(SEND) if size >= 4 else 0)
    assert turn.chunk(0)[Chunk.BROKEN] == Broken.NOTHING


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (bytes.fromhex("ffffffff"), Broken.LENGTH),
        (bytes.fromhex("00000003"), Broken.LENGTH),
        (bytes.fromhex("00fffffd"), Broken.LENGTH),
        (b"GET / HTTP/1.1", Broken.LENGTH),
        (bytes.fromhex("0000006402000000"), Broken.SERIALIZE_TYPE),
        (bytes.fromhex("0000006400000061"), Broken.HEADER_SIZE),
    ],
)
def test_bytes_that_are_no_frame_break_their_own_connection_only(twin: Any, bad: bytes, reason: int) -> None:
    turn = a_turn(twin, PULL, SEND + bad + SEND, PULL)
    assert [turn.frame(row)[Frame.CODE] for row in range(turn.count)] == [11, 310, 11]
    assert turn.chunk(1)[Chunk.REST :] == [len(PULL + SEND), 0, reason]
    assert turn.chunk(0)[Chunk.BROKEN] == turn.chunk(2)[Chunk.BROKEN] == Broken.NOTHING
    fault = burst.fault_of(turn.chunks, 1)
    assert fault is not None
    assert fault.at == len(PULL + SEND)
    assert "close the connection" in str(fault)
    assert burst.fault_of(turn.chunks, 0) is None


def test_a_connection_may_have_a_smaller_limit(twin: Any) -> None:
    chunks = chunks_table([len(SEND)])
    frames, _ = twin.split(SEND, chunks, len(SEND) - 1)
    assert not frames
    assert chunks[Chunk.BROKEN] == Broken.LENGTH
    assert len(twin.split(SEND, chunks_table([len(SEND)]), len(SEND))[0]) == Frame.WIDTH


def framed(header: bytes, serialize: int = 0) -> bytes:
    word = serialize << 24 | len(header)
    return (4 + len(header)).to_bytes(4, "big") + word.to_bytes(4, "big") + header


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":11}',
        b' { "code" : 11 , "extFields" : { "a" : "b" , "c" : 5 } } \n',
        b'{"opaque":-2147483648,"code":11}',
        b'{"code":11,"remark":"so \\" and \\\\","extFields":{}}',
        b'{"code":11,"extFields":{"a":true,"b":false,"c":0,"d":-12,"e":"\\u0001"}}',
        b'{"language":"NODE_JS","code":11,"serializeTypeCurrentRPC":"?"}',
    ],
)
def test_ordinary_headers_of_other_clients_take_the_fast_lane(twin: Any, header: bytes) -> None:
    turn = a_turn(twin, framed(header))
    assert turn.frame(0)[Frame.PLAIN] == Plain.NO
    assert turn.frame(0)[Frame.CODE] == burst.command_of(turn.data, turn.frames, 0).code == 11


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"[]",
        b'{"opaque":1}',
        b'{"code":11',
        b'{"code":11}x',
        b'{"code":11,}',
        b'{"code":11,"code":12}',
        b'{"code":2147483648}',
        b'{"code":"11"}',
        b'{"code":011}',
        b'{"code":-0}',
        b'{"code":11.0}',
        b'{"code":11,"remark":null}',
        b'{"code":11,"extFields":null}',
        b'{"code":11,"extFields":{"a":null}}',
        b'{"code":11,"extFields":{"a":1.5}}',
        b'{"code":11,"extFields":{"a":{}}}',
        b'{"code":11,"extFields":{"a":"b",}}',
        b'{"code":11,"extFields":{"\\u0061":"b"}}',
        b'{"code":11,"extFields":{"a":"\x01"}}',
        b'{"code":11,"language":"COBOL"}',
        b'{"code":11,"language":3}',
        b'{"code":11,"more":1}',
        b"{code:11}",
        b'{"code":11,"remark":"\\',
        b'{"code":11,"extFields":{"a":"b}',
    ],
)
def test_other_headers_take_the_plain_lane(twin: Any, header: bytes) -> None:
    turn = a_turn(twin, framed(header) + SEND)
    frame = turn.frame(0)
    assert frame[Frame.PLAIN] == Plain.HEADER
    assert frame[Frame.CODE : Frame.PAIRS + 1] == [0] * 7
    assert turn.frame(1)[Frame.CODE] == 310


def test_a_frame_with_too_many_fields_takes_the_plain_lane(twin: Any) -> None:
    for serialize in SerializeType:
        for count, plain in ((PAIRS_MAX, Plain.NO), (PAIRS_MAX + 1, Plain.HEADER)):
            given = {str(n): "x" for n in range(count)}
            frame = encode_frame(Command(code=11, ext_fields=given, serialize_type=serialize))
            assert a_turn(twin, frame).frame(0)[Frame.PLAIN] == plain


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", Kind.TEXT),
        ("", Kind.TEXT),
        ("\x01", Kind.ESCAPED),
        ("é", Kind.WIDE),
        ("é\n", Kind.WIDE | Kind.ESCAPED),
    ],
)
def test_the_kind_of_a_value_is_told(twin: Any, value: str, kind: int) -> None:
    turn = a_turn(twin, encode_frame(Command(code=11, ext_fields={"k": value * 20})))
    assert turn.pairs[Pair.KIND] == kind
    bare = a_turn(twin, framed(b'{"code":11,"extFields":{"k":-5}}'))
    assert bare.pairs[Pair.KIND] == Kind.BARE


def test_codes_of_pop_are_known_in_compact_headers_too(twin: Any) -> None:
    pop = Command(code=200050, serialize_type=SerializeType.ROCKETMQ)
    answer = Command(code=3442, flag=1, serialize_type=SerializeType.ROCKETMQ)
    turn = a_turn(twin, encode_frame(pop) + encode_frame(answer))
    assert [turn.frame(row)[Frame.CODE] for row in range(2)] == [200050, 3442]


def test_ends_that_do_not_go_up_are_a_bug_of_the_caller(twin: Any) -> None:
    for ends in ([-1], [5, 3], [len(SEND) + 1]):
        with pytest.raises(ValueError, match="ends at"):
            twin.split(SEND, chunks_table(ends))


@given(st.lists(st.lists(commands, max_size=3), max_size=3))
def test_any_commands_are_split_as_a_decoder_reads_them(delivered: list[list[Command]]) -> None:
    chunks = [b"".join(map(encode_frame, each)) for each in delivered]
    sent = [command for each in delivered for command in each]
    for module in TWINS:
        turn = a_turn(module, *chunks)
        assert [burst.command_of(turn.data, turn.frames, row) for row in range(turn.count)] == sent
        for row, command in enumerate(sent):
            frame = turn.frame(row)
            if frame[Frame.PLAIN] == Plain.NO:
                assert (frame[Frame.CODE], frame[Frame.OPAQUE]) == (command.code, command.opaque)


@given(deliveries)
def test_a_chunk_gives_what_a_decoder_of_its_own_gives(delivered: list[bytes]) -> None:
    turn = a_turn(TWINS[-1], *delivered)
    for number, data in enumerate(delivered):
        rows = [row for row in range(turn.count) if turn.frame(row)[Frame.CHUNK] == number]
        seen: list[Command] = []
        expected: list[Command] = []
        with suppress(Malformed):
            seen.extend(burst.command_of(turn.data, turn.frames, row) for row in rows)
        decoder = FrameDecoder()
        with suppress(Malformed):
            expected = decoder.feed(data)
        assert seen == expected
        if decoder.broken is None:
            assert turn.chunk(number)[Chunk.END] - turn.chunk(number)[Chunk.REST] == decoder.pending


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(deliveries)
def test_twins_agree_on_any_bytes(delivered: list[bytes]) -> None:
    seen = [a_turn(module, *delivered) for module in TWINS]
    assert seen[0] == seen[1]


def test_any_buffer_may_hold_the_data(twin: Any) -> None:
    expected = a_turn(twin, SEND)
    for data in (bytearray(SEND), memoryview(SEND)):
        chunks = chunks_table([len(SEND)])
        assert twin.split(data, chunks) == (expected.frames, expected.pairs)
    assert twin.split(b"", array("q")) == (array("q"), array("q"))


def test_a_split_in_the_middle_of_another_one_changes_nothing_in_it(twin: Any) -> None:
    """As another thread's, which garbage collection lets in."""
    one, many = SEND, (SEND + PULL) * 100
    expected = twin.split(one, chunks_table([len(one)])), twin.split(many, chunks_table([len(many)]))
    inner: list[Any] = []

    def collecting(phase: str, _info: object) -> None:
        if phase == "start" and len(inner) < 50:
            inner.append(twin.split(many, chunks_table([len(many)])))

    threshold = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(1)
    try:
        found = [twin.split(one, chunks_table([len(one)])) for _ in range(100)]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collecting)
    assert inner
    assert all(each == expected[0] for each in found)
    assert all(each == expected[1] for each in inner)
