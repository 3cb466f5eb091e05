"""Copies of records, many at once: what is seen at a glance is what the whole record says."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed
from flaremq.model.columns import Check
from flaremq.model.properties import encode_properties, find_property
from flaremq.model.record import decode, decode_many
from flaremq.store.drafts import copy_of
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, a_message, records_of, small_settings
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.store._copyrows")
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02")
texts = st.text(letters, min_size=1, max_size=6)
properties_of = st.dictionaries(st.sampled_from(["A", "AB", "B", "TAGS", "KEYS"]), texts)
hosts = st.sampled_from([bytes(8), bytes(range(20))])


@given(
    topic=st.sampled_from([b"Orders", b"x" * 127, b"%RETRY%" + b"g" * 200]),
    body=st.binary(min_size=1, max_size=40),
    known=properties_of,
    host=hosts,
    numbers=st.tuples(st.integers(0, 99), st.integers(-5, 5), st.integers(0, 1 << 40), st.integers(0, 20)),
)
def test_a_glance_agrees_with_the_decoder(
    topic: bytes, body: bytes, known: dict[str, str], host: bytes, numbers: tuple[int, int, int, int]
) -> None:
    queue_id, flag, born_ms, times = numbers
    message = a_message(
        body, topic=topic, properties=encode_properties(known), born_host=host, queue_id=queue_id, flag=flag,
        born_timestamp_ms=born_ms, reconsume_times=times, prepared_transaction_offset=99,
    )  # fmt: skip
    record = memoryview(records_of([message], base=4096))
    whole = decode(record)
    for twin in TWINS:
        seen = twin.glance(record)
        assert (seen.topic, bytes(seen.body), seen.properties) == (topic, body, whole.raw_properties)
        assert (seen.queue_id, seen.flag, seen.born_timestamp_ms, seen.reconsume_times) == numbers
        assert (seen.queue_offset, seen.physical_offset) == (whole.queue_offset, whole.physical_offset)
        assert (seen.sys_flag, seen.born_host) == (whole.sys_flag, host)
        assert (seen.prepared_offset, seen.body_crc) == (99, whole.body_crc)
        assert {name: seen.property(name.encode()) for name in ("A", "AB", "TAGS")} == {
            name: whole.properties[name].encode() if name in known else None for name in ("A", "AB", "TAGS")
        }


@given(raw=st.lists(st.sampled_from([b"A", b"AB", b"\x01", b"\x02", b"x"]), max_size=12).map(b"".join))
def test_twins_find_the_same_property_in_any_string(raw: bytes) -> None:
    record = memoryview(records_of([a_message(b"body", properties=raw)]))
    for name in (b"A", b"AB", b"x"):
        assert {twin.glance(record).property(name) for twin in TWINS} == {find_property(raw, name)}


@given(cut=st.integers(0, 200), at=st.integers(0, 150), to=st.integers(0, 255), properties=properties_of)
def test_a_damaged_record_gives_no_glance_or_one_that_a_decoder_gives(
    cut: int, at: int, to: int, properties: dict[str, str]
) -> None:
    data = bytearray(records_of([a_message(b"body", properties=encode_properties(properties))]))
    data[at % len(data)] = to
    record = memoryview(data)[: max(0, len(data) - cut if cut < 20 else len(data))]
    glances = [twin.glance(record) for twin in TWINS]
    assert len({seen is None for seen in glances}) == 1
    for seen in glances:
        if seen is not None:
            with suppress(Malformed):  # The decoder looks at more than the lengths.
                whole = decode(record, check=Check.NOTHING)
                assert (seen.topic.decode("utf-8", "replace"), bytes(seen.body)) == (whole.topic, whole.body)


def test_copies_of_many_are_the_same_as_copies_of_one(tmp_path: Path) -> None:
    logs = []
    for folder, twin in (("one", None), *((twin_name(twin), twin) for twin in TWINS)):
        with MessageStore(small_settings(tmp_path / folder), clock=ManualClock(NOW_MS)) as store:
            for number in range(3):
                given = b"K\x01%d\x02" % number
                store.put(a_message(b"body %d" % number, queue_id=number, properties=given, flag=number))
            rows = None if twin is None else twin.CopyRows(store.offsets)
            for stored in list(decode_many(bytes(store.log.slice(0, store.log.end) or b""))):
                record = store.record(stored.physical_offset)
                assert record is not None
                if rows is not None and twin is not None:
                    seen = twin.glance(record)
                    rows.add(seen, b"Other", 1, seen.properties + b"L\x01x\x02")
                else:
                    copy = replace(copy_of(stored), topic=b"Other", queue_id=1)
                    store.put(replace(copy, properties=copy.properties + b"L\x01x\x02"))
            if rows is not None:
                rows.add_new(a_message(b"new", queue_id=2))
                rows.add_new(a_message(b"new", queue_id=2), b"other")
                assert len(rows) == 5
                assert store.put_many(rows.drafts()) == 5
                assert [rows.place(row)[2] for row in range(3)] == [0, 1, 2]
            else:
                store.put(a_message(b"new", queue_id=2))
                store.put(a_message(b"other", queue_id=2))
            logs.append(bytes(store.log.slice(0, store.log.end) or b""))
    assert all(log == logs[0] for log in logs)
