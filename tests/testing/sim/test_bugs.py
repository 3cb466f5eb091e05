"""The simulator finds planted bugs."""

from __future__ import annotations

from functools import cache

import pytest
from tests.testing.sim.bugs import PLANTED, PlantedBug

from flaremq.testing.sim.runner import run_seed

SEARCHED = 300  # About what seven minutes of `make sim` come to.


QUICK = {
    *("byte_changed_on_the_way", "answer_without_a_slave", "offset_before_its_message", "delivered_early"),
    *("slave_reports_what_is_not_synced", "windows_of_producers_not_read_again", "wheel_not_made_again"),
    *("cancel_ignored", "older_table_loaded"),
}
BY_SEED = [
    pytest.param(bug, id=bug.name, marks=[] if bug.name in QUICK else pytest.mark.slow) for bug in PLANTED
]


@cache
def check_without_bug(seed: int) -> str:
    """Several bugs are found by the same seed."""
    return run_seed(seed).check


@pytest.mark.parametrize("bug", BY_SEED)
@pytest.mark.timeout(300)
def test_a_planted_bug_is_found(bug: PlantedBug, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not check_without_bug(bug.seed), "this seed fails without the bug too: nothing was found"
    bug.plant(monkeypatch)
    assert run_seed(bug.seed).check in bug.checks


def test_whoever_runs_the_usual_seeds_comes_to_each_planted_bug() -> None:
    """A seed repeats exactly, so those before it need not be run here."""
    assert all(bug.seed < SEARCHED for bug in PLANTED)
