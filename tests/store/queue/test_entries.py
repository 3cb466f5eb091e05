"""Queue entries by the batch: grouped, validated, chosen for a pull, gathered."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.model.columns import Check, Fact, facts_table
from flaremq.model.layout import ENTRY_FORMAT, EXT_ADDRESS_MAX, FILLER_SIZE
from flaremq.model.record import walk
from flaremq.store.queue.entries import Limit, Run
from flaremq.testing.fakes.builders import a_message, records_of
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.store.queue._entries")


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def facts_of(data: bytes | bytearray) -> tuple[array[int], int]:
    facts = facts_table(64)
    count, _, _ = walk(data, 0, len(data), 0, facts, Check.NOTHING)
    return facts, count


def entry(offset: int, size: int, code: int = 0) -> bytes:
    return struct.pack(ENTRY_FORMAT, offset, size, code)


def limits(**given: int) -> array[int]:
    row = array("q", bytes(8 * Limit.WIDTH))
    values = {
        "COUNT_MAX": 32,
        "BYTES_MAX": 10_000,
        "SCAN_MAX": 100,
        "LOG_END": 1000,
        "NEAR": 1000,
        "NEAR_BYTES": 5000,
        "NEAR_COUNT": 20,
        "FAR_BYTES": 300,
        "FAR_COUNT": 3,
        "FILE_SIZE": 1000,
    }
    for name, value in (values | given).items():
        row[getattr(Limit, name)] = value
    return row


def test_records_are_grouped_by_topic_and_queue_in_order(twin: Any) -> None:
    messages = [a_message(queue_id=i % 2, topic=b"A" if i < 4 else b"B") for i in range(6)]
    data = records_of(messages)
    facts, count = facts_of(data)
    keys, entries, runs, order = twin.group(facts, count, data)
    assert keys == [(b"A", 0), (b"A", 1), (b"B", 0), (b"B", 1)]
    assert list(order) == [0, 2, 1, 3, 4, 5]
    second = runs[Run.WIDTH : 2 * Run.WIDTH]
    assert (second[Run.FIRST], second[Run.COUNT], second[Run.DENSE]) == (2, 2, 1)
    assert second[Run.END] == facts[3 * Fact.WIDTH] + facts[3 * Fact.WIDTH + 1]
    assert entries[:20] == entry(0, facts[Fact.SIZE], 2598919)


def test_prepared_and_rolled_back_records_enter_no_queue(twin: Any) -> None:
    data = records_of([a_message(sys_flag=flag) for flag in (0x4, 0x8, 0xC, 0x0)])
    facts, count = facts_of(data)
    _, entries, _, order = twin.group(facts, count, data)
    assert list(order) == [1, 3]
    assert len(entries) == 40


def test_a_hole_in_the_queue_offsets_is_told(twin: Any) -> None:
    data = records_of([a_message(), a_message()])
    facts, count = facts_of(data)
    facts[Fact.WIDTH + Fact.QUEUE_OFFSET] = 7
    _, _, runs, _ = twin.group(facts, count, data)
    assert runs[Run.DENSE] == 0


def test_more_rows_than_the_table_has_are_refused(twin: Any) -> None:
    with pytest.raises(ValueError, match="3 rows of a table of 2"):
        twin.group(facts_table(2), 3, b"")


def test_a_topic_outside_of_the_log_is_refused(twin: Any) -> None:
    facts = facts_table(1)
    facts[Fact.TOPIC_SIZE] = 5
    with pytest.raises(ValueError, match="topic at 0"):
        twin.group(facts, 1, b"abcd")


def test_entries_count_up_to_the_first_that_makes_no_sense(twin: Any) -> None:
    data = entry(0, FILLER_SIZE) + entry(100, 50) + entry(150, 60) + entry(0, 0) + entry(300, 10)
    assert twin.valid(data, 5, 1 << 40) == (3, 210)
    assert twin.valid(data, 5, 150) == (2, 150)
    assert twin.valid(data, 1, 1 << 40) == (1, 0)


def test_an_entry_that_points_back_is_torn(twin: Any) -> None:
    data = entry(100, 50) + entry(0, FILLER_SIZE) + entry(150, 60) + entry(209, 10)
    assert twin.valid(data, 4, 1 << 40) == (3, 210)
    assert twin.valid(data, 4, 1 << 40, 100) == (3, 210)
    assert twin.valid(data, 4, 1 << 40, 101) == (0, 0)
    assert twin.valid(entry((1 << 63) - 10, 11), 1, (1 << 63) - 1) == (0, 0)


def test_a_pull_takes_what_it_may(twin: Any) -> None:
    entries = b"".join(entry(100 * i, 100) for i in range(10))
    chosen = array("q", bytes(16 * 32))
    assert twin.choose(entries, limits(), None, chosen) == (10, 10, 1000, 900, 0)
    assert twin.choose(entries, limits(COUNT_MAX=4), None, chosen)[:2] == (4, 4)
    assert twin.choose(entries, limits(BYTES_MAX=350), None, chosen)[:2] == (3, 3)
    assert twin.choose(entries, limits(SCAN_MAX=5), None, chosen)[:2] == (5, 5)
    assert list(chosen[:4]) == [0, 100, 100, 100]


def test_the_first_record_is_taken_whatever_its_size(twin: Any) -> None:
    chosen = array("q", bytes(16))
    assert twin.choose(entry(0, 1 << 20), limits(), None, chosen)[0] == 1


def test_old_records_are_read_in_smaller_portions(twin: Any) -> None:
    entries, chosen = b"".join(entry(100 * i, 50) for i in range(10)), array("q", bytes(16 * 32))
    assert twin.choose(entries, limits(NEAR=0), None, chosen)[0] == 3
    assert twin.choose(entries, limits(NEAR=0, FAR_COUNT=8, FAR_BYTES=120), None, chosen)[0] == 2
    assert twin.choose(entries, limits(NEAR_COUNT=5), None, chosen)[0] == 5


def test_only_wanted_tags_are_chosen_and_codes_compare_as_ints(twin: Any) -> None:
    entries = entry(0, 10, 5) + entry(10, 10, -7) + entry(20, 10, 5 + (1 << 32))
    chosen = array("q", bytes(16 * 4))
    assert twin.choose(entries, limits(), array("q", [5]), chosen)[:2] == (2, 3)
    assert twin.choose(entries, limits(), array("q", [-7]), chosen)[0] == 1
    assert twin.choose(entries, limits(), array("q"), chosen)[:2] == (0, 3)


def test_of_an_entry_with_an_address_the_tags_are_not_known_so_it_passes(twin: Any) -> None:
    entries = entry(0, 10, EXT_ADDRESS_MAX) + entry(10, 10, EXT_ADDRESS_MAX + 1) + entry(20, 10, 5)
    chosen = array("q", bytes(16 * 4))
    assert twin.choose(entries, limits(), array("q", [5]), chosen)[:2] == (2, 3)


def test_records_that_left_the_log_are_counted_and_their_file_is_skipped(twin: Any) -> None:
    entries = entry(100, 50) + entry(900, 50) + entry(1000, 50)
    taken, scanned, _, _, gone = twin.choose(entries, limits(LOG_MIN=1000), None, array("q", bytes(16 * 4)))
    assert (taken, scanned, gone) == (1, 3, 1)


def test_gathering_copies_the_chosen_records_together(twin: Any) -> None:
    chosen = array("q", [1002, 3, 1006, 2])
    assert twin.gather(b"abcdefghij", 1000, chosen, 0, 2) == b"cdegh"
    with pytest.raises(ValueError, match="of 10 bytes"):
        twin.gather(b"abcdefghij", 1000, array("q", [1008, 3]), 0, 1)


any_entries = st.lists(
    st.tuples(
        st.integers(-5, 3000),
        st.one_of(st.integers(-2, 400), st.just(FILLER_SIZE)),
        st.integers(-3, 3).map(lambda code: code + (1 << 33) if code == 2 else code),
    ),
    max_size=30,
).map(lambda rows: b"".join(entry(*row) for row in rows))


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(
    entries=any_entries,
    row=st.fixed_dictionaries(
        {
            "COUNT_MAX": st.integers(0, 12),
            "BYTES_MAX": st.integers(0, 2000),
            "SCAN_MAX": st.integers(0, 40),
            "LOG_MIN": st.integers(0, 2000),
            "NEAR": st.integers(0, 2000),
            "FAR_COUNT": st.integers(0, 9),
        }
    ),
    codes=st.one_of(st.none(), st.lists(st.integers(-3, 3), max_size=3)),
    below=st.integers(0, 4000),
)
def test_twins_choose_and_judge_alike(
    entries: bytes, row: dict[str, int], codes: list[int] | None, below: int
) -> None:
    seen = []
    for module in TWINS:
        chosen = array("q", bytes(16 * 10))
        wanted = array("q", codes) if codes is not None else None
        answer = module.choose(entries, limits(**row), wanted, chosen)
        seen.append((answer, chosen, module.valid(entries, len(entries) // 20, below)))
    assert seen[0] == seen[1]


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"A", b"B", b"a-longer-topic-name", b"C"]),
            st.integers(0, 3),
            st.sampled_from([0, 0, 4, 8, 12]),
        ),
        max_size=40,
    )
)
def test_twins_group_alike(kinds: list[tuple[bytes, int, int]]) -> None:
    data = records_of([a_message(topic=t, queue_id=q, sys_flag=s) for t, q, s in kinds])
    facts, count = facts_of(data)
    assert TWINS[0].group(facts, count, data) == TWINS[1].group(facts, count, data)


def test_taking_is_choosing_and_gathering_in_one_step(twin: Any) -> None:
    log = bytes(range(200))
    entries = b"".join(entry(1000 + 20 * n, 20) for n in range(5))
    taken = twin.take(entries, limits(COUNT_MAX=3), None, log, 1000, 1 << 16)
    assert taken == (3, 3, 60, 1040, 0, log[:60])


def test_what_is_large_or_lies_elsewhere_is_not_taken(twin: Any) -> None:
    log = bytes(100)
    inside, outside = entry(1000, 50), entry(1060, 50)
    assert twin.take(inside, limits(), None, log, 1000, 50)[5] is None
    assert twin.take(inside + outside, limits(), None, log, 1000, 1 << 16)[5] is None
    assert twin.take(entry(990, 5), limits(), None, log, 1000, 1 << 16)[5] is None
    assert twin.take(b"", limits(), None, log, 1000, 1 << 16) == (0, 0, 0, 0, 0, None)


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 30), st.integers(0, 3)), max_size=8),
    st.integers(1, 5),
    st.none() | st.lists(st.integers(0, 3), max_size=2),
)
def test_both_twins_take_the_same(
    said: list[tuple[int, int, int]], count: int, codes: list[int] | None
) -> None:
    entries = b"".join(entry(1000 + offset, size, code) for offset, size, code in said)
    wanted = None if codes is None else array("q", codes)
    answers = [
        each.take(entries, limits(COUNT_MAX=count), wanted, bytes(range(100)), 1000, 80) for each in TWINS
    ]
    assert all(answer == answers[0] for answer in answers)
