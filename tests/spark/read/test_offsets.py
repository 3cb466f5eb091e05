"""Offsets: one text for the same offsets, shares that are fair, and nothing lost between two batches."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import UsageError
from flaremq.spark.read import offsets
from flaremq.spark.read.bounds import Bound, BoundKind
from flaremq.spark.read.offsets import Gap, OffsetSpan

KEYS = st.builds(
    lambda topic, broker, queue: f"{topic}@{broker}:{queue}",
    st.text("abcXYZ%_-", min_size=1, max_size=6),
    st.text("abc:@-", min_size=1, max_size=5),
    st.integers(0, 20),
)
BACKLOGS = st.dictionaries(KEYS, st.integers(0, 100_000), max_size=30)


@given(st.dictionaries(KEYS, st.integers(0, 1 << 62), max_size=20), st.randoms())
def test_the_same_offsets_have_the_same_text_in_whichever_order_they_come(found: dict[str, int], r) -> None:  # type: ignore[no-untyped-def]
    pairs = list(found.items())
    r.shuffle(pairs)
    text = json.dumps(offsets.dump(found))
    assert json.dumps(offsets.dump(dict(pairs))) == text
    assert json.dumps(offsets.dump(offsets.load(json.loads(text)))) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "place",
    [
        Bound(BoundKind.LATEST),
        Bound(BoundKind.TIME, 5),
        Bound(BoundKind.GROUP),
        Bound(BoundKind.OFFSETS, offsets={"B@b:1": -1, "A@a:0": 7}),
    ],
    ids=lambda place: place.kind.value,
)
def test_a_start_is_read_back_as_it_was_written(place: Bound) -> None:
    text = json.dumps(offsets.dump_start(place))
    assert offsets.load(json.loads(text)) == place
    assert json.dumps(offsets.dump_start(place)) == text


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        ({"v": 2, "q": {}}, "version 2"),
        ({"queues": {}}, "not an offset of this source"),
        ([1], "not an offset of this source"),
        ({"v": 1, "q": {"A@b:0": "7"}}, "expected queues"),
        ({"v": 1}, "expected queues"),
        ({"v": 1, "q": {"A": 7}}, "is not a queue"),
        ({"v": 1, "start": {"at": "somewhere"}}, "is not a starting position"),
        ({"v": 1, "start": "latest"}, "is not a starting position"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(offset: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        offsets.load(offset)


def test_a_checkpoint_of_other_topics_is_refused_and_one_that_shares_some_is_not() -> None:
    with pytest.raises(UsageError, match="belongs to another query"):
        offsets.check_same_query(["A@b:0", "A@b:1"], [False, False], "topics B")
    offsets.check_same_query(["A@b:0", "B@b:1"], [False, True], "topics B")
    offsets.check_same_query([], [], "topics B")


@given(BACKLOGS, st.integers(1, 200_000))
def test_shares_sum_to_the_limit_and_leave_no_queue_behind(backlog: dict[str, int], limit: int) -> None:
    shares = offsets.fair_share(backlog, limit)
    waiting = {key for key, count in backlog.items() if count}
    assert shares.keys() == waiting
    assert all(1 <= shares[key] <= backlog[key] for key in waiting)
    assert sum(shares.values()) == min(sum(backlog.values()), max(limit, len(waiting)))


@given(BACKLOGS, st.integers(1, 200_000))
def test_shares_are_in_proportion(backlog: dict[str, int], limit: int) -> None:
    shares = offsets.fair_share(backlog, limit)
    total = sum(backlog.values())
    if limit < total:
        for key, share in shares.items():
            exact = backlog[key] * limit / total
            assert share <= exact + 2 or share == 1
    for one in shares:
        for other in shares:
            if backlog[one] > backlog[other]:
                assert shares[one] >= shares[other] - 1


@given(BACKLOGS, st.integers(1, 1 << 40), st.floats(1, 5000))
def test_shares_of_bytes_stay_within_backlog_and_limit(
    backlog: dict[str, int], limit: int, size: float
) -> None:
    waiting = {key: count for key, count in backlog.items() if count}
    shares = offsets.fair_bytes(backlog, dict.fromkeys(backlog, size), limit)
    assert shares.keys() == waiting.keys()
    assert all(1 <= shares[key] <= waiting[key] for key in waiting)
    assert sum(shares.values()) * size <= limit + (size + 1) * len(waiting)


def test_large_messages_take_a_smaller_share_of_bytes() -> None:
    shares = offsets.fair_bytes({"A@b:0": 1000, "B@b:0": 1000}, {"A@b:0": 100, "B@b:0": 10_000}, 1_010_000)
    assert shares["A@b:0"] == pytest.approx(100, abs=1)
    assert shares["B@b:0"] == pytest.approx(100, abs=1)


def test_what_was_deleted_unread_is_a_gap() -> None:
    spans = {"A@b:0": OffsetSpan(50, 100), "A@b:1": OffsetSpan(0, 10)}
    assert offsets.gaps({"A@b:0": 20, "A@b:1": 5, "A@b:2": 1}, spans) == [Gap("A@b:0", 20, 50)]
    assert str(Gap("A@b:0", 20, 50)) == "A@b:0 [20, 50)"
    assert offsets.backlog({"A@b:0": 20, "A@b:1": 5}, spans) == {"A@b:0": 50, "A@b:1": 5}


def test_a_head_that_has_moved_back_is_nothing_new_and_nothing_lost() -> None:
    spans = {"A@b:0": OffsetSpan(0, 80)}
    assert offsets.gaps({"A@b:0": 100}, spans) == []
    assert offsets.backlog({"A@b:0": 100}, spans) == {"A@b:0": 0}
    assert offsets.advanced({"A@b:0": 100}, spans, {}) == {"A@b:0": 100}


def test_a_new_queue_is_put_where_it_begins_and_a_vanished_one_stays() -> None:
    known = {"A@b:0": 100, "Gone@b:0": 7}
    spans = {"A@b:0": OffsetSpan(0, 150), "New@b:0": OffsetSpan(30, 90)}
    assert offsets.advanced(known, spans, {"A@b:0": 25}) == {"A@b:0": 125, "Gone@b:0": 7, "New@b:0": 30}


def test_going_on_behind_a_gap_counts_from_its_end() -> None:
    assert offsets.advanced({"A@b:0": 20}, {"A@b:0": OffsetSpan(50, 100)}, {"A@b:0": 10}) == {"A@b:0": 60}


@given(BACKLOGS, st.integers(1, 5000))
def test_batch_after_batch_takes_all_there_is_and_ends(backlog: dict[str, int], limit: int) -> None:
    spans = {key: OffsetSpan(0, count % 5000) for key, count in backlog.items()}
    known = dict.fromkeys(spans, 0)
    rounds = 0
    while any(offsets.backlog(known, spans).values()):
        known = offsets.advanced(known, spans, offsets.fair_share(offsets.backlog(known, spans), limit * 50))
        rounds += 1
        assert rounds <= 5000
    assert known == {key: span.end for key, span in spans.items()}
