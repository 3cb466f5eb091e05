"""What only 5.x has: records with their own CRC, batch queues, light queues. Again byte for byte."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.java.driver import JavaStores
from tests.java.files import (
    assert_same_files,
    assert_same_queues_and_index,
    copy_log,
    files_in,
    opened,
    stored,
)
from tests.java.samples import STORE_HOST, batch_elements, mixed
from tests.java.sides import (
    SMALL,
    Options,
    assert_same_queues,
    boundary_name,
    new_message,
    our_store,
    put_all,
    put_at,
    scan_ours,
)
from tests.java.toolchain import SINCE_5
from tests.java.values import Draft, batch_body

from flaremq.model.properties import decode_properties
from flaremq.store.api import Boundary
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock

pytestmark = [pytest.mark.java, pytest.mark.parametrize("java_store", SINCE_5, indirect=True)]

CRC: Options = SMALL | {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True}
BATCHES: Options = SMALL | {"mapperFileSizeBatchConsumeQueue": 46 * 10}
TOPICS: Mapping[str, Mapping[str, str]] = {"Inner": {"queue.type": "BatchCQ"}}
LIGHT: Options = SMALL | {"enableLmq": True, "enableMultiDispatch": True}
INNER_BATCH = 0xC0


def is_batch(topic: str) -> bool:
    return topic in TOPICS


def test_records_with_their_own_crc_are_the_same_and_pass(java_store: JavaStores, tmp_path: Path) -> None:
    root, ours, clock, drafts = tmp_path / "java", tmp_path / "ours", ManualClock(), mixed(400)
    drafts.insert(10, replace(drafts[10], properties=b"KEYS\x01a\x02__CRC32#\x011234567890\x02TAGS\x01b\x02"))
    with java_store() as java:
        with opened(java, root, CRC):
            results = stored(java.put(drafts))
        with our_store(ours, CRC, clock=clock) as store:
            put_at(store, clock, drafts, results)
            end = store.log.end
        assert_same_files(ours, root, "commitlog")
        assert sum(data.count(b"__CRC32#\x01") for data in files_in(ours / "commitlog").values()) == 401
        # Without queues Java looks at every record of the log, and cuts it at the first it does not like.
        assert java.open(copy_log(ours, tmp_path / "again"), options=CRC).max_physical_offset == end
    with our_store(copy_log(root, tmp_path / "looked at"), CRC) as store:
        assert store.log.end == end


def test_topics_with_long_names_make_the_same_store(java_store: JavaStores, tmp_path: Path) -> None:
    """From 128 bytes on a record has another magic and a wider length; only retry topics are so long."""
    root, ours, clock = tmp_path / "java", tmp_path / "ours", ManualClock()
    topics = ["%RETRY%" + "g" * size for size in (119, 120, 121, 240)]
    drafts = [replace(draft, topic=topics[number % 4]) for number, draft in enumerate(mixed(100))]
    with java_store() as java, opened(java, root):
        results = stored(java.put(drafts))
    with our_store(ours, clock=clock) as store:
        put_at(store, clock, drafts, results)
    assert_same_files(ours, root, "commitlog")
    assert_same_queues_and_index(ours, root)


def inner_batch(number: int) -> Draft:
    """One message for a few, each with a place of its own in the queue."""
    return Draft(
        topic="Inner",
        queue_id=number % 2,
        body=batch_body(batch_elements(number, 1 + number % 9)),
        properties=f"UNIQ_KEY\x01U{number}\x02TAGS\x01Tag{number % 3}\x02".encode(),
        born_host="10.0.0.1:5000",
        store_host=STORE_HOST,
    )


def test_from_javas_inner_batches_we_make_javas_batch_queues(java_store: JavaStores, tmp_path: Path) -> None:
    root, ours = tmp_path / "java", tmp_path / "ours"
    single = Draft(topic="Inner", body=b"alone", store_host=STORE_HOST)
    with java_store() as java, opened(java, root, BATCHES, TOPICS):
        for number in range(80):
            stored([java.put_batch(inner_batch(number), inner=True), *java.put(mixed(3, number))])
            stored(java.put([single] if number % 5 == 0 else mixed(1)))
        java.wait_dispatched()
        theirs = java.scan()
    with our_store(copy_log(root, ours), BATCHES, is_batch=is_batch) as store:
        assert_same_queues(scan_ours(store), theirs)
    assert len(files_in(root / "batchconsumequeue")) > 8
    assert_same_queues_and_index(ours, root)


def put_inner_batch(store: MessageStore, number: int) -> None:
    draft, count = inner_batch(number), b"INNER_NUM\x01%d\x02" % (1 + number % 9)
    store.put(new_message(replace(draft, properties=draft.properties + count, sys_flag=INNER_BATCH)))


@pytest.mark.parametrize("boundary", list(Boundary))
def test_java_finds_our_inner_batches_by_the_same_times(
    java_store: JavaStores, tmp_path: Path, boundary: Boundary
) -> None:
    """As far as Java's answers have a rule: for a time between two files, and for UPPER between two batches
    or among several of one time, it gives what its search happens to end with."""
    clock, times, lower = ManualClock(), list[int](), boundary is Boundary.LOWER
    with our_store(tmp_path, clock=clock, is_batch=is_batch) as store:
        for number in range(60):
            clock.advance_ms((0, 5, 0, 0, 9, 1000)[number % 6] if lower else 7)
            put_inner_batch(store, number)
            times += [clock.now_ms()] * (number % 2)  # The queue that is asked holds every other one.
        store.dispatch()
        probes = range(times[0] - 3, times[-1] + 3, 4) if lower else times
        ours = {probe: store.offset_by_time(b"Inner", 1, probe, boundary) for probe in probes}
    with java_store() as java:
        java.open(tmp_path, options=SMALL, topics=TOPICS)
        theirs = {probe: java.by_time("Inner", 1, probe, boundary_name(boundary)) for probe in probes}
    assert theirs == ours


def test_from_our_inner_batches_java_makes_our_batch_queues(java_store: JavaStores, tmp_path: Path) -> None:
    root, java_root = tmp_path / "ours", tmp_path / "java"
    with our_store(root, BATCHES, is_batch=is_batch) as store:
        for number in range(80):
            put_inner_batch(store, number)
            put_all(store, mixed(3, number))
        ours = scan_ours(store)
    with java_store() as java:
        with opened(java, copy_log(root, java_root), BATCHES, TOPICS):
            java.wait_dispatched()
            assert_same_queues(java.scan(), ours)
        assert_same_queues_and_index(java_root, root)
        assert java.open(root, options=BATCHES, topics=TOPICS).last_exit_ok
        assert_same_queues(java.scan(), ours)


def light_messages() -> list[Draft]:
    """To light queues besides their own; a retry and an open transaction are not to be seen there."""
    names = ("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b,%LMQ%c,%LMQ%a", "%LMQ%c,%LMQ%with/slash")
    found = [
        replace(draft, properties=f"INNER_MULTI_DISPATCH\x01{names[number % 4]}\x02TAGS\x01T\x02".encode())
        for number, draft in enumerate(mixed(200))
    ]
    again = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x01999,999\x02"
    found.append(replace(found[0], topic="%RETRY%light", properties=again))
    found.append(replace(found[0], topic="rmq_sys_light", properties=again))
    return [*found[:50], replace(found[0], sys_flag=0x4), *found[50:]]


def test_from_javas_log_we_make_javas_light_queues(java_store: JavaStores, tmp_path: Path) -> None:
    root, ours = tmp_path / "java", tmp_path / "ours"
    with java_store() as java, opened(java, root, LIGHT):
        stored(java.put(light_messages()))
        java.wait_dispatched()
        theirs = java.scan()
    with our_store(copy_log(root, ours), LIGHT) as store:
        assert_same_queues(scan_ours(store), theirs)
    assert {"%LMQ%a", "%LMQ%b", "%LMQ%c"} <= {queue.topic for queue in theirs}
    assert_same_queues_and_index(ours, root)


def test_from_our_log_java_makes_our_light_queues(java_store: JavaStores, tmp_path: Path) -> None:
    root, java_root = tmp_path / "ours", tmp_path / "java"
    with our_store(root, LIGHT) as store:
        put_all(store, light_messages())
        ours = scan_ours(store)
    shutil.copytree(root, tmp_path / "whole")
    with java_store() as java:
        with opened(java, copy_log(root, java_root), LIGHT):
            java.wait_dispatched()
            assert_same_queues(java.scan(), ours)
        assert_same_queues_and_index(java_root, root)
        assert java.open(tmp_path / "whole", options=LIGHT).last_exit_ok
        assert_same_queues(java.scan(), ours)


def test_light_messages_get_the_same_offsets_from_both(java_store: JavaStores, tmp_path: Path) -> None:
    """Their properties are written anew: Java puts them in an order of its own, which means nothing."""
    drafts = light_messages()
    with java_store() as java, opened(java, tmp_path / "java", LIGHT):
        results = stored(java.put(drafts))
        theirs = [java.record(result.physical_offset or 0) for result in results]
    with our_store(tmp_path / "ours", LIGHT) as store:
        for draft, result, decoded in zip(drafts, results, theirs, strict=True):
            put = store.put(new_message(draft))
            assert (put.physical_offset, put.size) == (result.physical_offset, result.size)
            record = store.record(put.physical_offset)
            assert record is not None and decoded is not None
            at = bytes(record).index(b"INNER_MULTI_DISPATCH")
            assert decode_properties(bytes(record[at:])) == decoded.properties
