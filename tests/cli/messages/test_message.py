"""`flaremq send`, `flaremq tail` and `flaremq message`."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.admin.member import Member
from tests.cli.commands import AT_A_TERMINAL, Ended, flaremq
from tests.cli.conftest import Ask

from flaremq.cli.messages.send import _paced
from flaremq.remoting.ports import free_port
from flaremq.testing.embedded import EmbeddedThread


def documents(ended: Ended) -> list[dict[str, Any]]:
    assert ended.status == 0, ended.err
    return [json.loads(line) for line in ended.lines]


def read(ask: Ask, topic: str, *words: object) -> list[dict[str, Any]]:
    return documents(ask("tail", topic, "--from", "begin", "--no-follow", "--json", *words))


# Sending.


def test_a_message_is_sent_with_all_that_it_carries(ask: Ask) -> None:
    ask("topic", "create", "full")
    words = ("--tags", "TagA", "-k", "k1", "-k", "k2", "-p", "a=1", "-p", "b=x=y")
    (receipt,) = documents(ask("send", "full", "Grüße", *words, "--json"))
    assert (receipt["topic"], receipt["status"]) == ("full", "OK")
    (found,) = read(ask, "full")
    assert (found["body"], found["tags"], found["keys"]) == ("Grüße", "TagA", ["k1", "k2"])
    assert (found["properties"]["a"], found["properties"]["b"]) == ("1", "x=y")
    assert found["message_id"] == receipt["message_id"]
    assert (found["queue_id"], found["queue_offset"]) == (receipt["queue_id"], receipt["queue_offset"])


def test_each_line_of_stdin_is_a_message(ask: Ask) -> None:
    ask("topic", "create", "lines")
    lines = [str(n) for n in range(700)]
    ended = ask("send", "lines", "--quiet", given="\r\n".join(lines[:2]) + "\n\n" + "\n".join(lines[2:]))
    assert ended.out == "700 messages stored.\n"
    assert sorted(int(each["body"]) for each in read(ask, "lines")) == list(range(700))


def test_a_file_is_one_message(ask: Ask, tmp_path: Path) -> None:
    ask("topic", "create", "files")
    (tmp_path / "body").write_bytes(b"\xff\n\x00")
    assert ask("send", "files", "--file", tmp_path / "body").status == 0
    (found,) = read(ask, "files")
    assert (found["body"], found["body_encoding"]) == ("/woA", "base64")


def test_one_queue_may_be_named(ask: Ask) -> None:
    ask("topic", "create", "aimed", "-q", 2)
    receipts = documents(ask("send", "aimed", "x", "--count", 3, "--queue", "broker-b:1", "--json"))
    assert {(each["broker"], each["queue_id"]) for each in receipts} == {("broker-b", 1)}
    same = documents(ask("send", "aimed", "x", "--count", 3, "--sharding-key", "me", "--json"))
    assert len({(each["broker"], each["queue_id"]) for each in same}) == 1


def test_nothing_on_stdin_is_told(ask: Ask) -> None:
    ended = ask("send", "nothing", given="")
    assert (ended.status, ended.out) == (0, "")
    assert "nothing to send" in ended.err


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (2, ("t", "x", "--file", "y"), "give one of them"),
        (2, ("t", "--file", "/nowhere/at/all"), "/nowhere/at/all"),
        (2, ("t", "--count", "2"), "--count 2"),
        (2, ("t", "x", "--rate", "0"), "--rate 0"),
        (2, ("t", "x", "--queue", "3"), "BROKER:QUEUE"),
        (1, ("t", "x", "--queue", "broker-z:0"), "broker-z"),
        (2, ("t", "x", "-p", "novalue"), "key=value"),
        (1, ("t", "x", "-p", "KEYS=1"), "KEYS"),
        (1, ("t", "x", "-k", "two words"), "two words"),
        (2, ("t", "x", "--group", "a b"), "' '"),
        (2, ("a b", "x"), "' '"),
        (1, ("t", "x" * (5 << 20)), "limit"),
    ],
)
def test_what_cannot_be_sent_is_one_line(ask: Ask, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask("send", *words).complaint_with(status)


def test_without_servers_it_is_one_line() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert address in flaremq("send", "t", "x", "-n", address).complaint
    assert address in flaremq("tail", "t", "-n", address).complaint


async def test_a_rate_is_kept() -> None:
    async def bodies() -> Any:
        yield [b"x"] * 30

    batches = [batch async for batch in _paced(bodies(), 300.0)]
    assert sum(map(len, batches)) == 30
    assert len(batches) > 3


# Tailing.


@contextmanager
def tailing(servers: EmbeddedThread, topic: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    given = [*AT_A_TERMINAL, "tail", topic, "-n", servers.namesrv, *words]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("begin", ["begin", "end"])
def test_it_waits_for_a_topic_follows_it_and_ends_with_ctrl_c(
    ask: Ask, servers: EmbeddedThread, begin: str
) -> None:
    """What comes while it waits is shown, wherever it was to begin: it came after the command."""
    topic = f"later-{begin}"
    with tailing(servers, topic, "--from", begin, "--json") as process:
        assert process.stdout is not None and process.stderr is not None
        assert f"topic {topic} does not exist yet" in process.stderr.readline()
        ask("send", topic, "first")
        assert json.loads(process.stdout.readline())["body"] == "first"
        ask("send", topic, "second")
        assert json.loads(process.stdout.readline())["body"] == "second"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == "flaremq: interrupted\n"


def test_it_goes_on_when_a_broker_comes_back(ask: Ask, servers: EmbeddedThread) -> None:
    ask("topic", "create", "back", "-q", 1, "-b", "broker-b")
    ask("send", "back", "before")
    with tailing(servers, "back", "--from", "begin") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().endswith("  before\n")
        servers.stop("broker-b")
        assert "trying again" in process.stderr.readline()
        servers.start("broker-b")
        ask("send", "back", "after", "--timeout", 20)
        assert process.stdout.readline().endswith("  after\n")


def test_tags_sql_and_limits_choose(ask: Ask) -> None:
    ask("topic", "create", "chosen")
    for n in range(6):
        ask("send", "chosen", n, "--tags", f"Tag{n % 3}", "-p", f"n={n}")
    assert {m["body"] for m in read(ask, "chosen", "--tags", "Tag0 || Tag2")} == {"0", "2", "3", "5"}
    assert {m["body"] for m in read(ask, "chosen", "--sql", "n > 2 AND n < 5")} == {"3", "4"}
    assert len(read(ask, "chosen", "--limit", 2)) == 2


def test_a_time_to_begin_at_is_kept(ask: Ask) -> None:
    ask("topic", "create", "timed")
    ask("send", "timed", "x")
    assert len(read(ask, "timed")) == 1
    assert len(documents(ask("tail", "timed", "--from", "1h", "--no-follow", "--json"))) == 1
    ended = ask("tail", "timed", "--from", "2099-01-01", "--no-follow", "--json")
    assert (ended.status, ended.out) == (0, "")


def test_messages_of_several_queues_are_merged_by_time(ask: Ask) -> None:
    ask("topic", "create", "merged", "-q", 2)
    places = [f"broker-{letter}:{number}" for letter in "ab" for number in (0, 1)]
    bodies = [str(number) for number in range(12)]
    for body in bodies:
        ask("send", "merged", body, "--queue", places[int(body) * 7 % 4])
    found = read(ask, "merged")
    assert [each["stored_at_ms"] for each in found] == sorted(each["stored_at_ms"] for each in found)
    assert [each["body"] for each in found] == bodies
    assert [each["body"] for each in read(ask, "merged", "--limit", 3)] == bodies[:3]


@pytest.mark.parametrize("word", ["begin", "beginning", "earliest"])
def test_the_beginning_has_many_names(ask: Ask, word: str) -> None:
    ask("topic", "create", f"named-{word}")
    ask("send", f"named-{word}", "x")
    found = documents(ask("tail", f"named-{word}", "--from", word, "--no-follow", "--json"))
    assert [each["body"] for each in found] == ["x"]


@pytest.mark.parametrize("word", ["end", "latest"])
def test_so_has_the_end(ask: Ask, word: str) -> None:
    assert "--from beginning" in ask("tail", "t", "--from", word, "--no-follow").misuse


def test_a_body_that_is_no_text_is_shown_with_escapes(ask: Ask, tmp_path: Path) -> None:
    ask("topic", "create", "binary", "-q", 1, "-b", "broker-a")
    (tmp_path / "body").write_bytes(b"\x1b[2J\xff\x9b\r\n" + "ü\u202e\x9b".encode())
    (receipt,) = documents(ask("send", "binary", "--file", tmp_path / "body", "--json"))
    shown = "\\x1b[2J\\xff\\x9b\\x0d\\x0aü\\u202e\\x9b"
    assert ask("tail", "binary", "--from", "begin", "--no-follow").lines[0].endswith(f"  {shown}")
    assert shown in ask("message", "get", receipt["message_id"], "-t", "binary").out
    assert shown in ask("message", "query", "binary").out
    ask("topic", "create", "controls", "-q", 1, "-b", "broker-a")
    ask("send", "controls", "a\x9bb\u202ec\x1bd")
    out = ask("message", "query", "controls", "--json").out
    assert json.loads(out)["messages"][0]["body"] == "a\x9bb\u202ec\x1bd"
    assert not {"\x9b", "\u202e", "\x1b"} & set(out)


def test_where_nothing_is_found_a_sentence_says_so(ask: Ask) -> None:
    ask("topic", "create", "empty")
    assert ask("message", "query", "empty").out == "No messages found.\n"
    assert ask("message", "key", "empty", "k").out == "No messages found.\n"
    assert ask("tail", "empty", "--from", "beginning", "--no-follow").out == "No messages found.\n"
    assert ask("message", "query", "empty", "--json").document["messages"] == []
    assert ask("tail", "empty", "--from", "beginning", "--no-follow", "--json").out == ""


def test_tailing_leaves_no_trace(ask: Ask) -> None:
    ask("topic", "create", "traceless")
    ask("send", "traceless", "x")
    read(ask, "traceless")
    groups = ask("group", "list", "--names", "--json").document["groups"]
    assert all(each["system"] for each in groups if "TOOLS" in each["group"])
    assert ask("topic", "show", "traceless", "--json").document["groups"] == []


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (2, ("t", "--no-follow"), "--from beginning"),
        (2, ("t", "--from", "soon"), "'soon'"),
        (2, ("t", "--tags", "a", "--sql", "b = 1"), "give one of them"),
        (1, ("nowhere", "--from", "begin", "--no-follow"), "'nowhere'"),
        (2, ("a b",), "' '"),
    ],
)
def test_what_cannot_be_tailed_is_one_line(ask: Ask, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask("tail", *words).complaint_with(status)


def test_an_expression_that_means_nothing_is_one_line(ask: Ask) -> None:
    ask("topic", "create", "wrong")
    ask("send", "wrong", "x")
    assert (
        "expression" in ask("tail", "wrong", "--from", "begin", "--no-follow", "--sql", "a = = 1").complaint
    )


# Finding.


def test_a_message_is_found_by_either_id_by_key_place_and_time(ask: Ask) -> None:
    ask("topic", "create", "sought")
    (sent,) = documents(ask("send", "sought", "here", "-k", "needle", "--json"))
    ask("send", "sought", "other", "-k", "hay")
    by_offset_id = ask("message", "get", sent["offset_id"], "--json").document
    by_id = ask("message", "get", sent["message_id"], "-t", "sought", "--json").document
    assert by_id == by_offset_id
    assert ask("message", "get", sent["message_id"], "--json").document == by_id
    assert (by_id["body"], by_id["keys"]) == ("here", ["needle"])
    (by_key,) = ask("message", "key", "sought", "needle", "--json").document["messages"]
    assert by_key == by_id
    place = (sent["broker"], sent["queue_id"], sent["queue_offset"])
    assert ask("message", "at", "sought", *place, "--json").document == by_id
    assert len(ask("message", "query", "sought", "--from", "1h", "--json").document["messages"]) == 2
    assert len(ask("message", "query", "sought", "--limit", 1, "--json").document["messages"]) == 1
    shown = ask("message", "get", sent["offset_id"], "--track").out
    assert "needle" in shown and "here" in shown and "No group consumes its topic." in shown
    assert "needle" in ask("message", "key", "sought", "needle").out


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (1, ("get", "nonsense"), "8 characters"),
        (1, ("get", "0" * 32, "-t", "nowhere"), "nowhere"),
        (1, ("key", "nowhere", "k"), "'nowhere'"),
        (1, ("query", "nowhere"), "'nowhere'"),
        (2, ("query", "t", "--from", "soon"), "'soon'"),
        (2, ("query", "t", "--from", "now", "--to", "1h"), "--from now is later"),
        (1, ("at", "nowhere", "broker-a", "0", "0"), "nowhere"),
    ],
)
def test_what_cannot_be_found_is_one_line(ask: Ask, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask("message", *words).complaint_with(status)


def test_a_member_is_made_to_consume_a_message(ask: Ask, servers: EmbeddedThread) -> None:
    ask("topic", "create", "again")
    (sent,) = documents(ask("send", "again", "once more", "--json"))

    async def joined() -> Member:
        member = Member()
        await member.join(servers.addresses, "eaters", "again")
        return member

    member = servers.run(joined())
    try:
        said = ask("message", "consume", sent["offset_id"], "--group", "eaters", "--json").document
        assert (said["client_id"], said["result"], said["remark"]) == (
            member.client_id,
            "CR_LATER",
            "not now",
        )
        assert member.consumed == [b"once more"]
        assert "CR_LATER" in ask("message", "consume", sent["offset_id"], "-g", "eaters").out
    finally:
        servers.run(member.__aexit__())


def test_only_dead_letters_are_sent_again(ask: Ask) -> None:
    ask("topic", "create", "alive")
    (sent,) = documents(ask("send", "alive", "x", "--json"))
    assert "alive" in ask("message", "resend", sent["offset_id"], "--yes").complaint
    ask("topic", "create", "%DLQ%losers", "-q", 1, "-b", "broker-a")
    (dead,) = documents(ask("send", "%DLQ%losers", "dead", "--json"))
    assert "would send message" in ask("message", "resend", dead["offset_id"], "--dry-run").out
    assert "--yes" in ask("message", "resend", dead["offset_id"]).complaint


# Messages that wait.


def test_what_waits_is_shown_by_topic_and_one_by_one(ask: Ask) -> None:
    for topic in ("soon", "late"):
        ask("topic", "create", topic)
    assert ask("send", "soon", "x", "--delay", "50s", "--count", 3).status == 0
    assert ask("send", "late", "y", "--deliver-at", "2099-01-01T12:00", "-k", "k1").status == 0
    assert ask("send", "late", "z", "--delay-level", 18).status == 0
    rows = {line.split()[0]: line.split()[1:6] for line in ask("message", "waiting").lines[1:]}
    assert rows["soon"] == ["3", "3", "3", "3", "0"]
    assert rows["late"] == ["2", "0", "0", "1", "1"]
    listed = ask("message", "waiting", "-t", "late", "--list").lines
    assert [("level 18" in line, "timer" in line) for line in listed[1:]] == [(True, False), (False, True)]
    assert "k1" in listed[2]
    (found, later) = json.loads(ask("message", "waiting", "-t", "late", "--json").out)["waiting"]
    assert (found["why"], found["recall_handle"]) == ("level 18", None)
    assert later["recall_handle"]


def test_a_message_that_waits_is_cancelled_by_its_id_or_its_handle(ask: Ask) -> None:
    ask("topic", "create", "cancelled")
    receipts = documents(ask("send", "cancelled", "x", "--delay", "1h", "--count", 2, "--json"))
    first, second = receipts
    ended = ask("message", "cancel", first["message_id"])
    assert (ended.status, ended.out) == (0, "cancelled: it will not be delivered\n")
    assert (
        json.loads(ask("message", "cancel", second["recall_handle"], "--json").out)["outcome"] == "cancelled"
    )
    assert ask("message", "waiting", "-t", "cancelled").out == "No messages wait.\n"
    again = ask("message", "cancel", first["message_id"])
    assert again.status != 0
    assert "message waiting --list" in again.err


def test_a_delay_that_is_none_is_told(ask: Ask) -> None:
    ended = ask("send", "t", "x", "--delay", "soon")
    assert ended.status == 2
    assert "--delay 'soon': expected a time span such as 90s" in ended.err


def test_a_message_with_a_delay_level_cannot_be_cancelled(ask: Ask) -> None:
    ask("topic", "create", "levels")
    (receipt,) = documents(ask("send", "levels", "x", "--delay-level", 18, "--json"))
    ended = ask("message", "cancel", receipt["message_id"])
    assert ended.status == 2
    assert "only a timer can be cancelled" in ended.err
