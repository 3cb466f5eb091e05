"""Whatever lies in a store comes out as the columns that `model.record` would tell, by either twin."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.arrow.columnspec import Number, Only, Pairs, TextColumn
from flaremq.model.columns import Check, Fact, facts_table
from flaremq.model.host import Host
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode_many, walk
from flaremq.store.drafts import NewMessage
from flaremq.testing.fakes.builders import a_message, records_of
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.arrow._columns")
V6 = Host("2001:db8::17", 9876).encode()

names = st.binary(max_size=6).filter(lambda raw: b"\x01" not in raw and b"\x02" not in raw)
pairs = st.tuples(names, names).map(lambda pair: pair[0] + b"\x01" + pair[1])
properties = st.lists(
    st.one_of(
        pairs,
        names,
        st.sampled_from(
            [b"TAGS\x01a", b"TAGS\x01b", b"KEYS\x01k1 k2", b"UNIQ_KEY\x01ABC", b"TAGS\x01", b"x\x01a\x01b"]
        ),
    ),
    max_size=6,
).map(lambda found: b"\x02".join(found))
messages = st.builds(
    a_message,
    st.binary(max_size=40),
    topic=st.sampled_from([b"A", b"Orders", "Ünïcode".encode()]),
    properties=properties,
    queue_id=st.integers(0, 3),
    born_host=st.sampled_from([Host("10.0.0.1", 5000).encode(), V6]),
    born_timestamp_ms=st.integers(0, 1 << 62),
    reconsume_times=st.integers(0, 16),
    prepared_transaction_offset=st.integers(0, 1 << 60),
)


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


class Walk:
    def __init__(self, *given_: NewMessage) -> None:
        self.data = bytes(records_of(given_, base=4096))
        self.facts = facts_table(len(given_))
        self.count, _, _ = walk(self.data, 0, len(self.data), 4096, self.facts, Check.BODY_CRC)
        assert self.count == len(given_)
        self.stored: list[StoredMessage] = list(decode_many(self.data))

    @property
    def rows(self) -> tuple[bytes, array[int], int]:
        return self.data, self.facts, self.count


def texts(found: TextColumn) -> list[bytes | None]:
    offsets = array("i", found.offsets)
    valid = found.valid
    return [
        None if valid is not None and not valid[i >> 3] & 1 << (i & 7) else found.values[begin:end]
        for i, (begin, end) in enumerate(pairwise(offsets))
    ]


def maps(found: Pairs) -> list[dict[bytes, bytes]]:
    begins = array("i", found.rows)
    both = list(zip(texts(found.names), texts(found.values), strict=True))
    out = []
    for begin, end in pairwise(begins):
        row: dict[Any, Any] = dict(both[begin:end])
        assert len(row) == end - begin, "no name twice in a row"
        out.append(row)
    return out


@given(st.lists(messages, max_size=12))
def test_twins_give_the_same_bytes(given_: list[NewMessage]) -> None:
    it = Walk(*given_)
    calls: list[Callable[[ModuleType], object]] = [
        lambda t: [t.numbers(*it.rows, n) for n in range(8)],
        lambda t: t.gather(it.data, b"", it.facts, Fact.WIDTH, Fact.BODY_AT, it.count, False),
        lambda t: t.gather(it.data, b"", it.facts, Fact.WIDTH, Fact.KEYS_AT, it.count, True),
        lambda t: t.gather(it.data, b"", it.facts, Fact.WIDTH, Fact.TAGS_AT, it.count, True),
        lambda t: t.ids(*it.rows),
        lambda t: t.hosts(*it.rows, True),
        lambda t: t.hosts(*it.rows, False),
        lambda t: t.pairs(*it.rows),
        lambda t: _sifted(t, it, Only(0, 2, queue_id=1, topics=(b"A", b"Orders"))),
        lambda t: _sifted(t, it, Only(tags=(b"a",))),
    ]
    for call in calls:
        first, *others = [call(t) for t in TWINS]
        assert all(other == first for other in others)


def _sifted(twin: ModuleType, it: Walk, only: Only) -> tuple[int, int, array[int]]:
    facts = it.facts[:]
    count, odd = twin.sift(it.data, facts, it.count, only)
    return count, odd, facts[: count * Fact.WIDTH]


@given(st.lists(messages, min_size=1, max_size=8))
@pytest.mark.parametrize("twin", TWINS, ids=twin_name)
def test_columns_say_what_the_records_say(twin: ModuleType, given_: list[NewMessage]) -> None:
    it = Walk(*given_)
    numbers = {n: array("i" if n in Number.NARROW else "q", twin.numbers(*it.rows, n)) for n in range(8)}
    assert list(numbers[Number.QUEUE_ID]) == [m.queue_id for m in it.stored]
    assert list(numbers[Number.QUEUE_OFFSET]) == [m.queue_offset for m in it.stored]
    assert list(numbers[Number.PHYSICAL_OFFSET]) == [m.physical_offset for m in it.stored]
    assert list(numbers[Number.SYS_FLAG]) == [m.sys_flag for m in it.stored]
    assert list(numbers[Number.RECONSUME_TIMES]) == [m.reconsume_times for m in it.stored]
    assert list(numbers[Number.PREPARED_OFFSET]) == [m.prepared_transaction_offset for m in it.stored]
    assert list(numbers[Number.STORE_TIME]) == [m.store_timestamp_ms * 1000 for m in it.stored]
    most_ms = ((1 << 63) - 1) // 1000
    assert list(numbers[Number.BORN_TIME]) == [min(m.born_timestamp_ms, most_ms) * 1000 for m in it.stored]
    bodies = twin.gather(it.data, b"", it.facts, Fact.WIDTH, Fact.BODY_AT, it.count, False)
    assert texts(bodies) == [m.body for m in it.stored]
    assert texts(twin.hosts(*it.rows, False)) == [str(m.born_host).encode() for m in it.stored]
    assert texts(twin.hosts(*it.rows, True)) == [str(m.store_host).encode() for m in it.stored]


@given(st.lists(messages, max_size=8))
@pytest.mark.parametrize("twin", TWINS, ids=twin_name)
def test_of_equal_names_the_last_stands_and_half_pairs_are_none(
    twin: ModuleType, given_: list[NewMessage]
) -> None:
    it = Walk(*given_)
    wanted = []
    for message in it.stored:
        row: dict[bytes, bytes] = {}
        for pair in message.raw_properties.split(b"\x02"):
            name, _, value = pair.partition(b"\x01")
            if name and value:
                row[name] = value
        wanted.append(row)
    assert maps(twin.pairs(*it.rows)) == wanted
    tags = texts(twin.gather(it.data, b"", it.facts, Fact.WIDTH, Fact.TAGS_AT, it.count, True))
    assert tags == [row.get(b"TAGS") for row in wanted]


def test_a_message_without_an_id_of_its_sender_is_named_by_its_place(twin: ModuleType) -> None:
    it = Walk(a_message(properties=b""), a_message(properties=b"UNIQ_KEY\x01AC11\x02"))
    place = "0A00000200002A9F0000000000001000"
    assert texts(twin.ids(*it.rows)) == [place.encode(), b"AC11"]


def test_places_below_zero_lie_beside_the_data(twin: ModuleType) -> None:
    places = array("q", [0, 2, -3, 3, 2, 0, -1, 2])
    found = twin.gather(b"main", b"another", places, 2, 0, 4, True)
    assert texts(found) == [b"ma", b"oth", None, b"an"]


def test_no_rows_are_no_bytes(twin: ModuleType) -> None:
    empty = facts_table(0)
    assert twin.numbers(b"", empty, 0, Number.QUEUE_OFFSET) == b""
    assert texts(twin.ids(b"", empty, 0)) == texts(twin.hosts(b"", empty, 0, True)) == []
    assert maps(twin.pairs(b"", empty, 0)) == []
    assert twin.sift(b"", empty, 0, Only(topics=(b"A",))) == (0, 0)


def test_rows_are_sifted_by_offset_time_topic_and_tag(twin: ModuleType) -> None:
    given_ = [
        a_message(topic=t, properties=p) for t in (b"A", b"B") for p in (b"TAGS\x01x", b"TAGS\x01y", b"")
    ]

    def offsets(only: Only) -> list[tuple[str, int]]:
        it = Walk(*given_)
        count, odd = twin.sift(it.data, it.facts, it.count, only)
        assert odd == 0
        topics = texts(twin.gather(it.data, b"", it.facts, Fact.WIDTH, Fact.TOPIC_AT, count, False))
        found = array("q", twin.numbers(it.data, it.facts, count, Number.QUEUE_OFFSET))
        return [((topic or b"").decode(), offset) for topic, offset in zip(topics, found, strict=True)]

    stored_ms = Walk(*given_).stored[0].store_timestamp_ms
    assert offsets(Only(1, 3, topics=(b"B",))) == [("B", 1), ("B", 2)]
    assert offsets(Only(tags=(b"y", b"z"))) == [("A", 1), ("B", 1)]
    assert offsets(Only(time_end_ms=stored_ms)) == []
    assert len(offsets(Only(time_begin_ms=stored_ms))) == 6
    assert offsets(Only(topics=(b"C",))) == []
