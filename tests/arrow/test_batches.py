"""Record batches of pulls' answers and of odd records."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from flaremq.arrow.batches import BATCH_BYTES, ROWS_MAX, Decoder
from flaremq.arrow.columnspec import Only
from flaremq.arrow.schema import COLUMNS, arrow_schema
from flaremq.base.errors import Malformed, UsageError
from flaremq.model import sysflag
from flaremq.model.batch import BatchPart, join_batch
from flaremq.model.compression import compress
from flaremq.model.host import Host
from flaremq.testing.fakes.builders import NOW_MS, a_message, records_of


def rows(
    data: bytes | bytearray, *columns: str, begin: int = 0, end: int | None = None, **how: Any
) -> list[Any]:
    decoder = Decoder(columns or COLUMNS, **how)
    found = pa.Table.from_batches(decoder.batches(bytes(data), begin, end), decoder.schema)
    found.validate(full=True)
    return list(found.to_pylist(maps_as_pydicts="strict"))


def test_a_whole_row_holds_all_that_the_record_says() -> None:
    message = a_message(
        b"body",
        topic=b"Orders",
        queue_id=3,
        properties=b"KEYS\x01o-17 o-18\x02TAGS\x01paid\x02UNIQ_KEY\x01AC11\x02region\x01eu\x02",
        reconsume_times=2,
        prepared_transaction_offset=99,
    )
    at = dt.datetime.fromtimestamp(NOW_MS / 1000, dt.UTC)
    assert rows(records_of([message], base=512), broker_name="broker-a") == [
        {
            "topic": "Orders",
            "brokerName": "broker-a",
            "queueId": 3,
            "queueOffset": 0,
            "physicalOffset": 512,
            "msgId": "AC11",
            "keys": "o-17 o-18",
            "tags": "paid",
            "body": b"body",
            "properties": {"KEYS": "o-17 o-18", "TAGS": "paid", "UNIQ_KEY": "AC11", "region": "eu"},
            "bornTimestamp": at - dt.timedelta(milliseconds=123),
            "storeTimestamp": at,
            "bornHost": "10.0.0.1:5000",
            "storeHost": "10.0.0.2:10911",
            "sysFlag": 0,
            "reconsumeTimes": 2,
            "preparedTransactionOffset": 99,
        }
    ]


def test_only_wanted_columns_are_there_and_in_the_wanted_order() -> None:
    data = records_of([a_message(b"1")])
    assert rows(data, "body", "queueOffset") == [{"body": b"1", "queueOffset": 0}]
    assert Decoder(("body", "topic")).schema == arrow_schema(("body", "topic"))


def test_a_column_that_no_message_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no column 'queueoffset': did you mean 'queueOffset'"):
        Decoder(("queueoffset",))


def test_what_is_missing_is_null() -> None:
    assert rows(records_of([a_message(properties=b"")]), "keys", "tags", "properties", "brokerName") == [
        {"keys": None, "tags": None, "properties": {}, "brokerName": None}
    ]


@pytest.mark.parametrize(
    "kind", [sysflag.COMPRESSION_ZLIB, sysflag.COMPRESSION_LZ4, sysflag.COMPRESSION_ZSTD]
)
def test_compressed_bodies_are_opened_and_the_flag_still_tells(kind: int) -> None:
    flag = sysflag.COMPRESSED | kind
    data = records_of(
        [a_message(b"plain"), a_message(compress(b"x" * 5000, kind), sys_flag=flag), a_message(b"last")]
    )
    assert rows(data, "body", "sysFlag") == [
        {"body": b"plain", "sysFlag": 0},
        {"body": b"x" * 5000, "sysFlag": flag},
        {"body": b"last", "sysFlag": 0},
    ]


@pytest.mark.parametrize("host", [Host("10.0.0.1", 5000), Host("2001:db8::17", 9)])
def test_numbers_of_a_record_are_its_own_wherever_its_body_was_opened(host: Host) -> None:
    flag = sysflag.COMPRESSED | sysflag.COMPRESSION_ZLIB
    data = records_of(
        [
            a_message(
                compress(bytes(100_000), sysflag.COMPRESSION_ZLIB) if number % 2 else b"plain",
                sys_flag=flag if number % 2 else 0,
                reconsume_times=number,
                prepared_transaction_offset=1000 + number,
                born_host=host.encode(),
            )
            for number in range(60)
        ]
    )
    found = rows(data)
    assert [row["reconsumeTimes"] for row in found] == list(range(60))
    assert [row["preparedTransactionOffset"] for row in found] == list(range(1000, 1060))
    assert {len(row["body"]) for row in found[1::2]} == {100_000}


@pytest.mark.parametrize("kind", [None, sysflag.COMPRESSION_ZLIB])
def test_messages_that_share_a_record_become_rows_of_their_own(kind: int | None) -> None:
    parts = [BatchPart(n, b"part %d" % n, b"TAGS\x01t%d\x02" % n) for n in range(3)]
    flag = sysflag.NEED_UNWRAP | sysflag.INNER_BATCH
    body = join_batch([part.body for part in parts], [part.raw_properties for part in parts], range(3))
    if kind is not None:
        body, flag = compress(body, kind), flag | kind | sysflag.COMPRESSED
    batch = a_message(body, sys_flag=flag, properties=b"INNER_NUM\x013\x02INNER_BASE\x011\x02")
    data = records_of([a_message(b"first"), batch, a_message(b"last")])
    found = rows(data, "queueOffset", "body", "tags", "physicalOffset")
    assert [(row["queueOffset"], row["body"], row["tags"]) for row in found] == [
        (0, b"first", "TagA"),
        (1, b"part 0", "t0"),
        (2, b"part 1", "t1"),
        (3, b"part 2", "t2"),
        (4, b"last", "TagA"),
    ]
    assert len({row["physicalOffset"] for row in found[1:4]}) == 1
    assert [row["queueOffset"] for row in rows(data, "queueOffset", begin=2, end=4)] == [2, 3]
    assert [row["queueOffset"] for row in rows(data, "queueOffset", tags=["t1"])] == [2]


def test_hosts_of_either_family_come_out_right() -> None:
    data = records_of([a_message(born_host=Host("2001:db8::17", 9).encode()), a_message()])
    assert [row["bornHost"] for row in rows(data, "bornHost", "storeHost", "storeTimestamp")] == [
        "[2001:db8::17]:9",
        "10.0.0.1:5000",
    ]


def test_a_record_with_its_own_crc_comes_out_right() -> None:
    (row,) = rows(records_of([a_message(b"x")], append_crc=True), "body", "properties", "tags")
    assert row["body"] == b"x" and row["tags"] == "TagA"
    assert len(row["properties"]["__CRC32#"]) == 10


def test_text_that_is_no_utf8_gets_the_marks_that_java_gives() -> None:
    data = records_of([a_message(properties=b"TAGS\x01a\xffb\x02\xc3\xa4\x01\xc3\x28\x02")])
    assert rows(data, "tags", "properties") == [
        {"tags": "a\ufffdb", "properties": {"TAGS": "a\ufffdb", "ä": "\ufffd("}}
    ]


def test_batches_hold_about_a_mebibyte_whatever_the_size_of_messages() -> None:
    small = bytes(records_of([a_message(b"x")] * 20_000))
    large = bytes(records_of([a_message(bytes(100_000))] * 60))
    sizes = [batch.num_rows for batch in Decoder(("body",)).batches(small)]
    assert sum(sizes) == 20_000 and max(sizes) <= ROWS_MAX
    batches = list(Decoder(("body",)).batches(large))
    assert sum(batch.num_rows for batch in batches) == 60
    decoder = Decoder(("body",))
    list(decoder.batches(large))
    assert decoder.rows_next == max(16, BATCH_BYTES // 100_200)


def test_bytes_that_are_no_records_are_told_with_their_place() -> None:
    whole = bytes(records_of([a_message(b"x")]))
    decoder = Decoder(("body",))
    batches = decoder.batches(whole + b"garbage garbage")
    assert next(batches).num_rows == 1
    with pytest.raises(Malformed, match=f"at byte {len(whole)} of {len(whole) + 15}"):
        next(batches)


def test_rows_outside_a_time_are_left_out() -> None:
    data = records_of([a_message(b"x")])
    assert rows(data, "body", only=Only(time_begin_ms=NOW_MS + 1)) == []
    assert rows(data, "body", only=Only(time_begin_ms=NOW_MS, time_end_ms=NOW_MS + 1)) == [{"body": b"x"}]


@pytest.mark.parametrize(
    "flag", [sysflag.COMPRESSED | sysflag.COMPRESSION_ZSTD, sysflag.NEED_UNWRAP | sysflag.INNER_BATCH]
)
def test_a_body_that_is_not_what_its_flags_say_stays_as_it_lies(flag: int) -> None:
    inner = b"INNER_NUM\x011\x02INNER_BASE\x010\x02" if flag & sysflag.INNER_BATCH else b""
    data = records_of([a_message(b"no such thing", sys_flag=flag, properties=inner), a_message(b"next")])
    assert [row["body"] for row in rows(data, "body")] == [b"no such thing", b"next"]


def test_a_body_that_would_become_too_large_stays_as_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flaremq.arrow.unwrap.BODY_SIZE_MAX", 1000)
    packed = compress(bytes(5000), sysflag.COMPRESSION_ZLIB)
    data = records_of([a_message(packed, sys_flag=sysflag.COMPRESSED | sysflag.COMPRESSION_ZLIB)])
    assert [row["body"] for row in rows(data, "body")] == [packed]
