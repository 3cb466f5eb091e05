"""Frames: whole, in pieces, with something behind, and not at all."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.samples import body, commands

from flaremq.base.errors import Malformed, UsageError
from flaremq.protocol.codes import FRAME_SIZE_MAX, LanguageCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, decode_frame, encode_frame, encode_head, frame_end

ROUTE = Command(
    code=105, opaque=7, ext_fields={"topic": "TopicTest"}, language=LanguageCode.JAVA, version=479
)


def test_the_worked_example_in_json() -> None:
    header = (
        b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert encode_frame(ROUTE) == bytes.fromhex("0000008700000083") + header


def test_the_worked_example_in_compact_form() -> None:
    command = Command(
        code=105,
        opaque=7,
        ext_fields={"topic": "TopicTest"},
        language=LanguageCode.JAVA,
        version=479,
        serialize_type=SerializeType.ROCKETMQ,
    )
    assert encode_frame(command).hex() == (
        "0000002d01000029006900"
        + "01df00000007000000000000000000000014"
        + "0005746f70696300000009546f70696354657374"
    )


@given(commands)
def test_what_is_encoded_is_decoded_again(command: Command) -> None:
    assert decode_frame(encode_frame(command)) == command


@given(st.lists(commands, max_size=4), st.data())
def test_pieces_of_any_size_give_the_same_commands(sent: list[Command], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, sent))
    decoder, seen, at = FrameDecoder(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        seen += decoder.feed(stream[at : at + size])
        at += size
    assert seen == sent
    assert decoder.pending == 0


@given(commands, commands)
def test_a_frame_followed_by_half_of_another_waits_for_the_rest(first: Command, second: Command) -> None:
    decoder, tail = FrameDecoder(), encode_frame(second)
    half = len(tail) // 2
    assert decoder.feed(encode_frame(first) + tail[:half]) == [first]
    assert decoder.pending == half
    assert decoder.feed(tail[half:]) == [second]


def test_a_body_of_no_bytes_is_no_body() -> None:
    assert decode_frame(encode_frame(Command(code=1, body=b""))).body is None


def test_header_and_body_can_be_written_apart() -> None:
    command = Command(code=0, flag=1, body=b"records")
    assert encode_head(command, 7) + b"records" == encode_frame(command)


def a_frame(length: int, word: int, rest: bytes = b"") -> bytes:
    return length.to_bytes(4, "big", signed=True) + word.to_bytes(4, "big") + rest


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (a_frame(-1, 0), "a frame of 3 bytes"),
        (a_frame(3, 0), "a frame of 7 bytes"),
        (a_frame(FRAME_SIZE_MAX - 3, 0)[:4], "limit|expected 8 to 16777216"),
        (a_frame(0x16030100, 0)[:4], "bytes, expected 8 to"),  # The first bytes of TLS.
        (b"GET / HTTP/1.1\r\n", "bytes, expected 8 to"),
        (a_frame(100, 2 << 24), "serialize type 2, expected 0 or 1: close the connection"),
        (a_frame(100, 97), "a header of 97 bytes in a frame that has 96 left: close"),
    ],
)
def test_bytes_that_are_no_frame_are_refused_as_soon_as_they_can_be_told(data: bytes, match: str) -> None:
    with pytest.raises(Malformed, match=match):
        FrameDecoder().feed(data)


def test_the_largest_frame_is_one_of_16_mib_with_its_length_field() -> None:
    head = encode_head(Command(code=1), 0)
    largest = Command(code=1, body=bytes(FRAME_SIZE_MAX - len(head)))
    frame = encode_frame(largest)
    assert len(frame) == FRAME_SIZE_MAX
    assert frame_end(frame, 0) == FRAME_SIZE_MAX
    with pytest.raises(UsageError, match="a frame of 16777217 bytes, the limit is 16777216: send less"):
        encode_frame(Command(code=1, body=bytes(FRAME_SIZE_MAX - len(head) + 1)))


def test_a_large_frame_may_come_in_small_pieces() -> None:
    frame = encode_frame(Command(code=1, body=bytes(300_000)))
    decoder = FrameDecoder()
    seen = [command for at in range(0, len(frame), 1000) for command in decoder.feed(frame[at : at + 1000])]
    assert [len(command.body or b"") for command in seen] == [300_000]


def test_what_came_before_bad_bytes_is_given_first_and_then_the_decoder_is_dead() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(encode_frame(ROUTE) + a_frame(100, 9 << 24)) == [ROUTE]
    assert decoder.broken is not None
    for data in (b"", encode_frame(ROUTE)):
        with pytest.raises(Malformed, match="serialize type 9"):
            decoder.feed(data)


def test_a_header_that_cannot_be_read_is_malformed() -> None:
    with pytest.raises(Malformed, match="expected"):
        FrameDecoder().feed(a_frame(4, 0))
    with pytest.raises(Malformed, match="expected"):
        FrameDecoder().feed(a_frame(6, 2, b"[]"))
    with pytest.raises(Malformed, match="expected at least 21"):
        FrameDecoder().feed(a_frame(6, 1 << 24 | 2, b"[]"))


def test_a_decoder_may_be_given_a_smaller_limit() -> None:
    with pytest.raises(Malformed, match="expected 8 to 100"):
        FrameDecoder(size_max=100).feed(encode_frame(ROUTE))


@given(st.binary(max_size=60))
def test_any_bytes_give_commands_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        FrameDecoder().feed(data)


@given(command=commands, place=st.integers(0, 400), value=st.integers(0, 255), rest=body)
def test_a_spoiled_frame_gives_a_command_or_malformed(
    command: Command, place: int, value: int, rest: bytes | None
) -> None:
    frame = bytearray(encode_frame(command))
    frame[8 + place % (len(frame) - 8)] = value
    with suppress(Malformed):
        FrameDecoder().feed(frame + (rest or b""))
