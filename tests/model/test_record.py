"""Records as they are read: walked by the batch, decoded one by one, and never trusted."""

from __future__ import annotations

import struct
import zlib
from array import array
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed
from flaremq.model import layout, record
from flaremq.model.columns import Check, Fact, Odd, Stop, facts_table
from flaremq.model.message import Host
from flaremq.testing.fakes.builders import NOW_MS, a_message, records_of
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.model._record")
ALL = Check.BODY_CRC | Check.OFFSET


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def walked(
    twin: Any, data: bytes | bytearray, check: int = ALL, rows: int = 8, base: int = 0
) -> tuple[list[list[int]], int, int]:
    facts = facts_table(rows)
    count, at, stop = twin.walk(data, 0, len(data), base, facts, check)
    return [list(facts[i * Fact.WIDTH : (i + 1) * Fact.WIDTH]) for i in range(count)], at, stop


def test_a_walk_notes_what_dispatch_needs(twin: Any) -> None:
    properties = b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02"
    data = records_of([a_message(queue_id=3, properties=properties)], base=500)
    rows, at, stop = walked(twin, data, base=500)
    (row,) = rows
    assert (at, stop) == (len(data), Stop.LIMIT)
    assert row[Fact.OFFSET] == 500
    assert row[Fact.SIZE] == len(data)
    assert row[Fact.QUEUE_ID] == 3
    assert row[Fact.STORE_TIMESTAMP] == NOW_MS
    assert row[Fact.TAGS_CODE] == 2598919
    for column, text in ((Fact.TOPIC_AT, b"TopicTest"), (Fact.KEYS_AT, b"k1 k2"), (Fact.UNIQUE_KEY_AT, b"U1"),
                         (Fact.BODY_AT, b"hello"), (Fact.PROPERTIES_AT, properties)):  # fmt: skip
        assert data[row[column] : row[column] + row[column + 1]] == text
    assert row[Fact.ODD] == 0


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        (b"", 0),
        (b"TAGS\x01\x02", 0),
        (b"TAGS\x01A\x02TAGS\x01TagA", 2598919),
        ("TAGS\x01中文".encode(), 646394),
        ("TAGS\x01😀\x02".encode(), 1772899),
        (b"\x01x\x02TAGS\x01A\x01B\x02", 62562),
    ],
)
def test_the_tags_code_is_javas_hash_of_the_last_real_tags(twin: Any, properties: bytes, code: int) -> None:
    rows, _, _ = walked(twin, records_of([a_message(properties=properties)]))
    assert rows[0][Fact.TAGS_CODE] == code


@pytest.mark.parametrize(
    ("properties", "odd"),
    [
        (b"DELAY\x013\x02", Odd.DELAY),
        (b"INNER_NUM\x013\x02", 0),
        (b"INNER_NUM\x013\x02INNER_BASE\x010\x02", Odd.INNER_BATCH),
        (b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02", Odd.MULTI_DISPATCH),
    ],
)
def test_records_that_need_more_than_plain_dispatch_are_marked(
    twin: Any, properties: bytes, odd: int
) -> None:
    rows, _, _ = walked(twin, records_of([a_message(properties=properties)]))
    assert rows[0][Fact.ODD] == odd


def test_a_walk_ends_at_the_blank_record(twin: Any) -> None:
    data = records_of([a_message()])
    end = len(data)
    data += (100).to_bytes(4, "big") + layout.BLANK_MAGIC.to_bytes(4, "big", signed=True) + bytes(92)
    rows, at, stop = walked(twin, data)
    assert (len(rows), at, stop) == (1, end, Stop.BLANK)


def test_a_walk_ends_where_the_zeros_begin(twin: Any) -> None:
    data = records_of([a_message()])
    rows, at, stop = walked(twin, data + bytes(1000))
    assert (len(rows), at, stop) == (1, len(data), Stop.INVALID)


def test_a_walk_stops_when_its_table_is_full(twin: Any) -> None:
    data = records_of([a_message() for _ in range(5)])
    rows, at, stop = walked(twin, data, rows=3)
    assert (len(rows), at, stop) == (3, len(data) // 5 * 3, Stop.LIMIT)


def test_a_flipped_bit_in_the_body_is_seen_only_when_asked_for(twin: Any) -> None:
    data = records_of([a_message()])
    data[90] ^= 1
    assert walked(twin, data)[2] == Stop.INVALID
    assert walked(twin, data, check=Check.NOTHING)[2] == Stop.LIMIT


def test_a_record_that_lies_elsewhere_than_it_says_is_invalid(twin: Any) -> None:
    data = records_of([a_message()], base=100)
    assert walked(twin, data, base=100)[2] == Stop.LIMIT
    assert walked(twin, data, base=200)[2] == Stop.INVALID


@pytest.mark.parametrize("place", [0, 30, 60, 90, 110])
def test_any_flipped_bit_breaks_the_record_crc(twin: Any, place: int) -> None:
    data = records_of([a_message()], append_crc=True)
    assert walked(twin, data, check=Check.RECORD_CRC)[2] == Stop.LIMIT
    data[place] ^= 1
    assert walked(twin, data, check=Check.RECORD_CRC)[2] != Stop.LIMIT


def test_a_record_without_the_asked_crc_is_invalid(twin: Any) -> None:
    assert walked(twin, records_of([a_message()]), check=Check.RECORD_CRC)[2] == Stop.INVALID


def test_lengths_that_do_not_add_up_make_half_a_record(twin: Any) -> None:
    data = records_of([a_message()])
    data[3] += 1
    assert walked(twin, data + b"\0")[2] == Stop.HALF


def test_a_range_outside_of_the_buffer_is_refused(twin: Any) -> None:
    for at, end in ((0, 11), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="range"):
            twin.walk(bytes(10), at, end, 0, facts_table(1), 0)


def test_a_leap_ends_where_a_record_begins(twin: Any) -> None:
    data = records_of([a_message() for _ in range(5)], base=100)
    size = len(data) // 5
    found = [
        twin.leap(data, 0, len(data), 100, goal) for goal in (0, 1, size, size + 1, 4 * size, 4 * size + 1)
    ]
    assert found == [0, size, size, 2 * size, 4 * size, -1]


def test_a_leap_goes_over_no_place_that_holds_no_record(twin: Any) -> None:
    data = records_of([a_message() for _ in range(3)])
    size = len(data) // 3
    assert twin.leap(data + bytes(1000), 0, len(data) + 1000, 0, 2 * size + 1) == -1
    data[size + 7] ^= 0xFF  # A magic number.
    assert twin.leap(data, 0, len(data), 0, 2 * size) == -1
    assert twin.leap(data, 0, len(data), 5, 0) == -1
    with pytest.raises(ValueError, match="range"):
        twin.leap(bytes(10), 0, 11, 0, 1)


def test_crc31_clears_the_sign(twin: Any) -> None:
    assert twin.crc31(b"hello") == 0x3610A686
    assert twin.crc31(b"a") == 1756872259
    assert twin.crc31(b"") == 0


@given(data=st.binary(max_size=700), start=st.integers(0, 20))
def test_crc31_is_zlibs_for_every_length_and_alignment(data: bytes, start: int) -> None:
    for module in TWINS:
        assert module.crc31(memoryview(data)[start:]) == zlib.crc32(data[start:]) & 0x7FFFFFFF


def test_decoding_gives_back_what_was_encoded() -> None:
    message = a_message(b"body", queue_id=2, flag=7, reconsume_times=3, prepared_transaction_offset=99)
    decoded = record.decode(bytes(records_of([message], base=4096)))
    assert (decoded.topic, decoded.body, decoded.queue_id, decoded.flag) == ("TopicTest", b"body", 2, 7)
    assert (decoded.physical_offset, decoded.queue_offset) == (4096, 0)
    assert (decoded.reconsume_times, decoded.prepared_transaction_offset) == (3, 99)
    assert decoded.born_host == Host("10.0.0.1", 5000)
    assert decoded.store_host == Host("10.0.0.2", 10911)
    assert decoded.tags == "TagA"


def test_many_records_decode_in_order() -> None:
    data = records_of([a_message(str(i).encode()) for i in range(600)])
    assert [int(m.body) for m in record.decode_many(data)] == list(range(600))


def test_a_broken_record_among_good_ones_is_told_with_its_place() -> None:
    data = records_of([a_message(), a_message()])
    data[len(data) // 2 + 90] ^= 1
    with pytest.raises(Malformed) as caught:
        list(record.decode_many(data))
    assert caught.value.at == len(data) // 2


noise = st.binary(max_size=400)
spoiled = st.tuples(st.integers(0, 400), st.integers(0, 255))


@given(data=noise)
def test_decoding_any_bytes_gives_a_message_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        record.decode(data)


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(
    bodies=st.lists(st.binary(max_size=60), min_size=1, max_size=4),
    properties=st.one_of(
        st.binary(max_size=60),
        st.lists(
            st.tuples(
                st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "INNER_NUM", "x"]), st.text(max_size=5)
            ),
            max_size=5,
        ).map(lambda pairs: "".join(f"{k}\x01{v}\x02" for k, v in pairs).encode("utf-8", "surrogatepass")),
    ),
    damage=st.lists(spoiled, max_size=3),
    check=st.integers(0, 7),
    tail=noise,
)
def test_twins_agree_on_sound_and_on_spoiled_records(
    bodies: list[bytes], properties: bytes, damage: list[tuple[int, int]], check: int, tail: bytes
) -> None:
    data = records_of([a_message(body, properties=properties) for body in bodies], append_crc=bool(check & 2))
    for place, value in damage:
        data[place % len(data)] = value
    data += tail
    seen = []
    for module in TWINS:
        facts: array[int] = facts_table(6)
        leaps = [module.leap(data, 0, len(data), 0, goal) for goal in (1, 100, 200)]
        seen.append((module.walk(data, 0, len(data), 0, facts, check), facts, leaps))
    assert (seen[0][0], seen[0][2]) == (seen[1][0], seen[1][2])
    rows = seen[0][0][0] * Fact.WIDTH
    assert seen[0][1][:rows] == seen[1][1][:rows]


@given(
    old=st.text("ab", min_size=1, max_size=30),
    new=st.text("xyz", min_size=1, max_size=127),
    queue_id=st.integers(0, 99),
)
def test_a_readdressed_record_differs_in_topic_and_queue_only(old: str, new: str, queue_id: int) -> None:
    data = records_of([a_message(b"body", topic=old.encode(), properties=b"a\x011\x02")])
    before, (after,) = (
        record.decode(data),
        record.decode_many(record.readdressed(data, new.encode(), queue_id)),
    )
    assert (after.topic, after.queue_id) == (new, queue_id)
    assert after.size == before.size + len(new) - len(old)
    for name in (
        "body",
        "raw_properties",
        "physical_offset",
        "queue_offset",
        "store_timestamp_ms",
        "born_host",
    ):
        assert getattr(after, name) == getattr(before, name)


def entries_of(*records: bytes | bytearray, base: int = 0) -> bytearray:
    """Records as a ledger holds them; their own offsets are not looked at."""
    data = bytearray()
    for index, each in enumerate(records):
        head = (layout.DLEDGER_MAGIC, len(each) + layout.DLEDGER_HEADER_SIZE, index, 3, base + len(data))
        data += struct.pack(layout.DLEDGER_HEADER_FORMAT, *head, 0, 0, 0, len(each)) + each
    return data


@pytest.mark.parametrize("at", [0, 40, 90, 200])
def test_an_entry_with_a_crc_is_whole_or_reported(twin: Any, at: int) -> None:
    record_bytes = records_of([a_message(b"one" * 50, properties=b"KEYS\x01k\x02")])
    data = entries_of(record_bytes)
    struct.pack_into(">i", data, 40, twin.crc31(record_bytes))
    assert walked_entries(twin, data)[2] == Stop.LIMIT
    data[layout.DLEDGER_HEADER_SIZE + at] ^= 1
    facts, _, stop = walked_entries(twin, data)
    assert (facts, stop) == ([], Stop.HALF)


def walked_entries(twin: Any, data: bytes | bytearray, base: int = 0) -> tuple[list[int], int, int]:
    facts = facts_table(8)
    count, at, stop = twin.walk_entries(data, 0, len(data), base, facts, Check.BODY_CRC)
    return list(facts[: count * Fact.WIDTH]), at, stop


def test_entries_of_a_ledger_are_walked_as_the_records_in_them(twin: Any) -> None:
    one, two = records_of([a_message(b"one")]), records_of([a_message(b"two!")])
    data = entries_of(one, two, base=500)
    facts, at, stop = walked_entries(twin, data, 500)
    assert (at, stop) == (len(data), Stop.LIMIT)
    offsets = [548, 548 + len(one) + layout.DLEDGER_HEADER_SIZE]
    assert facts[Fact.OFFSET :: Fact.WIDTH] == offsets
    begins = facts[Fact.BODY_AT :: Fact.WIDTH]
    assert [bytes(data[at : at + size]) for at, size in zip(begins, (3, 4), strict=True)] == [b"one", b"two!"]


@pytest.mark.parametrize(
    ("change", "stop"),
    [
        (lambda data: data[:-1], Stop.INVALID),  # Not all of it is there.
        (lambda data: data[:20], Stop.INVALID),
        (lambda data: data[:4], Stop.INVALID),
        (lambda data: bytes(len(data)), Stop.INVALID),
        (lambda data: data[:31] + b"\x01" + data[32:], Stop.INVALID),  # It belongs elsewhere.
        (lambda data: struct.pack(">ii", layout.DLEDGER_BLANK_MAGIC, len(data)) + data[8:], Stop.BLANK),
        (lambda data: data[:-3] + b"?" + data[-2:], Stop.LIMIT),  # A property: nothing covers it.
        (lambda data: data[:140] + b"?" + data[141:], Stop.HALF),  # The body.
        (lambda data: data[:48] + b"\x01" + data[49:], Stop.HALF),  # The size of the record.
    ],
)
def test_a_walk_of_entries_ends_where_one_is_not_whole(twin: Any, change: Any, stop: int) -> None:
    data = bytes(entries_of(records_of([a_message(b"some text", properties=b"KEYS\x01abc\x02")])))
    facts, at, found = walked_entries(twin, change(data))
    assert (found, at) == (stop, len(data) if stop == Stop.LIMIT else 0)
    assert len(facts) == (Fact.WIDTH if stop == Stop.LIMIT else 0)


@given(data=st.binary(max_size=60), count=st.integers(0, 3), cut=st.integers(0, 40), at=st.integers(0, 400))
def test_twins_walk_the_same_entries_in_any_bytes(data: bytes, count: int, cut: int, at: int) -> None:
    whole = entries_of(*[records_of([a_message(b"%d" % n)]) for n in range(count)])
    mixed = whole[: max(0, len(whole) - cut)] + data
    if at < len(mixed):
        mixed[at] ^= 0x41
    assert len({str(walked_entries(twin, mixed)) for twin in TWINS}) == 1
