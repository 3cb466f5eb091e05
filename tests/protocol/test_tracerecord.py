"""Trace records as RocketMQ's clients write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.protocol.tracerecord import (
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TracedType,
    TraceRecord,
    message_ids,
    read_records,
)

PUB = PubRecord(
    *(1_700_000_000_000, "DefaultRegion", "pg", "TopicTest", "AC1100010000", "TagA", "k1"),
    *("127.0.0.1:10911", 5, 3, TracedType.NORMAL, "7F0000010000", True),
)
GOLDEN = bytes.fromhex(
    "50756201 31373030303030303030303030 01 44656661756c74526567696f6e 01 7067 01 546f70696354657374 01"
    "414331313030303130303030 01 54616741 01 6b31 01 3132372e302e302e313a3130393131 01 35 01 33 01 30 01"
    "374630303030303130303030 01 74727565 02"
)


def test_a_record_has_the_bytes_of_rocketmq() -> None:
    assert PUB.text().encode() == GOLDEN
    assert read_records(GOLDEN) == [PUB]


field = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
maybe = st.none() | field.filter(lambda text: text != "null")
moment = st.integers(0, 2**62)
number = st.integers(0, 2**31 - 1)
records: st.SearchStrategy[TraceRecord] = st.one_of(
    st.builds(
        PubRecord,
        *(
            moment,
            field,
            field,
            field,
            field,
            maybe,
            maybe,
            maybe,
            number,
            number,
            st.sampled_from(TracedType),
        ),
        *(maybe, st.booleans(), maybe),
    ),
    st.builds(SubBeforeRecord, moment, field, field, field, field, number, maybe),
    st.builds(SubAfterRecord, field, field, number, st.booleans(), maybe, number, moment, field),
    st.builds(SubAfterRecord, field, field, number, st.booleans(), maybe, number, st.none(), st.none()),
    st.builds(
        EndTransactionRecord,
        *(moment, field, field, field, field, maybe, maybe, maybe, number, maybe, field, st.booleans()),
    ),
    st.builds(RecallRecord, moment, field, field, field, field, st.booleans()),
)


@given(st.lists(records, max_size=5))
def test_what_is_written_is_read(given: list[TraceRecord]) -> None:
    assert read_records("".join(record.text() for record in given).encode()) == given


@given(st.binary(max_size=300))
def test_no_bytes_stop_a_reader(data: bytes) -> None:
    read_records(data)


@given(records, st.binary(max_size=60).filter(lambda data: b"\x02" not in data))
def test_what_cannot_be_read_hides_nothing(record: TraceRecord, noise: bytes) -> None:
    assert record in read_records(b"Pub\x01" + noise + b"\x02" + record.text().encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Pub\x011\x01r\x01g\x01t\x01id\x01null\x01null\x01h:1\x015\x013\x010\x01true\x02",
            PubRecord(1, "r", "g", "t", "id", None, None, "h:1", 5, 3, 0, None, True),
        ),
        (
            "Pub\x011\x01r\x01g\x01t\x01id\x01null\x01k\x01h:1\x015\x013\x013\x01off\x01false\x01me\x01new\x02",
            PubRecord(1, "r", "g", "t", "id", None, "k", "h:1", 5, 3, 3, "off", False, "me"),
        ),
        ("SubAfter\x01rq\x01id\x017\x01true\x01k\x02", SubAfterRecord("rq", "id", 7, True, "k")),
        ("SubAfter\x01rq\x01id\x017\x01true\x01k\x014\x02", SubAfterRecord("rq", "id", 7, True, "k", 4)),
        ("SubAfter\x01rq\x01id\x017\x01true\x01k\x014\x01\x02", SubAfterRecord("rq", "id", 7, True, "k", 4)),
        ("SubBefore\x011\x01r\x01g\x01rq\x01id\x012\x02", SubBeforeRecord(1, "r", "g", "rq", "id", 2, None)),
    ],
    ids=["13 fields", "16 fields", "6 fields", "7 fields", "of the cloud", "without keys"],
)
def test_records_of_older_and_newer_clients_are_read(text: str, expected: TraceRecord) -> None:
    assert read_records(text.encode()) == [expected]


def test_a_batch_of_java_is_one_record_of_many_messages() -> None:
    assert message_ids(PUB._replace(message_id="A,B,C")) == ["A", "B", "C"]
