"""Topics that are deleted: their queues go, their numbers go on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flaremq.base.errors import InvalidName
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock
from flaremq.testing.fakes.builders import NOW_MS, a_message, small_settings

TOPIC = b"TopicTest"


def opened(root: Path, **other: object) -> MessageStore:
    return MessageStore(small_settings(root, **other), clock=ManualClock(NOW_MS))


def put(store: MessageStore, count: int, topic: bytes = TOPIC, queue_id: int = 0) -> None:
    for _ in range(count):
        store.put(a_message(topic=topic, queue_id=queue_id))
    store.dispatch()


def test_queues_of_the_topic_go_and_those_of_others_stay(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 60)  # More than one file of entries.
        put(store, 2, queue_id=3)
        put(store, 2, b"Other")
        assert store.dispatcher.remove_topic(TOPIC) == 2
        assert store.max_offset(TOPIC, 0) == 0
        assert store.max_offset(b"Other", 0) == 2
        assert not (tmp_path / "consumequeue" / "TopicTest").exists()
        assert (tmp_path / "consumequeue" / "Other" / "0").exists()
        assert store.dispatcher.remove_topic(TOPIC) == 0


def test_extensions_go_with_their_queue(tmp_path: Path) -> None:
    with opened(tmp_path, ext_enabled=True) as store:
        put(store, 3)
        store.dispatcher.remove_topic(TOPIC)
        assert not (store.settings.ext_folder / "TopicTest").exists()


def test_messages_after_a_deletion_go_on_with_the_numbers(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 60)
        store.dispatcher.remove_topic(TOPIC)
        put(store, 2)
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (60, 62)
        assert store.get(TOPIC, 0, 60).count == 2
    with opened(tmp_path) as store:
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (60, 62)
        assert store.get(TOPIC, 0, 60).count == 2


def test_topic_comes_and_goes_while_it_is_written_and_flushed(tmp_path: Path) -> None:
    """Queues are flushed, trimmed and written by others while they are taken away."""
    with opened(tmp_path, queue_flush_interval_ms=1) as store:
        stop = threading.Event()

        def remove() -> None:
            while not stop.is_set():
                store.dispatcher.remove_topic(TOPIC)

        def flush() -> None:
            while not stop.is_set():
                store.queues.flush(0)
                for trimmed in store.queues.trimmed():
                    trimmed.delete_before(0)
                    trimmed.correct_min(0)

        with ThreadPoolExecutor(2) as threads:
            work = [threads.submit(remove), threads.submit(flush)]
            try:
                for number in range(150):
                    put(store, 1, queue_id=number % 4)
                    put(store, 1, b"Other")
            finally:
                stop.set()
            for each in work:
                each.result()
        assert store.flags.writable and store.workers.queue_flusher.failure is None
        assert store.max_offset(b"Other", 0) == 150
        assert store.get(b"Other", 0, 149).count == 1
        put(store, 1)
        assert store.get(TOPIC, 0, store.max_offset(TOPIC, 0) - 1).count == 1


def test_name_that_would_lead_elsewhere_removes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 1)
        with pytest.raises(InvalidName):
            store.dispatcher.remove_topic(b"..")
        assert store.max_offset(TOPIC, 0) == 1


def test_time_of_a_message_is_found_by_its_queue_offset(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 2)
        assert [store.finder.time_of(TOPIC, 0, offset) for offset in (-1, 0, 1, 2)] == [
            -1,
            NOW_MS,
            NOW_MS,
            -1,
        ]
        assert store.finder.time_of(b"Nowhere", 0, 0) == -1


def test_time_of_a_message_is_found_in_batch_queues_too(tmp_path: Path) -> None:
    store = MessageStore(small_settings(tmp_path), clock=ManualClock(NOW_MS), is_batch=lambda _topic: True)
    with store:
        put(store, 2)
        assert store.finder.time_of(TOPIC, 0, 1) == NOW_MS
        assert store.reader.is_near(TOPIC, 0, 1) and not store.reader.is_near(TOPIC, 0, 2)
        assert store.dispatcher.remove_topic(TOPIC) == 1


def test_only_what_is_there_and_young_is_near(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 1)
        assert store.reader.is_near(TOPIC, 0, 0)
        assert not store.reader.is_near(TOPIC, 0, 1)
        assert not store.reader.is_near(b"Nowhere", 0, 0)
    with opened(tmp_path, in_memory_percent=0) as store:
        assert not store.reader.is_near(TOPIC, 0, 0)
