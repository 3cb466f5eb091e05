"""The checker of registers accepts what one order explains, and nothing else."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.testing.sim.registers import NEVER, RegisterOp, unexplained


def wrote(value: int, begun_s: float, ended_s: float = NEVER) -> RegisterOp:
    return RegisterOp(value, begun_s, ended_s)


def read(value: int | None, begun_s: float, ended_s: float) -> RegisterOp:
    return RegisterOp(value, begun_s, ended_s, is_read=True)


EXPLAINED = {
    "nothing": [],
    "a read of what is there at first": [read(None, 0, 1)],
    "a read of what was written": [wrote(1, 0, 1), read(1, 2, 3)],
    "an old value during a write": [wrote(1, 0, 1), wrote(2, 2, 5), read(1, 3, 4)],
    "a new value during a write": [wrote(1, 0, 1), wrote(2, 2, 5), read(2, 3, 4)],
    "a write that nobody saw end, and that was": [wrote(1, 0), read(1, 5, 6)],
    "a write that nobody saw end, and that was not": [wrote(1, 0), read(None, 5, 6)],
    "a write that took effect after a read": [wrote(1, 0), read(None, 5, 6), read(1, 7, 8)],
    "two writes at once, seen in the order of their numbers": [
        wrote(2, 0, 9),
        wrote(1, 0, 9),
        read(1, 10, 11),
    ],
    "a read that nobody saw end": [wrote(1, 0, 1), read(7, 2, NEVER)],
}

UNEXPLAINED = {
    "a value that was never written": [read(3, 0, 1)],
    "an old value after a write": [wrote(1, 0, 1), wrote(2, 2, 3), read(1, 4, 5)],
    "what was lost": [wrote(1, 0, 1), read(None, 2, 3)],
    "a new value and then the old one": [wrote(1, 0, 1), wrote(2, 2, 9), read(2, 3, 4), read(1, 5, 6)],
    "a value from the future": [read(1, 0, 1), wrote(1, 2, 3)],
    "two readers who disagree about an order": [
        *(wrote(1, 0, 1), wrote(2, 0, 1)),
        *(read(1, 2, 3), read(2, 4, 5)),
    ],
}


@pytest.mark.parametrize("ops", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_one_order_explains(ops: list[RegisterOp]) -> None:
    assert not unexplained(ops)


@pytest.mark.parametrize("ops", UNEXPLAINED.values(), ids=UNEXPLAINED.keys())
def test_no_order_explains(ops: list[RegisterOp]) -> None:
    assert unexplained(ops)


def holds_in_some_order(ops: list[RegisterOp]) -> bool:
    """By looking at all orders of all operations that may have happened."""
    unsure = [each for each in ops if each.ended_s == NEVER]
    sure = [each for each in ops if each.ended_s < NEVER]
    for number in range(1 << len(unsure)):
        happened = sure + [each for at, each in enumerate(unsure) if number >> at & 1]
        if any(is_explained_by(order) for order in permutations(happened)):
            return True
    return False


def is_explained_by(order: tuple[RegisterOp, ...]) -> bool:
    held: object = None
    latest_begin_s = 0.0
    for op in order:
        latest_begin_s = max(latest_begin_s, op.begun_s)
        if op.ended_s < latest_begin_s or (op.is_read and op.value != held):
            return False
        held = held if op.is_read else op.value
    return True


@st.composite
def some_ops(draw: st.DrawFn) -> list[RegisterOp]:
    """Values are written once at most."""
    ops = []
    for value in range(draw(st.integers(0, 3))):
        begun_s = draw(st.integers(0, 12))
        ops.append(wrote(value, begun_s, draw(st.one_of(st.just(NEVER), st.integers(begun_s, begun_s + 6)))))
    for _ in range(draw(st.integers(0, 4))):
        begun_s = draw(st.integers(0, 12))
        seen = draw(st.sampled_from([None, 0, 1, 2]))
        ops.append(read(seen, begun_s, draw(st.integers(begun_s, begun_s + 6))))
    return draw(st.permutations(ops))


@given(some_ops())
def test_it_says_what_all_orders_say(ops: list[RegisterOp]) -> None:
    assert (not unexplained(ops)) == holds_in_some_order(ops)


def test_the_operations_that_no_order_explains_are_told() -> None:
    wrong = [wrote(2, 2, 3), read(2, 4, 5), read(1, 6, 7)]
    found = unexplained([wrote(1, 0, 1), *wrong, wrote(3, 8, 9)])
    assert [str(each) for each in found] == [
        "wrote 1 at 0.000 to 1.000",
        "read 1 at 6.000 to 7.000",
        "wrote 2 at 2.000 to 3.000",
        "read 2 at 4.000 to 5.000",
    ]


def test_a_value_that_is_written_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="7 is written twice"):
        unexplained([wrote(7, 0, 1), wrote(7, 2, 3)])
