"""The house rules that a machine can keep: sizes, twins, the tree in ARCHITECTURE.md, no sleeping tests.

An exception is a line in this file, with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "flaremq"
CODE_LINES_MAX = 400  # Without blank lines, comments and docstrings: explaining costs nothing.
FILE_LINES_MAX = 550
TEST_CODE_LINES_MAX = 500  # A suite may be a little longer than what it tests.
TEST_FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

MODULES = sorted(SOURCE.rglob("*.py"))
SOURCES = [*MODULES, *sorted(SOURCE.rglob("*.pyx"))]
TESTS = sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "benches").rglob("*.py"))
PYTHON_TWINS = [path for path in MODULES if path.stem.startswith("_") and path.stem.endswith("_py")]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


DOCSTRING = re.compile(r'^[ \t]*"""(?:[^"\\]|\\.|"(?!""))*"""[ \t]*$', re.MULTILINE)


def code_lines(text: str) -> int:
    lines = (line.strip() for line in DOCSTRING.sub("", text).splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))


def test_comments_and_docstrings_are_not_counted_as_code() -> None:
    text = '"""One.\n\nTwo."""\n\n# Three.\nx = """\nfour\n"""\n\ndef f():\n    """Five."""\n    return x\n'
    assert code_lines(text) == 5


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=relative)
def test_no_file_outgrows_its_room(path: Path) -> None:
    text = path.read_text()
    code, lines = code_lines(text), len(text.splitlines())
    code_max, lines_max = (
        (TEST_CODE_LINES_MAX, TEST_FILE_LINES_MAX) if path in TESTS else (CODE_LINES_MAX, FILE_LINES_MAX)
    )
    assert code <= code_max and lines <= lines_max, (
        f"{code} lines of code, {lines} in all: which second noun has moved in?"
    )


@pytest.mark.parametrize("path", MODULES + TESTS, ids=relative)
def test_functions_can_be_read_at_a_glance(path: Path) -> None:
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1}"
        for node in functions(path)
        if node.end_lineno and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long


@pytest.mark.parametrize("path", PYTHON_TWINS, ids=relative)
def test_twins_export_the_same_names(path: Path) -> None:
    """What the choosing module takes from one twin it must find in the other."""
    choosing = path.with_name(path.stem.removeprefix("_").removesuffix("_py") + ".py")
    compiled = path.with_name(path.stem.removesuffix("_py") + "_c.pyx")
    assert compiled.exists()
    assert choosing.exists()
    taken: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(choosing.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and "._" in node.module:
            taken.setdefault(node.module, set()).update(alias.name for alias in node.names)
    from_compiled = next(names for module, names in taken.items() if module.endswith("_c"))
    python = import_module(".".join(("flaremq", *path.relative_to(SOURCE).with_suffix("").parts)))
    text = compiled.read_text()
    for name in from_compiled:
        assert hasattr(python, name)
        assert re.search(rf"^(?:def|cdef class|class) {name}\b", text, re.MULTILINE), (
            f"{name} is not in {compiled.name}"
        )


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_no_test_sleeps_to_wait(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep"):
            assert ast.unparse(node.args[0]) == "0", f"line {node.lineno}"


FOLDERS = sorted({path.parent for path in MODULES} - {SOURCE})
LAZY = {SOURCE / "__init__.py"}
"""Packages with public names of their own, each loaded when it is asked for."""


def folder(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def rooms(path: Path) -> list[str]:
    return sorted(room.stem for room in path.glob("*.py") if not room.stem.startswith("_"))


def test_no_package_does_anything_when_it_is_imported() -> None:
    for path in SOURCE.rglob("__init__.py"):
        body = ast.parse(path.read_text()).body
        assert path in LAZY or all(isinstance(node, ast.Expr) for node in body), relative(path)


@pytest.mark.parametrize("path", FOLDERS, ids=folder)
def test_a_folder_says_what_it_is_and_lists_its_rooms(path: Path) -> None:
    text = ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or ""
    head, _, listed = text.partition("\n\n")
    assert head.endswith(".")
    assert re.findall(r"^(\w+)  ", listed, re.MULTILINE) == rooms(path)


def test_the_architecture_lists_the_folders_that_there_are() -> None:
    block = re.search(
        r"^src/flaremq/\n(.*?)^```", (ROOT / "ARCHITECTURE.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert block, "ARCHITECTURE.md draws no tree"
    assert re.findall(r"^([\w/]+)/ ", block[1], re.MULTILINE) == [folder(path) for path in FOLDERS]


FORBIDDEN_WORDS = re.compile(r"\b(TODO|FIXME|XXX)\b")


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nothing_is_left_for_later(path: Path) -> None:
    text = path.read_text().replace("SCHEDULE_TOPIC_XXXX", "").replace("XXXXXXXX", "")
    assert not FORBIDDEN_WORDS.search(text)
