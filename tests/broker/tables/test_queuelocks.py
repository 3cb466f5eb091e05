"""Queues that one consumer of a group has for itself."""

from __future__ import annotations

import pytest

from flaremq.broker.tables.queuelocks import LIFE_S, QueueLocks
from flaremq.model.message import MessageQueue
from flaremq.testing.clock import ManualClock

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
LIFE_MS = int(LIFE_S * 1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(clock: ManualClock) -> QueueLocks:
    return QueueLocks(clock)


def test_first_to_come_has_the_queue(locks: QueueLocks) -> None:
    assert locks.lock("g", "c1", [A]) == {A}
    assert locks.lock("g", "c2", [A, B]) == {B}
    assert locks.lock("h", "c2", [A]) == {A}  # Another group.


def test_owner_renews_its_lock(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "c1", [A])
    clock.advance_ms(LIFE_MS - 1)
    assert locks.lock("g", "c1", [A]) == {A}
    clock.advance_ms(LIFE_MS - 1)
    assert locks.lock("g", "c2", [A]) == set()


def test_lock_that_is_not_renewed_may_be_taken(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "c1", [A])
    clock.advance_ms(LIFE_MS + 1)
    assert locks.lock("g", "c2", [A]) == {A}
    assert locks.lock("g", "c1", [A]) == set()


def test_only_the_owner_unlocks(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [A])
    locks.unlock("g", "c2", [A, B])
    locks.unlock("nobody", "c1", [A])
    assert locks.lock("g", "c2", [A]) == set()
    locks.unlock("g", "c1", [A])
    assert locks.lock("g", "c2", [A]) == {A}


def test_group_is_orderly_while_one_of_its_locks_lives(locks: QueueLocks, clock: ManualClock) -> None:
    assert not locks.is_any_alive("g")
    locks.lock("g", "c1", [])
    assert not locks.is_any_alive("g")
    locks.lock("g", "c1", [A])
    assert locks.is_any_alive("g")
    clock.advance_ms(LIFE_MS + 1)
    assert not locks.is_any_alive("g")


def test_clock_that_is_set_takes_no_lock_away(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "c1", [A])
    clock.step_wall_ms(10 * LIFE_MS)
    assert locks.lock("g", "c2", [A]) == set()


def test_locks_of_those_who_are_gone_are_forgotten(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "c1", [A])
    clock.advance_ms(LIFE_MS)
    locks.lock("g", "c1", [B])
    clock.advance_ms(1)
    locks.expire()
    assert locks.lock("g", "c2", [A, B]) == {A}
    clock.advance_ms(2 * LIFE_MS)
    locks.expire()
    assert not locks.is_any_alive("g")
