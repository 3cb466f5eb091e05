"""The driver itself: the real store writes and reads its own folders, and leaves the expected files."""

import hashlib
import re
import struct
from pathlib import Path

import pytest
from tests.java.driver import JavaStores
from tests.java.jvm import JavaStoreError, Jvm
from tests.java.toolchain import SINCE_5, Toolchain
from tests.java.values import BenchKind, BenchRun, Draft, Element, PutResult, batch_body

pytestmark = pytest.mark.java

SMALL = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 50 * 20,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
REFUSED = {**dict.fromkeys(SINCE_5, "PROPERTIES_SIZE_EXCEEDED"), "4.9.8": "MESSAGE_ILLEGAL"}
INDEX_SIZE = 40 + 4 * SMALL["maxHashSlotNum"] + 20 * SMALL["maxIndexNum"]


def a_message(number: int, topic: str = "TopicTest") -> Draft:
    return Draft(
        topic=topic,
        queue_id=number % 2,
        body=f"body {number}".encode(),
        properties=f"KEYS\x01order-{number} all\x02TAGS\x01TagA\x02UNIQ_KEY\x01U{number:04}\x02".encode(),
        flag=7,
        born_timestamp=1_700_000_000_000 + number,
        born_host="10.0.0.1:5000",
        store_host="[2001:db8::2]:10911",
        reconsume_times=3,
    )


def stored(result: PutResult) -> tuple[int, int, int]:
    assert result.status == "PUT_OK"
    assert result.physical_offset is not None
    assert result.queue_offset is not None
    assert result.store_timestamp is not None
    return result.physical_offset, result.queue_offset, result.store_timestamp


@pytest.mark.smoke
def test_what_java_wrote_it_finds_by_offset_key_and_time(java_store: JavaStores, tmp_path: Path) -> None:
    messages = [a_message(number) for number in range(10)]
    with java_store() as java:
        opened = java.open(tmp_path, options=SMALL)
        assert (opened.last_exit_ok, opened.max_physical_offset) == (True, 0)
        places = [stored(result) for result in java.put(messages)]
        end = java.wait_dispatched()
        assert java.close()

        opened = java.open(tmp_path, options=SMALL)
        assert (opened.last_exit_ok, opened.min_physical_offset, opened.max_physical_offset) == (True, 0, end)
        assert [queue_offset for _, queue_offset, _ in places] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]

        pulled = java.get("TopicTest", 1, 2)
        assert (pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset) == ("FOUND", 5, 0, 5)
        assert [struct.unpack_from(">q", record, 28)[0] for record in pulled.records] == [
            places[number][0] for number in (5, 7, 9)
        ]
        assert java.by_key("TopicTest", "order-4").physical_offsets == [places[4][0]]
        assert java.by_key("TopicTest", "U0009").records == pulled.records[-1:]
        assert java.by_key("TopicTest", "all").physical_offsets == [place for place, _, _ in places]
        assert java.by_key("TopicTest", "order-10").records == ()
        first, last = places[0][2], places[9][2]
        assert java.by_time("TopicTest", 1, first - 1000) == 0
        # Of a time behind the last message, 4.x gives that message and 5.x the end of the queue.
        assert java.by_time("TopicTest", 1, last + 1000) == (5 if java.version > "5" else 4)


def test_a_decoded_record_carries_every_field(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        _, result = java.put([a_message(0), a_message(1)])
        physical_offset, _, store_timestamp = stored(result)
        decoded = java.record(physical_offset)
        assert decoded is not None
        assert decoded.topic == "TopicTest"
        assert decoded.body == b"body 1"
        assert decoded.properties == {"KEYS": "order-1 all", "TAGS": "TagA", "UNIQ_KEY": "U0001"}
        assert (decoded.queue_id, decoded.queue_offset, decoded.size) == (1, 0, result.size)
        assert (decoded.physical_offset, decoded.store_timestamp) == (physical_offset, store_timestamp)
        assert (decoded.born_host, decoded.store_host) == ("10.0.0.1:5000", "[2001:db8::2]:10911")
        assert (decoded.born_timestamp, decoded.flag, decoded.sys_flag) == (1_700_000_000_001, 7, 0x20)
        assert (decoded.reconsume_times, decoded.prepared_transaction_offset) == (3, 0)
        assert decoded.message_id == result.message_id


def test_a_clean_close_leaves_the_expected_files(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        java.put([a_message(number) for number in range(600)])
        java.wait_dispatched()
        assert (tmp_path / "abort").exists()
        assert java.close()
    log = sorted((tmp_path / "commitlog").iterdir())
    assert [file.name for file in log] == [f"{number * 65536:020}" for number in range(len(log))]
    assert {file.stat().st_size for file in log} == {65536}
    for queue_id in "01":
        queue = sorted((tmp_path / "consumequeue" / "TopicTest" / queue_id).iterdir())
        assert [file.name for file in queue] == [f"{number * 1000:020}" for number in range(6)]
        assert {file.stat().st_size for file in queue} == {1000}
    index = list((tmp_path / "index").iterdir())
    assert len(index) > 1
    assert all(re.fullmatch(r"\d{17}", file.name) for file in index)
    assert {file.stat().st_size for file in index} == {INDEX_SIZE}
    assert (tmp_path / "checkpoint").stat().st_size == 4096
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert not (tmp_path / "abort").exists()


def test_a_crash_leaves_abort_behind_and_loses_nothing(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        java.put([a_message(number) for number in range(300)])
        java.wait_dispatched()
        java.halt()
        with pytest.raises(JavaStoreError, match="state: the JVM is gone"):
            java.state()
    assert (tmp_path / "abort").exists()
    with java_store() as java:
        assert not java.open(tmp_path, options=SMALL).last_exit_ok
        assert sum(len(queue.messages) for queue in java.scan()) == 300
        assert java.close()
    assert not (tmp_path / "abort").exists()


def test_a_scan_sees_every_message_in_its_place(java_store: JavaStores, tmp_path: Path) -> None:
    messages = [a_message(number) for number in range(200)]
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        places = [stored(result) for result in java.put(messages)]
        java.wait_dispatched()
        queues = java.scan()
        assert [(queue.topic, queue.queue_id, queue.gaps) for queue in queues] == [
            ("TopicTest", 0, ()),
            ("TopicTest", 1, ()),
        ]
        for queue in queues:
            found = [(m.physical_offset, m.queue_offset, m.store_timestamp) for m in queue.messages]
            assert found == places[queue.queue_id :: 2]
            assert [message.position for message in queue.messages] == list(range(100))
            sent = messages[queue.queue_id :: 2]
            assert [(m.body, m.properties) for m in queue.messages] == [(m.body, m.properties) for m in sent]
        (digested,) = java.scan([("TopicTest", 1)], digest=True)
        assert digested.messages[0].body is None
        assert digested.messages[0].sha1 == hashlib.sha1(b"body 1").hexdigest()


def test_a_batch_becomes_consecutive_records(java_store: JavaStores, tmp_path: Path) -> None:
    elements = [Element(b"one", b"KEYS\x01k1\x02"), Element(b"two", flag=5), Element(b"three")]
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        result = java.put_batch(Draft(topic="Batches", queue_id=3, body=batch_body(elements)))
        assert (result.status, result.count, result.queue_offset) == ("PUT_OK", 3, 0)
        assert result.message_id is not None
        assert len(result.message_id.split(",")) == 3
        java.wait_dispatched()
        (queue,) = java.scan()
        assert [message.body for message in queue.messages] == [b"one", b"two", b"three"]
        assert java.min_max("Batches", 3) == (0, 3)


def test_an_inner_batch_is_one_record_of_a_batch_queue(java_store: JavaStores, tmp_path: Path) -> None:
    topics = {"Inner": {"queue.type": "BatchCQ"}}
    body = batch_body([Element(b"one"), Element(b"two"), Element(b"three")])
    batch = Draft(topic="Inner", body=body, properties=b"UNIQ_KEY\x01U1\x02")
    with java_store() as java:
        if java_store.version.startswith("4."):
            with pytest.raises(JavaStoreError, match=r"4\.x has no topic attributes"):
                java.open(tmp_path, options=SMALL, topics=topics)
            return
        java.open(tmp_path, options=SMALL, topics=topics)
        results = [java.put_batch(batch, inner=True) for _ in range(2)]
        assert [(result.status, result.queue_offset) for result in results] == [("PUT_OK", 0), ("PUT_OK", 3)]
        java.wait_dispatched()
        (queue,) = java.scan()
        assert (queue.min_offset, queue.max_offset) == (0, 6)
        assert [(message.position, message.body) for message in queue.messages] == [(0, body), (3, body)]
        assert b"INNER_NUM\x013\x02" in queue.messages[0].properties
    assert (tmp_path / "batchconsumequeue" / "Inner" / "0" / f"{0:020}").exists()


def test_what_is_misspelt_is_refused_by_name(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        with pytest.raises(JavaStoreError, match="has no option mapedFileSize"):
            java.open(tmp_path, options={"mapedFileSize": 1})
        with pytest.raises(JavaStoreError, match=r"flushDiskType cannot be SOMETIMES"):
            java.open(tmp_path, options={"flushDiskType": "SOMETIMES"})
        with pytest.raises(JavaStoreError, match="no store is open"):
            java.flush()


def test_a_folder_of_another_file_size_is_refused(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        java.put([a_message(0)])
        java.wait_dispatched()
        assert java.close()
        with pytest.raises(JavaStoreError, match=r"(?s)answered false.*length not matched"):
            java.open(tmp_path, options=SMALL | {"mappedFileSizeCommitLog": 128 * 1024})
        assert java.open(tmp_path, options=SMALL).max_physical_offset > 0


def test_what_was_put_in_bad_utf8_is_refused(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        with pytest.raises(JavaStoreError, match=r"put: java\.nio\.charset\.MalformedInputException"):
            java.put([Draft(topic="TopicTest", properties=b"KEYS\x01\xff\x02")])
        (result,) = java.put([Draft(topic="TopicTest", properties=b"x" * 40_000)])
        assert (result.status, result.physical_offset) == (REFUSED[java.version], None)


def test_a_jvm_that_does_not_answer_in_time_is_given_up(java_toolchain: Toolchain, tmp_path: Path) -> None:
    with Jvm(java_toolchain, "5.3.3") as jvm:
        jvm.ask("open", 60, dir=str(tmp_path), options=SMALL)
        with pytest.raises(JavaStoreError, match=r"(?s)close: no answer within 0\.01 s, .*DefaultHAService"):
            jvm.ask("close", 0.01, patient=True)  # It sleeps for 3 s.
        with pytest.raises(JavaStoreError, match="state: the JVM is gone"):
            jvm.ask("state", 60)


@pytest.mark.parametrize("what", ["append", "appendBatch", "dispatch", "recover"])
def test_every_bench_runs(java_store: JavaStores, tmp_path: Path, what: BenchKind) -> None:
    options = {"mappedFileSizeCommitLog": 8 << 20, "maxHashSlotNum": 1000, "maxIndexNum": 20_000}
    with java_store() as java:
        run = BenchRun(what=what, directory=tmp_path, messages=6400, options=options)
        result = java.bench(run)
        assert result.messages == 6400
        assert result.rate == pytest.approx(6400 / result.seconds)
        assert result.bytes_written > 6400 * 128
        with pytest.raises(JavaStoreError, match="is not empty"):
            java.bench(run)


def test_under_sync_flush_what_is_dispatched_is_flushed(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL | {"flushDiskType": "SYNC_FLUSH"})
        java.put([a_message(number) for number in range(4)])
        end = java.wait_dispatched()
        state = java.state()
        assert (state.flushed_to, state.dispatched_to, state.max_physical_offset) == (end, end, end)
        assert state.running_flags == 0
