"""Sizes, spans, counts and times as text."""

from __future__ import annotations

import pytest

from flaremq.base.text import both, count, iso, short_span, size, span


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB")]
)
def test_sizes_are_for_people(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(950, "950 ms"), (12_000, "12.0 s"), (90_000, "90.0 s"), (600_000, "10.0 m"), (86_400_000 * 3, "3.0 d")],
)
def test_spans_are_for_people(ms: float, text: str) -> None:
    assert span(ms) == text


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("message",), "0 messages"),
        (1, ("message",), "1 message"),
        (2000, ("message",), "2,000 messages"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
    ],
)
def test_one_is_not_many(number: int, words: tuple[str, ...], text: str) -> None:
    assert count(number, *words) == text


def test_programs_get_a_time_as_text_and_as_a_number() -> None:
    assert both("at", 1_714_559_400_005) == {
        "at": "2024-05-01T10:30:00.005Z",
        "at_ms": 1_714_559_400_005,
    }


@pytest.mark.parametrize("at_ms", [0, -1, 1 << 62])
def test_a_number_that_is_not_a_time_has_no_text(at_ms: int) -> None:
    assert iso(at_ms) is None


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0s"), (500, "500ms"), (90_000, "90s"), (300_000, "5m"), (7_200_000, "2h")]
)
def test_exact_spans_are_written_as_they_are_given(ms: int, text: str) -> None:
    assert short_span(ms) == text
