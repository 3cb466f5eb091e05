"""How results are shown, and how people tell a time."""

from __future__ import annotations

from datetime import datetime

import pytest

from flaremq.base.errors import InvalidParameter
from flaremq.cli.render import NotConfirmed, Output, confirm, safe
from flaremq.cli.times import local, parse_time_ms

NOW_MS = round(datetime(2024, 5, 1, 12, 0).timestamp() * 1000)


def test_on_a_pipe_columns_are_as_wide_as_they_need_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    long = "a-name-of-" + "x" * 200
    Output().table(("name", ">count"), [(long, 1), ("b", 1000)])
    assert capsys.readouterr().out.splitlines() == [
        f"{'NAME':<{len(long)}}  COUNT",
        f"{long}      1",
        f"{'b':<{len(long)}}   1000",
    ]


def test_on_a_terminal_nothing_is_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    Output().table(("name", "address"), [("[red]broker-a", "x" * 60)])
    out = capsys.readouterr().out
    assert out.count("x") == 60
    assert "[red]" in out


def test_control_characters_of_others_do_not_reach_a_terminal() -> None:
    assert safe("a\x1b[2Jb\nc\x9b") == "a\\x1b[2Jb\\x0ac\\x9b"
    assert safe("Grüße 你好") == "Grüße 你好"


def test_without_a_terminal_nothing_is_destroyed_unless_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    confirm("topic orders will be gone", yes=True)
    with pytest.raises(NotConfirmed, match="topic orders will be gone: add --yes"):
        confirm("topic orders will be gone", yes=False)


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False)])
def test_at_a_terminal_the_user_is_asked(monkeypatch: pytest.MonkeyPatch, answer: str, goes_on: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_a, **_k: answer == "y\n")
    if goes_on:
        confirm("x", yes=False)
    else:
        with pytest.raises(NotConfirmed, match="nothing was done"):
            confirm("x", yes=False)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW_MS),
        ("10m", NOW_MS - 600_000),
        ("-10m", NOW_MS - 600_000),
        ("2h ago", NOW_MS - 7_200_000),
        ("1714566600", 1_714_566_600_000),
        ("1714566600123", 1_714_566_600_123),
        ("11:30", NOW_MS - 1_800_000),
        ("9:05:30", NOW_MS - 174 * 60_000 - 30_000),
        ("2024-05-01T11:00", NOW_MS - 3_600_000),
        ("2024-05-01 11:00:00.250", NOW_MS - 3_600_000 + 250),
        ("2024-05-01T10:30:00Z", 1_714_559_400_000),
        ("2024-05-01#11:00:00:007", NOW_MS - 3_600_000 + 7),
    ],
)
def test_times_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert parse_time_ms(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "25:00", "2024-13-01", "1.5", "٣"])
def test_what_is_no_time_is_told(text: str) -> None:
    with pytest.raises(InvalidParameter, match="is not a time: expected now"):
        parse_time_ms(text, NOW_MS)


@pytest.mark.parametrize("at_ms", [0, -1, 1 << 62])
def test_a_number_that_is_not_a_time_is_a_dash(at_ms: int) -> None:
    assert local(at_ms) == "-"
