"""What a newcomer types and reads: help in words, -t for a topic, names from other tools, completion."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.commands import flaremq
from tests.cli.conftest import Ask
from tests.cli.test_main import completed, is_here

from flaremq.cli.about import Compiled
from flaremq.cli.commands import ALIASES, COMMANDS
from flaremq.cli.main import load
from flaremq.remoting.ports import free_port
from flaremq.testing.embedded import EmbeddedThread

TYPES = re.compile(r"<[a-z]+|list\[|\{[A-Z]|\[\[|x[<>]=|INTEGER|\.\.\.\.\.\.")
TRANSLATED = re.compile(
    r"wanted is|\bnobody\b|\bsomebody\b|\bfor who\b|the begin\b|so many|may come several|^\W*The same\.",
    re.MULTILINE | re.IGNORECASE,
)


def leaves(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, *path, name)


@functools.cache
def shown_help(path: tuple[str, ...]) -> str:
    return flaremq(*path, "--help").out


EVERY = [path for name in sorted(filter(is_here, {*COMMANDS, *ALIASES})) for path in leaves(load(name), name)]


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_shows_words_and_no_types_of_python(path: tuple[str, ...]) -> None:
    shown = shown_help(path)
    assert not TYPES.findall(shown), shown


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_paragraphs_of_help_are_broken_by_the_terminal_alone(path: tuple[str, ...]) -> None:
    command = load(path[0])
    for name in path[1:]:
        command = command.commands[name]
    assert not re.search(r"[^\n]\n[^\n]", command.help or "")


OURS = [path for path in EVERY if path[0] not in ("pipeline", "store")]


@pytest.mark.parametrize("path", OURS, ids=" ".join)
def test_help_reads_like_english(path: tuple[str, ...]) -> None:
    shown = shown_help(path)
    assert not TRANSLATED.findall(shown), shown


@pytest.mark.parametrize("path", OURS, ids=" ".join)
def test_every_option_and_argument_has_help(path: tuple[str, ...]) -> None:
    command = load(path[0])
    for name in path[1:]:
        command = command.commands[name]
    assert not [each.name for each in command.params if not each.help]


def test_the_commands_of_a_topic_are_ordered_by_use() -> None:
    shown = flaremq("topic", "--help").out
    places = [shown.index(f"│ {name} ") for name in ("list", "show", "create", "stats", "rates", "allocate")]
    assert places == sorted(places)
    assert "Rarely needed" in shown


# The topic by its option.


def test_the_topic_may_be_an_option_wherever_it_is_an_argument(ask: Ask) -> None:
    assert ask("topic", "create", "-t", "Orders", "-q", 1).status == 0
    assert ask("send", "-t", "Orders", "hello", "-k", "k").status == 0
    assert ask("send", "--topic=Orders", given="one\ntwo\n").status == 0
    assert ask("topic", "stats", "-t", "Orders", "--json").document["messages"] == 3
    assert ask("topic", "stats", "Orders", "-t", "Orders", "--json").document["messages"] == 3
    (found,) = ask("message", "key", "-t", "Orders", "k", "--json").document["messages"]
    assert found["body"] == "hello"
    place = (found["broker_name"], found["queue_id"], found["queue_offset"])
    assert ask("message", "at", *place, "-t", "Orders", "--json").document["body"] == "hello"
    assert len(ask("tail", "-t", "Orders", "--from", "begin", "--no-follow").lines) == 3
    ask("group", "create", "-g", "movers")
    words = ("group", "reset", "movers", "-t", "Orders", "--to", "beginning", "--yes")
    assert ask(*words).status == 0
    assert ask("group", "progress", "-g", "movers", "--json").document["lag"] == 3
    assert set(ask("topic", "allocate", "-t", "Orders", "a", "b", "--json").document) == {"a", "b"}


@pytest.mark.parametrize(
    "words", [("topic", "stats", "Orders", "-t", "Other"), ("send", "-t", "Other", "Orders", "hello")]
)
def test_two_topics_are_an_error_that_says_so(ask: Ask, words: tuple[str, ...]) -> None:
    ended = ask(*words)
    assert ended.status == 2
    assert "--topic Other and the argument Orders name two topics" in " ".join(ended.err.split())


def test_too_many_words_beside_the_option_are_an_error(ask: Ask) -> None:
    assert ask("send", "-t", "Orders", "a", "b", "c").status == 2


# Words from elsewhere.


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("ls",), "flaremq topic list"),
        (("describe",), "flaremq topic show"),
        (("produce", "t", "x"), "flaremq send"),
        (("consume", "t"), "flaremq tail"),
        (("topic", "ls"), "flaremq topic list"),
        (("topic", "describe", "t"), "flaremq topic show"),
        (("group", "lag"), "flaremq group progress"),
    ],
)
def test_a_command_of_another_tool_is_answered_with_ours(words: tuple[str, ...], meant: str) -> None:
    ended = flaremq(*words)
    assert ended.status == 2
    assert f"Did you mean '{meant}'?" in ended.err


# Completion.


def test_a_shell_completes_topics_and_groups(
    ask: Ask, servers: EmbeddedThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("topic", "create", "completed-topic")
    ask("group", "create", "completed-group")
    monkeypatch.setenv("FLAREMQ_NAMESRV", servers.namesrv)
    assert completed("bash", "flaremq topic stats compl").split() == ["completed-topic"]
    assert completed("bash", "flaremq send -t compl").split() == ["completed-topic"]
    assert completed("bash", "flaremq group progress compl").split() == ["completed-group"]
    monkeypatch.delenv("FLAREMQ_NAMESRV")
    named = f"flaremq topic stats -n {servers.namesrv} compl"
    assert completed("bash", named).split() == ["completed-topic"]


@pytest.mark.parametrize("namesrv", ["nonsense", None])
def test_without_a_cluster_nothing_is_completed_and_nothing_is_printed(
    namesrv: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAREMQ_NAMESRV", namesrv or f"127.0.0.1:{free_port()}")
    assert completed("bash", "flaremq topic stats compl").strip() == ""
    assert completed("bash", "flaremq group show compl").strip() == ""


# Compiled modules.


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Compiled(14), "compiled modules: all 14"),
        (
            Compiled(2, ("a._x_c", "b._y_c")),
            "running without compiled modules: about a tenth of the speed; "
            "install a C compiler and reinstall FlareMQ",
        ),
        (
            Compiled(14, ("a._x_c",)),
            "compiled modules: 13 of 14, without a._x_c: slower than it could be; "
            "install a C compiler and reinstall FlareMQ",
        ),
        (
            Compiled(14, is_forbidden=True),
            "running without compiled modules, because FLAREMQ_PURE is set: about a tenth of the speed",
        ),
    ],
)
def test_it_is_told_whether_compiled_modules_are_in_use(found: Compiled, said: str) -> None:
    assert str(found) == said


def test_the_version_tells_of_forbidden_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAREMQ_PURE", "1")
    assert "FLAREMQ_PURE" in flaremq("--version").lines[1]
