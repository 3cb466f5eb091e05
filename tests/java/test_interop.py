"""What we wrote, Java reads: every message by its queue offset, by every key and by time."""

import os
import shutil
from pathlib import Path

import pytest
from tests.java.appender import kill_while_appending
from tests.java.driver import JavaStores
from tests.java.samples import BODY_MAX, a_message, all_keys, mixed
from tests.java.sides import (
    SMALL,
    assert_same_keys,
    assert_same_queues,
    boundary_name,
    keys_in,
    message_count,
    new_message,
    our_store,
    put_all,
    put_variety,
    scan_ours,
)
from tests.java.toolchain import SINCE_5
from tests.java.values import Draft

from flaremq.store.api import Boundary
from flaremq.store.store import MessageStore
from flaremq.testing.clock import ManualClock

pytestmark = pytest.mark.java

ONLY_5 = pytest.mark.parametrize("java_store", SINCE_5, indirect=True)
LARGEST = Draft(topic="Large", body=bytes(range(256)) * (BODY_MAX // 256), properties=b"KEYS\x01whole\x02")
LONG_RETRY_TOPIC = "%RETRY%" + "a-group-with-a-long-name" * 6


def put_many(store: MessageStore) -> None:
    """Batches among single messages, and one as large as may be; files of all kinds roll often."""
    for first in range(0, 900, 100):
        put_variety(store, first, 100)
    store.put(new_message(LARGEST))


@pytest.mark.smoke
def test_java_reads_every_message_that_we_wrote(java_store: JavaStores, tmp_path: Path) -> None:
    with our_store(tmp_path) as store:
        put_many(store)
        end, ours = store.log.end, scan_ours(store)
    assert message_count(ours) == 900 + 9 * 5 + 1
    assert len(list((tmp_path / "commitlog").iterdir())) > 8
    assert len(list((tmp_path / "index").iterdir())) > 3
    with java_store() as java:
        opened = java.open(tmp_path, options=SMALL)
        assert (opened.last_exit_ok, opened.min_physical_offset, opened.max_physical_offset) == (True, 0, end)
        assert_same_queues(java.scan(), ours)


def test_java_finds_what_we_wrote_by_every_key(java_store: JavaStores, tmp_path: Path) -> None:
    with our_store(tmp_path) as store:
        put_many(store)
        keys = keys_in(scan_ours(store))
    assert set(keys) >= set(all_keys(mixed(900)))
    shutil.copytree(tmp_path, tmp_path / "copy")
    with java_store() as java, our_store(tmp_path / "copy") as store:
        java.open(tmp_path, options=SMALL)
        assert_same_keys(java, store, keys)
        assert java.by_key("Orders", "order-1").records == ()


def put_at_times(store: MessageStore, clock: ManualClock, steps_ms: list[int]) -> list[int]:
    """One message after each step of the clock, to one queue; gives the times."""
    times = []
    for number, step_ms in enumerate(steps_ms):
        clock.advance_ms(step_ms)
        times.append(clock.now_ms())
        store.put(new_message(Draft(topic="Timed", body=b"%d" % number)))
    store.dispatch()
    return times


@ONLY_5
@pytest.mark.parametrize("boundary", list(Boundary))
def test_java_finds_the_same_offsets_by_time(
    java_store: JavaStores, tmp_path: Path, boundary: Boundary
) -> None:
    clock = ManualClock()
    # Runs of equal times, some of them from one queue file into the next; gaps small and large.
    steps_ms = [1000] + [0, 0, 5, 1, 0, 7000, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3] * 5
    with our_store(tmp_path, clock=clock) as store:
        times = put_at_times(store, clock, steps_ms)
        probes = sorted({time + off for time in times for off in (-600, -1, 0, 1, 600)})
        ours = [store.offset_by_time(b"Timed", 0, probe, boundary) for probe in probes]
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        theirs = [java.by_time("Timed", 0, probe, boundary_name(boundary)) for probe in probes]
    assert [(p, t) for p, t in zip(probes, theirs, strict=True)] == list(zip(probes, ours, strict=True))


@pytest.mark.parametrize("java_store", ["4.9.8"], indirect=True)
def test_4_x_finds_the_nearest_message_by_time(java_store: JavaStores, tmp_path: Path) -> None:
    """It knows no boundary: of a time between two messages it gives one of them, else what we give.

    It chooses the queue file by the time of its last change, so files get the times at which the clock
    of the test has seen them written.
    """
    clock = ManualClock()
    with our_store(tmp_path, clock=clock) as store:
        times = put_at_times(store, clock, [7 + number % 5 * 100 for number in range(80)])
        lower = {time: store.offset_by_time(b"Timed", 0, time) for time in times}
    per_file = 17
    for number, file in enumerate(sorted((tmp_path / "consumequeue" / "Timed" / "0").iterdir())):
        last_ms = times[min(number * per_file + per_file, len(times)) - 1]
        os.utime(file, ns=(last_ms * 1_000_000, last_ms * 1_000_000))
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        assert {time: java.by_time("Timed", 0, time) for time in times} == lower
        for number, time in enumerate(times[1:], 1):
            assert java.by_time("Timed", 0, time - 3) in (number - 1, number)
        assert java.by_time("Timed", 0, times[0] - 1) == 0
        assert java.by_time("Timed", 0, times[-1] + 1) == len(times) - 1


@ONLY_5
def test_java_reads_topics_with_long_names(java_store: JavaStores, tmp_path: Path) -> None:
    """Records of the second version, which 4.x does not know."""
    drafts = [
        Draft(topic=LONG_RETRY_TOPIC, body=b"%d" % n, properties=b"KEYS\x01k%d\x02" % n) for n in range(50)
    ]
    with our_store(tmp_path) as store:
        put_all(store, [draft for pair in zip(drafts, mixed(50), strict=True) for draft in pair])
        ours = scan_ours(store)
    assert message_count(ours) == 100
    shutil.copytree(tmp_path, tmp_path / "copy")
    with java_store() as java, our_store(tmp_path / "copy") as store:
        assert java.open(tmp_path, options=SMALL).last_exit_ok
        assert_same_queues(java.scan(), ours)
        assert_same_keys(java, store, all_keys(drafts))


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_java_recovers_what_our_killed_process_had_stored(
    java_store: JavaStores, tmp_path: Path, flush: str
) -> None:
    root, copy = tmp_path / "killed", tmp_path / "copy"
    last = kill_while_appending(root, flush, 700)
    shutil.copytree(root, copy)
    with java_store() as java, our_store(copy) as store:
        assert not java.open(root, options=SMALL).last_exit_ok
        ours = scan_ours(store)
        assert_same_queues(java.scan(), ours)
        assert_same_keys(java, store, keys_in(ours), crashed=True)
        bodies = sorted(message.body or b"" for queue in ours for message in queue.messages)
        assert bodies == sorted(a_message(number).body for number in range(len(bodies)))
        assert last < len(bodies) <= last + 2  # One more may be stored, its number not printed.
