"""`flaremq dlq`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.admin.test_deadletters import die
from tests.cli.conftest import Ask

from flaremq.testing.cluster import eventually
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.fakes.wireclient import WireClient


def dead(ask: Ask, servers: EmbeddedThread, topic: str, group: str, reasons: list[str | None]) -> None:
    """Messages `0`, `1` and so on of a topic, which died for these reasons at the first broker."""
    address = servers.addresses[0]
    ask("topic", "create", topic, "-q", 1, "-b", "broker-a")
    ids = []
    for number in range(len(reasons)):
        ended = ask("send", topic, number, "--key", f"k{number}", "-p", "shop=north", "--json")
        ids.append(json.loads(ended.out)["offset_id"])

    async def bury() -> None:
        async with WireClient() as wire:
            await wire.heartbeat(address, group, topic)
            for offset_id, reason in zip(ids, reasons, strict=True):
                await die(wire, address, offset_id, reason, group)

            async def is_known() -> bool:
                return await wire.route(servers.namesrv, f"%DLQ%{group}") is not None

            await eventually("the dead letters have a topic", is_known)

    asyncio.run(bury())


def test_they_are_listed_and_shown_with_their_reasons(ask: Ask, servers: EmbeddedThread) -> None:
    dead(ask, servers, "listed", "readers", ["KeyError: 7", "KeyError: 8", None])
    lines = ask("dlq", "list", "-g", "readers").lines
    assert lines[1].split()[:2] == ["readers", "3"] and lines[1].endswith("KeyError: #")
    (group,) = ask("dlq", "list", "-g", "readers", "--json").document["groups"]
    assert (group["count"], group["reasons"][0]) == (3, {"reason": "KeyError: #", "count": 2})
    shown = ask("dlq", "show", "readers").out
    assert "KeyError: 8" in shown and "listed" in shown and "k1" in shown
    first, *_ = ask("dlq", "show", "readers", "--json").document["letters"]
    assert (first["origin_topic"], first["keys"], first["attempts"]) == ("listed", ["k0"], 1)
    assert (first["body"], first["properties"]["shop"]) == ("0", "north")
    limited = ask("dlq", "show", "readers", "--limit", 2)
    assert len(limited.lines) == 3 and "these are the first 2" in limited.err


def test_they_are_resent_once_after_a_question(ask: Ask, servers: EmbeddedThread) -> None:
    dead(ask, servers, "resent", "payers", ["bank closed", "bank closed", "no account"])
    some = ("dlq", "resend", "payers", "--reason", "bank")
    assert (
        ask(*some, "--dry-run").out
        == "would resend 2 dead letters of group payers to the topics they came from\n"
    )
    assert "--yes" in ask(*some).complaint
    assert ask(*some, "--yes").out == "2 dead letters of group payers resent.\n"
    assert ask(*some, "--yes").out == "Group payers has no such dead letters.\n"
    bodies = [json.loads(line)["body"] for line in _tail(ask, "resent")]
    assert sorted(bodies) == ["0", "0", "1", "1", "2"]
    done = ask("dlq", "resend", "payers", "--to-group", "--yes", "--json").document
    assert done == {"done": True, "group": "payers", "resent": 1, "failed": {}}


def _tail(ask: Ask, topic: str) -> list[str]:
    return ask("tail", topic, "--from", "begin", "--no-follow", "--json").lines


def test_what_cannot_be_resent_is_told_and_stays(ask: Ask, servers: EmbeddedThread) -> None:
    dead(ask, servers, "stays", "stayers", ["x"])
    ended = ask("dlq", "resend", "stayers", "--to", "nowhere", "--yes")
    assert ended.status == 1
    assert ended.out == "0 dead letters of group stayers resent.\n"
    assert "not resent: " in ended.err and "topic 'nowhere' is unknown" in ended.err
    assert ask("dlq", "list", "-g", "stayers", "--json").document["groups"][0]["count"] == 1


def test_they_are_exported_whole(ask: Ask, servers: EmbeddedThread, tmp_path: Path) -> None:
    dead(ask, servers, "kept", "keepers", ["x", "y"])
    file = tmp_path / "letters.jsonl"
    assert "would write 2 dead letters" in ask("dlq", "export", "keepers", file, "--dry-run").out
    assert not file.exists()
    assert ask("dlq", "export", "keepers", file).out == f"2 dead letters written to {file}.\n"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["body"], each["reason"]) for each in lines] == [("0", "x"), ("1", "y")]
    assert "would replace" in ask("dlq", "export", "keepers", file).complaint
    assert ask("dlq", "export", "keepers", file, "--reason", "y", "--yes").status == 0
    assert len(file.read_text().splitlines()) == 1


def test_they_are_purged_by_reason_and_age(ask: Ask, servers: EmbeddedThread) -> None:
    dead(ask, servers, "old", "cleaners", ["x", "y"])
    assert "no such dead letters" in ask("dlq", "purge", "cleaners", "--older-than", "1h", "--yes").out
    assert "would purge 1 dead letter of" in ask("dlq", "purge", "cleaners", "--reason", "x", "--dry-run").out
    assert "--yes" in ask("dlq", "purge", "cleaners", "--reason", "x").complaint
    done = ask("dlq", "purge", "cleaners", "--reason", "x", "--newer-than", "1h", "--yes", "--json").document
    assert done == {"done": True, "group": "cleaners", "purged": 1}
    (left,) = ask("dlq", "show", "cleaners", "--json").document["letters"]
    assert left["reason"] == "y"


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (1, ("dlq", "list", "-g", "no-such"), "no master knows group 'no-such', and it has no dead letters"),
        (1, ("dlq", "show", "no-such"), "no master knows group 'no-such'"),
        (1, ("dlq", "resend", "no-such", "--yes"), "no master knows group 'no-such'"),
        (2, ("dlq", "purge", "g", "--older-than", "soon"), "--older-than: 'soon' is not a span of time"),
        (2, ("dlq", "list", "--newer-than", "1h", "--older-than", "2h"), "exclude each other"),
        (2, ("dlq", "resend", "g", "--to", "t", "--to-group"), "give only one of them"),
        (2, ("dlq", "show", "bad group"), "bad group"),
    ],
)
def test_what_cannot_be_is_one_line(ask: Ask, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask(*words).complaint_with(status)


def test_a_group_without_dead_letters_is_told_so(ask: Ask) -> None:
    ask("group", "create", "lucky")
    assert ask("dlq", "list", "-g", "lucky").out == "No dead letters found.\n"
    assert ask("dlq", "show", "lucky").out == "Group lucky has no such dead letters.\n"


def test_without_a_broker_the_rest_is_shown_and_told_to_be_a_part(ask: Ask, servers: EmbeddedThread) -> None:
    dead(ask, servers, "parts", "parted", ["x"])
    assert "incomplete" not in ask("dlq", "list").err
    servers.stop("broker-b")
    try:
        for words in (("dlq", "list", "-g", "parted"), ("dlq", "show", "parted"), ("transaction", "list")):
            ended = ask(*words)
            assert ended.status == 0
            assert "incomplete: broker-b is not registered now" in ended.err, words
        (found,) = ask("dlq", "show", "parted", "--json").document["missing"]
        assert found["broker"] == "broker-b"
    finally:
        servers.start("broker-b")
