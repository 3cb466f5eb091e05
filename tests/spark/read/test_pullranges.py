"""Pieces of ranges: cut by what a broker gives, and what its answers mean for them."""

from __future__ import annotations

import pytest

from flaremq.client.api import PullResult
from flaremq.model.layout import QUEUE_OFFSET_AT
from flaremq.protocol.codes import ResponseCode
from flaremq.spark.read.partitions import QueueRange
from flaremq.spark.read.pullranges import COUNT_MAX, Meaning, PullRange, Strides, cut, meaning

FOUND, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
RETRY, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED


def a_range(begin: int = 0, end: int = 10_000) -> QueueRange:
    return QueueRange("T", "b", 0, begin, end)


def records(first: int) -> bytes:
    return bytes(QUEUE_OFFSET_AT) + first.to_bytes(8, "big") + bytes(60)


def answer(code: int, onward: int, least: int = 0, most: int = 10_000, body: bytes = b"") -> PullResult:
    return PullResult(code, onward, least, most, 0, body)


def test_the_first_answer_shows_the_stride_of_all_others() -> None:
    strides = Strides()
    pieces = cut([a_range()], strides, filtered=False)
    probe = next(pieces)
    assert probe.is_probe and (probe.at, probe.end) == (0, COUNT_MAX)
    strides.learn("b", COUNT_MAX, 32)
    probe.take(answer(FOUND, 32, body=records(0)))
    assert probe.is_done
    assert [(piece.at, piece.end) for piece in [next(pieces), next(pieces)]] == [(32, 64), (64, 96)]
    strides.learn("b", 32, 8)  # From the disk a broker gives less.
    assert next(pieces).end == 96 + 8


def test_the_last_piece_ends_with_its_range_and_the_next_range_follows() -> None:
    strides = Strides()
    strides.learn("b", COUNT_MAX, 32)
    pieces = list(cut([a_range(10, 50), a_range(0, 5)], strides, filtered=False))
    assert [(piece.at, piece.end) for piece in pieces] == [(10, 42), (42, 50), (0, 5)]


def test_a_full_answer_to_a_small_question_does_not_make_the_stride_small() -> None:
    strides = Strides()
    strides.learn("b", 3, 3)
    assert strides.of("b") == 32


def test_a_larger_stride_is_tried_again_after_many_full_answers() -> None:
    strides = Strides()
    strides.learn("b", 32, 8)
    for _ in range(1000):
        strides.learn("b", 8, 8)
    assert (strides.of("b") or 0) > 8


def test_a_short_answer_leaves_the_rest_to_be_asked_for() -> None:
    piece = PullRange(a_range(), 64, 96)
    piece.take(answer(FOUND, 70, body=records(64)))
    assert (piece.at, piece.is_done) == (70, False)
    piece.take(answer(FOUND, 96, body=records(70)))
    assert piece.is_done
    assert [(part.begin, part.end, part.is_whole) for part in piece.parts] == [(64, 96, True), (70, 96, True)]


@pytest.mark.parametrize(("first", "onward"), [(60, 96), (64, 100)])
def test_records_beyond_the_edges_of_a_piece_are_marked(first: int, onward: int) -> None:
    piece = PullRange(a_range(), 64, 96)
    piece.take(answer(FOUND, onward, body=records(first)))
    (part,) = piece.parts
    assert (part.begin, part.end, part.is_whole) == (64, 96, False)


@pytest.mark.parametrize(
    ("pulled", "filtered", "means"),
    [
        (answer(FOUND, 120), False, (Meaning.TAKEN, 120)),
        (answer(FOUND, 100), False, (Meaning.AGAIN, 100)),
        (answer(RETRY, 900), True, (Meaning.PASSED, 900)),
        (answer(RETRY, 900), False, (Meaning.LOST, 900)),
        (answer(MOVED, 500, least=500), False, (Meaning.LOST, 500)),
        (answer(MOVED, 500, least=500), True, (Meaning.LOST, 500)),
        (answer(RETRY, 100, least=500), False, (Meaning.LOST, 500)),
        (answer(NOT_FOUND, 100, most=100), False, (Meaning.BEHIND, 100)),
        (answer(MOVED, 40, most=40), False, (Meaning.BEHIND, 100)),
        (answer(NOT_FOUND, 0, most=0), False, (Meaning.BEHIND, 100)),
        (answer(MOVED, 7000), False, (Meaning.AGAIN, 100)),  # Somebody has reset the group.
        (answer(RETRY, 100), True, (Meaning.AGAIN, 100)),
    ],
)
def test_what_an_answer_means(pulled: PullResult, filtered: bool, means: tuple[Meaning, int]) -> None:
    assert meaning(PullRange(a_range(), 100, 132), pulled, filtered=filtered) == means


def test_a_piece_skips_what_is_gone_but_never_beyond_its_end() -> None:
    piece = PullRange(a_range(), 100, 132, is_probe=True)
    piece.skip(50)
    assert (piece.at, piece.is_probe) == (100, True)
    piece.skip(5000)
    assert piece.is_done and (piece.at, piece.end, piece.is_probe) == (132, 132, False)
