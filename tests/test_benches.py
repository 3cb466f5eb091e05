"""Benches are run once, with few messages and no look at the clock, so that they cannot rot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benches import measure

SMALL: list[tuple[str, dict[str, Any]]] = [
    ("append", {"messages": 256, "body_size": 128, "batch": 64}),
    ("append", {"messages": 64, "body_size": 1024, "batch": 1}),
    ("turn", {"messages": 256, "body_size": 128, "batch": 64}),
    ("compiled", {"messages": 1024, "body_size": 128}),
    ("dispatch", {"messages": 256, "body_size": 128}),
    ("recovery", {"messages": 256, "body_size": 128}),
    ("open_clean", {"messages": 256, "body_size": 128}),
    ("read", {"messages": 256, "body_size": 128, "order": "random"}),
    ("sync_flush", {"messages": 20, "writers": 4}),
    ("many_queues", {"queues": 30, "messages_each": 2}),
]


@pytest.mark.parametrize(("name", "given"), SMALL, ids=[name for name, _ in SMALL])
def test_a_bench_runs_and_counts_its_messages(
    name: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_FOLDER", str(tmp_path))
    answer = measure.BENCHES[name](**given)
    assert answer["messages"] == given.get("messages", given.get("queues"))
    assert answer["rate"] > 0
    assert list(tmp_path.iterdir()) == []


def test_every_bench_is_tried_here() -> None:
    assert {name for name, _ in SMALL} == set(measure.BENCHES)
