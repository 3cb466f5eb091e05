"""Nobody may say that a queue ends before what was acknowledged."""

from __future__ import annotations

import pytest

from flaremq.testing.sim.checks import Violated
from flaremq.testing.sim.history import History, SendOp
from flaremq.testing.sim.queueends import SeenEnd, check_end

QUEUE = ("Plain", "broker-a", 0)
VALUES = {0: "first", 1: "second", 2: "third"}
"""What the queue holds in the end."""


def a_history() -> History:
    """The second send had no answer."""
    sends = [
        SendOp("first", "plain", "c", 1.0, ended_s=2.0, queue=QUEUE, offset=0),
        SendOp("second", "plain", "c", 3.0),
        SendOp("third", "plain", "c", 5.0, ended_s=6.0, queue=QUEUE, offset=2),
    ]
    return History({op.value: op for op in sends})


def ends(*seen: tuple[float, int]) -> list[SeenEnd]:
    return [SeenEnd(at_s, end, "n1") for at_s, end in seen]


@pytest.mark.parametrize(
    "seen",
    [
        ends((0.5, 0), (1.5, 0), (1.6, 1), (2.5, 1), (7.0, 3)),
        ends((2.5, 1), (3.1, 2), (4.5, 2), (5.5, 3)),
        ends((2.5, 1), (4.5, 1), (5.5, 1), (6.0, 3)),
    ],
)
def test_an_end_may_be_seen_from_the_beginning_of_its_send_on(seen: list[SeenEnd]) -> None:
    check_end(a_history(), QUEUE, VALUES, seen)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param(ends((2.5, 0)), "ended at 0 for n1 at 2.500 s, and place 0 was", id="empty"),
        pytest.param(ends((6.5, 2)), "ended at 2 for n1 at 6.500 s, and place 2 was", id="old"),
        pytest.param(ends((4.0, 2), (4.5, 1)), "and n1 had said 2 at 4.000 s", id="shorter"),
        pytest.param(ends((2.5, 2)), "nothing was sent that could be there", id="before its send"),
        pytest.param(ends((7.0, 4)), "nothing was sent that could be there", id="more than in the end"),
    ],
)
def test_an_end_that_cannot_be_is_told(seen: list[SeenEnd], why: str) -> None:
    with pytest.raises(Violated, match=why) as failed:
        check_end(a_history(), QUEUE, VALUES, seen)
    assert failed.value.check == "stale end"
