"""Which cluster a command is for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.commands import flaremq

from flaremq.base.errors import ConfigError
from flaremq.cli.profiles import choose, load_profiles, profiles_path
from flaremq.cli.render import BadValue

FILE = """\
use = "test"

[profiles.test]
namesrv = "10.0.0.1:9876;10.0.0.2:9876"

[profiles.live]
namesrv = "10.1.0.1:9876"
"""


@pytest.fixture
def file() -> Path:
    path = profiles_path()
    path.parent.mkdir(parents=True)
    path.write_text(FILE)
    return path


def test_without_anything_said_it_is_this_machine() -> None:
    assert choose(None, None).namesrv == "127.0.0.1:9876"


@pytest.mark.parametrize(
    ("namesrv", "profile", "environ", "wanted"),
    [
        ("1.1.1.1:1", None, {"FLAREMQ_NAMESRV": "2.2.2.2:2"}, "1.1.1.1:1"),
        (None, None, {"FLAREMQ_NAMESRV": "2.2.2.2:2", "NAMESRV_ADDR": "3.3.3.3:3"}, "2.2.2.2:2"),
        (None, None, {"NAMESRV_ADDR": "3.3.3.3:3", "FLAREMQ_PROFILE": "live"}, "3.3.3.3:3"),
        (None, "live", {"NAMESRV_ADDR": "3.3.3.3:3"}, "10.1.0.1:9876"),
        (None, "live", {"FLAREMQ_PROFILE": "test"}, "10.1.0.1:9876"),
        (None, None, {"FLAREMQ_PROFILE": "live"}, "10.1.0.1:9876"),
        (None, None, {}, "10.0.0.1:9876;10.0.0.2:9876"),
        (" a:1 , b:2; ", None, {}, "a:1;b:2"),
    ],
)
def test_the_first_that_is_said_counts(
    file: Path, namesrv: str | None, profile: str | None, environ: dict[str, str], wanted: str
) -> None:
    environ = {"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"], **environ}
    assert choose(namesrv, profile, environ).namesrv == wanted


def test_an_address_and_a_profile_at_once_are_refused(file: Path) -> None:
    with pytest.raises(BadValue, match="one of them"):
        choose("1.1.1.1:1", "live")


def test_an_unknown_profile_names_the_file_and_those_it_has(file: Path) -> None:
    with pytest.raises(ConfigError) as error:
        choose(None, "prod")
    assert all(word in str(error.value) for word in ("'prod'", str(file), "live, test"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("use = \n", ("line 1",)),
        ('[profiles.a]\nnamesrv = "x:1"\n[profiles.a]\n', ("line 3",)),
        ("\n[profiles.a]\nport = 3\n", ("line 2", "namesrv")),
        ('[profiles.a]\nnamesrv = "x"\n', ("line 2", "'x'", "host:port")),
        ('[profiles.a]\nnamesrv = "x:1"\nuser = "me"\n', ("line 3", "user")),
        ('use = "b"\n[profiles.a]\nnamesrv = "x:1"\n', ("line 1", "'b'")),
        ("profiles = 3\n", ("line 1",)),
        ('colour = "red"\n', ("line 1", "colour")),
    ],
)
def test_a_damaged_file_is_told_with_its_line(file: Path, text: str, words: tuple[str, ...]) -> None:
    file.write_text(text)
    complaint = flaremq("profile", "list").complaint
    assert str(file) in complaint
    assert all(word in complaint for word in words), complaint


def test_bytes_that_are_no_text_are_told(file: Path) -> None:
    file.write_bytes(b"use = '\xff'\n")
    assert "UTF-8" in flaremq("profile", "list").complaint


def test_profiles_are_made_used_and_forgotten() -> None:
    assert flaremq("profile", "set", "test", "-n", "10.0.0.1:9876").status == 0
    assert flaremq("profile", "set", "live", "-n", "10.1.0.1:9876", "--use").status == 0
    found = flaremq("profile", "list", "--json").document
    assert found["profiles"] == {"live": {"namesrv": "10.1.0.1:9876"}, "test": {"namesrv": "10.0.0.1:9876"}}
    assert (found["in_use"], found["target"]["namesrv"]) == ("live", "10.1.0.1:9876")
    assert flaremq("profile", "use", "test").status == 0
    assert choose(None, None).namesrv == "10.0.0.1:9876"
    assert flaremq("profile", "remove", "test").status == 0
    assert choose(None, None).namesrv == "127.0.0.1:9876"
    assert flaremq("profile", "use", "--none").status == 0


@pytest.mark.parametrize("words", [("set", "a b"), ("set", "x", "-n", "nowhere"), ("set", "x", "-n", 'a":1')])
def test_what_could_not_be_read_again_is_not_written(words: tuple[str, ...]) -> None:
    assert flaremq("profile", *words).complaint
    assert load_profiles(profiles_path()).namesrvs == {}
