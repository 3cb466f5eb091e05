"""The frame of the command: what is loaded when, and how errors end."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.cli.commands import flaremq

from flaremq.base.errors import ConfigError, FlareError, GroupNotFound, Hint, TopicNotFound, Unreachable
from flaremq.cli import main as cli
from flaremq.cli import profile
from flaremq.cli.commands import ALIASES, COMMANDS
from flaremq.cli.render import worded_error
from flaremq.remoting.ports import free_port


def is_here(name: str) -> bool:
    """Whether its module is there: a command may be left out of an installation."""
    place = {**COMMANDS, **ALIASES}[name].place.partition(":")[0]
    return find_spec(place) is not None


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_help_lists_every_command_and_loads_none_of_them() -> None:
    code = (
        "import sys, contextlib\n"
        "from flaremq.cli.main import app\n"
        "with contextlib.suppress(SystemExit): app(['--help'], prog_name='flaremq')\n"
        "print('LOADED', *sorted(m for m in sys.modules if m.startswith('flaremq.')))"
    )
    shown, _, loaded = python(code).rpartition("LOADED")
    assert all(name in shown for name in COMMANDS)
    assert not any(name in shown for name in ALIASES)
    assert set(loaded.split()) <= {
        "flaremq.base", "flaremq.base.errors", "flaremq.cli", "flaremq.cli.main", "flaremq.cli.commands",
            "flaremq.cli.tls", "flaremq.cli.names", "flaremq.cli.render", "flaremq.cli.words",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("command", "not_loaded"),
    [
        ("namesrv", ("rich", "flaremq.client", "flaremq.admin")),
        ("broker", ("rich", "flaremq.client", "flaremq.admin")),
        ("up", ("rich", "flaremq.client", "flaremq.admin")),
        ("topic", ("flaremq.broker", "flaremq.namesrv", "flaremq.store")),
        ("group", ("flaremq.broker", "flaremq.namesrv", "flaremq.store")),
        ("send", ("flaremq.broker", "flaremq.namesrv", "flaremq.store")),
        ("tail", ("flaremq.broker", "flaremq.namesrv", "flaremq.store")),
        ("updateTopic", ("flaremq.broker", "flaremq.namesrv", "flaremq.store")),
        ("store", ("flaremq.broker", "flaremq.client", "flaremq.remoting")),
    ],
)
def test_a_command_does_not_load_what_others_need(command: str, not_loaded: tuple[str, ...]) -> None:
    code = f"import sys\nfrom flaremq.cli.main import load\nload({command!r})\nprint(*sys.modules)"
    loaded = set(python(code).split())
    assert not {each for each in loaded if each.startswith(tuple(f"{name}." for name in not_loaded))}
    assert not loaded & set(not_loaded)


def test_words_paths_and_what_nobody_gave_need_no_pydantic(tmp_path: Path) -> None:
    (file := tmp_path / "broker.conf").write_text("brokerName=b\n")
    words = ["broker", "-p", "-c", str(file), "-o", "brokerId=0", "-n", "127.0.0.1:9876"]
    code = (
        "import contextlib, sys\n"
        "from flaremq.cli.main import app\n"
        f"with contextlib.suppress(SystemExit): app({words!r}, prog_name='flaremq')\n"
        "print('LOADED', *sys.modules)"
    )
    shown, _, loaded = python(code).rpartition("LOADED")
    assert {"brokerName=b", "brokerId=0", "namesrvAddr=127.0.0.1:9876"} <= set(shown.splitlines())
    assert "typer" in loaded.split()
    assert "pydantic" not in loaded.split()


def test_a_path_that_cannot_be_read_is_wrong_usage_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    ended = flaremq("namesrv", "-p", "-c", str(tmp_path))
    assert ended.status == 2
    assert "readable" in ended.err


@pytest.mark.parametrize("name", sorted(filter(is_here, {*COMMANDS, *ALIASES})))
def test_every_row_of_the_table_leads_to_a_command_with_help(name: str) -> None:
    ended = flaremq(name, "--help")
    assert ended.status == 0, ended.err
    assert "Usage: flaremq" in ended.out and name in ended.out


def test_the_version_is_told() -> None:
    first, second = flaremq("--version").lines
    assert first == f"flaremq {version('flaremq')}"
    assert "compiled modules" in second
    assert flaremq("version").lines == [first, second]


def test_a_program_finds_the_version_and_loads_nothing_else_for_it() -> None:
    loaded = "[each for each in sys.modules if each.startswith('flaremq.')]"
    code = f"import sys, flaremq; print(flaremq.__version__, *{loaded})"
    assert python(code) == version("flaremq")


def completed(shell: str, words: str) -> str:
    """What a shell is told when Tab is pressed behind these words."""
    environ = {**os.environ, "_FLAREMQ_COMPLETE": f"complete_{shell}", "COMP_WORDS": words}
    environ["COMP_CWORD"] = str(len(words.split()) - (not words.endswith(" ")))
    environ["_TYPER_COMPLETE_ARGS"] = words
    environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    done = subprocess.run(
        [sys.executable, "-c", "from flaremq.cli.main import main; main()"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("flaremq pro", ["profile"]),
        ("flaremq profile re", ["remove"]),
        ("flaremq topic cr", ["create"]),
        ("flaremq cluster config ", ["get", "set"]),
        ("flaremq bench ", ["send", "consume", "latency"]),
        ("flaremq group reset --dr", ["--dry-run"]),
        ("flaremq profile set --na", ["--namesrv"]),
        ("flaremq nonsense x", []),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, wanted: list[str]) -> None:
    assert completed("bash", words).split() == wanted


def test_other_shells_complete_too() -> None:
    in_zsh = completed("zsh", "flaremq cluster config ")
    assert '"get":' in in_zsh and '"set":' in in_zsh
    assert completed("fish", "flaremq topic cr").startswith("create\t")


def test_a_shell_completes_names_of_profiles() -> None:
    flaremq("profile", "set", "production")
    assert completed("bash", "flaremq profile use pro").split() == ["production"]
    assert completed("bash", "flaremq topic list --profile ").split() == ["production"]


@pytest.mark.parametrize("name", ["", *sorted(COMMANDS)])
def test_only_the_top_command_offers_to_install_completion(name: str) -> None:
    shown = flaremq(*([name] if name else []), "--help").out
    assert ("--install-completion" in shown) == (not name)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (TopicNotFound("topic 'x' is unknown").with_hint(Hint.LIST_TOPICS), "`flaremq topic list`"),
        (GroupNotFound("no master knows 'x'").with_hint(Hint.LIST_GROUPS), "`flaremq group list`"),
        (Unreachable("nobody answers").with_hint(Hint.START_NAMESRV), "`flaremq up`"),
    ],
)
def test_what_to_do_next_is_told_in_commands(
    monkeypatch: pytest.MonkeyPatch, error: FlareError, hint: str
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(profile, "load_profiles", fails)
    complaint = flaremq("profile", "list").complaint
    assert error.fact in complaint and hint in complaint


@pytest.mark.parametrize("hint", Hint)
def test_every_hint_is_worded_for_a_terminal(hint: Hint) -> None:
    error = FlareError("it failed").with_hint(hint)
    assert worded_error(error).startswith("it failed; ") and worded_error(error) != str(error)


def test_without_a_server_it_is_told_how_to_have_one() -> None:
    complaint = flaremq("topic", "list", "-n", f"127.0.0.1:{free_port()}").complaint
    assert "--namesrv" in complaint and "`flaremq up`" in complaint


def test_a_wrong_name_is_a_usage_error_with_a_hint() -> None:
    ended = flaremq("topc")
    assert ended.status == 2
    assert "topic" in ended.err


def test_an_error_of_ours_is_one_line() -> None:
    assert "'nobody'" in flaremq("profile", "use", "nobody").complaint


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ConfigError("what\nand why"), 1, ("what and why",)),
        (KeyboardInterrupt(), 130, ("interrupted",)),
        (ZeroDivisionError("by zero"), 1, ("bug", "ZeroDivisionError", "by zero", "FLAREMQ_DEBUG=1")),
        (OSError(5, "the disk burns"), 1, ("bug", "the disk burns")),
    ],
)
def test_whatever_goes_wrong_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, words: tuple[str, ...]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(profile, "load_profiles", fails)
    ended = flaremq("profile", "list")
    assert ended.status == status
    assert ended.err.startswith("flaremq: ") and ended.err.count("\n") == 1
    assert all(word in ended.err for word in words)
    assert ended.out == ""


@pytest.mark.parametrize("words", [("--debug", "profile", "list"), ("profile", "list")])
def test_with_debug_a_bug_shows_where_it_is(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(profile, "load_profiles", fails)
    monkeypatch.setenv("FLAREMQ_DEBUG", "" if words[0] == "--debug" else "1")
    ended = flaremq(*words)
    assert ended.status == 1
    assert "Traceback" in ended.err and "bug" in ended.err.splitlines()[-1]


def test_a_command_whose_module_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    row = COMMANDS["demo"]._replace(place="flaremq.cli.nowhere")
    monkeypatch.setitem(cli._ROWS, "demo", row)
    assert "demo is not part of this installation" in flaremq("demo").complaint


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = f"{sys.executable} -m flaremq.cli.main broker -p | head -1"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
