"""Frames between members: what is said arrives as it was said, however its bytes are cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed
from flaremq.dledger.frames import FRAME_MAX, FrameBuffer, Hello, Refusal, Said, Welcome, decode, encode
from flaremq.dledger.types import (
    EntriesAnswer,
    EntriesRequest,
    EntryRun,
    Push,
    PushAnswer,
    Restart,
    TakeOver,
    VoteAnswer,
    VoteRequest,
)

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
TERMS = st.lists(st.tuples(LONG, st.integers(0, (1 << 32) - 1)), min_size=1, max_size=4).map(tuple)
RUNS = st.builds(EntryRun, LONG, LONG, TERMS, st.binary(max_size=300))
SAID = st.one_of(
    st.builds(Hello, *[st.text(max_size=20)] * 4, st.booleans()),
    st.just(Welcome()),
    st.builds(Refusal, st.text(max_size=200)),
    st.builds(VoteRequest, LONG, LONG, LONG, st.booleans(), st.booleans(), LONG, LONG),
    st.builds(VoteAnswer, LONG, st.booleans(), st.booleans(), st.booleans()),
    st.builds(Push, LONG, LONG, LONG, LONG, LONG, st.none() | RUNS, LONG, LONG),
    st.builds(PushAnswer, LONG, LONG, st.booleans(), LONG, LONG, st.booleans(), LONG, st.booleans()),
    st.builds(EntriesRequest, LONG, LONG, LONG, LONG, LONG),
    st.builds(EntriesAnswer, LONG, RUNS, LONG),
    st.builds(EntriesAnswer, LONG, st.none(), LONG, st.text(max_size=200)),
    st.builds(Restart, LONG, LONG, LONG, LONG, LONG),
    st.builds(TakeOver, LONG, LONG),
)


def heard(pieces: list[bytes]) -> Iterator[Said]:
    buffer = FrameBuffer()
    for piece in pieces:
        while piece:
            room = buffer.room()
            size = min(len(room), len(piece))
            room[:size] = piece[:size]
            buffer.filled(size)
            piece = piece[size:]
            while (frame := buffer.frame()) is not None:
                yield decode(frame)


def plain(said: Said) -> Said:
    """Its bytes in a form that compares."""
    if isinstance(said, Push | EntriesAnswer) and said.run is not None:
        run = said.run
        return replace(said, run=replace(run, data=bytes(run.data)))
    return said


@given(st.lists(SAID, max_size=6), st.randoms(use_true_random=False))
def test_what_is_said_arrives_however_it_is_cut(all_said: list[Said], rng: random.Random) -> None:
    stream = b"".join(bytes(piece) for said in all_said for piece in encode(said))
    cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [plain(said) for said in heard(pieces)] == all_said


def test_a_run_larger_than_the_first_buffer_arrives_whole() -> None:
    data = random.Random(7).randbytes(3 << 20)
    push = Push(4, 9, 3, 8, 70, EntryRun(10, 4096, ((3, 2), (4, 90)), data))
    stream = b"".join(bytes(piece) for piece in encode(push))
    pieces = [stream[at : at + 100_000] for at in range(0, len(stream), 100_000)]
    assert [plain(said) for said in heard(pieces)] == [push]


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_understood_or_refused(body: bytes) -> None:
    try:
        said = decode(memoryview(body))
    except Malformed:
        return
    assert encode(said)


@given(SAID, st.data())
def test_a_frame_that_is_cut_short_is_refused_or_means_less(said: Said, data: st.DataObject) -> None:
    frame = b"".join(bytes(piece) for piece in encode(said))[4:]
    end = data.draw(st.integers(1, len(frame)))
    try:
        decode(memoryview(frame[:end]))
    except Malformed as error:
        refusal = str(error)
    else:
        return
    assert "broken" in refusal or "expected" in refusal


@pytest.mark.parametrize("size", [0, FRAME_MAX + 1, (1 << 32) - 1])
def test_a_frame_of_a_size_that_cannot_be_is_refused_before_it_is_waited_for(size: int) -> None:
    buffer = FrameBuffer()
    buffer.room()[:4] = size.to_bytes(4, "big")
    buffer.filled(4)
    with pytest.raises(Malformed, match=str(size)):
        buffer.frame()


def test_a_member_of_another_version_hears_what_to_do() -> None:
    frame = bytearray(b"".join(bytes(piece) for piece in encode(Hello("g", "n0", "n1", "", False))))[4:]
    frame[1:3] = (9).to_bytes(2, "big")
    with pytest.raises(Malformed, match=r"version 9 .* run the same version"):
        decode(memoryview(frame))
