"""Choosing queues: in turn, by key, and away from brokers in trouble."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from flaremq.client.producer.balance import Balance, Health, by_hash
from flaremq.model.message import Message, MessageQueue
from flaremq.testing.clock import ManualClock

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in range(2)]
MESSAGE = Message("T", b"x")


def test_queues_take_turns() -> None:
    balance = Balance(None, Random(1))
    assert Counter(balance.choose(QUEUES) for _ in range(60)) == dict.fromkeys(QUEUES, 10)


def test_topics_take_turns_of_their_own() -> None:
    balance = Balance(None, Random(1))
    others = [MessageQueue("U", "a", number) for number in range(2)]
    chosen = [(balance.choose(QUEUES), balance.choose(others)) for _ in range(6)]
    assert {queue for queue, _ in chosen} == set(QUEUES)
    assert Counter(queue for _, queue in chosen) == dict.fromkeys(others, 3)


def test_after_a_failure_another_broker_is_tried() -> None:
    balance = Balance(None, Random(1))
    assert {balance.choose(QUEUES, "a").broker_name for _ in range(20)} == {"b", "c"}
    assert balance.choose(QUEUES[:2], "a").broker_name == "a"  # There is no other.


def test_a_broker_that_failed_is_left_alone_for_ten_seconds() -> None:
    clock = ManualClock()
    health = Health(clock)
    balance = Balance(health, Random(1))
    health.failed("b")
    assert {balance.choose(QUEUES).broker_name for _ in range(20)} == {"a", "c"}
    clock.advance_ms(9_900)
    assert not health.is_good("b")
    clock.advance_ms(200)
    assert {balance.choose(QUEUES).broker_name for _ in range(20)} == {"a", "b", "c"}


def test_a_slow_broker_is_left_alone_the_longer_the_slower_it_was() -> None:
    clock = ManualClock()
    for elapsed_s, away_s in ((0.5, 0), (0.6, 2), (2, 5), (3, 6), (6, 10), (20, 30)):
        health = Health(clock)
        health.took("a", elapsed_s)
        assert health.is_good("a") == (away_s == 0)
        clock.advance_ms(away_s * 1000)
        assert health.is_good("a")


def test_a_broker_that_is_quick_again_is_good_again() -> None:
    health = Health(ManualClock())
    health.failed("a")
    health.took("a", 0.01)
    assert health.is_good("a") and health.all_good


def test_where_no_broker_is_good_any_will_do() -> None:
    health = Health(ManualClock())
    for broker in ("a", "b", "c"):
        health.failed(broker)
    assert {Balance(health, Random(1)).choose(QUEUES, "a").broker_name for _ in range(20)} <= {"b", "c"}


def test_a_key_chooses_as_java_does() -> None:
    # "polygenelubricants" hashes to the least int: Java's remainder is -2, whose absolute value is 2.
    assert by_hash("polygenelubricants")(QUEUES, MESSAGE) == QUEUES[2]
    assert by_hash("TagA")(QUEUES, MESSAGE) == QUEUES[2598919 % 6]


@given(st.text(), st.integers(1, 6))
def test_a_key_always_chooses_the_same_queue(key: str, count: int) -> None:
    queues = QUEUES[:count]
    assert by_hash(key)(queues, MESSAGE) is by_hash(key)(queues, MESSAGE) in queues
