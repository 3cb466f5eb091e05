"""Units of the timer log, many at once: chains that lead back to the first message of a second."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.model.layout import TIMER_ROLL, TIMER_UNIT_SIZE
from flaremq.store.timer.units import Entrant, SlotRow
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.store.timer._units")
NOW_MS = 1_700_000_000_000
SIZE = TIMER_UNIT_SIZE
HASHES = array("q", [7, -2_000_000_000])

entrants_of = st.lists(
    st.tuples(
        st.integers(0, 1 << 40), st.integers(91, 1 << 20), st.integers(0, 2), st.integers(0, 1), st.booleans()
    ),
    max_size=12,
)


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def some_slots(count: int = 3) -> array[int]:
    """Empty ones, a second apart."""
    return array("q", [n for i in range(count) for n in (NOW_MS + 1000 * i, -1, -1, 0)])


def rows_of(entrants: list[tuple[int, int, int, int, bool]]) -> array[int]:
    return array("q", [int(value) for each in entrants for value in each])


@given(entrants=entrants_of, base=st.sampled_from([0, 52 * 1000 + 16]), cut=st.integers(0, 12))
def test_every_unit_is_found_again_from_the_end_of_its_slot(
    entrants: list[tuple[int, int, int, int, bool]], base: int, cut: int
) -> None:
    made = []
    for twin in TWINS:
        slots, rows = some_slots(), rows_of(entrants)
        cut = min(cut, len(entrants))
        units = twin.pack_units(rows, 0, cut, slots, HASHES, NOW_MS, base)
        units += twin.pack_units(rows, cut, len(entrants) - cut, slots, HASHES, NOW_MS, base + len(units))
        made.append((units, slots))
        for number in range(3):
            at_ms, first, last, count = slots[number * SlotRow.WIDTH : (number + 1) * SlotRow.WIDTH]
            mine = [base + i * SIZE for i, each in enumerate(entrants) if each[2] == number]
            marks = [base + i * SIZE for i, each in enumerate(entrants) if each[2] == number and each[4]]
            messages, markers, position, is_sound = twin.walk_back(units, base, last, at_ms, 99)
            assert (position, is_sound) == (-1, True)
            assert sorted([*messages, *markers]) == mine
            assert list(markers) == marks[::-1]
            assert (first, last) == ((mine[0], mine[-1]) if mine else (-1, -1))
            assert count == len(mine) - 2 * len(marks)
            expected = [(*entrants[(p - base) // SIZE][:2], NOW_MS) for p in messages]
            assert list(twin.read_units(units, base, messages)) == [n for row in expected for n in row]
    assert all(each == made[0] for each in made)


@given(
    entrants=entrants_of,
    harm=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=4),
    position=st.integers(-2, 800),
    base=st.sampled_from([0, 104]),
    count=st.integers(0, 20),
)
def test_both_twins_see_the_same_in_damaged_bytes(
    entrants: list[tuple[int, int, int, int, bool]],
    harm: list[tuple[int, int]],
    position: int,
    base: int,
    count: int,
) -> None:
    slots = some_slots(1)
    rows = rows_of([(offset, size, 0, topic, cancels) for offset, size, _, topic, cancels in entrants])
    units = bytearray(TWINS[0].pack_units(rows, 0, len(entrants), slots, HASHES, NOW_MS, 0))
    for at, value in harm:
        if units:
            units[at % len(units)] = value
    for start in (position, slots[SlotRow.LAST]):
        walks = [twin.walk_back(units, base, start, NOW_MS, count) for twin in TWINS]
        assert all(walk == walks[0] for walk in walks)
    positions = array("q", range(len(units) - SIZE, -1, -SIZE)) + array("q", [position, 1 << 62, -(1 << 62)])
    read = [twin.read_units(units, base, positions) for twin in TWINS]
    assert all(each == read[0] for each in read)


def test_units_that_lead_forward_or_to_another_second_end_the_chain(twin: Any) -> None:
    slots = some_slots(2)
    rows = rows_of([(0, 100, 0, 0, False), (100, 100, 0, 0, False), (200, 100, 1, 0, False)])
    units = bytearray(twin.pack_units(rows, 0, 3, slots, HASHES, NOW_MS, 0))
    units[SIZE + 4 : SIZE + 12] = (2 * SIZE).to_bytes(8, "big")
    assert twin.walk_back(units, 0, SIZE, NOW_MS, 99) == (array("q"), array("q"), SIZE, False)
    assert twin.walk_back(units, 0, 2 * SIZE, NOW_MS, 99)[3] is False
    assert twin.walk_back(units, 0, 3 * SIZE, NOW_MS, 99)[3] is False, "nothing is there yet"


def test_a_long_chain_is_walked_in_parts(twin: Any) -> None:
    slots = some_slots(1)
    units = twin.pack_units(
        rows_of([(i, 100, 0, 0, False) for i in range(10)]), 0, 10, slots, HASHES, NOW_MS, 0
    )
    messages, _, position, is_sound = twin.walk_back(units, 0, 9 * SIZE, NOW_MS, 4)
    assert (list(messages), position, is_sound) == ([9 * SIZE, 8 * SIZE, 7 * SIZE, 6 * SIZE], 5 * SIZE, True)
    messages, _, position, is_sound = twin.walk_back(units[3 * SIZE :], 3 * SIZE, position, NOW_MS, 4)
    assert (list(messages), position, is_sound) == ([5 * SIZE, 4 * SIZE, 3 * SIZE], 2 * SIZE, True)


def test_reading_stops_at_a_unit_that_rolls(twin: Any) -> None:
    slots = some_slots(1)
    units = bytearray(
        twin.pack_units(rows_of([(i, 99, 0, 0, False) for i in range(3)]), 0, 3, slots, HASHES, NOW_MS, 0)
    )
    units[SIZE + 15] |= TIMER_ROLL
    assert list(twin.read_units(units, 0, array("q", [0, SIZE, 2 * SIZE]))) == [0, 99, NOW_MS]


def test_rows_that_speak_of_what_is_not_there_are_a_bug_of_the_caller(twin: Any) -> None:
    for column, value in ((Entrant.SLOT, 1), (Entrant.SLOT, -1), (Entrant.TOPIC, 2), (Entrant.TOPIC, -1)):
        rows = rows_of([(0, 99, 0, 0, False)])
        rows[column] = value
        with pytest.raises(ValueError, match="row 0 speaks of what is not there"):
            twin.pack_units(rows, 0, 1, some_slots(1), HASHES, NOW_MS, 0)
    with pytest.raises(ValueError, match="rows 0 to 2 of 1"):
        twin.pack_units(rows_of([(0, 99, 0, 0, False)]), 0, 2, some_slots(1), HASHES, NOW_MS, 0)
