"""One index file: its bytes, both twins, asking, and what damage can and cannot do."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.facts import FactRows

from flaremq.model.columns import Fact
from flaremq.model.tags import java_hash
from flaremq.store.index import indexfile
from flaremq.store.index.indexfile import IndexHeader, KeyQuery, check, file_size, query
from flaremq.testing.twins import twins

TWINS = twins("flaremq.store.index._indexfile")
T0 = 1700000000123
ALWAYS = (0, 1 << 62)
GOLDEN = bytes.fromhex(
    "0000018bcfe5687b 0000018bcfe57c50 0000000000001000 00000000000010cc 00000002 00000004"
    "00000000 00000000 00000000 00000000 00000003 00000001 00000000 00000000 00000000 00000000"
    "0000000000000000000000000000000000000000"
    "350c034d 0000000000001000 00000000 00000000"
    "6d0746d0 0000000000001000 00000000 00000000"
    "6d0746d0 00000000000010cc 00000005 00000002"
) + bytes(16 * 20)

small = st.integers(1, 6)
texts = st.one_of(
    st.sampled_from(
        [b"a", b"order-1", b"7F0000010001", "\u4e2d\u6587".encode(), "\U0001f600".encode(), b"\xff\xfe"]
    ),
    st.binary(max_size=6),
)


@st.composite
def rows(draw: st.DrawFn) -> FactRows:
    table = FactRows()
    for _ in range(draw(st.integers(0, 8))):
        table.add(
            draw(st.one_of(st.integers(0, 1000), st.integers(-(1 << 63), (1 << 63) - 1))),
            draw(st.one_of(st.integers(T0, T0 + 100_000), st.integers(-(1 << 63), (1 << 63) - 1))),
            topic=draw(texts),
            unique_key=draw(texts),
            keys=b" ".join(draw(st.lists(texts, max_size=4))),
            sys_flag=draw(st.sampled_from([0, 4, 8, 12, 0x4C])),
        )
    return table


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__[-2:])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def an_example() -> FactRows:
    table = FactRows()
    table.add(4096, T0, unique_key=b"7F0000010001", keys=b"order-1")
    table.add(4300, 1700000005200, keys=b"order-1")
    return table


def an_empty_file(slots: int = 10, entries_max: int = 20) -> bytearray:
    return bytearray(file_size(slots, entries_max))


def ask(
    data: bytes | bytearray, slots: int, key: bytes, limit: int = 64, span: tuple[int, int] = ALWAYS
) -> list[int]:
    return query(data, slots, KeyQuery(indexfile.key_hash(b"TopicTest", key), limit, *span))


def test_the_bytes_are_those_of_rocketmq(twin: ModuleType) -> None:
    table, data = an_example(), an_empty_file()
    assert twin.put_many(data, 10, table.facts, 2, (0, 0), table.log, 0) == (2, 0)
    assert data == GOLDEN
    assert check(data, 10, 20) == []


def test_the_header_of_the_example() -> None:
    header = IndexHeader.read(GOLDEN)
    assert header == IndexHeader(T0, 1700000005200, 4096, 4300, 2, 4)
    again = bytearray(40)
    header.write(again)
    assert again == GOLDEN[:40]


def test_a_fresh_file_has_entry_one_next() -> None:
    assert IndexHeader.read(bytes(40)) == IndexHeader()
    assert IndexHeader.read(bytes(40)).next_entry == 1


def test_the_hash_of_a_key(twin: ModuleType) -> None:
    assert twin.key_hash(b"TopicTest", b"order-1") == 0x6D0746D0
    assert twin.key_hash("\u4e2d\u6587".encode(), "\U0001f600".encode()) == abs(
        java_hash("\u4e2d\u6587#\U0001f600")
    )


def test_the_one_hash_without_absolute_value_counts_as_zero(twin: ModuleType) -> None:
    key = "order-1"
    topic = _topic_for(key)
    assert java_hash(f"{topic}#{key}") == -(1 << 31)
    assert twin.key_hash(topic.encode(), key.encode()) == 0


def _topic_for(key: str) -> str:
    """A topic of six small digits (base 31) that brings the hash of topic#key to -2^31."""
    tail = java_hash(f"#{key}") & 0xFFFF_FFFF
    factor = pow(pow(31, len(key) + 1, 1 << 32), -1, 1 << 32)
    wanted = ((1 << 31) - tail) * factor % (1 << 32)
    units = []
    for _ in range(6):
        wanted += 1 << 32 if wanted < 35 else 0
        unit = 33 + (wanted - 33) % 31
        units.append(unit)
        wanted = (wanted - unit) // 31
    units.append(wanted)
    return "".join(chr(unit) for unit in reversed(units))


def test_pieces_between_blanks_are_keys_and_empty_pieces_are_none(twin: ModuleType) -> None:
    table, data = FactRows(), an_empty_file()
    table.add(7, T0, keys=b"  a  b c ")
    twin.put_many(data, 10, table.facts, 1, (0, 0), table.log, 0)
    assert IndexHeader.read(data).next_entry == 4
    assert [ask(data, 10, key) for key in (b"a", b"b", b"c", b"", b" ")] == [[7], [7], [7], [], []]


def test_a_rollback_is_not_found_and_a_prepared_record_is(twin: ModuleType) -> None:
    table, data = FactRows(), an_empty_file()
    for offset, sys_flag in enumerate((0, 4, 8, 12)):
        table.add(offset, T0, keys=b"a", sys_flag=sys_flag)
    twin.put_many(data, 10, table.facts, 4, (0, 0), table.log, 0)
    assert ask(data, 10, b"a") == [2, 1, 0]


def test_records_that_are_indexed_already_are_skipped(twin: ModuleType) -> None:
    table, data = an_example(), an_empty_file()
    assert twin.put_many(data, 10, table.facts, 2, (0, 0), table.log, 4097) == (2, 0)
    assert ask(data, 10, b"order-1") == [4300]
    assert ask(data, 10, b"7F0000010001") == []


def test_a_full_file_says_where_to_go_on(twin: ModuleType) -> None:
    table, data = FactRows(), an_empty_file(10, 4)
    table.add(1, T0, unique_key=b"u", keys=b"a b c")
    assert twin.put_many(data, 10, table.facts, 1, (0, 0), table.log, 0) == (0, 3)
    following = an_empty_file(10, 4)
    assert twin.put_many(following, 10, table.facts, 1, (0, 3), table.log, 0) == (1, 0)
    assert ask(data, 10, b"b") == [1] and ask(data, 10, b"c") == []
    assert ask(following, 10, b"c") == [1] and ask(following, 10, b"b") == []


def test_a_file_that_is_just_full_takes_rows_without_keys(twin: ModuleType) -> None:
    table, data = FactRows(), an_empty_file(10, 2)
    table.add(1, T0, keys=b"a")
    table.add(2, T0)
    assert twin.put_many(data, 10, table.facts, 2, (0, 0), table.log, 0) == (2, 0)


def test_the_first_entry_of_a_follow_up_file_tells_the_gap(twin: ModuleType) -> None:
    table, data = FactRows(), an_empty_file()
    IndexHeader(begin_ms=T0, end_ms=T0, begin_offset=50, end_offset=50).write(data)
    table.add(60, T0 + 7500, keys=b"a")
    table.add(70, T0 + 9500, keys=b"a")
    twin.put_many(data, 10, table.facts, 2, (0, 0), table.log, 0)
    header = IndexHeader.read(data)
    assert (header.begin_ms, header.begin_offset) == (T0 + 7500, 60)
    seconds = [struct.unpack_from(">i", data, indexfile.entry_at(10, n) + 12)[0] for n in (1, 2)]
    assert seconds == [7, 2]


def test_a_clock_that_stepped_back_gives_no_negative_seconds(twin: ModuleType) -> None:
    table, data = FactRows(), an_empty_file()
    table.add(1, T0, keys=b"a")
    table.add(2, T0 - 5000, keys=b"a")
    table.add(3, 1 << 62, keys=b"a")
    twin.put_many(data, 10, table.facts, 3, (0, 0), table.log, 0)
    seconds = [struct.unpack_from(">i", data, indexfile.entry_at(10, n) + 12)[0] for n in (1, 2, 3)]
    assert seconds == [0, 0, (1 << 31) - 1]


def test_a_slot_that_points_behind_the_last_entry_counts_as_empty(twin: ModuleType) -> None:
    table, data = FactRows(), an_empty_file(1, 5)
    struct.pack_into(">i", data, 40, 99)
    table.add(1, T0, keys=b"a")
    twin.put_many(data, 1, table.facts, 1, (0, 0), table.log, 0)
    assert check(data, 1, 5) == []


@pytest.mark.parametrize(
    ("size", "slots"), [(39, 0), (39, 1), (40, 0), (40, -1), (44 + 19, 1), (44, 2), (1000, 1 << 62)]
)
def test_a_buffer_that_is_no_index_file_is_refused(twin: ModuleType, size: int, slots: int) -> None:
    table = an_example()
    with pytest.raises(ValueError, match=f"{size} bytes are no index file with {slots} slots"):
        twin.put_many(bytearray(size), slots, table.facts, 2, (0, 0), table.log, 0)


@pytest.mark.parametrize("column", [Fact.TOPIC_AT, Fact.KEYS_AT, Fact.UNIQUE_KEY_AT])
@pytest.mark.parametrize("place", [(-1, 1), (0, -1), (0, 1 << 40), (1 << 62, 1 << 62), (1000, 0)])
def test_rows_that_point_outside_the_log_are_refused_before_a_byte_is_written(
    twin: ModuleType, column: int, place: tuple[int, int]
) -> None:
    table, data = an_example(), an_empty_file()
    table.facts[Fact.WIDTH + column], table.facts[Fact.WIDTH + column + 1] = place
    with pytest.raises(ValueError, match="row 1: bytes"):
        twin.put_many(data, 10, table.facts, 2, (0, 0), table.log, 0)
    assert data == bytes(len(data))


@pytest.mark.parametrize(
    ("count", "begin"), [(3, (0, 0)), (1, (2, 0)), (2, (-1, 0)), (2, (0, -1)), (-1, (-1, 0))]
)
def test_rows_that_are_not_there_are_refused(twin: ModuleType, count: int, begin: tuple[int, int]) -> None:
    table = an_example()
    with pytest.raises(ValueError, match=r"row|key number"):
        twin.put_many(an_empty_file(), 10, table.facts, count, begin, table.log, 0)


@pytest.mark.skipif(len(TWINS) < 2, reason="the compiled twin is not built")
@given(
    table=rows(),
    slots=small,
    entries_max=small,
    begin=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    data=st.data(),
)
def test_the_twins_agree_on_any_records_in_any_file(
    table: FactRows, slots: int, entries_max: int, begin: tuple[int, int], data: st.DataObject
) -> None:
    size = file_size(slots, entries_max)
    content = data.draw(
        st.one_of(st.just(bytes(size)), st.binary(min_size=size, max_size=size), headers(size))
    )
    from_offset = data.draw(st.integers(0, 1000))
    results = []
    for twin in TWINS:
        file = bytearray(content)
        try:
            ended = twin.put_many(file, slots, table.facts, len(table), begin, table.log, from_offset)
        except ValueError as error:
            results.append((str(error), bytes(file)))
        else:
            results.append((ended, bytes(file)))
    assert results[0] == results[1]


def headers(size: int) -> st.SearchStrategy[bytes]:
    """Files whose counters are near the limits."""
    near = st.sampled_from([-1, 0, 1, 2, 3, (1 << 31) - 1, -(1 << 31)])
    header = st.builds(lambda used, entry: struct.pack(">qqqqii", T0, T0, 5, 5, used, entry), near, near)
    filling = st.builds(lambda byte: bytes([byte]) * (size - 40), st.integers(0, 3))
    return st.builds(bytes.__add__, header, filling)


@pytest.mark.skipif(len(TWINS) < 2, reason="the compiled twin is not built")
@given(st.binary(max_size=12), st.binary(max_size=12))
def test_the_twins_agree_on_any_key(topic: bytes, key: bytes) -> None:
    first, second = (twin.key_hash(topic, key) for twin in TWINS)
    assert first == second and 0 <= first < 1 << 31


@pytest.mark.skipif(len(TWINS) < 2, reason="the compiled twin is not built")
def test_the_twins_agree_on_many_rows_at_once() -> None:
    table = FactRows()
    for i in range(500):
        table.add(i, T0 + i, unique_key=b"u%d" % i, keys=b"k%d \xe4\xb8\xad%d" % (i % 7, i % 11))
    files = [an_empty_file(64, 2000) for _ in TWINS]
    for twin, file in zip(TWINS, files, strict=True):
        assert twin.put_many(file, 64, table.facts, 500, (0, 0), table.log, 0) == (500, 0)
    assert files[0] == files[1]
    assert check(files[0], 64, 2000) == []


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 20_000)), max_size=12), small)
def test_whatever_is_put_is_found_newest_first(puts: list[tuple[bytes, int]], slots: int) -> None:
    table, data = FactRows(), an_empty_file(slots, 20)
    for offset, (key, after_ms) in enumerate(puts):
        table.add(offset, T0 + after_ms, keys=key)
    indexfile.put_many(data, slots, table.facts, len(table), (0, 0), table.log, 0)
    assert check(data, slots, 20) == []
    for key in (b"a", b"b", b"c"):
        assert ask(data, slots, key) == [i for i, put in reversed(list(enumerate(puts))) if put[0] == key]
        assert ask(data, slots, key, limit=2) == ask(data, slots, key)[:2]


def a_minute_of_keys() -> bytearray:
    table, data = FactRows(), an_empty_file(10, 70)
    for second in range(60):
        table.add(second, T0 + 1000 * second, keys=b"a")
    indexfile.put_many(data, 10, table.facts, 60, (0, 0), table.log, 0)
    return data


def test_only_records_of_the_asked_time_are_found() -> None:
    data = a_minute_of_keys()
    assert ask(data, 10, b"a", span=(T0 + 3000, T0 + 6000)) == [6, 5, 4, 3]
    assert ask(data, 10, b"a", span=(T0 + 3001, T0 + 3999)) == []
    assert ask(data, 10, b"a", span=(0, T0 - 1)) == []


def test_the_chain_is_left_at_the_first_entry_that_is_too_old() -> None:
    data = a_minute_of_keys()
    struct.pack_into(">i", data, indexfile.entry_at(10, 31) + 16, 59)  # Would lead in a circle.
    assert ask(data, 10, b"a", span=(T0 + 40_000, T0 + 41_000)) == [41, 40]


def test_a_circle_of_entries_ends() -> None:
    data = a_minute_of_keys()
    struct.pack_into(">i", data, indexfile.entry_at(10, 31) + 16, 59)
    assert ask(data, 10, b"a") == list(range(59, 29, -1))
    struct.pack_into(">i", data, indexfile.entry_at(10, 60) + 16, 60)
    assert ask(data, 10, b"a") == [59]


def test_an_entry_from_before_its_file_ends_the_chain() -> None:
    data = a_minute_of_keys()
    struct.pack_into(">i", data, indexfile.entry_at(10, 31) + 12, -1)
    assert ask(data, 10, b"a") == list(range(59, 30, -1))


@given(data=st.data(), slots=small, entries_max=small)
def test_asking_and_checking_end_on_any_bytes(data: st.DataObject, slots: int, entries_max: int) -> None:
    size = file_size(slots, entries_max)
    content = data.draw(st.one_of(st.binary(min_size=size, max_size=size), headers(size)))
    assert len(query(content, slots, KeyQuery(5, 64, -(1 << 63), 1 << 63))) <= entries_max
    check(content, slots, entries_max)


def test_a_file_covers_what_its_times_overlap() -> None:
    header = IndexHeader(begin_ms=100, end_ms=200)
    spans = [(0, 99), (0, 100), (150, 160), (0, 300), (200, 300), (201, 300)]
    assert [KeyQuery(0, 1, *span).covers(header) for span in spans] == [False, True, True, True, True, False]


@pytest.mark.parametrize(
    ("header", "sane"),
    [
        (IndexHeader(), True),
        (IndexHeader(T0, T0, 5, 5), True),
        (IndexHeader(T0, T0 + 1, 5, 6, 2, 20), True),
        (IndexHeader(T0, 0, 5, 0, 1, 1), True),  # Killed within the first put.
        (IndexHeader(T0, T0, 5, 6, 2, 21), False),
        (IndexHeader(T0, T0, 5, 6, 11, 12), False),
        (IndexHeader(T0, T0, 5, 6, -1, 12), False),
        (IndexHeader(T0, T0, 6, 5, 2, 12), False),
        (IndexHeader(T0, T0, -1, 5, 2, 12), False),
        (IndexHeader(-T0, T0, 1, 5, 2, 12), False),
    ],
)
def test_headers_that_can_be_and_headers_that_cannot(header: IndexHeader, sane: bool) -> None:
    assert header.sane(10, 20) == sane


def damaged() -> Iterator[tuple[int, int, str]]:
    yield 36, 99, "header cannot be"
    yield 32, 3, "2 slots are in use, but the header says 3"
    yield 24, 1, "the last record is at 4300"
    yield 40 + 4 * 4, 2, "slot 4 begins with entry 2"
    yield 40 + 4 * 9, 3, "slot 9 begins with entry 3"
    yield indexfile.entry_at(10, 3) + 16, 3, "entry 3 follows 3"
    yield indexfile.entry_at(10, 3), -5, "entry 3 has the negative hash -5"
    yield indexfile.entry_at(10, 2), 5, "entry 2 follows 0, but the one before it in slot 5 is 1"
    yield indexfile.entry_at(10, 2) + 12, -2, "entry 2 was stored 2 s before"


@pytest.mark.parametrize(("at", "value", "said"), list(damaged()))
def test_damage_is_named(at: int, value: int, said: str) -> None:
    data = bytearray(GOLDEN)
    struct.pack_into(">i", data, at, value)
    assert said in "; ".join(check(data, 10, 20))


def test_a_file_of_the_wrong_length_is_named() -> None:
    assert check(GOLDEN[:-1], 10, 20) == ["479 bytes long, not 480"]


def test_no_more_than_a_hundred_deviations_are_listed() -> None:
    data = bytearray(file_size(1, 500))
    IndexHeader(T0, T0, 0, 0, 1, 500).write(data)
    assert len(check(data, 1, 500)) == 100


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.sampled_from([b"a", b"b c", b"d"])), max_size=8),
    small,
    st.integers(-1, 9),
)
def test_what_is_taken_back_leaves_the_file_as_if_it_had_never_been_put(
    puts: list[tuple[int, bytes]], slots: int, end: int
) -> None:
    table = FactRows()
    for offset, (after_ms, keys) in enumerate(sorted(puts)):
        table.add(offset, T0 + after_ms, keys=keys)
    data, never = an_empty_file(slots, 20), an_empty_file(slots, 20)
    indexfile.put_many(data, slots, table.facts, len(table), (0, 0), table.log, 0)
    kept = max(0, min(end, len(table)))
    indexfile.put_many(never, slots, table.facts, kept, (0, 0), table.log, 0)
    left, expected = indexfile.cut(data, slots, end), IndexHeader.read(never)
    assert left == expected.next_entry - 1
    if left:
        header = IndexHeader.read(data)
        assert expected.end_ms <= header.end_ms < expected.end_ms + 1000 or kept == len(table)
        assert replace(header, end_ms=expected.end_ms) == expected
        used = indexfile.entry_at(slots, left + 1)
        assert data[40:used] == never[40:used]
        assert check(data, slots, 20) == []


def test_entries_of_older_records_behind_those_of_a_log_that_was_cut_are_no_damage() -> None:
    table, data = FactRows(), an_empty_file(10, 20)
    for offset in (100, 900, 200, 300):  # As RocketMQ leaves it when 900 has gone from the log.
        table.add(offset, T0, keys=b"a")
        indexfile.put_many(data, 10, table.facts, len(table), (len(table) - 1, 0), table.log, 0)
    assert check(data, 10, 20) == []


@given(rows())
def test_keys_are_counted_as_they_would_be_put(table: FactRows) -> None:
    counted = {twin.count_keys(table.facts, len(table), table.log) for twin in TWINS}
    assert len(counted) == 1
    data = bytearray(file_size(10, 200))
    TWINS[0].put_many(data, 10, table.facts, len(table), (0, 0), table.log, -(1 << 63))
    ((keys, last),) = counted
    assert IndexHeader.read(data).next_entry == 1 + keys
    assert (last >= 0) == (keys > 0)


@given(rows(), small)
def test_links_of_a_file_that_was_put_are_right(table: FactRows, slots: int) -> None:
    for twin in TWINS:
        data = an_empty_file(slots, 64)
        twin.put_many(data, slots, table.facts, len(table), (0, 0), table.log, 0)
        assert twin.wrong_links(data, slots, 10) == (0, [])


@given(st.binary(min_size=40 + 5 * 4 + 9 * 20, max_size=40 + 5 * 4 + 9 * 20), st.integers(-3, 20))
def test_of_any_bytes_both_twins_say_the_same_about_links(data: bytes, next_entry: int) -> None:
    data = data[:36] + struct.pack(">i", next_entry) + data[40:]
    for slots, entries_max in ((5, 9), (10, 8)):
        assert len(data) == file_size(slots, entries_max)
        found = [twin.wrong_links(data, slots, 4) for twin in TWINS]
        assert all(each == found[0] for each in found)


def test_wrong_links_tell_where_they_lead_and_where_they_should(twin: ModuleType) -> None:
    data = bytearray(GOLDEN)
    struct.pack_into(">i", data, 40 + 10 * 4 + 3 * 20 + 16, 1)
    struct.pack_into(">i", data, 40 + 5 * 4, 9)
    wrong = [(False, 3, 1, 2), (True, 5, 9, 1)]
    assert twin.wrong_links(data, 10, 5) == (2, wrong)
    assert twin.wrong_links(data, 10, 1) == (2, wrong[:1])
    with pytest.raises(ValueError, match="are no index file with 11 slots"):
        twin.wrong_links(data, 11, 5)
