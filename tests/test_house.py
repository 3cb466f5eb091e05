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
    """Only an `until`, which looks again and again, may leave the processor to others between two looks."""
    text = path.read_text()
    if "sleep" not in text:
        return
    tree = ast.parse(text)
    looking = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "until"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep"):
            assert ast.unparse(node.args[0]) == "0" or node in looking, f"line {node.lineno}"


FOLDERS = sorted({path.parent for path in MODULES} - {SOURCE})
LAZY = {SOURCE / "__init__.py", SOURCE / "spark" / "__init__.py"}
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


# Names.

ROOMS_MAX = 20
SAME_NAME: dict[str, str] = {}
"""Class names that mean several things, each with the reason. Faces of one thing (sync) are not counted."""
FACES = re.compile(r"/(sync|blocking)\.py$")


@pytest.mark.parametrize("path", FOLDERS, ids=folder)
def test_a_folder_with_many_rooms_gets_wings(path: Path) -> None:
    assert len(rooms(path)) <= ROOMS_MAX


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, set[str]] = {}
    for path in MODULES:
        if FACES.search(path.as_posix()) or path in PYTHON_TWINS:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(folder(path))
    shared = {name: sorted(found) for name, found in homes.items() if len(found) > 1}
    assert shared.keys() == SAME_NAME.keys(), shared


LINES_MIN = 80
SMALL: dict[str, str] = {
    "broker.replicas.sheet": "names and help texts of figures",
    "store.wholerecords": "follows a log, and is followed by it",
    "broker.tables.deletedtopics": "a table and its file",
    "cli.admin.offsets": "how offsets are read and shown",
    "cli.servers.members": "processes, apart from what one process does",
    "cli.demo.plots": "needs matplotlib, which is optional",
    "client.consumer.concurrent": "one of two ways to deliver",
    "dledger.ledgerfiles": "one of two ways to write a log anew",
    "dledger.ledgerlog": "a kind of log",
    "dledger.scrub.place": "a note and its file",
    "filter.tags": "one of two kinds of filters",
    "spark.archive.plain": "one of three table formats",
    "spark.pipelines.recipe.sqlnames": "pure, and easily wrong",
    "store.space": "log lines, apart from the store that is short",
    "testing.patience": "tests import it too",
    "testing.sim.offsetfiles": "one check with its page",
    "testing.sim.raft.readings": "what clients see, apart from what they do",
}
"""Rooms with fewer lines and a single reader in their own folder, each with the reason for a door."""


def module(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def importers() -> dict[str, set[str]]:
    """module -> the modules that import it, without "flaremq.\""""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("flaremq."):
                home = node.module.removeprefix("flaremq.")
                for name in (home, *(f"{home}.{alias.name}" for alias in node.names)):
                    found.setdefault(name, set()).add(module(path))
    return found


def test_a_small_room_has_more_than_one_reader_or_a_reason() -> None:
    readers, lonely = importers(), set()
    for path in MODULES:
        name = module(path)
        if path.stem.startswith("_") or len(path.read_text().splitlines()) >= LINES_MIN:
            continue
        if path.with_name(f"_{path.stem}_py.py") in PYTHON_TWINS:
            continue
        by = readers.get(name, set()) - {name}
        if len(by) == 1 and next(iter(by)).rpartition(".")[0] == name.rpartition(".")[0]:
            lonely.add(name)
    assert lonely == SMALL.keys()


# Imports by a string are blind spots of type checkers and of import contracts.

BY_STRING = {
    *("__init__.py", "spark/__init__.py", "cli/commands.py", "cli/main.py"),
    *("spark/archive/reader.py", "testing/twins.py"),
}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_our_own_modules_are_imported_by_name(path: Path) -> None:
    text = path.read_text()
    if folder(path) in BY_STRING or "import_module" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            assert "flaremq" not in ast.unparse(node.args[0]), f"line {node.lineno}"


# Chance and time come in by constructors, so that a seeded simulator can own them.

BELOW = ("base", "model", "protocol", "filter", "remoting", "store", "namesrv", "client", "broker")
CLOCKS = {
    "base/clock.py": "is the clock",
    "store/offline/moment.py": "watches a file that another process writes",
}
CALLED = re.compile(
    r"^(random\.(?!Random$)\w+|time\.(time|monotonic|perf_counter)(_ns)?|perf_counter|monotonic|time)$"
)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if folder(path).split("/")[0] in BELOW], ids=relative
)
def test_chance_and_time_come_in_by_constructors(path: Path) -> None:
    if folder(path) in CLOCKS:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert not CALLED.match(ast.unparse(node.func)), f"line {node.lineno}: {ast.unparse(node)}"


# Language: words that a reader has to read twice.

READ_TWICE = re.compile(
    r"wanted (?:is|are)\b(?! None| not)|\bexpected are\b|\bthe begin\b|\bfor who\b|\bin vain\b"
    r"|[Aa]gain is harmless|\bnobody says\b"
)
TEXTS = [
    *SOURCES,
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*")),
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
]


@pytest.mark.parametrize(
    "path", [path for path in TEXTS if path.suffix in (".py", ".pyx", ".md", ".yaml")], ids=relative
)
def test_texts_avoid_words_that_are_read_twice(path: Path) -> None:
    found = [line.strip() for line in path.read_text().splitlines() if READ_TWICE.search(line)]
    assert not found


ONE_KIND = {
    "store/api.py",
    "store/commitlog.py",
    "store/filelog.py",
    *(f"store/files/{name}.py" for name in ("filequeue", "mappedfile", "preallocate")),
}
"""Rooms that know physical offsets only, as their docstrings say."""
BOTH_KINDS = [
    path
    for path in sorted((SOURCE / "store").rglob("*.py"))
    if path.relative_to(SOURCE).as_posix() not in ONE_KIND
]


@pytest.mark.parametrize("path", BOTH_KINDS, ids=relative)
def test_an_offset_says_whether_it_counts_bytes_or_messages(path: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    bare = [
        f"{function.name}, line {function.lineno}"
        for function in functions
        for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        if argument.arg == "offset"
    ]
    assert not bare, f"call it physical_offset or queue_offset: {bare}"
