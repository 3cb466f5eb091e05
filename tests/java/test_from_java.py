"""What Java wrote, we read, after a clean stop, after a crash and while it runs; and then we take turns."""

import itertools
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.java.appender import kill_while_appending
from tests.java.driver import JavaStore, JavaStores
from tests.java.jvm import JavaStoreError
from tests.java.samples import batch_elements, mixed
from tests.java.sides import (
    BATCH,
    SMALL,
    assert_same_keys,
    assert_same_queues,
    keys_in,
    message_count,
    our_store,
    put_variety,
    scan_ours,
    scanned,
)
from tests.java.toolchain import SINCE_5, Toolchain
from tests.java.values import Draft, ScannedQueue, batch_body

from flaremq.model.record import decode
from flaremq.store.api import Boundary
from flaremq.store.offline.scan import StoreScan

pytestmark = pytest.mark.java


def put_variety_by_java(java: JavaStore, first: int, count: int) -> None:
    results = java.put(mixed(count, first))
    results.append(java.put_batch(replace(BATCH, body=batch_body(batch_elements(first)))))
    assert {result.status for result in results} == {"PUT_OK"}


@pytest.mark.smoke
def test_we_read_every_message_that_java_wrote(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        put_variety_by_java(java, 0, 600)
        end, theirs = java.wait_dispatched(), java.scan()
        assert java.close()
    assert message_count(theirs) == 605
    with our_store(tmp_path) as store:
        assert store.report is not None
        assert (store.report.clean, store.report.begin, store.report.end) == (True, 0, end)
        assert store.report.rebuilt == ()
        assert_same_queues(scan_ours(store), theirs)


def test_we_find_what_java_wrote_by_every_key(java_store: JavaStores, tmp_path: Path) -> None:
    root, copy = tmp_path / "java", tmp_path / "copy"
    with java_store() as java:
        java.open(root, options=SMALL)
        put_variety_by_java(java, 0, 600)
        java.wait_dispatched()
        assert java.close()
        shutil.copytree(root, copy)
        java.open(root, options=SMALL)
        with our_store(copy) as store:
            assert_same_keys(java, store, keys_in(scan_ours(store)))


@pytest.mark.parametrize("java_store", SINCE_5, indirect=True)
def test_we_find_what_java_wrote_by_the_same_times(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        for number in range(60):
            java.put([Draft(topic="Timed", body=b"%d" % number)] * (1 + number % 4))
        java.wait_dispatched()
        (queue,) = java.scan()
        times = {message.store_timestamp for message in queue.messages}
        probes = sorted({time + off for time in times for off in (-1, 0, 1)})
        lower = [java.by_time("Timed", 0, probe, "LOWER") for probe in probes]
        upper = [java.by_time("Timed", 0, probe, "UPPER") for probe in probes]
        assert java.close()
    with our_store(tmp_path) as store:
        assert [store.offset_by_time(b"Timed", 0, probe, Boundary.LOWER) for probe in probes] == lower
        assert [store.offset_by_time(b"Timed", 0, probe, Boundary.UPPER) for probe in probes] == upper


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_we_recover_what_a_crashed_java_had_stored(
    java_store: JavaStores, tmp_path: Path, flush: str
) -> None:
    root, copy, options = tmp_path / "java", tmp_path / "copy", SMALL | {"flushDiskType": flush}
    with java_store() as java:
        java.open(root, options=options)
        put_variety_by_java(java, 0, 500)
        java.halt()
    shutil.copytree(root, copy)
    with java_store() as java, our_store(copy, options) as store:
        assert not java.open(root, options=options).last_exit_ok
        assert store.report is not None
        assert not store.report.clean
        ours = scan_ours(store)
        assert message_count(ours) == 505
        assert_same_queues(ours, java.scan())
        assert_same_keys(java, store, keys_in(ours), crashed=True)


def scan_from_outside(root: Path) -> list[ScannedQueue]:
    """All queues by the read-only walk, in the values of a scan."""
    scan, found = StoreScan(root), []
    for topic, queue_id in sorted(scan.queues()):
        records = [decode(bytes(record)) for record in scan.queue_records(topic, queue_id)]
        messages = tuple(scanned(record, number) for number, record in enumerate(records))
        found.append(ScannedQueue(topic, queue_id, 0, len(messages), messages, ()))
    return found


def offsets_from_outside(root: Path) -> list[int]:
    """Where the records of the log lie, by the read-only walk."""
    found = []
    for walked in StoreScan(root).records():
        found += [decode(bytes(walked.record(row))).physical_offset for row in range(walked.count)]
    return found


def test_we_read_beside_a_running_java_and_change_nothing(java_store: JavaStores, tmp_path: Path) -> None:
    with java_store() as java:
        java.open(tmp_path, options=SMALL)
        for first in (0, 200, 400):
            put_variety_by_java(java, first, 200)
            java.wait_dispatched()
            theirs = java.scan()
            assert_same_queues(scan_from_outside(tmp_path), theirs)
            placed = (message.physical_offset for queue in theirs for message in queue.messages)
            assert offsets_from_outside(tmp_path) == sorted(placed)
        assert java.close()


def put_until_killed(java: JavaStore) -> None:
    numbers = itertools.count(step=100)
    with pytest.raises(JavaStoreError, match=r"the JVM (ended with status -9|is gone)"):
        any(java.put(mixed(100, first)) is None for first in numbers)


def test_we_read_beside_an_appending_java_and_after_its_kill(java_store: JavaStores, tmp_path: Path) -> None:
    root, copy = tmp_path / "java", tmp_path / "copy"

    with java_store() as java:
        java.open(root, options=SMALL)
        putter = threading.Thread(target=put_until_killed, args=(java,))
        putter.start()
        seen: list[int] = []
        while len(seen) < 1500:
            later = offsets_from_outside(root)
            assert later[: len(seen)] == seen
            seen = later
        java.kill()
        putter.join()
    shutil.copytree(root, copy)
    for path in (root / "commitlog").iterdir():
        if not path.stat().st_size:
            path.unlink()  # Killed while it made its next file. We pass it over; 4.9.8 refuses its own.
    with java_store() as java, our_store(copy) as store:
        java.open(root, options=SMALL)
        ours = scan_ours(store)
        assert_same_queues(ours, java.scan())
        assert message_count(ours) >= len(seen)


def use_ours(root: Path, first: int) -> list[ScannedQueue]:
    with our_store(root) as store:
        put_variety(store, first, 100)
        return scan_ours(store)


def use_java(java: JavaStore, root: Path, before: list[ScannedQueue], first: int) -> list[ScannedQueue]:
    """Java opens what we left, reads all of it, and adds to it."""
    assert java.open(root, options=SMALL).last_exit_ok
    assert_same_queues(java.scan(), before)
    put_variety_by_java(java, first, 100)
    java.wait_dispatched()
    after = java.scan()
    assert java.close()
    return after


def test_we_and_java_take_turns_in_one_folder(java_store: JavaStores, tmp_path: Path) -> None:
    queues: list[ScannedQueue] = []
    with java_store() as java:
        for turn in range(4):
            queues = use_java(java, tmp_path, queues, turn * 200)
            with our_store(tmp_path) as store:
                assert_same_queues(scan_ours(store), queues)
            queues = use_ours(tmp_path, turn * 200 + 100)
            assert message_count(queues) == (turn + 1) * 210
        shutil.copytree(tmp_path, tmp_path / "copy")
        java.open(tmp_path, options=SMALL)
        with our_store(tmp_path / "copy") as store:
            assert_same_keys(java, store, keys_in(queues))


def test_a_folder_goes_from_4_x_to_us_to_5_x_and_back(java_toolchain: Toolchain, tmp_path: Path) -> None:
    queues: list[ScannedQueue] = []
    with JavaStore(java_toolchain, "4.9.8") as old, JavaStore(java_toolchain, "5.3.3") as new:
        for turn in range(2):
            queues = use_java(old, tmp_path, queues, turn * 400)
            queues = use_ours(tmp_path, turn * 400 + 100)
            queues = use_java(new, tmp_path, queues, turn * 400 + 200)
            queues = use_ours(tmp_path, turn * 400 + 300)
        assert message_count(queues) == 2 * 420
        use_java(old, tmp_path, queues, 1000)


def test_we_and_java_take_turns_in_crashing(java_store: JavaStores, tmp_path: Path) -> None:
    root, stored = tmp_path / "both", 0
    for turn in range(3):
        with java_store() as java:
            java.open(root, options=SMALL)
            assert message_count(java.scan()) >= stored
            put_variety_by_java(java, stored, 150)
            java.halt()
        stored += 155
        with our_store(root) as store:
            assert message_count(scan_ours(store)) >= stored
        kill_while_appending(root, "ASYNC_FLUSH", 150, first=turn * 1000)
        stored += 150
    shutil.copytree(root, tmp_path / "copy")
    with java_store() as java, our_store(tmp_path / "copy") as store:
        java.open(root, options=SMALL)
        ours = scan_ours(store)
        assert message_count(ours) >= stored
        assert_same_queues(ours, java.scan())
        assert_same_keys(java, store, keys_in(ours), crashed=True)
