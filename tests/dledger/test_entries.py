"""Heads of entries, by both twins."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.model import layout
from flaremq.model.columns import Draft, Stop
from flaremq.model.encode import Encoder
from flaremq.model.record import crc31
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.testing.fakes.builders import NOW_MS, STORE_HOST, a_message, drafts_of
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.dledger.ledger._entries")
HEAD, UNIT = layout.DLEDGER_HEADER_SIZE, layout.DLEDGER_UNIT_SIZE
HEADER = struct.Struct(layout.DLEDGER_HEADER_FORMAT)
BASE = 4096


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def sealed(twin: Any, bodies: list[bytes], *, index: int = 0, term: int = 1, channel: int = 0) -> bytearray:
    """Entries of these messages, as they lie in a file that begins at BASE."""
    offsets = QueueOffsets()
    drafts = drafts_of([a_message(body) for body in bodies], offsets)
    out = bytearray(sum(300 + len(body) for body in bodies) + 8)
    encoder = Encoder(STORE_HOST, gap=HEAD)
    written = encoder.encode_many(drafts, 0, out, 0, BASE, offsets.next, NOW_MS)
    units = bytearray(written * UNIT)
    twin.seal(out, drafts.rows, 0, written, BASE, index, term, channel, units)
    end = drafts.rows[-Draft.WIDTH + Draft.PHYSICAL_OFFSET] + drafts.rows[-Draft.WIDTH + Draft.SIZE] - BASE
    return out[:end]


def examined(
    twin: Any, data: bytes | bytearray, *, at: int = 0, index: int = 0, term: int = 0, rows: int = 99
) -> tuple[tuple[int, int, int], list[int], list[int], bytes]:
    units, spans, marked = bytearray(rows * UNIT), array("q"), array("q")
    found = twin.examine(data, at, len(data), BASE, index, term, units, spans, marked)
    return found, list(spans), list(marked), bytes(units[: found[0] * UNIT])


def test_a_head_says_where_the_entry_lies_and_what_it_holds(twin: Any) -> None:
    data = sealed(twin, [b"a", b"bb"], index=7, term=5)
    magic, size, index, term, position, channel, chain, crc, body = HEADER.unpack_from(data)
    assert (magic, size, index, term, position) == (1, HEAD + body, 7, 5, BASE)
    assert (channel, chain) == (0, 0)
    assert crc == crc31(bytes(data[HEAD : HEAD + body]))
    second = HEADER.unpack_from(data, size)
    assert second[2:5] == (8, 5, BASE + size)
    (record_offset,) = struct.unpack_from(">q", data, HEAD + layout.PHYSICAL_OFFSET_AT)
    assert record_offset == BASE + HEAD


def test_what_was_sealed_is_sound(twin: Any) -> None:
    data = sealed(twin, [b"a", b"bb", b"ccc"], index=4, term=2)
    found, spans, marked, units = examined(twin, data, index=4, term=2)
    assert found == (3, len(data), Stop.LIMIT)
    assert (spans, marked) == ([2, 3], [])
    sizes = [struct.unpack_from(layout.DLEDGER_UNIT_FORMAT, units, n * UNIT)[2] for n in range(3)]
    assert sum(sizes) == len(data)


def test_what_the_group_says_is_marked(twin: Any) -> None:
    data = sealed(twin, [b"a", b"b"], index=4, channel=1)
    _, _, marked, _ = examined(twin, data, index=4)
    first = HEADER.unpack_from(data)[1]
    assert marked == [4, HEAD, 5, first + HEAD]


def test_terms_are_told_by_spans_and_do_not_fall(twin: Any) -> None:
    data = sealed(twin, [b"a", b"b", b"c", b"d"], term=3)
    size = len(data) // 4
    struct.pack_into(">q", data, 2 * size + 16, 6)
    struct.pack_into(">q", data, 3 * size + 16, 6)
    assert examined(twin, data)[:2] == ((4, len(data), Stop.LIMIT), [3, 2, 6, 2])
    struct.pack_into(">q", data, 3 * size + 16, 5)
    assert examined(twin, data)[:2] == ((3, 3 * size, Stop.INVALID), [3, 2, 6, 1])
    assert examined(twin, data, term=4)[0] == (0, 0, Stop.INVALID)


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 2), (4, 100), (8, 9), (24, 1), (40, 5), (44, 7), (44, -1), (HEAD + 60, 3)],
    ids=["magic", "size", "index", "position", "crc", "body size", "negative size", "record"],
)
def test_an_entry_that_is_not_sound_ends_the_walk(twin: Any, place: int, value: int) -> None:
    data = sealed(twin, [b"a" * 50, b"b" * 50])
    first = len(data) // 2
    struct.pack_into(">i", data, first + place, value)
    assert examined(twin, data)[0] == (1, first, Stop.INVALID)


def test_an_entry_of_java_has_no_crc_and_is_believed(twin: Any) -> None:
    data = sealed(twin, [b"a"])
    struct.pack_into(">i", data, 40, 0)
    assert examined(twin, data)[0] == (1, len(data), Stop.LIMIT)


def test_a_blank_a_hole_and_the_end_of_a_table_end_the_walk(twin: Any) -> None:
    data = sealed(twin, [b"a", b"b"])
    blank = struct.pack(">ii", layout.DLEDGER_BLANK_MAGIC, 100) + bytes(92)
    assert examined(twin, data + blank)[0] == (2, len(data), Stop.BLANK)
    assert examined(twin, data + bytes(100))[0] == (2, len(data), Stop.INVALID)
    assert examined(twin, data + bytes(3))[0] == (2, len(data), Stop.INVALID)
    assert examined(twin, data, rows=1)[0] == (1, len(data) // 2, Stop.LIMIT)
    assert examined(twin, data, rows=0)[0] == (0, 0, Stop.LIMIT)


def test_rows_and_ranges_that_cannot_be_are_refused(twin: Any) -> None:
    rows = array("q", bytes(8 * Draft.WIDTH))
    with pytest.raises(IndexError):
        twin.seal(bytearray(100), rows, 0, 2, 0, 0, 0, 0, bytearray(64))
    with pytest.raises(IndexError):
        twin.seal(bytearray(100), rows, 0, 1, 0, 0, 0, 0, bytearray(31))
    rows[Draft.PHYSICAL_OFFSET], rows[Draft.SIZE] = HEAD, 100
    with pytest.raises(IndexError):
        twin.seal(bytearray(100), rows, 0, 1, 0, 0, 0, 0, bytearray(32))
    with pytest.raises(ValueError, match="range"):
        twin.examine(b"", 0, 1, 0, 0, 0, bytearray(32), array("q"), array("q"))


@given(
    bodies=st.lists(st.binary(max_size=80), min_size=1, max_size=8),
    flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=3),
    tail=st.binary(max_size=60),
    term=st.integers(0, 3),
)
def test_the_twins_agree_on_any_bytes(
    bodies: list[bytes], flips: list[tuple[int, int]], tail: bytes, term: int
) -> None:
    made = [sealed(module, bodies, index=2, term=2, channel=len(bodies) % 2) for module in TWINS]
    assert all(each == made[0] for each in made)
    data = made[0] + tail
    for at, bits in flips:
        data[at % len(data)] ^= bits
    found = [examined(module, data, index=2, term=term) for module in TWINS]
    assert all(each == found[0] for each in found)
