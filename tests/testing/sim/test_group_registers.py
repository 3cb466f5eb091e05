"""Answers of leaders are told against each other as reads and writes of registers."""

from __future__ import annotations

import pytest
from tests.testing.sim.group_bugs import lease_off_and_only_clients_watch

from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.groupregisters import GroupAnswers, check_answers
from flaremq.testing.sim.plan import LEADER, Fault, Plan
from flaremq.testing.sim.registers import NEVER, RegisterOp
from flaremq.testing.sim.runner import run_plan

BEGUN_S = {1: 0.5, 2: 2.5, 3: 4.5}
"""When the sends began by which the queue came to have these ends."""


def committed(term: int | None, offset: int, begun_s: float) -> tuple[int | None, RegisterOp]:
    """Within a second, or never as far as anybody knows."""
    return term, RegisterOp(offset, begun_s, NEVER if term is None else begun_s + 1)


def answered(term: int, value: int | None, begun_s: float) -> tuple[int, RegisterOp]:
    return term, RegisterOp(value, begun_s, begun_s + 1, is_read=True)


EXPLAINED = {
    "nothing": GroupAnswers(),
    "an offset as it was committed": GroupAnswers(
        [committed(1, 5, 0)], [answered(1, 5, 2), answered(1, 5, 4)]
    ),
    "the offset of before while the next one is committed": GroupAnswers(
        [committed(1, 5, 0), committed(1, 6, 2)], [answered(1, 5, 2.5), answered(1, 6, 4)]
    ),
    "a commit without an answer that is seen later": GroupAnswers(
        [committed(1, 5, 0), committed(None, 6, 2)], [answered(1, 5, 3), answered(1, 6, 5)]
    ),
    "a new leader that has lost the last commit": GroupAnswers(
        [committed(1, 5, 0), committed(1, 6, 2)], [answered(1, 6, 4), answered(2, 5, 6), answered(2, 5, 8)]
    ),
    "two leaders of whom one answers while the other one comes": GroupAnswers(
        queries=[answered(1, None, 2), answered(2, None, 2.5), answered(2, None, 4)]
    ),
    "an end that grows": GroupAnswers(ends=[answered(1, 0, 0), answered(1, 1, 2), answered(2, 3, 5)]),
}

UNEXPLAINED = {
    "a deposed leader that answers": (
        "who leads",
        GroupAnswers(queries=[answered(1, 5, 0), answered(2, 5, 2), answered(1, 5, 4)]),
    ),
    "an offset of before": (
        "offset in term 1",
        GroupAnswers([committed(1, 5, 0), committed(1, 6, 2)], [answered(1, 5, 4)]),
    ),
    "an offset that nobody has committed": (
        "offset in term 1",
        GroupAnswers([committed(1, 5, 0)], [answered(1, 5, 2), answered(1, 7, 4), answered(1, 8, 6)]),
    ),
    "an offset that a new leader forgets once more": (
        "offset in term 2",
        GroupAnswers([committed(1, 5, 0)], [answered(2, 5, 2), answered(2, 4, 4)]),
    ),
    "an end that goes back": (
        "max offset",
        GroupAnswers(ends=[answered(1, 1, 1), answered(1, 2, 3), answered(1, 1, 6)]),
    ),
    "an end before anything was sent": ("max offset", GroupAnswers(ends=[answered(1, 3, 1)])),
}


@pytest.mark.parametrize("answers", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_answers_that_one_order_explains_are_accepted(answers: GroupAnswers) -> None:
    check_answers(answers, BEGUN_S)


@pytest.mark.parametrize(("what", "answers"), UNEXPLAINED.values(), ids=UNEXPLAINED.keys())
def test_answers_that_no_order_explains_are_told(what: str, answers: GroupAnswers) -> None:
    with pytest.raises(Violated, match=what) as failed:
        check_answers(answers, BEGUN_S)
    assert failed.value.check == "stale answer"


CUTS = tuple(Fault(4.0 + 6 * number, "members cut", LEADER, 4.0) for number in range(3))
ASKED = Plan(seed=7, replicas=3, clients=1, sends=10, length_s=24.0, asks=True, faults=CUTS)


def test_leaders_are_asked_while_they_change() -> None:
    result = run_plan(ASKED)
    assert not result.check, result.line()
    assert result.met["answers of leaders"] > 50


def test_a_deposed_leader_that_answers_is_found_by_its_answers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost by that, and no log is wrong: only who asks can tell."""
    lease_off_and_only_clients_watch(monkeypatch)
    assert run_plan(ASKED).check == "stale answer"
