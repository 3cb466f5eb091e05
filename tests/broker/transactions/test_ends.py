"""Ends of transactions as rows: both twins take the same ends, and store the same for them."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flaremq.broker.transactions.ends import WIDTH
from flaremq.model.columns import Draft, Drafts
from flaremq.model.names import TRANS_HALF_TOPIC
from flaremq.protocol.bulk.columns import Kind, Request
from flaremq.store.drafts import NewMessage
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.testing.fakes.builders import NOW_MS, a_message, records_of
from flaremq.testing.twins import twins

TWINS = twins("flaremq.broker.transactions._ends")
BASE = 4096
OPEN = ("U0", "U1", "U2", "")

values = st.sampled_from([b"buyers", b"others", b"Orders", b"3", b"12345678901", b"\xff\xfe", b""])
names = st.sampled_from([b"PGROUP", b"UNIQ_KEY", b"REAL_TOPIC", b"REAL_QID", b"DELAY", b"TIMER_OUT_MS", b"A"])
ordinary = st.builds(
    lambda number, more: (
        b"UNIQ_KEY\x01U%d\x02PGROUP\x01buyers\x02REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02" % number + more
    ),
    st.integers(0, 4),
    st.sampled_from([b"", b"", b"DELAY\x013\x02", b"REAL_QID\x01x\x02", b"PGROUP\x01others\x02", b"A\x01b"]),
)
strange = st.lists(st.tuples(names, values), max_size=5).map(
    lambda pairs: b"\x02".join(b"%b\x01%b" % pair for pair in pairs)
)
halves = st.builds(
    lambda topic, body, properties, host: a_message(body, topic=topic, properties=properties, born_host=host),
    st.sampled_from([TRANS_HALF_TOPIC.encode()] * 4 + [b"Orders"]),
    st.binary(min_size=1, max_size=20),
    st.one_of(ordinary, ordinary, strange),
    st.sampled_from([bytes(8), bytes(range(20))]),
)
fields = st.tuples(
    st.sampled_from([b"buyers"] * 6 + [b"others", b""]),
    st.one_of(st.integers(0, 5).map(lambda n: b"%d" % n), st.sampled_from([b"", b"-1", b"9" * 18, b"1x"])),
    st.sampled_from([b"8", b"8", b"12", b"0", b"88"]),
    st.sampled_from([Kind.TEXT] * 9 + [Kind.WIDE]),
)


def resolved(drafts: Drafts) -> list[tuple[Any, ...]]:
    """What the rows say, wherever the bytes lie."""
    rows, heads, bodies = drafts.rows, drafts.heads, drafts.bodies
    found = []
    for d in range(0, len(rows), Draft.WIDTH):
        row = rows[d : d + Draft.WIDTH]
        places = ((heads, 0), (heads, 2), (bodies, 4), (heads, 6))
        parts = tuple(bytes(buffer[row[at] : row[at] + row[at + 1]]) for buffer, at in places)
        found.append((*parts, *row[8:]))
    return found


def taken(twin: ModuleType, data: bytes, rows: array[int], log: bytes) -> tuple[Any, ...]:
    asked: list[tuple[int, str]] = []

    def window(offset: int) -> tuple[memoryview, int] | None:
        return (memoryview(log), BASE) if BASE <= offset < BASE + len(log) + 50 else None

    def is_alone(queue_offset: int, key: str) -> bool:
        asked.append((queue_offset, key))
        return key in OPEN

    offsets = QueueOffsets()
    op = a_message(b"", topic=b"Ops", properties=b"TAGS\x01d\x02", born_timestamp_ms=NOW_MS)
    ends = twin.Ends(offsets, op)
    left = ends.take(data, rows, window, is_alone, lambda topic: topic == "Orders")
    drafts = ends.drafts()
    columns = ends.frames, ends.queue_offsets, ends.keys, ends.topics
    for row in range(len(drafts.rows) // Draft.WIDTH):  # As if they were stored.
        at = row * Draft.WIDTH + Draft.PHYSICAL_OFFSET
        drafts.rows[at : at + 3] = array("q", (9000 + 100 * row, 90 + row, row))
    counts = [ends.done(rows) for rows in range(len(drafts.rows) // Draft.WIDTH + 1)]
    after = [(ends.places(count), ends.end(count), ends.sizes(count)) for count in range(1, len(ends) + 1)]
    return left, columns, resolved(drafts), counts, after, asked, len(ends)


@given(
    messages=st.lists(halves, min_size=1, max_size=5),
    asked=st.lists(st.tuples(st.integers(0, 5), fields), max_size=8),
    damage=st.one_of(st.none(), st.tuples(st.integers(0, 400), st.integers(0, 255))),
)
def test_twins_take_the_same_ends_and_store_the_same(
    messages: list[NewMessage],
    asked: list[tuple[int, tuple[bytes, bytes, bytes, int]]],
    damage: tuple[int, int] | None,
) -> None:
    places, log = [], bytearray()
    for number, message in enumerate(messages):
        places.append(BASE + len(log))
        record = bytearray(records_of([message], base=places[-1]))
        record[20:28] = number.to_bytes(8, "big")  # Its queue offset.
        log += record
    if damage is not None:
        log[damage[0] % len(log)] = damage[1]
    places.append(BASE + len(log) - 30)
    data, rows = bytearray(), array("q")
    for frame, (which, (group, queue_offset, decision, kind)) in enumerate(asked):
        row = [frame, *Request.MISSING * ((WIDTH - 1) // Request.FIELD)]
        place = b"%d" % (places[which] if which < len(places) else 7)
        for field, text in enumerate((group, queue_offset, place, decision)):
            row[1 + field * 3 : 4 + field * 3] = [len(data), len(text), kind if field == 0 else Kind.TEXT]
            data += text
        rows.extend(row)
    found = [taken(twin, bytes(data), rows, bytes(log)) for twin in TWINS]
    assert all(each == found[0] for each in found)


def test_a_commit_is_two_rows_and_a_rollback_is_one() -> None:
    properties = b"UNIQ_KEY\x01U0\x02PGROUP\x01buyers\x02REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02"
    half = a_message(b"half", topic=TRANS_HALF_TOPIC.encode(), properties=properties)
    log = records_of([half, half], base=BASE)
    second = BASE + len(log) // 2
    for twin in TWINS:
        data, rows = bytearray(), array("q")
        for frame, (place, queue_offset, decision) in enumerate(((BASE, 0, b"8"), (second, 1, b"12"))):
            row = [frame, *Request.MISSING * ((WIDTH - 1) // Request.FIELD)]
            for field, text in enumerate((b"buyers", b"%d" % queue_offset, b"%d" % place, decision)):
                row[1 + field * 3 : 4 + field * 3] = [len(data), len(text), Kind.TEXT]
                data += text
            rows.extend(row)
        left, columns, drafts, counts, _, _, count = taken(twin, bytes(data), rows, bytes(log))
        assert (left, count, counts) == ([], 2, [0, 0, 1, 2])
        assert columns == ([0, 1], [0, 1], ["U0", "U0"], ["Orders", ""])
        assert [(row[0], row[2]) for row in drafts] == [(b"Orders", b"half"), (b"Ops", b"0"), (b"Ops", b"1")]
