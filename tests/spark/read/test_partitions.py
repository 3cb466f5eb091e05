"""Tasks: together they are exactly the ranges, none is much larger than another, and none is for nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flaremq.spark.read.options import Partitioning
from flaremq.spark.read.partitions import TASK_ROWS, QueueRange, pack, ranges

QUEUES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), unique=True, max_size=20).flatmap(
    lambda keys: st.tuples(
        *(
            st.builds(
                lambda begin, rows, key=key: QueueRange("T", f"broker-{key[0]}", key[1], begin, begin + rows),
                st.integers(0, 1 << 40),
                st.integers(0, 200_000),
            )
            for key in keys
        )
    )
)
SHAPES = st.builds(
    Partitioning, st.integers(1, 16), st.integers(1, 40), st.none() | st.integers(1000, 100_000)
)


@given(QUEUES, SHAPES)
def test_tasks_cover_the_ranges_exactly_and_in_order(
    whole: tuple[QueueRange, ...], shape: Partitioning
) -> None:
    parts = [part for task in pack(whole, shape) for part in task]
    for each in whole:
        mine = [part for part in parts if part.key == each.key]
        at = each.begin
        for part in mine:
            assert part.begin == at < part.end
            at = part.end
        assert at == each.end
    assert sum(part.rows for part in parts) == sum(each.rows for each in whole)


@given(QUEUES, SHAPES)
def test_tasks_are_of_equal_size_and_not_more_than_wanted(
    whole: tuple[QueueRange, ...], shape: Partitioning
) -> None:
    tasks = pack(whole, shape)
    sizes = [sum(part.rows for part in task) for task in tasks]
    total = sum(sizes)
    assert all(sizes)
    if not total:
        assert tasks == []
        return
    assert max(sizes) - min(sizes) <= 1
    assert len(tasks) >= min(total, shape.partitions_min)
    if shape.rows_max is not None:
        assert max(sizes) <= shape.rows_max
    else:
        assert len(tasks) <= max(shape.tasks, shape.partitions_min)


def test_many_small_queues_share_one_task() -> None:
    whole = [QueueRange("T", "b", number, 0, 10) for number in range(100)]
    (task,) = pack(whole, Partitioning(8))
    assert len(task) == 100


def test_a_large_queue_is_split() -> None:
    tasks = pack([QueueRange("T", "b", 0, 5, 5 + 100 * TASK_ROWS)], Partitioning(4))
    assert len(tasks) == 4
    assert [task[0].begin for task in tasks] == [5 + number * 25 * TASK_ROWS for number in range(4)]


def test_queues_of_one_broker_lie_together() -> None:
    whole = [QueueRange("T", broker, number, 0, 5) for number in range(3) for broker in ("b", "a")]
    (task,) = pack(whole, Partitioning(4))
    assert [part.broker for part in task] == ["a", "a", "a", "b", "b", "b"]


def test_ranges_leave_out_what_is_new_and_what_has_not_moved() -> None:
    begin = {"T@b:0": 5, "T@b:1": 7, "Gone@b:0": 3}
    end = {"T@b:0": 9, "T@b:1": 7, "New@b:0": 100, "Gone@b:0": 3}
    assert ranges(begin, end) == [QueueRange("T", "b", 0, 5, 9)]
