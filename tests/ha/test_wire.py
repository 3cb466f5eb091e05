"""The HA stream: whatever the pieces in which it arrives, what was sent is what is read."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed
from flaremq.ha.wire import ChunkBuffer, LogChunk, Reports, encode_header, encode_report


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes in pieces."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


def read(buffer: ChunkBuffer, pieces: list[bytes]) -> list[tuple[int, bytes]]:
    found = []
    for piece in pieces:
        while piece:
            room = buffer.room()
            size = min(len(room), len(piece))
            room[:size] = piece[:size]
            buffer.filled(size)
            piece = piece[size:]
            while (chunk := buffer.peek()) is not None:
                found.append((chunk.offset, bytes(chunk.data)))
                buffer.drop(chunk)
    return found


@given(st.lists(st.integers(0, 2**62), min_size=1), st.lists(st.integers(0, 1000)))
def test_the_newest_whole_report_counts_however_the_bytes_are_cut(
    positions: list[int], places: list[int]
) -> None:
    reports, last = Reports(), None
    for piece in cut(b"".join(map(encode_report, positions)), places):
        last = reports.feed(piece) or last
    assert last == (positions[-1] or last)


def test_a_report_in_single_bytes_is_whole_with_its_last_one() -> None:
    reports = Reports()
    assert [reports.feed(bytes([byte])) for byte in encode_report(1073745920)] == [None] * 7 + [1073745920]


def test_of_three_reports_in_one_read_the_last_one_counts() -> None:
    data = encode_report(1) + encode_report(2) + encode_report(3) + b"\0\0"
    assert Reports().feed(data) == 3


def test_the_bytes_of_report_and_header_are_those_of_rocketmq() -> None:
    assert encode_report(1073745920).hex() == "0000000040001000"
    assert encode_header(1 << 30, 32768).hex() == "000000004000000000008000"
    assert encode_header(1073745920, 0).hex() == "000000004000100000000000"


@given(
    st.lists(st.tuples(st.integers(0, 2**62), st.binary(max_size=40)), min_size=1),
    st.lists(st.integers(0, 2000)),
)
def test_chunks_are_read_as_they_were_sent_however_the_bytes_are_cut(
    chunks: list[tuple[int, bytes]], places: list[int]
) -> None:
    data = b"".join(encode_header(offset, len(body)) + body for offset, body in chunks)
    assert read(ChunkBuffer(64), cut(data, places)) == chunks


@pytest.mark.parametrize("size", [-1, 53, 1 << 30])
def test_a_size_that_no_buffer_holds_is_refused_before_its_bytes_come(size: int) -> None:
    buffer = ChunkBuffer(64)
    buffer.room()[:12] = encode_header(0, size)
    buffer.filled(12)
    with pytest.raises(Malformed, match="expected an offset from 0 on and at most 52 bytes"):
        buffer.peek()


def test_a_chunk_is_not_whole_with_its_header_alone() -> None:
    buffer = ChunkBuffer(64)
    buffer.room()[:12] = encode_header(7, 1)
    buffer.filled(11)
    assert buffer.peek() is None
    buffer.filled(1)
    assert buffer.peek() is None
    buffer.room()[:1] = b"x"
    buffer.filled(1)
    assert buffer.peek() == LogChunk(7, memoryview(b"x"))
