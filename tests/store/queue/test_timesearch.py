"""Units by time: against a search that looks at everything, and the odd rows of Java's table."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.store.api import Boundary
from flaremq.store.queue.timesearch import GONE, UNKNOWN, UnitSpan, find_batch, find_unit

LOWER, UPPER = Boundary.LOWER, Boundary.UPPER
BOUNDARIES = pytest.mark.parametrize("boundary", list(Boundary))

times = st.lists(st.integers(1, 12), min_size=1, max_size=30).map(sorted)


def spans(stored: Sequence[int], per_file: int, first: int = 0) -> list[UnitSpan]:
    """Files of a queue whose unit `first` is the first that is there; the newest has no last time."""
    files = []
    for at in range(0, len(stored), per_file):
        part = stored[at : at + per_file]
        files.append(UnitSpan(first + at, first + at + len(part), part[0], part[-1]))
    newest = files.pop()
    return [*files, UnitSpan(newest.first, newest.end, newest.first_ms)]


@given(times, st.integers(1, 7), st.integers(0, 14), st.sampled_from([0, 21]))
def test_lower_is_the_first_unit_that_is_not_before_the_time(
    stored: list[int], per_file: int, time_ms: int, first: int
) -> None:
    found = find_unit(
        spans(stored, per_file, first), first, time_ms, LOWER, lambda unit: stored[unit - first]
    )
    wanted = next((i for i, stored_ms in enumerate(stored) if stored_ms >= time_ms), len(stored))
    assert found == first + wanted


@given(times, st.integers(1, 7), st.integers(0, 14), st.sampled_from([0, 21]))
def test_upper_is_the_last_unit_that_is_not_after_the_time(
    stored: list[int], per_file: int, time_ms: int, first: int
) -> None:
    found = find_unit(
        spans(stored, per_file, first), first, time_ms, UPPER, lambda unit: stored[unit - first]
    )
    wanted = [first + i for i, stored_ms in enumerate(stored) if stored_ms <= time_ms]
    assert found == (wanted[-1] if wanted else 0)


@given(times, st.integers(1, 7), st.integers(0, 14), st.data())
def test_within_its_limits_the_answer_is_right_when_the_oldest_units_are_dead(
    stored: list[int], per_file: int, time_ms: int, data: st.DataObject
) -> None:
    minimum = data.draw(st.integers(0, len(stored) - 1))
    files = [span for span in spans(stored, per_file) if span.end > minimum]
    live = range(minimum, len(stored))
    lower = find_unit(files, minimum, time_ms, LOWER, lambda unit: stored[unit])
    upper = find_unit(files, minimum, time_ms, UPPER, lambda unit: stored[unit])
    assert max(lower, minimum) == next((i for i in live if stored[i] >= time_ms), len(stored))
    assert max(upper, minimum) == max((i for i in live if stored[i] <= time_ms), default=minimum)


@given(times, st.integers(0, 14), st.data())
def test_records_that_left_the_log_count_as_older_than_all_others(
    stored: list[int], time_ms: int, data: st.DataObject
) -> None:
    gone = data.draw(st.integers(0, len(stored)))
    files = [UnitSpan(0, len(stored), UNKNOWN)]
    found = find_unit(files, 0, time_ms, LOWER, lambda unit: GONE if unit < gone else stored[unit])
    assert max(found, gone) == next(
        (i for i in range(gone, len(stored)) if stored[i] >= time_ms), len(stored)
    )


@given(st.lists(st.integers(-2, 12), min_size=1, max_size=20), st.integers(1, 7), st.integers(-5, 14))
def test_any_times_give_a_place_in_the_queue(stored: list[int], per_file: int, time_ms: int) -> None:
    for boundary in Boundary:
        assert (
            0 <= find_unit(spans(stored, per_file), 0, time_ms, boundary, lambda u: stored[u]) <= len(stored)
        )


def a_file() -> list[UnitSpan]:
    """Units 300 to 309, stored at 1000, 1010, ... 1090."""
    return [UnitSpan(300, 310, 1000)]


def stored_at(unit: int) -> int:
    assert 300 <= unit < 310
    return 1000 + 10 * (unit - 300)


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [
        (1091, 310, 309),  # All older: behind the last, or the last.
        (1090, 309, 309),
        (1055, 306, 305),  # Between two: the right one, or the left one.
        (1050, 305, 305),
        (1000, 300, 300),
    ],
)
def test_the_table_of_the_sheet(time_ms: int, lower: int, upper: int) -> None:
    assert find_unit(a_file(), 300, time_ms, LOWER, stored_at) == lower
    assert find_unit(a_file(), 300, time_ms, UPPER, stored_at) == upper


def test_all_newer_is_the_first_unit_of_the_file_for_lower_even_if_that_one_is_dead() -> None:
    assert find_unit(a_file(), 304, 1039, LOWER, stored_at) == 300


def test_all_newer_is_zero_for_upper() -> None:
    assert find_unit(a_file(), 304, 1039, UPPER, stored_at) == 0
    assert find_unit(a_file(), 300, 999, UPPER, stored_at) == 0


def test_an_exact_hit_goes_to_the_end_of_its_equals() -> None:
    stored = [1, 5, 5, 5, 9]
    assert find_unit([UnitSpan(0, 5, 1)], 0, 5, LOWER, stored.__getitem__) == 1
    assert find_unit([UnitSpan(0, 5, 1)], 0, 5, UPPER, stored.__getitem__) == 3


@BOUNDARIES
@pytest.mark.parametrize("unreadable", [300, 304, 309])
def test_a_time_that_cannot_be_read_gives_zero(boundary: Boundary, unreadable: int) -> None:
    assert (
        find_unit(a_file(), 300, 1040, boundary, lambda u: UNKNOWN if u == unreadable else stored_at(u)) == 0
    )


@BOUNDARIES
def test_a_queue_without_units_gives_zero(boundary: Boundary) -> None:
    assert find_unit([], 0, 1000, boundary, stored_at) == 0
    assert find_unit([UnitSpan(300, 300)], 300, 1000, boundary, stored_at) == 0


@BOUNDARIES
def test_an_empty_newest_file_is_passed_over(boundary: Boundary) -> None:
    assert find_unit([*a_file(), UnitSpan(310, 310)], 300, 1050, boundary, stored_at) == 305


@pytest.mark.parametrize(("boundary", "found"), [(LOWER, 310), (UPPER, 309)])
def test_a_file_of_dead_units_only_is_older_than_any_time(boundary: Boundary, found: int) -> None:
    assert find_unit(a_file(), 310, 1050, boundary, stored_at) == found


def test_files_whose_times_are_unknown_are_chosen_as_java_does() -> None:
    files = [UnitSpan(0, 10, UNKNOWN, UNKNOWN), UnitSpan(10, 20, UNKNOWN)]
    assert find_unit(files, 0, 5, LOWER, lambda unit: unit) == 10  # Right it would be 5.
    assert find_unit(files, 0, 15, UPPER, lambda unit: unit) == 15
    assert find_unit(files, 0, 5, UPPER, lambda unit: unit) == 0  # Right it would be 5.


def test_a_long_run_of_equal_times_costs_few_readings() -> None:
    readings: list[int] = []

    def time_at(unit: int) -> int:
        readings.append(unit)
        return 7

    assert find_unit([UnitSpan(0, 300_000, 7)], 0, 7, LOWER, time_at) == 0
    assert find_unit([UnitSpan(0, 300_000, 7)], 0, 7, UPPER, time_at) == 299_999
    assert len(readings) < 60


@given(times, st.integers(0, 14))
def test_batch_units_by_their_own_time(stored: list[int], time_ms: int) -> None:
    lower = find_batch(0, len(stored), time_ms, LOWER, stored.__getitem__)
    upper = find_batch(0, len(stored), time_ms, UPPER, stored.__getitem__)
    if time_ms >= stored[-1]:
        assert lower == upper == len(stored) - 1
        return
    assert lower == next(i for i, stored_ms in enumerate(stored) if stored_ms >= time_ms)
    assert upper == max((i for i, stored_ms in enumerate(stored) if stored_ms == time_ms), default=-1)


@BOUNDARIES
def test_a_batch_queue_without_units_gives_none(boundary: Boundary) -> None:
    assert find_batch(5, 5, 1000, boundary, stored_at) == -1
