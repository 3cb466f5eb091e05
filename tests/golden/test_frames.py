"""Frames of real clients and servers: all are read, and what Java wrote is written again to the byte."""

from __future__ import annotations

import pytest
from tests.golden.samples import Sample, samples

from flaremq.protocol.codes import LanguageCode, SerializeType
from flaremq.protocol.frame import FrameDecoder, decode_frame, encode_frame

ALL = samples()


@pytest.mark.parametrize("sample", ALL, ids=str)
def test_a_real_frame_says_what_it_was_seen_to_say(sample: Sample) -> None:
    command = sample.command
    assert command.code == sample.code
    assert command.is_response == (sample.kind == "resp")
    assert command.is_oneway == (sample.kind == "oneway")
    assert command.language is LanguageCode.JAVA  # Node says so, too.
    assert command.serialize_type == SerializeType(sample.frame[4])


@pytest.mark.parametrize("sample", [each for each in ALL if each.is_java], ids=str)
def test_a_frame_of_java_is_written_again_to_the_byte(sample: Sample) -> None:
    assert encode_frame(sample.command) == sample.frame


@pytest.mark.parametrize("sample", [each for each in ALL if not each.is_java], ids=str)
def test_a_frame_of_others_keeps_its_meaning_when_it_is_written_again(sample: Sample) -> None:
    assert decode_frame(encode_frame(sample.command)) == sample.command


def test_a_whole_conversation_is_read_from_any_pieces() -> None:
    stream = b"".join(each.frame for each in ALL)
    whole = FrameDecoder().feed(stream)
    assert whole == [each.command for each in ALL]
    for size in (1, 7, 1000):
        decoder = FrameDecoder()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [command for piece in pieces for command in decoder.feed(piece)] == whole
        assert decoder.pending == 0


def test_both_serializations_are_among_them() -> None:
    assert {each.frame[4] for each in ALL} == {0, 1}
