"""The names that programs import from `flaremq.spark`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flaremq import spark

PUBLIC = list(vars(spark)["__all__"])
ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_is_there(name: str) -> None:
    found = getattr(spark, name)
    assert name.isupper() or found.__name__ == name


def test_the_package_lists_its_names() -> None:
    assert sorted(PUBLIC) == dir(spark)


def test_no_name_hides_a_room_of_the_package() -> None:
    folder = Path(spark.__file__ or "").parent
    rooms = {path.stem for path in folder.glob("*.py")} | {
        path.name for path in folder.iterdir() if path.is_dir()
    }
    assert not rooms.intersection(PUBLIC)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'flaremq\.spark' has no attribute 'read_arkive'"):
        getattr(spark, "read_arkive")  # noqa: B009 - So that no type checker sees it.


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = (
        "import sys, flaremq.spark\n"
        "print([name for name in sys.modules if name.startswith(('flaremq.spark.', 'pyspark', 'pyarrow'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_type_checkers_are_told_the_same_names() -> None:
    stub = Path(spark.__file__ or "").with_suffix(".pyi").read_text()
    told = set(re.findall(r"(\w+) as \1", stub))
    assert told == set(PUBLIC) == set(vars(spark)["_PLACES"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_import_public_names_only(page: Path) -> None:
    assert not re.findall(r"^(?:from|import) flaremq\.spark\.\S+", page.read_text(), re.MULTILINE)
