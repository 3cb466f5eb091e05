"""Which transactions are open, and from where both queues are read after a restart."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.units import KiB
from flaremq.broker.transactions.ledger import Half, HalfLedger

ENDED = 100_000


def a_half(queue_offset: int, key: str | None = None) -> Half:
    at = queue_offset * 200
    return Half(
        queue_offset, at, 200, key or f"U{queue_offset}", "buyers", stored_ms=1, since_ms=1, immunity_ms=6000
    )


def noticed(count: int) -> HalfLedger:
    ledger = HalfLedger()
    for queue_offset in range(count):
        ledger.notice(queue_offset, a_half(queue_offset))
    return ledger


def traced(work: Callable[[], None]) -> int:
    """How many bytes more are in use after some work."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    work()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before


def test_what_is_noticed_is_open_until_it_ends() -> None:
    ledger = noticed(3)
    ledger.end([1], "U1", committed=True)
    assert [half.queue_offset for half in ledger] == [0, 2]
    assert [ledger.is_open(each, f"U{each}") for each in range(3)] == [True, False, True]
    assert (ledger.outcome("U1"), ledger.outcome("U0")) == (True, None)


def test_what_ends_before_it_is_noticed_is_never_open() -> None:
    ledger = HalfLedger()
    ledger.end_many([1, 2], {"U1": True, "U2": False})
    assert (ledger.ahead, ledger.is_known_ended(1), ledger.is_open(1, "U1")) == (2, True, False)
    ledger.notice(0, a_half(0))
    for queue_offset in (1, 2):
        ledger.notice(queue_offset, None)
    assert ([half.queue_offset for half in ledger], ledger.ahead) == ([0], 0)


def test_the_next_to_be_noticed_may_end_and_so_may_those_behind_it() -> None:
    ledger = HalfLedger()
    ledger.end_many([1, 2], {})
    ledger.end_many([0], {})
    assert (ledger.noticed, ledger.half_offset, ledger.ahead) == (3, 3, 0)


def test_a_copy_stands_for_its_message_until_both_have_ended() -> None:
    ledger = noticed(1)
    ledger.notice(1, a_half(1, "U0"))
    assert ledger.all_of(0, "U0") == [0, 1]
    assert not ledger.is_alone(0, "U0")
    ledger.end([0])
    assert ledger.is_open(0, "U0"), "its copy is"
    assert ledger.is_alone(1, "U0")
    ledger.end([1], "U0", committed=False)
    assert not ledger.is_open(0, "U0")


def test_a_copy_takes_the_place_of_its_message_before_it_is_noticed() -> None:
    ledger = noticed(1)
    ledger.renew([0], a_half(2, "U0"))
    assert [half.queue_offset for half in ledger] == [2]
    assert (ledger.is_open(0, "U0"), ledger.is_alone(2, "U0"), ledger.all_of(0, "U0")) == (True, True, [2, 0])
    ledger.notice(1, a_half(1))
    ledger.notice(2, None)
    assert ([half.queue_offset for half in ledger], ledger.half_offset) == ([1, 2], 1)
    newest = ledger.newest("U0")
    assert newest is not None
    assert newest.queue_offset == 2
    ledger.end([2], "U0", committed=True)
    assert not ledger.is_open(0, "U0")


@pytest.mark.parametrize("many", [False, True])
def test_a_copy_may_end_before_it_is_noticed(many: bool) -> None:
    ledger = noticed(1)
    ledger.renew([0], a_half(2, "U0"))
    if many:
        ledger.end_many([2], {"U0": True})
    else:
        ledger.end(ledger.all_of(0, "U0"), "U0", committed=True)
    assert not ledger.is_open(0, "U0")
    assert ledger.newest("U0") is None
    for queue_offset in (1, 2):
        ledger.notice(queue_offset, a_half(queue_offset))
    assert [half.queue_offset for half in ledger] == [1]


def test_a_parked_transaction_that_is_brought_back_has_no_outcome() -> None:
    ledger = noticed(1)
    ledger.end([0], "U0", committed=False)
    assert ledger.outcome("U0") is False
    ledger.reopened("U0")
    assert ledger.outcome("U0") is None


def test_the_first_op_that_is_needed_names_a_message_from_the_first_open_one_on() -> None:
    ledger = noticed(6)
    for op_offset, ended in enumerate((0, 1, 3)):
        ledger.end([ended])
        ledger.op(op_offset, ended)
    assert (ledger.half_offset, ledger.op_offset) == (2, 2)
    ledger.end([2])
    ledger.ops([3], [2])
    assert (ledger.half_offset, ledger.op_offset) == (4, 4)


@pytest.mark.parametrize("by_turn", [1, 500])
def test_what_has_ended_behind_one_open_message_costs_no_memory(by_turn: int) -> None:
    """At 20,000 transactions a second, one that nobody decides would cost a gigabyte in ten minutes."""
    ledger = noticed(1)

    def work() -> None:
        for begin in range(1, 1 + ENDED, by_turn):
            some = range(begin, begin + by_turn)
            ledger.end_many(some, {})
            for queue_offset in some:
                ledger.notice(queue_offset, None)
            ledger.ops([each - 1 for each in some], some)

    assert traced(work) < 512 * KiB
    assert (ledger.half_offset, ledger.op_offset) == (0, 0)
    assert not any(ledger.is_open(each, f"U{each}") for each in (1, 777, ENDED))
    ledger.end([0])
    ledger.op(ENDED, 0)
    assert ledger.half_offset == ENDED + 1
    assert ledger.op_offset == ENDED + 1, "nothing of them is read again"


def test_what_had_ended_before_a_start_costs_a_byte_until_it_is_noticed() -> None:
    ledger = HalfLedger(0, 0, ENDED + 1)

    def work() -> None:
        for op_offset in range(ENDED):
            ledger.end([op_offset + 1])
            ledger.op(op_offset, op_offset + 1)

    assert traced(work) < 512 * KiB
    assert not ledger.is_open(777, "U777")
    assert ledger.is_known_ended(ENDED)
    for queue_offset in range(ENDED + 1):
        ledger.notice(queue_offset, a_half(queue_offset) if queue_offset == 0 else None)
    ledger.started()
    assert [half.queue_offset for half in ledger] == [0]
    assert (ledger.half_offset, ledger.op_offset, ledger.ahead) == (0, 0, 0)


def test_what_had_ended_before_a_start_and_is_noticed_later_is_remembered() -> None:
    ledger = HalfLedger(5, 5, 10)
    ledger.end([3, 7, 8, 12])
    ledger.started()
    assert (ledger.ahead, ledger.is_open(7, "U7"), ledger.is_open(9, "U9")) == (3, False, True)
    for queue_offset in range(5, 13):
        half = None if ledger.is_known_ended(queue_offset) else a_half(queue_offset)
        ledger.notice(queue_offset, half)
    assert [half.queue_offset for half in ledger] == [5, 6, 9, 10, 11]


@given(st.permutations(range(64)))
def test_no_op_that_a_restart_needs_is_passed_over(ends: list[int]) -> None:
    """Whatever the order of the ends, and however much of them is noted as one."""
    ledger = noticed(64)
    ledger.ops_max = 4
    for op_offset, queue_offset in enumerate(ends):
        ledger.end([queue_offset])
        ledger.op(op_offset, queue_offset)
        begin = ledger.op_offset
        assert 0 <= begin <= op_offset + 1
        assert all(each < ledger.half_offset for each in ends[:begin])
