"""The simulator of groups finds planted bugs."""

from __future__ import annotations

import pytest
from tests.dledger.group_bugs import PLANTED, PlantedRule

from flaremq.testing.sim.raft.runner import run_seed

SEARCHED = 300  # About a minute of seeds.


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: PlantedRule, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not run_seed(bug.seed).check, "the rules themselves fail here: no bug was found"
    bug.plant(monkeypatch)
    assert run_seed(bug.seed).check in bug.checks


def test_whoever_runs_the_first_seeds_comes_to_each_planted_bug() -> None:
    """A seed repeats exactly, so those before it need not be run here."""
    assert all(bug.seed < SEARCHED for bug in PLANTED)
