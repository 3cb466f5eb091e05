"""The simulator finds planted bugs."""

from __future__ import annotations

import pytest
from tests.testing.sim.bugs import PLANTED, PlantedBug

from flaremq.testing.sim.runner import run_seed

SEARCHED = 300


QUICK = {
    *("byte_changed_on_the_way", "answer_without_a_slave", "retry_forgotten"),
    *("offset_before_its_message", "rollback_commits", "delivered_early"),
    *("slave_reports_what_is_not_synced", "windows_of_producers_not_read_again", "first_send_forgotten"),
}
BY_SEED = [
    pytest.param(bug, id=bug.name, marks=[] if bug.name in QUICK else pytest.mark.slow) for bug in PLANTED
]


@pytest.mark.parametrize("bug", BY_SEED)
@pytest.mark.timeout(300)
def test_a_planted_bug_is_found(bug: PlantedBug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    assert run_seed(bug.seed).check in bug.checks


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_a_search(bug: PlantedBug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    assert any(run_seed(seed).check in bug.checks for seed in range(SEARCHED))
