"""Windows of producers: which numbered messages are stored already."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.broker.send.windows import WAITING
from flaremq.model import properties, sysflag
from flaremq.model.columns import Check, Draft, Drafts, Fact, Remembered, WindowHead, facts_table
from flaremq.model.encode import Encoder
from flaremq.model.properties import SEQUENCE_MAX, encode_properties, parse_sequence
from flaremq.model.record import walk
from flaremq.protocol.bulk.columns import Send
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.broker.send._windows")
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def windows(twin: Any, *, count: int = 64, span_ms: int = 1000, producers: int = 100) -> Any:
    made = twin.Windows()
    made.count_max, made.span_ms, made.producers_max = count, span_ms, producers
    return made


def table(sent: Iterable[tuple[bytes, int]]) -> tuple[bytes, array[int]]:
    """Rows for (producer id, sequence); a sequence of -1 is a message without any."""
    heads, rows = b"#", array("q")
    for producer, sequence in sent:
        row = array("q", bytes(8 * Send.WIDTH))
        row[Send.PRODUCER_AT : Send.PRODUCER_AT + 3] = array("q", (len(heads), len(producer), sequence))
        rows += row
        heads += producer
    return heads, rows


def drafts_at(offsets: Sequence[int]) -> array[int]:
    drafts = array("q", bytes(8 * Draft.WIDTH * len(offsets)))
    for row, offset in enumerate(offsets):
        drafts[row * Draft.WIDTH + Draft.PHYSICAL_OFFSET] = offset
        drafts[row * Draft.WIDTH + Draft.QUEUE_ID] = offset % 7
        drafts[row * Draft.WIDTH + Draft.QUEUE_OFFSET] = offset // 7
    return drafts


def stored(made: Any, sent: Sequence[tuple[bytes, int]], now_ms: int = 10_000) -> int:
    """Store what is new up to the first message that is not; how many those were."""
    heads, rows = table(sent)
    end = made.sift(heads, rows, 0)
    made.note(heads, rows[: end * Send.WIDTH], drafts_at(range(100, 100 + end)), now_ms)
    return int(end)


def test_new_messages_pass_together_and_are_remembered(twin: Any) -> None:
    made = windows(twin)
    assert stored(made, [(b"a", 0), (b"b", 0), (b"", -1), (b"a", 1)]) == 4
    assert made.find(b"a", 1) == (1, 103, 103 % 7, 103 // 7, 10_000)
    assert made.find(b"b", 0)[Remembered.PHYSICAL_OFFSET] == 101
    assert (made.newest(b"a"), made.newest(b"b"), made.newest(b"c")) == (1, 0, -1)


def test_a_repeated_message_ends_what_can_be_stored(twin: Any) -> None:
    made = windows(twin)
    stored(made, [(b"a", 5)])
    assert stored(made, [(b"a", 6), (b"a", 5), (b"a", 7)]) == 1
    assert stored(made, [(b"a", 5)]) == 0


def test_one_that_repeats_another_of_the_same_turn_is_not_stored_with_it(twin: Any) -> None:
    made = windows(twin)
    assert stored(made, [(b"a", 1), (b"b", 1), (b"a", 1)]) == 2


def test_what_the_window_has_moved_beyond_is_not_new(twin: Any) -> None:
    made = windows(twin, span_ms=0)
    stored(made, [(b"a", n) for n in range(65)])
    assert made.find(b"a", 0)[Remembered.SEQUENCE] == 64
    assert stored(made, [(b"a", 0)]) == 0


def test_a_window_grows_rather_than_drop_a_young_message(twin: Any) -> None:
    made = windows(twin, count=256)
    stored(made, [(b"a", n) for n in range(200)])
    assert all(made.find(b"a", n)[Remembered.SEQUENCE] == n for n in range(200))
    assert len(made.by_id[b"a"]) == WindowHead.WIDTH + 256 * Remembered.WIDTH


def test_a_window_does_not_grow_for_the_sake_of_an_old_message(twin: Any) -> None:
    made = windows(twin, count=256)
    stored(made, [(b"a", n) for n in range(64)], now_ms=1_000)
    stored(made, [(b"a", 64)], now_ms=2_000)
    assert len(made.by_id[b"a"]) == WindowHead.WIDTH + 64 * Remembered.WIDTH


def test_a_window_has_a_limit(twin: Any) -> None:
    made = windows(twin, count=128)
    stored(made, [(b"a", n) for n in range(1000)])
    assert [made.find(b"a", n)[Remembered.SEQUENCE] == n for n in (871, 872, 999)] == [False, True, True]


def test_a_producer_beyond_the_limit_gets_no_window(twin: Any) -> None:
    made = windows(twin, producers=1)
    assert stored(made, [(b"a", 0), (b"b", 0)]) == 1
    assert stored(made, [(b"b", 0)]) == 0


def test_idle_producers_are_forgotten(twin: Any) -> None:
    made = windows(twin)
    stored(made, [(b"a", 0)], now_ms=1_000)
    stored(made, [(b"b", 0)], now_ms=2_000)
    made.forget(2_000)
    assert list(made.by_id) == [b"b"]


sequences = st.integers(0, 200) | st.integers(SEQUENCE_MAX - 200, SEQUENCE_MAX)
turns = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from((b"a", b"b", b"cc")), sequences | st.just(-1)), max_size=30),
        st.integers(0, 800),
    ),
    max_size=12,
)


@given(turns=turns, count=st.sampled_from((16, 64, 128)))
@pytest.mark.parametrize("twin", TWINS, ids=twin_name)
def test_within_the_window_each_message_is_stored_once(
    twin: Any, turns: list[tuple[list[tuple[bytes, int]], int]], count: int
) -> None:
    """Against a dictionary that remembers everything."""
    made, now_ms, offset = windows(twin, count=count), 0, 0
    model: dict[tuple[bytes, int], int] = {}
    for sent, passed_ms in turns:
        now_ms += passed_ms
        heads, rows = table(sent)
        first = 0
        while first < len(sent):
            end = made.sift(heads, rows, first)
            for producer, sequence in sent[first:end]:
                if sequence >= 0:
                    row = made.find(producer, sequence)
                    assert row[Remembered.SEQUENCE] < sequence
            part = rows[first * Send.WIDTH : end * Send.WIDTH]
            made.note(heads, part, drafts_at(range(offset, offset + end - first)), now_ms)
            for place, (producer, sequence) in enumerate(sent[first:end]):
                if sequence >= 0:
                    model[producer, sequence] = offset + place
            offset += end - first
            if end == first:  # Not new: it is known, with its first place, or the window is beyond it.
                producer, sequence = sent[first]
                row = made.find(producer, sequence)
                assert row[Remembered.SEQUENCE] >= sequence
                if row[Remembered.SEQUENCE] == sequence:
                    assert row[Remembered.PHYSICAL_OFFSET] == model[producer, sequence]
                end += 1
            first = end


@given(turns=turns, count=st.sampled_from((16, 64, 256)), producers=st.integers(1, 3))
def test_both_twins_remember_the_same(
    turns: list[tuple[list[tuple[bytes, int]], int]], count: int, producers: int
) -> None:
    kept = [windows(twin, count=count, producers=producers) for twin in TWINS]
    now_ms = 0
    for sent, passed_ms in turns:
        now_ms += passed_ms
        ends = [stored(made, sent, now_ms) for made in kept]
        assert len(set(ends)) == 1
        assert all(made.by_id == kept[0].by_id for made in kept)


# What a log says.


def a_log(messages: Iterable[dict[str, Any]]) -> tuple[bytes, array[int], int]:
    """Records, and their facts."""
    heads, bodies, rows = bytearray(HOST), b"x", array("q")
    for number, message in enumerate(messages):
        topic = message.get("topic", b"Orders")
        raw = encode_properties(message.get("properties", {}))
        at = len(heads)
        heads += topic + raw
        rows.extend((at, len(topic), at + len(topic), len(raw), 0, 1, 0, 8, number % 5, 0, 1, 1, 0))
        rows.extend((message.get("sys_flag", 0), 0, message.get("times", 0), 0, 0, 0, 0))
    out, count = bytearray(100_000), len(rows) // Draft.WIDTH
    drafts = Drafts(rows, heads, bodies)
    Encoder(HOST).encode_many(drafts, 0, out, 0, 0, array("q", [5]), 1_000)
    facts = facts_table(count + 1)
    found, _, _ = walk(bytes(out), 0, len(out), 0, facts, Check.NOTHING)
    assert found == count
    return bytes(out), facts, count


def numbered(value: str, **more: str) -> dict[str, str]:
    return {"UNIQ_KEY": "U", properties.PRODUCER_SEQ: value, **more}


def test_a_window_is_rebuilt_from_the_log(twin: Any) -> None:
    view, facts, count = a_log({"properties": numbered(f"a:{n}")} for n in range(3))
    made = windows(twin)
    made.recall(view, facts, count, 0)
    assert made.find(b"a", 2) == (2, facts[2 * Fact.WIDTH], 2, 7, facts[Fact.STORE_TIMESTAMP])


COPIES: dict[str, dict[str, Any]] = {
    "delivered": {"properties": numbered("a:1", REAL_TOPIC="Orders")},
    "committed": {"properties": numbered("a:1"), "sys_flag": sysflag.TRANSACTION_COMMIT},
    "rolled timer": {"topic": b"rmq_sys_wheel_timer", "properties": numbered("a:1", TIMER_ROLL_TIMES="1")},
    "half asked about": {
        "topic": b"RMQ_SYS_TRANS_HALF_TOPIC",
        "properties": numbered("a:1", TRANSACTION_CHECK_TIMES="1"),
    },
    "retry": {"topic": b"%RETRY%group", "properties": numbered("a:1")},
    "dead letter": {"topic": b"%DLQ%group", "properties": numbered("a:1")},
    "sent back": {"properties": numbered("a:1"), "times": 1},
    "not numbered": {"properties": {"UNIQ_KEY": "U", "XPRODUCER_SEQ": "a:1"}},
    "no number": {"properties": numbered("a:x")},
}


@pytest.mark.parametrize("kind", COPIES)
def test_copies_are_not_taken_for_what_a_producer_sent(twin: Any, kind: str) -> None:
    made = windows(twin)
    made.recall(*a_log([COPIES[kind]]), 0)
    assert made.by_id == {}


@pytest.mark.parametrize("topic", WAITING)
def test_a_message_that_waits_is_what_a_producer_sent(twin: Any, topic: bytes) -> None:
    made = windows(twin)
    made.recall(*a_log([{"topic": topic, "properties": numbered("a:1", REAL_TOPIC="Orders")}]), 0)
    assert made.newest(b"a") == 1


def test_the_first_of_two_equal_records_counts(twin: Any) -> None:
    view, facts, count = a_log([{"properties": numbered("a:1")}] * 2)
    made = windows(twin)
    made.recall(view, facts, count, 0)
    assert made.find(b"a", 1)[Remembered.PHYSICAL_OFFSET] == 0


def test_records_from_before_the_window_are_left_out(twin: Any) -> None:
    view, facts, count = a_log([{"properties": numbered("a:1")}])
    made = windows(twin)
    made.recall(view, facts, count, facts[Fact.STORE_TIMESTAMP] + 1)
    assert made.by_id == {}


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "topic": st.sampled_from((b"T", b"%RETRY%g", *WAITING)),
                "sys_flag": st.sampled_from((0, 4, 8, 12)),
                "times": st.sampled_from((0, 0, 1)),
                "properties": st.dictionaries(
                    st.sampled_from(("PRODUCER_SEQ", "REAL_TOPIC", "TIMER_ROLL_TIMES", "PRODUCER_SE")),
                    st.sampled_from(("a:1", "a:2", "bb:2", "a:66", "x", "", "0")),
                ),
            }
        ),
        max_size=12,
    )
)
def test_both_twins_read_a_log_alike(messages: list[dict[str, Any]]) -> None:
    view, facts, count = a_log(messages)
    kept = [windows(twin) for twin in TWINS]
    for made in kept:
        made.recall(view, facts, count, 0)
        assert made.by_id == kept[0].by_id


# Values.


@pytest.mark.parametrize("value", [b"a:0", b"A-b.c_9:9223372036854775807", b"x" * 64 + b":1"])
def test_a_value_names_a_producer_and_a_number(value: bytes) -> None:
    producer, _, number = value.partition(b":")
    assert parse_sequence(value) == (producer, int(number))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"a",
        b":1",
        b"a:",
        b"a:-1",
        b"a:01",
        b"a:9223372036854775808",
        b"a b:1",
        b"a:1 ",
        b"x" * 65 + b":1",
    ],
)
def test_other_values_are_not_understood(value: bytes) -> None:
    assert parse_sequence(value) is None
