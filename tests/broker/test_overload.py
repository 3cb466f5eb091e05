"""Refusals before work is done: none while there is room, and the greedy first when there is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flaremq.broker.overload import Overload

FLOOD, QUIET = b"Flood", b"Quiet"


def test_while_there_is_plenty_of_room_nobody_is_refused() -> None:
    overload = Overload(100)
    overload.hold(FLOOD, 49)
    assert overload.admits(FLOOD, 1)


def test_a_flood_does_not_shut_others_out() -> None:
    overload = Overload(100)
    overload.hold(QUIET, 1)
    overload.hold(FLOOD, 50)
    assert not overload.admits(FLOOD, 1)
    assert overload.admits(QUIET, 40)


def test_the_limit_holds_for_all_together() -> None:
    overload = Overload(100)
    overload.hold(FLOOD, 95)
    assert not overload.admits(QUIET, 6)
    assert overload.admits(QUIET, 5)


def test_a_topic_alone_may_have_it_all() -> None:
    overload = Overload(100)
    overload.hold(FLOOD, 90)
    assert overload.admits(FLOOD, 10)


def test_the_refusal_says_what_is_short_and_for_whom() -> None:
    overload = Overload(100)
    overload.hold(FLOOD, 60)
    overload.hold(QUIET, 40)
    remark = overload.remark(FLOOD)
    assert remark.startswith("[OVERLOAD]system busy")
    for part in (
        "100 sends",
        "60 of them to Flood",
        "limit is 100",
        "sendThreadPoolQueueCapacity",
        "2 topics",
    ):
        assert part in remark


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(1, 30)), max_size=60))
def test_what_is_held_never_passes_the_limit_and_all_of_it_is_given_back(
    asked: list[tuple[bytes, int]],
) -> None:
    overload, held = Overload(100), list[tuple[bytes, int]]()
    for topic, count in asked:
        if overload.admits(topic, count):
            overload.hold(topic, count)
            held.append((topic, count))
        assert overload.held == sum(count for _, count in held) <= 100
    for topic, count in held:
        overload.release(topic, count)
    assert overload.held == 0
    assert overload.admits(b"a", 50)
