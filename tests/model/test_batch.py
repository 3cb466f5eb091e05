import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed, PropertiesTooLong
from flaremq.model import sysflag
from flaremq.model.batch import BatchPart, join_batch, split_batch, unwrap
from flaremq.model.host import Host
from flaremq.model.message import StoredMessage

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


def test_a_batch_is_written_and_read_as_java_does() -> None:
    assert join_batch(JAVA_PARTS) == JAVA
    assert split_batch(JAVA) == JAVA_PARTS


def test_an_empty_batch_holds_nothing() -> None:
    assert join_batch([]) == b""
    assert split_batch(b"") == []


@given(st.lists(PARTS, max_size=6))
def test_what_was_joined_is_split_again(parts: list[BatchPart]) -> None:
    assert split_batch(join_batch(parts)) == parts


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
    body = join_batch(parts)
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
        (JAVA[:10], 0, "10 bytes left, 22 are the least"),
        (patched(0, b"\0\0\0\x15"), 0, "size 21, 22 to 105 can be"),
        (patched(0, b"\xff\xff\xff\xff"), 0, "size -1"),
        (patched(52, b"\0\0\0\x36"), 52, "element at byte 52: size 54, 22 to 53"),
        (patched(16, b"\xff\xff\xff\xff"), 16, "body of -1 bytes where 30 fit"),
        (patched(16, b"\0\0\0\x1f"), 16, "body of 31 bytes where 30 fit"),
        (patched(22, b"\0\x1d"), 22, "properties of 29 bytes where 28 are left"),
        (patched(22, b"\0\x1b"), 22, "properties of 27 bytes where 28 are left"),
        (patched(22, b"\xff\xff"), 22, "properties of -1 bytes"),
    ],
)
def test_a_broken_batch_says_where_and_why(body: bytes, at: int, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint) as caught:
        split_batch(body)
    assert caught.value.at == at


def test_properties_that_no_short_can_count_are_refused() -> None:
    with pytest.raises(PropertiesTooLong, match="32768"):
        join_batch([BatchPart(0, b"", bytes(32768))])


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
