import zlib
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed, MessageIllegal, PropertiesTooLong
from flaremq.model import sysflag
from flaremq.model.batch import BatchPart, split_batch, unwrap
from flaremq.model.columns import Draft
from flaremq.model.host import Host
from flaremq.model.message import StoredMessage
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.model._batch")
PARTS = st.builds(BatchPart, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40), st.binary(max_size=40))

# Two messages as Java's MessageDecoder.encodeMessages writes them.
JAVA = bytes.fromhex(
    "00000034 00000000 00000000 00000000 00000002 6231 001c"
    "4b455953016b3102 57414954017472756502 54414753015461674102"
    "00000035 00000000 00000000 00000007 00000003 623232 001c"
    "4b455953016b3202 57414954017472756502 54414753015461674102"
)
JAVA_PARTS = [
    BatchPart(0, b"b1", b"KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
    BatchPart(7, b"b22", b"KEYS\x01k2\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
]


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def join(parts: Sequence[BatchPart], twin: Any = TWINS[0]) -> bytes:
    made = twin.join_batch(
        [part.body for part in parts], [part.raw_properties for part in parts], [part.flag for part in parts]
    )
    assert isinstance(made, bytes)
    return made


def stored(body: bytes, sys_flag: int) -> StoredMessage:
    return StoredMessage(
        topic="T",
        queue_id=1,
        flag=0,
        queue_offset=100,
        physical_offset=4096,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host=Host("10.0.0.1", 1),
        store_timestamp_ms=2,
        store_host=Host("10.0.0.2", 2),
        reconsume_times=3,
        prepared_transaction_offset=0,
        body=body,
        raw_properties=b"INNER_NUM\x012\x02",
        body_crc=zlib.crc32(body) & 0x7FFF_FFFF,
        size=500,
    )


def test_a_batch_is_written_and_read_as_java_does(twin: Any) -> None:
    assert join(JAVA_PARTS, twin) == JAVA
    assert split_batch(JAVA) == JAVA_PARTS


def test_an_empty_batch_holds_nothing(twin: Any) -> None:
    assert twin.join_batch([], []) == b""
    assert not twin.batch_rows(b"lead", 4, BASE)
    assert split_batch(b"") == []


@given(st.lists(PARTS, max_size=6))
def test_what_was_joined_is_split_again(parts: list[BatchPart]) -> None:
    for twin in TWINS:
        assert split_batch(join(parts, twin)) == parts


@given(st.binary(max_size=120))
def test_any_bytes_are_a_batch_or_malformed(body: bytes) -> None:
    try:
        parts = split_batch(body)
    except Malformed as error:
        assert 0 <= error.at < len(body)  # noqa: PT017
    else:
        assert sum(part.size for part in parts) == len(body)


@given(st.lists(PARTS, min_size=1, max_size=3), st.data())
def test_a_batch_cut_short_is_malformed_unless_cut_between_elements(
    parts: list[BatchPart], data: st.DataObject
) -> None:
    body = join(parts)
    borders = {sum(part.size for part in parts[:k]) for k in range(len(parts) + 1)}
    at = data.draw(st.integers(0, len(body)))
    if at in borders:
        assert split_batch(body[:at]) == parts[: sorted(borders).index(at)]
    else:
        with pytest.raises(Malformed):
            split_batch(body[:at])


def patched(at: int, raw: bytes) -> bytes:
    return JAVA[:at] + raw + JAVA[at + len(raw) :]


@pytest.mark.parametrize(
    ("body", "at", "complaint"),
    [
        (JAVA[:10], 0, "10 bytes left, expected at least 22"),
        (patched(0, b"\0\0\0\x15"), 0, "size 21, expected 22 to 105"),
        (patched(0, b"\xff\xff\xff\xff"), 0, "size -1"),
        (patched(52, b"\0\0\0\x36"), 52, "element at byte 52: size 54, expected 22 to 53"),
        (patched(16, b"\xff\xff\xff\xff"), 16, "body of -1 bytes, expected at most 30"),
        (patched(16, b"\0\0\0\x1f"), 16, "body of 31 bytes, expected at most 30"),
        (patched(22, b"\0\x1d"), 22, "properties of 29 bytes, expected 28"),
        (patched(22, b"\0\x1b"), 22, "properties of 27 bytes, expected 28"),
        (patched(22, b"\xff\xff"), 22, "properties of -1 bytes"),
    ],
)
def test_a_broken_batch_says_where_and_why(body: bytes, at: int, complaint: str, twin: Any) -> None:
    for read in (split_batch, lambda body: twin.batch_rows(body, 0, BASE)):
        with pytest.raises(Malformed, match=complaint) as caught:
            read(body)
        assert caught.value.at == at


def test_properties_that_no_short_can_count_are_refused(twin: Any) -> None:
    with pytest.raises(PropertiesTooLong, match="32768"):
        twin.join_batch([b""], [bytes(32768)])


def test_properties_may_be_text(twin: Any) -> None:
    assert twin.join_batch([b"x"], ["KEYS\x01schön\x02"]) == twin.join_batch(
        [b"x"], ["KEYS\x01schön\x02".encode()], [0]
    )
    with pytest.raises(UnicodeEncodeError):
        twin.join_batch([b"x"], ["half a pair: \ud800"])


@pytest.mark.parametrize("columns", [([b"x"], []), ([b"x"], ["", ""]), ([b"x"], [""], [1, 2])])
def test_columns_of_different_lengths_are_no_batch(twin: Any, columns: Any) -> None:
    with pytest.raises(ValueError):
        twin.join_batch(*columns)


# Rows for the log.

BASE = array("q", range(100, 100 + Draft.WIDTH))


@given(st.lists(PARTS, min_size=1, max_size=6), st.binary(max_size=20))
def test_rows_say_where_the_elements_lie(parts: list[BatchPart], lead: bytes) -> None:
    buffer = lead + join(parts)
    for twin in TWINS:
        rows = twin.batch_rows(buffer, len(lead), BASE)
        assert len(rows) == len(parts) * Draft.WIDTH
        for number, part in enumerate(parts):
            row = rows[number * Draft.WIDTH : (number + 1) * Draft.WIDTH]
            body_at, properties_at = row[Draft.BODY_AT], row[Draft.PROPERTIES_AT]
            assert buffer[body_at : body_at + row[Draft.BODY_SIZE]] == part.body
            assert buffer[properties_at : properties_at + row[Draft.PROPERTIES_SIZE]] == part.raw_properties
            assert row[Draft.FLAG] == part.flag
            assert row[Draft.TOGETHER] == (BASE[Draft.TOGETHER] if number else len(parts))
            assert row[: Draft.PROPERTIES_AT] == BASE[: Draft.PROPERTIES_AT]
            assert row[Draft.BORN_HOST_AT : Draft.TOGETHER] == BASE[Draft.BORN_HOST_AT : Draft.TOGETHER]
            assert row[Draft.SYS_FLAG :] == BASE[Draft.SYS_FLAG :]


@given(st.binary(max_size=120))
def test_twins_take_and_refuse_the_same_bytes(body: bytes) -> None:
    def outcome(twin: Any) -> object:
        try:
            return twin.batch_rows(body, 0, BASE)
        except Malformed as error:
            return error.at, str(error)

    first, *others = map(outcome, TWINS)
    assert all(other == first for other in others)


@pytest.mark.parametrize(
    ("raw", "waits"),
    [
        (b"DELAY\x013\x02", True),
        (b"TAGS\x01t\x02DELAY\x013", True),
        (b"TIMER_DELAY_SEC\x0160\x02", True),
        (b"TIMER_DELAY_MS\x0160000\x02", True),
        (b"TAGS\x01t\x02TIMER_DELIVER_MS\x011700000000000\x02", True),
        (b"TRAN_MSG\x01true\x02", True),
        (b"TRAN_MSG\x01True", True),
        (b"TRAN_MSG\x01false\x02", False),
        (b"TIMER_DELAYS_MS\x011\x02", False),
        (b"TIMER_DEL_UNIQKEY\x011\x02", False),
        (b"MYDELAY\x013\x02", False),
        (b"DELAYED\x013\x02", False),
        (b"NOTE\x01DELAY\x02", False),
        (b"DELAY\x01\x02", False),
    ],
)
def test_an_element_that_would_have_to_wait_somewhere_else_is_refused(
    twin: Any, raw: bytes, waits: bool
) -> None:
    body = twin.join_batch([b"x", b"y"], [b"", raw])
    if waits:
        with pytest.raises(MessageIllegal, match="send it alone"):
            twin.batch_rows(body, 0, BASE)
    else:
        assert len(twin.batch_rows(body, 0, BASE)) == 2 * Draft.WIDTH


def test_the_messages_of_an_inner_batch_follow_each_other() -> None:
    batch = stored(JAVA, 0xC0 | sysflag.STORE_HOST_V6)
    first, second = unwrap(batch)
    assert (first.queue_offset, second.queue_offset) == (100, 101)
    assert (first.body, second.body, second.flag) == (b"b1", b"b22", 7)
    assert (first.keys, second.keys, second.tags) == (("k1",), ("k2",), "TagA")
    assert second.body_crc == zlib.crc32(b"b22") & 0x7FFF_FFFF
    same = replace(second, queue_offset=100, flag=0, body=JAVA, raw_properties=batch.raw_properties)
    assert replace(same, sys_flag=batch.sys_flag, body_crc=batch.body_crc, size=500) == batch


def test_an_unwrapped_message_is_no_batch_any_more() -> None:
    for message in unwrap(stored(JAVA, 0xC0 | sysflag.STORE_HOST_V6)):
        assert message.sys_flag == sysflag.STORE_HOST_V6
        assert unwrap(message) == [message]


@pytest.mark.parametrize("sys_flag", [0, sysflag.NEED_UNWRAP, sysflag.INNER_BATCH])
def test_any_other_message_stays_alone(sys_flag: int) -> None:
    message = stored(JAVA, sys_flag)
    assert unwrap(message) == [message]


def test_an_inner_batch_that_is_broken_or_packed_is_malformed() -> None:
    with pytest.raises(Malformed, match="at byte 0"):
        unwrap(stored(b"nonsense", 0xC0))
    with pytest.raises(Malformed, match="decompress"):
        unwrap(stored(JAVA, 0xC1))
