"""Records of messages that wait, many at once: both twins give the same rows, whatever the bytes."""

from __future__ import annotations

from array import array
from dataclasses import replace
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.broker.delay.waiting import Due, Enterable, Tally
from flaremq.model.columns import Draft, Drafts
from flaremq.model.encode import Encoder
from flaremq.model.host import Host
from flaremq.model.layout import ENTRY_FORMAT, PROPERTIES_SIZE_MAX
from flaremq.model.message import StoredMessage
from flaremq.model.record import decode_many
from flaremq.model.timers import WHEEL_TOPIC
from flaremq.store.drafts import NewMessage
from flaremq.store.queue.nextoffsets import QueueOffsets
from flaremq.testing.fakes.builders import a_message, records_of
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.broker.delay._waiting")
AT_MS = 1_700_000_003_000
BASE = 4096
TERMS = Enterable(WHEEL_TOPIC, 1000, AT_MS - 2000, AT_MS + 2000)
DUE = Due(WHEEL_TOPIC, 1 << 20, 1000, AT_MS, AT_MS + 1017)
ORDINARY = b"UNIQ_KEY\x01U1\x02TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02" % AT_MS

parts = st.sampled_from(
    [
        *(
            b"UNIQ_KEY\x01U1\x02",
            b"UNIQ_KEY\x01U2\x02",
            b"UNIQ_KEY\x01\xc3\xa9\x02",
            b"REAL_TOPIC\x01Orders\x02",
        ),
        *(
            b"REAL_TOPIC\x01Other\x02",
            b"REAL_TOPIC\x01Gone\x02",
            b"REAL_TOPIC\x01\xff\x02",
            b"REAL_TOPIC\x01\x02",
        ),
        *(
            b"REAL_QID\x013\x02",
            b"REAL_QID\x010\x02",
            b"REAL_QID\x01x\x02",
            b"REAL_QID\x01" + b"9" * 12 + b"\x02",
        ),
        *(b"TIMER_OUT_MS\x01%d\x02" % (AT_MS + late) for late in (0, 1, 999, 1000, 5000)),
        *(b"TIMER_OUT_MS\x01" + text + b"\x02" for text in (b"soon", b"-1", b"0" * 8 + b"%d" % AT_MS)),
        *(
            b"TIMER_DEL_UNIQKEY\x01U1\x02",
            b"TIMER_ENQUEUE_MS\x011\x02",
            b"INNER_NUM\x011\x02",
            b"__CRC32#\x01x\x02",
        ),
        *(
            b"KEYS\x01a b\x02",
            b"\x01",
            b"\x02",
            b"x",
            b"TIMER_OUT_MS",
            b"REAL_TOPIC\x01",
            b"A\x01" + b"v" * 300,
        ),
    ]
)
anything = st.one_of(
    st.lists(parts, max_size=9).map(b"".join), st.just(ORDINARY), parts.map(ORDINARY.__add__)
)
messages_of = st.lists(
    st.builds(
        lambda known, body, topic, host, queue_id: a_message(
            body, topic=topic, properties=known, born_host=host, queue_id=queue_id, flag=queue_id
        ),
        anything,
        st.binary(min_size=1, max_size=90),
        st.sampled_from([WHEEL_TOPIC, WHEEL_TOPIC, WHEEL_TOPIC, b"Another"]),
        st.sampled_from([bytes(8), bytes(range(20))]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)
harm_of = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3)


class Known:
    """Topics that messages may be delivered to."""

    def __init__(self, *topics: bytes) -> None:
        self._topics = topics

    def number(self, topic: bytes) -> int:
        return self._topics.index(topic) if topic in self._topics else -1


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def places_of(data: bytes | bytearray) -> list[tuple[int, int]]:
    places, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        places.append((BASE + at, size))
        at += size
    return places


def deliver(
    twin: Any, data: bytes | bytearray, places: list[tuple[int, int]], due: Due = DUE
) -> tuple[array[int], bytes, array[int], array[int]]:
    """The rows, heads and fates, and the numbers of queues that were given."""
    waiting = array("q", [n for i, place in enumerate(places) for n in (*place, AT_MS - i)])
    offsets = QueueOffsets()
    rows, heads, fates = twin.to_deliver(
        memoryview(data), BASE, waiting, offsets, Known(b"Orders", b"Other"), due
    )
    return rows, bytes(heads), fates, offsets.next


def copies_of(
    rows: array[int], heads: bytes, bodies: bytes | bytearray, queues: array[int]
) -> list[StoredMessage]:
    """The messages that a store would append."""
    out = bytearray(1 << 20)
    count = Encoder(bytes(8)).encode_many(Drafts(rows, heads, bodies), 0, out, 0, 0, queues, AT_MS)
    assert count == len(rows) // Draft.WIDTH
    return list(decode_many(bytes(out[: rows[-3] + rows[-2]]))) if count else []


# Both twins.


@given(
    messages=messages_of,
    harm=harm_of,
    places=st.lists(st.tuples(st.integers(-10, 900), st.integers(-10, 900)), max_size=2),
    cancelled=st.sampled_from([frozenset(), frozenset({b"U1"}), frozenset({b"Orders+U1", b""})]),
    precision_ms=st.sampled_from([1000, 0, 100]),
    body_max=st.sampled_from([1 << 20, 50]),
)
def test_twins_deliver_the_same(
    messages: list[NewMessage],
    harm: list[tuple[int, int]],
    places: list[tuple[int, int]],
    cancelled: frozenset[bytes],
    precision_ms: int,
    body_max: int,
) -> None:
    data = records_of(messages, BASE)
    found = [*places_of(data), *((BASE + at, size) for at, size in places)]
    for at, value in harm:
        data[at % len(data)] = value
    due = DUE._replace(cancelled=cancelled, precision_ms=precision_ms, body_max=body_max)
    results = [deliver(twin, data, found, due) for twin in TWINS]
    assert all(each == results[0] for each in results)


@given(messages=messages_of, harm=harm_of, cut=st.integers(0, 30))
def test_twins_enter_the_same(messages: list[NewMessage], harm: list[tuple[int, int]], cut: int) -> None:
    data = records_of(messages, BASE)
    entries = b"".join(pack(ENTRY_FORMAT, *place, 0) for place in places_of(data))
    for at, value in harm:
        data[at % len(data)] = value
    view = memoryview(data)[: len(data) - cut]
    results = [twin.to_enter(view, BASE, entries, TERMS) for twin in TWINS]
    assert all(each == results[0] for each in results)


@given(
    fates=st.lists(st.integers(-3, 2), max_size=12),
    stored=st.integers(0, 12),
    sizes=st.lists(st.integers(100, 999), min_size=12, max_size=12),
)
def test_twins_tally_the_same(fates: list[int], stored: int, sizes: list[int]) -> None:
    count = sum(fate >= 0 for fate in fates)
    rows = array("q", [n for size in sizes[:count] for n in (*[0] * Draft.SIZE, size, 0)])
    tallies = [twin.tally(rows, array("q", fates), min(stored, count), 3) for twin in TWINS]
    assert all(each == tallies[0] for each in tallies)
    assert sum(tallies[0][Tally.STORED :: Tally.WIDTH]) == min(stored, count)
    assert sum(tallies[0][Tally.SIZE :: Tally.WIDTH]) == sum(sizes[: min(stored, count)])


# What they do.


def test_a_copy_is_its_message_with_the_times_of_its_wait(twin: Any) -> None:
    messages = [
        a_message(
            b"body %d" % n, topic=WHEEL_TOPIC, properties=ORDINARY, flag=n, reconsume_times=n, born_host=host
        )
        for n, host in enumerate((bytes(8), bytes(range(20)), bytes(8)))
    ]
    data = records_of(messages, BASE)
    rows, heads, fates, queues = deliver(twin, data, places_of(data))
    copies = copies_of(rows, heads, data, queues)
    assert list(fates) == [0, 0, 0]
    for number, (copy, message) in enumerate(zip(copies, messages, strict=True)):
        assert (copy.topic, copy.queue_id, copy.queue_offset) == ("Orders", 3, number)
        assert (copy.body, copy.flag, copy.reconsume_times) == (message.body, number, number)
        assert copy.born_timestamp_ms == message.born_timestamp_ms
        assert copy.born_host == Host.decode(message.born_host)
        times = b"TIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02" % (AT_MS - number, DUE.now_ms)
        assert copy.raw_properties == ORDINARY + times


def test_what_does_not_wait_in_a_wheel_is_copied_as_it_is(twin: Any) -> None:
    data = records_of([a_message(b"b", topic=b"SCHEDULE", properties=ORDINARY[:-1])], BASE)
    rows, heads, _, queues = deliver(twin, data, places_of(data), Due(b"SCHEDULE", 9))
    (copy,) = copies_of(rows, heads, data, queues)
    assert copy.raw_properties == ORDINARY[:-1]


def test_times_are_no_part_of_a_last_value_that_has_no_end(twin: Any) -> None:
    data = records_of([a_message(b"b", topic=WHEEL_TOPIC, properties=ORDINARY[:-1])], BASE)
    rows, heads, _, queues = deliver(twin, data, places_of(data))
    (copy,) = copies_of(rows, heads, data, queues)
    assert (copy.properties["REAL_QID"], copy.properties["TIMER_ENQUEUE_MS"]) == ("3", str(AT_MS))


def test_cancelled_messages_have_no_row(twin: Any) -> None:
    data = records_of(
        [
            a_message(b"b", topic=WHEEL_TOPIC, properties=ORDINARY.replace(b"U1", b"U%d" % n))
            for n in range(4)
        ],
        BASE,
    )
    due = DUE._replace(cancelled=frozenset({b"Orders+U0", b"U2", b"Other+U3"}))
    rows, _, fates, _ = deliver(twin, data, places_of(data), due)
    assert list(fates) == [-1, 0, -1, 0]
    assert len(rows) == 2 * Draft.WIDTH


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"Another"},
        {"properties": ORDINARY + b"INNER_NUM\x012\x02"},
        {"properties": ORDINARY + b"__CRC32#\x010\x02"},
        {"properties": ORDINARY + b"TIMER_ENQUEUE_MS\x011\x02"},
        {"properties": ORDINARY.replace(b"Orders", b"Gone")},
        {"properties": ORDINARY.replace(b"Orders", b"\xff")},
        {"properties": ORDINARY.replace(b"QID\x013", b"QID\x01" + b"3" * 10)},
        {"properties": ORDINARY.replace(b"QID\x013", b"QID\x01-3")},
        {"properties": ORDINARY.replace(b"%d" % AT_MS, b"%d" % (AT_MS + 1000))},
        {"properties": ORDINARY.replace(b"%d" % AT_MS, b"%d" % (AT_MS - 1))},
        {"properties": ORDINARY + b"A\x01" + b"v" * (PROPERTIES_SIZE_MAX - len(ORDINARY) - 60)},
        {"body": b"x" * 100},
    ],
)
def test_a_message_that_is_not_ordinary_is_left_with_all_behind_it(
    twin: Any, changes: dict[str, Any]
) -> None:
    plain = a_message(b"b", topic=WHEEL_TOPIC, properties=ORDINARY)
    data = records_of([plain, replace(plain, **changes), plain], BASE)
    rows, _, fates, _ = deliver(twin, data, places_of(data), DUE._replace(body_max=99))
    assert (len(rows), list(fates)) == (Draft.WIDTH, [0])


def test_a_message_whose_body_is_damaged_is_left(twin: Any) -> None:
    data = records_of([a_message(b"body", topic=WHEEL_TOPIC, properties=ORDINARY)], BASE)
    data[data.index(b"body")] ^= 1
    assert list(deliver(twin, data, [(BASE, len(data))])[2]) == []


def test_messages_enter_with_their_slots_and_topics(twin: Any) -> None:
    changes = [(0, b"Orders", b""), (1999, b"Other", b""), (999, b"Orders", b"TIMER_DEL_UNIQKEY\x01U0\x02")]
    data = records_of(
        [
            a_message(
                b"b",
                topic=WHEEL_TOPIC,
                properties=b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01%b\x02%b" % (AT_MS + late, topic, more),
            )
            for late, topic, more in changes
        ],
        BASE,
    )
    places = places_of(data)
    entries = b"".join(pack(ENTRY_FORMAT, *place, 0) for place in places)
    rows, slots, topics = twin.to_enter(memoryview(data), BASE, entries, TERMS)
    assert (slots, topics) == ([AT_MS, AT_MS + 1000], [b"Orders", b"Other"])
    assert list(rows) == [*places[0], 0, 0, 0, *places[1], 1, 1, 0, *places[2], 0, 0, 1]


@pytest.mark.parametrize("late", [-3000, 3000])
def test_messages_for_slots_that_take_none_do_not_enter(twin: Any, late: int) -> None:
    known = [b"TIMER_OUT_MS\x01%d\x02" % (AT_MS + each) for each in (0, late, 0)]
    data = records_of([a_message(b"b", topic=WHEEL_TOPIC, properties=each) for each in known], BASE)
    entries = b"".join(pack(ENTRY_FORMAT, *place, 0) for place in places_of(data))
    assert len(twin.to_enter(memoryview(data), BASE, entries, TERMS)[0]) == 5
