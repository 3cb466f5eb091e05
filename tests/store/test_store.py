"""The store as its users see it: messages in, messages out, by offset, key and time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flaremq.base.errors import (
    BodyTooLarge,
    DispatchBehind,
    FlushFailed,
    InvalidName,
    MessageIllegal,
    NotWritable,
    StoreClosed,
    StoreLocked,
)
from flaremq.model.record import decode, decode_many
from flaremq.store.api import Boundary, ExtUnit, GetStatus, PutStatus
from flaremq.store.files.disk import Disk, DiskFile
from flaremq.store.settings import BrokerRole, FlushDisk
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, a_message, put_together, small_settings

TOPIC = b"TopicTest"
FOREVER = 1 << 62


@contextmanager
def opened(
    root: Path, clock: ManualClock | None = None, disk: Disk | None = None, **other: Any
) -> Iterator[MessageStore]:
    made = {key: other.pop(key) for key in ("is_batch", "bit_mapper", "owner_dispatches") if key in other}
    store = MessageStore(small_settings(root, **other), clock=clock, disk=disk, **made)
    with store:
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(tmp_path, ManualClock(NOW_MS)) as store:
        yield store


def bodies(store: MessageStore, queue_id: int = 0, topic: bytes = TOPIC) -> list[bytes]:
    """All messages of a queue, read as a consumer reads them."""
    found: list[bytes] = []
    at = store.min_offset(topic, queue_id)
    while True:
        result = store.get(topic, queue_id, at)
        if result.status is not GetStatus.FOUND and result.next_offset == at:
            return found
        found += [message.body for message in decode_many(result.gathered())]
        at = result.next_offset


def fill(store: MessageStore, count: int, **message: Any) -> None:
    for i in range(count):
        store.put(a_message(str(i).encode(), **message), wait=False)
    store.dispatch()


def test_a_message_is_read_back_as_it_was_put(store: MessageStore) -> None:
    result = store.put(a_message(b"body", flag=3, queue_id=1))
    store.dispatch()
    (message,) = decode_many(store.get(TOPIC, 1, 0).gathered())
    assert (message.body, message.flag, message.tags) == (b"body", 3, "TagA")
    assert (message.physical_offset, message.queue_offset) == (result.physical_offset, result.queue_offset)
    assert message.store_timestamp_ms == result.store_timestamp_ms == NOW_MS


def test_queues_count_on_their_own_and_files_roll_underneath(store: MessageStore) -> None:
    for i in range(300):
        store.put(a_message(str(i).encode() + bytes(1000), queue_id=i % 3))
    store.dispatch()
    for queue_id in range(3):
        assert store.max_offset(TOPIC, queue_id) == 100
        found = [int(body.rstrip(b"\0")) for body in bodies(store, queue_id)]
        assert found == list(range(queue_id, 300, 3))
    assert len(store.log.files.files) > 4


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (0, GetStatus.FOUND, 10),
        (10, GetStatus.OFFSET_OVERFLOW_ONE, 10),
        (11, GetStatus.OFFSET_OVERFLOW_BADLY, 10),
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_every_offset_gets_its_answer(
    store: MessageStore, offset: int, status: GetStatus, next_offset: int
) -> None:
    fill(store, 10)
    result = store.get(TOPIC, 0, offset)
    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 10)


def test_an_unknown_queue_has_no_message(store: MessageStore) -> None:
    result = store.get(b"Nobody", 7, 5)
    assert (result.status, result.next_offset, result.max_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0)


def test_a_slave_repeats_the_offset_unless_it_shall_correct_it(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 3)
    with opened(tmp_path, role=BrokerRole.SLAVE) as slave:
        assert slave.get(TOPIC, 0, 9).next_offset == 9
    with opened(tmp_path, role=BrokerRole.SLAVE, offset_check_in_slave=True) as slave:
        assert slave.get(TOPIC, 0, 9).next_offset == 3


def test_a_read_is_limited_by_count_and_bytes(tmp_path: Path) -> None:
    with opened(tmp_path, transfer_count_in_memory=7, transfer_bytes_in_memory=2000) as store:
        fill(store, 40)
        assert store.get(TOPIC, 0, 0, 3).count == 3
        assert store.get(TOPIC, 0, 0, 40).count == 7
        store.put(a_message(bytes(1900)))
        store.dispatch()
        assert store.get(TOPIC, 0, 39, 40).count == 1
        assert store.get(TOPIC, 0, 40, 40).size > 1900


def test_a_large_record_is_handed_out_where_it_lies(tmp_path: Path) -> None:
    with opened(tmp_path, commitlog_file_size=1 << 20, message_size_max=200_000) as store:
        store.put(a_message(b"x" * 100_000))
        store.dispatch()
        (record,) = store.get(TOPIC, 0, 0).records
        assert isinstance(record, memoryview)
        assert record.readonly
        assert store.log.files.files[0].held
        assert decode(record).body == b"x" * 100_000


class Tagged:
    """Wants some tags codes, and can insist on looking at each record."""

    def __init__(self, wanted: list[int], *, look: bytes | None = None) -> None:
        self._wanted = wanted
        self._look = look

    @property
    def codes(self) -> array[int] | None:
        return None if self._look else array("q", self._wanted)

    def matches_entry(self, tags_code: int, unit: ExtUnit | None) -> bool:
        return tags_code in self._wanted and (unit is None or unit.tags_code == tags_code)

    def matches_record(self, record: memoryview) -> bool:
        return self._look is None or self._look in bytes(record)


@pytest.mark.parametrize("look", [None, b"hello"])
def test_a_selector_lets_through_what_it_wants(store: MessageStore, look: bytes | None) -> None:
    for tag in (b"TagA", b"TagB", b"TagA"):
        store.put(a_message(b"hello", properties=b"TAGS\x01" + tag + b"\x02"))
    store.dispatch()
    result = store.get(TOPIC, 0, 0, selector=Tagged([2598919], look=look))
    assert (result.count, result.next_offset) == (2, 3)
    nothing = store.get(TOPIC, 0, 0, selector=Tagged([1], look=look))
    assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 3)


def test_a_selector_that_looks_at_records_decides_by_them(store: MessageStore) -> None:
    fill(store, 20)
    result = store.get(TOPIC, 0, 0, selector=Tagged([2598919], look=b"\x00\x0217"))
    assert [decode(record).body for record in result.records] == [b"17"]


def test_filtering_looks_at_only_so_many_entries(tmp_path: Path) -> None:
    with opened(tmp_path, filter_scan_max=200, consumequeue_file_size=2000) as store:
        fill(store, 60)
        assert store.get(TOPIC, 0, 0, 5, selector=Tagged([1])).next_offset == 10


def test_a_read_crosses_queue_files_only_when_allowed_and_empty_handed(tmp_path: Path) -> None:
    with opened(tmp_path / "a", consumequeue_file_size=200) as store:
        fill(store, 30)
        assert store.get(TOPIC, 0, 5, selector=Tagged([1])).next_offset == 10
    with opened(tmp_path / "b", consumequeue_file_size=200, travel_queue_files=2) as store:
        fill(store, 30)
        assert store.get(TOPIC, 0, 5, selector=Tagged([1])).next_offset == 20


def test_messages_are_found_by_key_by_unique_id_and_by_time(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    with opened(tmp_path, clock) as store:
        for i in range(50):
            clock.advance_ms(1000)
            properties = b"KEYS\x01k%d all\x02UNIQ_KEY\x01U%d\x02" % (i, i)
            store.put(a_message(str(i).encode(), properties=properties))
        store.dispatch()
        by = [store.query(TOPIC, key, 64, 0, FOREVER) for key in (b"k17", b"U17", b"all", b"nope")]
        assert [[decode(r).body for r in found] for found in by[:2]] == [[b"17"], [b"17"]]
        assert len(by[2]) == 50
        assert by[3] == []
        between = store.query(TOPIC, b"all", 64, NOW_MS + 10_000, NOW_MS + 12_000)
        assert [decode(r).body for r in between] == [b"9", b"10", b"11"]
        assert store.query(b"Other", b"all", 64, 0, FOREVER) == []
        for boundary, expected in ((Boundary.LOWER, 20), (Boundary.UPPER, 19)):
            assert store.offset_by_time(TOPIC, 0, NOW_MS + 20_500, boundary) == expected
            assert store.offset_by_time(TOPIC, 0, NOW_MS + 20_000, boundary) == 19
        assert store.offset_by_time(TOPIC, 0, 0) == 0
        assert store.offset_by_time(TOPIC, 0, FOREVER) == 50
        assert store.offset_by_time(b"Nobody", 0, NOW_MS) == 0


def test_a_key_is_found_though_its_queue_and_index_have_no_files_yet(tmp_path: Path) -> None:
    with opened(tmp_path, owner_dispatches=True) as store:
        store.workers.dispatch.wake = lambda: None  # type: ignore[method-assign]  # That thread is late.
        store.put(a_message(b"new", properties=b"KEYS\x01k\x02"), wait=False)
        (found,) = store.query(TOPIC, b"k", 64, 0, FOREVER)
        assert decode(found).body == b"new"


def test_a_key_query_has_its_limit(tmp_path: Path) -> None:
    with opened(tmp_path, query_max=5) as store:
        fill(store, 10, properties=b"KEYS\x01same\x02")
        assert len(store.query(TOPIC, b"same", 64, 0, FOREVER)) == 5


def test_without_an_index_nothing_is_found_by_key(tmp_path: Path) -> None:
    with opened(tmp_path, index_enabled=False) as store:
        fill(store, 3, properties=b"KEYS\x01same\x02")
        assert store.query(TOPIC, b"same", 64, 0, FOREVER) == []
    assert not (tmp_path / "index").exists()


def test_a_batch_has_consecutive_offsets(store: MessageStore) -> None:
    store.put(a_message(b"before"))
    results = put_together(store, [a_message(str(i).encode()) for i in range(5)])
    assert [r.queue_offset for r in results] == [1, 2, 3, 4, 5]
    assert all(a.end == b.physical_offset for a, b in pairwise(results))
    store.dispatch()
    assert bodies(store) == [b"before", b"0", b"1", b"2", b"3", b"4"]


def test_a_batch_is_as_large_as_a_message_may_be_and_never_empty(store: MessageStore) -> None:
    with pytest.raises(MessageIllegal, match="at least one"):
        store.put_batch(a_message(b""))
    with pytest.raises(BodyTooLarge, match="limit is 16384"):
        put_together(store, [a_message(bytes(9000)), a_message(bytes(9000))])
    assert store.log.end == 0


@pytest.mark.parametrize("odd", [{"sys_flag": 0x4}, {"properties": b"DELAY\x013\x02"}])
def test_a_batch_takes_no_transactions_and_no_delays(store: MessageStore, odd: Any) -> None:
    with pytest.raises(MessageIllegal, match="send it alone"):
        put_together(store, [a_message(**odd), a_message()])
    assert store.log.end == 0


def test_an_inner_batch_is_one_record_with_many_offsets(tmp_path: Path) -> None:
    with opened(tmp_path, is_batch=lambda topic: topic == "Batches") as store:
        for count in (3, 2):
            properties = b"INNER_NUM\x01%d\x02UNIQ_KEY\x01u\x02" % count
            store.put(a_message(b"inner", topic=b"Batches", sys_flag=0xC0, properties=properties))
        store.dispatch()
        assert store.max_offset(b"Batches", 0) == 5
        result = store.get(b"Batches", 0, 3)
        (message,) = decode_many(result.gathered())
        assert message.properties["INNER_BASE"] == "3"
        assert (result.next_offset, result.count) == (5, 2)
        with pytest.raises(MessageIllegal, match="INNER_NUM"):
            store.put(a_message(topic=b"Batches", sys_flag=0xC0))
    with opened(tmp_path, is_batch=lambda topic: topic == "Batches") as store:
        assert store.put(a_message(topic=b"Batches")).queue_offset == 5


def test_light_queues_get_their_own_entries(tmp_path: Path) -> None:
    options: dict[str, Any] = {"lmq_enabled": True, "multi_dispatch_enabled": True}
    with opened(tmp_path, **options) as store:
        for i in range(4):
            names = b"%LMQ%a,%LMQ%b" if i % 2 else b"%LMQ%a"
            store.put(a_message(str(i).encode(), properties=b"INNER_MULTI_DISPATCH\x01" + names + b"\x02"))
        store.dispatch()
        assert bodies(store, topic=b"%LMQ%a") == [b"0", b"1", b"2", b"3"]
        assert bodies(store, topic=b"%LMQ%b") == [b"1", b"3"]
    with opened(tmp_path, **options) as store:
        assert store.offsets.get(b"%LMQ%a", 0) == 4
        assert store.offsets.get(b"%LMQ%b", 0) == 2


def test_a_delayed_message_is_queued_under_its_delivery_time(store: MessageStore) -> None:
    store.put(a_message(topic=b"SCHEDULE_TOPIC_XXXX", queue_id=2, properties=b"DELAY\x013\x02"))
    store.dispatch()
    queue = store.queues.get(b"SCHEDULE_TOPIC_XXXX", 2)
    entry = next(iter(store.queues.items()))[1].entry(0)  # type: ignore[union-attr]
    assert queue is not None
    assert entry is not None
    assert entry[2] == NOW_MS + 10_000


class GroupBits:
    def bit_map(self, topic: bytes, properties: Any) -> bytes:
        return bytes([len(properties) + len(topic) - len(TOPIC)]) * 14


def test_queue_extensions_hold_calculated_bit_maps(tmp_path: Path) -> None:
    with opened(tmp_path, ext_enabled=True, ext_bit_map_length=112, bit_mapper=GroupBits()) as store:
        fill(store, 300)
        seen: list[bytes] = []

        class Looking(Tagged):
            def matches_entry(self, tags_code: int, unit: ExtUnit | None) -> bool:
                assert unit is not None
                seen.append(unit.bit_map)
                return tags_code == 2598919

        assert store.get(TOPIC, 0, 0, selector=Looking([2598919])).count == 32
        assert set(seen) == {bytes([10]) * 14}
        assert len(list((tmp_path / "consumequeue_ext" / "TopicTest" / "0").iterdir())) > 1
    with opened(tmp_path, ext_enabled=True) as store:
        assert len(bodies(store)) == 300


@pytest.mark.parametrize("topic", [b"", b"a/b", b"..", b"x" * 128, b"%RETRY%" + b"x" * 249])
def test_a_topic_that_cannot_be_is_refused(store: MessageStore, topic: bytes) -> None:
    with pytest.raises(InvalidName):
        store.put(a_message(topic=topic))
    assert store.log.end == 0


def test_a_long_retry_topic_makes_v2_records(store: MessageStore) -> None:
    topic = b"%RETRY%" + b"x" * 200
    store.put(a_message(topic=topic))
    store.dispatch()
    assert len(bodies(store, topic=topic)) == 1


def test_under_sync_flush_a_put_returns_when_it_is_on_disk(tmp_path: Path) -> None:
    with opened(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH) as store:
        for i in range(5):
            result = store.put(a_message(str(i).encode()))
            assert result.status is PutStatus.PUT_OK
            assert store.flushed.value >= result.end


class StuckDisk(Disk):
    """Its syncs of the log wait, or fail, as told."""

    error: Exception | None = None

    def open(self, path: Path, size: int, *, lasting: bool = False) -> DiskFile:
        file = super().open(path, size, lasting=lasting)
        sync = file.sync

        def maybe() -> None:
            if self.error is not None and "commitlog" in str(path):
                raise self.error
            sync()

        file.sync = maybe  # type: ignore[method-assign]
        return file


def test_a_failed_sync_stops_the_store_for_good(tmp_path: Path) -> None:
    disk = StuckDisk()
    store = MessageStore(small_settings(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH), disk=disk)
    store.open()
    assert store.put(a_message(b"safe")).status is PutStatus.PUT_OK
    disk.error = FlushFailed("the disk is gone")
    with pytest.raises(FlushFailed):
        store.put(a_message(b"lost"))
    disk.error = None
    for _ in range(2):
        with pytest.raises(FlushFailed):
            store.put(a_message(b"later"))
    store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert bodies(again)[0] == b"safe"


def test_puts_are_refused_while_dispatch_is_too_far_behind(tmp_path: Path) -> None:
    with opened(tmp_path, dispatch_lag_max=10, flush_disk=FlushDisk.SYNC_FLUSH) as store:
        store.workers.log_flusher._flusher.stop()  # Nothing is flushed, so nothing may be dispatched.
        for _ in range(11):
            store.put(a_message(), wait=False)
        with pytest.raises(DispatchBehind, match=r"11 records .* limit is 10"):
            store.put(a_message())


def test_a_slave_takes_no_messages(tmp_path: Path) -> None:
    with opened(tmp_path, role=BrokerRole.SLAVE) as store, pytest.raises(NotWritable, match="master"):
        store.put(a_message())


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = MessageStore(small_settings(tmp_path))
    with pytest.raises(StoreClosed, match="open"):
        store.put(a_message())


def test_a_folder_belongs_to_one_store_at_a_time(store: MessageStore, tmp_path: Path) -> None:
    with pytest.raises(StoreLocked):
        MessageStore(small_settings(tmp_path)).open()
    store.put(a_message())


def test_listeners_hear_which_queues_have_grown(store: MessageStore) -> None:
    heard: list[tuple[bytes, int, int]] = []

    class Listener:
        def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
            heard.append((topic, queue_id, max_offset))

    store.listen(Listener())
    fill(store, 3, queue_id=2)
    assert heard[-1] == (TOPIC, 2, 3)


def test_a_group_of_messages_for_several_topics_is_stored_together(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        first = store.put(a_message(b"before", topic=b"A"))
        results = store.put_group([a_message(b"one", topic=b"A"), a_message(b"two", topic=b"B")])
        store.dispatch()
        found = [store.get(topic, 0, 0).gathered() for topic in (b"A", b"B")]
    assert [result.queue_offset for result in results] == [1, 0]
    assert results[0].physical_offset == first.end
    assert results[1].physical_offset == results[0].end
    assert [[each.body for each in decode_many(data)] for data in found] == [[b"before", b"one"], [b"two"]]


def test_a_group_never_lies_in_two_files(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        size = store.log.file_size
        while store.log.end < size - 700:
            store.put(a_message(bytes(200)))
        one, two = store.put_group([a_message(bytes(200), topic=b"A"), a_message(bytes(200), topic=b"B")])
    assert one.physical_offset == size
    assert two.physical_offset == one.end


def test_a_group_with_a_message_that_may_not_be_stored_is_not_stored(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        end = store.log.end
        too_large = a_message(bytes(store.settings.message_size_max + 1))
        with pytest.raises(BodyTooLarge):
            store.put_group([a_message(b"one", topic=b"A"), too_large])
        assert store.log.end == end
