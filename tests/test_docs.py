"""The guides: their code compiles, imports what there is, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / folder / "README.md" for folder in ("examples", "deploy")),
]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_on_a_page_imports_what_there_is(page: Path) -> None:
    for block in blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                assert node.module
                module = import_module(node.module)
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not missing, f"{page.name}: {node.module} has no {missing}"


def anchors(page: Path) -> set[str]:
    """The names by which headings of a page are linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(page.parent / target if target else page), anchor


PROSE = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(ROOT / folder / "README.md" for folder in ("deploy", "examples")),
    ROOT / "docs" / "differences.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]
TRANSLATED = re.compile(
    r"wanted (?:is|are)|expected (?:is|are) |the begin\b|(?:for|of) who\b|whoever|nobody|somebody|everybody"
    r"|in earnest|\bdear(?:er|est)?\b|in vain",
    re.IGNORECASE,
)
"""Phrases that no native speaker writes in a manual, or that leave the reader out: a page speaks to you."""


@pytest.mark.parametrize("page", PROSE, ids=lambda page: f"{page.parent.name}-{page.name}")
def test_a_page_reads_like_english(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert TRANSLATED.findall(prose) == []
