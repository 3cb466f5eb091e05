"""What a store looks like from outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flaremq.store import status
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, a_message, small_settings

TOPIC = b"TopicTest"
BATCH = {"sys_flag": 0xC0, "properties": b"INNER_NUM\x013\x02", "topic": b"Batches"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    settings = small_settings(tmp_path)
    with MessageStore(settings, clock=clock, is_batch=lambda topic: topic == "Batches") as store:
        yield store


def fill(store: MessageStore, clock: ManualClock) -> list[int]:
    """Three messages and two batches, a second apart; where each one lies."""
    found = []
    for _ in range(3):
        found.append(store.put(a_message(b"x" * 500), wait=False).physical_offset)
        clock.advance_ms(1000)
    for _ in range(2):
        found.append(store.put(a_message(b"inner", **BATCH), wait=False).physical_offset)
        clock.advance_ms(1000)
    store.dispatch()
    return found


def test_an_empty_store_is_nowhere_behind(store: MessageStore) -> None:
    assert status.flush_behind(store) == status.commit_behind(store) == 0
    assert status.earliest_ms(store) == status.queue_earliest_ms(store, TOPIC, 0) == -1
    assert status.index_newest(store) == (0, 0)
    assert status.free_buffers(store) is None
    assert status.bytes_behind(store, TOPIC, 0, 0) == 0


def test_bytes_are_behind_until_they_are_synced(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock)
    assert status.flush_behind(store) == store.log.end
    store.log.flush(0)
    assert status.flush_behind(store) == 0


def test_disks_are_as_full_as_the_system_says(store: MessageStore, tmp_path: Path) -> None:
    disks = status.disks(store)
    assert list(disks.log_ratios) == [tmp_path / "commitlog"]
    assert 0 < disks.log_ratio <= 1 and 0 < disks.queue_ratio <= 1
    assert 0 < disks.free < disks.total


def test_times_are_those_of_the_messages(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock)
    assert status.earliest_ms(store) == status.queue_earliest_ms(store, TOPIC, 0) == NOW_MS
    assert status.stored_ms(store, TOPIC, 0, 2) == NOW_MS + 2000
    assert status.stored_ms(store, TOPIC, 0, 3) == -1
    assert status.stored_ms(store, TOPIC, 0, -9) == NOW_MS
    assert status.queue_earliest_ms(store, b"Batches", 0) == NOW_MS + 3000
    assert status.stored_ms(store, b"Batches", 0, 4) == NOW_MS + 4000


def test_a_group_is_as_many_bytes_behind_as_the_log_has_grown(
    store: MessageStore, clock: ManualClock
) -> None:
    places, end = fill(store, clock), store.log.end
    assert [status.bytes_behind(store, TOPIC, 0, offset) for offset in (-1, 0, 2, 3, 99)] == [
        end - places[0],
        end - places[0],
        end - places[2],
        0,
        0,
    ]
    assert status.bytes_behind(store, b"Batches", 0, 5) == end - places[4]
    assert status.bytes_behind(store, b"Unknown", 0, 0) == 0


def test_the_index_tells_how_far_it_is(store: MessageStore, clock: ManualClock) -> None:
    store.put(a_message(properties=b"KEYS\x01k\x02"), wait=False)
    clock.advance_ms(5000)
    last = store.put(a_message(properties=b"KEYS\x01k\x02"), wait=False)
    store.dispatch()
    assert status.index_newest(store) == (NOW_MS + 5000, last.physical_offset)


def test_buffers_of_a_pool_are_counted(tmp_path: Path) -> None:
    with MessageStore(small_settings(tmp_path, pool_enabled=True, pool_size=2)) as store:
        assert status.free_buffers(store) == 2
        store.put(a_message(), wait=False)
        assert status.free_buffers(store) == 1


def test_queues_are_corrected_on_request(store: MessageStore, clock: ManualClock) -> None:
    fill(store, clock)
    queue = store.queues.get(TOPIC, 0)
    assert queue is not None
    queue.min_offset = -5  # As if nobody had looked since files were deleted.
    store.retention.run_once()
    assert queue.min_offset == -5
    store.retention.request_correction()
    store.retention.run_once()
    assert queue.min_offset == 0
