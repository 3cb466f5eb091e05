"""The simulator finds bugs that are planted in groups of real brokers."""

from __future__ import annotations

import pytest
from tests.testing.sim.bugs import PlantedBug
from tests.testing.sim.group_bugs import PLANTED

from flaremq.testing.sim.plan import draw_group
from flaremq.testing.sim.runner import run_plan

SEARCHED = 300
QUICK = {"lease_off", "truncated_without_the_queues"}
BY_SEED = [
    pytest.param(bug, id=bug.name, marks=[] if bug.name in QUICK else pytest.mark.slow) for bug in PLANTED
]


@pytest.mark.parametrize("bug", BY_SEED)
@pytest.mark.timeout(300)
def test_a_bug_that_is_planted_in_a_group_is_found(bug: PlantedBug, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same plan finds nothing when it is not there."""
    plan = draw_group(bug.seed, is_mixed=False)
    with monkeypatch.context() as patch:
        bug.plant(patch)
        assert run_plan(plan).check in bug.checks
    result = run_plan(plan)
    assert not result.check, result.line()


def test_the_first_seeds_come_to_each_bug_that_is_planted_in_a_group() -> None:
    """A seed repeats exactly, so those before it need not be run here."""
    assert all(bug.seed < SEARCHED for bug in PLANTED)
