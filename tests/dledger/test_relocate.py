"""Copies of records elsewhere: the same messages, which say where they lie now."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.model import layout
from flaremq.model.columns import Check, Fact, Stop, facts_table
from flaremq.model.record import decode, walk, walk_entries
from flaremq.testing.fakes.builders import a_message, records_of
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.dledger._relocate")
bodies = st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=12)


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def facts_of(data: bytes | bytearray, base: int = 0) -> tuple[array[int], int]:
    facts = facts_table(64)
    count, _, stop = walk(data, 0, len(data), base, facts, Check.BODY_CRC | Check.OFFSET)
    assert stop == Stop.LIMIT
    return facts, count


def some(*texts: bytes, base: int = 0, append_crc: bool = False, **other: Any) -> bytearray:
    return records_of([a_message(text, **other) for text in texts], base, append_crc=append_crc)


@given(texts=bodies, at=st.integers(0, 50), base=st.integers(0, 1 << 40), append_crc=st.booleans())
def test_copies_say_where_they_lie_and_are_the_same_otherwise(
    texts: list[bytes], at: int, base: int, append_crc: bool
) -> None:
    data = some(*texts, base=7000, append_crc=append_crc)
    facts, count = facts_of(data, 7000)
    check = Check.BODY_CRC | Check.OFFSET | (Check.RECORD_CRC if append_crc else 0)
    made = []
    for twin in TWINS:
        target, moved = bytearray(at + len(data) + layout.BLANK_SIZE), array("q", bytes(8 * count))
        assert twin.relocate(data, facts, 0, count, target, at, base, moved) == (count, at + len(data))
        copies = facts_table(64)
        assert walk(target, at, at + len(data), base, copies, check) == (count, at + len(data), Stop.LIMIT)
        assert list(moved) == list(copies[Fact.OFFSET : count * Fact.WIDTH : Fact.WIDTH])
        assert twin.differing_row(data, facts, target, copies, count) == count
        made.append(target)
    assert all(target == made[0] for target in made)


@given(texts=bodies, index=st.integers(0, 1 << 40), term=st.integers(0, 1 << 30))
def test_entries_of_a_ledger_wrap_records_and_have_units(texts: list[bytes], index: int, term: int) -> None:
    data = some(*texts)
    facts, count = facts_of(data)
    size = len(data) + count * layout.DLEDGER_HEADER_SIZE
    made = []
    for twin in TWINS:
        target, moved = bytearray(size + layout.BLANK_SIZE), array("q", bytes(8 * count))
        units = bytearray(count * layout.DLEDGER_UNIT_SIZE)
        done = twin.relocate(data, facts, 0, count, target, 0, 4096, moved, units, index, term)
        assert done == (count, size)
        copies = facts_table(64)
        walked = walk_entries(target, 0, size, 4096, copies, Check.BODY_CRC | Check.OFFSET)
        assert walked == (count, size, Stop.LIMIT)
        for row in range(count):
            position = copies[row * Fact.WIDTH + Fact.OFFSET] - layout.DLEDGER_HEADER_SIZE
            whole = copies[row * Fact.WIDTH + Fact.SIZE] + layout.DLEDGER_HEADER_SIZE
            unit = struct.unpack_from(layout.DLEDGER_UNIT_FORMAT, units, row * layout.DLEDGER_UNIT_SIZE)
            assert unit == (layout.DLEDGER_MAGIC, position, whole, index + row, term)
            entry = struct.unpack_from(layout.DLEDGER_HEADER_FORMAT, target, position - 4096)
            assert entry[:5] == (layout.DLEDGER_MAGIC, whole, index + row, term, position)
        assert twin.differing_row(data, facts, target, copies, count) == count
        made.append((target, units))
    assert all(each == made[0] for each in made)


def test_an_entry_has_the_bytes_that_the_library_writes(twin: Any) -> None:
    """Entry 5 of term 2 at 1073745920, as a member of Apache RocketMQ has written it."""
    data = some(b"x" * (159 - len(some(b""))))
    facts, count = facts_of(data)
    base = 1073745920
    target, units, moved = bytearray(300), bytearray(32), array("q", [0])
    twin.relocate(data, facts, 0, count, target, 0, base, moved, units, 5, 2)
    head = "00000001 000000cf 0000000000000005 0000000000000002 0000000040001000 00000000 00000000"
    head += "00000000 0000009f"
    assert target[:48] == bytes.fromhex(head)
    assert struct.unpack_from(">q", target, 48 + layout.PHYSICAL_OFFSET_AT) == (base + 48,)
    assert units == bytes.fromhex("00000001 0000000040001000 000000cf 0000000000000005 0000000000000002")


def test_a_copy_leaves_room_for_the_blank_that_ends_its_file(twin: Any) -> None:
    data = some(b"one", b"two")
    facts, count = facts_of(data)
    moved, one = array("q", [0, 0]), facts[Fact.SIZE]
    for room, done in ((layout.BLANK_SIZE, 2), (layout.BLANK_SIZE - 1, 1)):
        target = bytearray(len(data) + room)
        assert twin.relocate(data, facts, 0, count, target, 0, 0, moved) == (done, done * one)
    assert decode(target).body == b"one"


def test_records_that_name_others_are_found(twin: Any) -> None:
    data = records_of(
        [
            a_message(b"plain"),
            a_message(b"half", topic=b"RMQ_SYS_TRANS_HALF_TOPIC"),
            a_message(b"committed", prepared_transaction_offset=99),
            a_message(b"plain"),
        ]
    )
    facts, count = facts_of(data)
    assert list(twin.linked_rows(data, facts, count, (b"RMQ_SYS_TRANS_HALF_TOPIC",))) == [1, 2]
    assert list(twin.linked_rows(data, facts, count, ())) == [2]


@pytest.mark.parametrize("place", [12, 20, 36, 40, 90, -1])
def test_a_byte_that_differs_is_found(twin: Any, place: int) -> None:
    """Queue, queue offset, flags, times, body, properties."""
    data = some(b"one", b"two", properties=b"KEYS\x01k\x02")
    facts, count = facts_of(data)
    other = bytearray(data)
    size = facts[Fact.SIZE]
    other[size + place if place >= 0 else len(other) + place] ^= 1
    assert twin.differing_row(data, facts, other, facts, count) == 1


def test_records_of_other_sizes_differ(twin: Any) -> None:
    data, other = some(b"one"), some(b"three")
    facts, count = facts_of(data)
    assert twin.differing_row(data, facts, other, facts_of(other)[0], count) == 0
