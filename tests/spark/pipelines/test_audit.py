"""An audit finds nothing in a sound store, and whatever somebody has changed in another."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipelines.test_rebuild import SMALL, written
from tests.spark.servers import fill, make_topic, servers

from flaremq.admin.sync import Admin
from flaremq.base.errors import UsageError
from flaremq.cli.pipelines.spark import records_counted
from flaremq.model.layout import ENTRY_FORMAT
from flaremq.protocol.configfiles import deleted_topics
from flaremq.spark.pipelines.store.audit import Audit, audit
from flaremq.spark.pipelines.store.rebuild import FileShape, rebuild
from flaremq.store.index.indexfile import entry_at
from flaremq.store.offline.folder import OfflineStore as InspectedFolder
from flaremq.store.offline.verify import Verifier
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound")
    written(root)
    return root


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "store")
    return tmp_path / "store"


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def queue_file(store: Path) -> Path:
    return min((store / "consumequeue" / "A" / "0").iterdir())


def test_nothing_is_found_in_a_sound_store(spark: SparkSession, sound: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    counted = tmp_path / "counted"
    counted.mkdir()
    found = audit(spark, sound, copy, shape=SMALL, counted=counted)
    assert found.findings == [] and found.is_sound
    assert records_counted(counted) == found.records
    assert (found.records, found.queues) == (1500, 12)
    assert found.queue_files > 12 and found.index_files > 5 and found.index_keys > 1000
    assert found.compared_bytes >= found.bytes > 0


def break_body(store: Path) -> str:
    path = sorted((store / "commitlog").iterdir())[1]
    change(path, path.read_bytes().index(b"." * 20), b"x")
    return r"log: no whole record at offset \d+"


def break_entry(store: Path) -> str:
    change(queue_file(store), 60, struct.pack(ENTRY_FORMAT, 12345, 99, 7))
    return r"queue 0 of A: entry 3 points at 12345 \(99 bytes\), but its record is at \d+"


def drop_entry(store: Path) -> str:
    change(queue_file(store), 60, bytes(20))
    return r"queue 0 of A: offset 3 has no entry, but its record is at \d+"


def wrong_tags(store: Path) -> str:
    change(queue_file(store), 72, struct.pack(">q", 4711))
    return r"queue 0 of A: entry 3 has tags code 4711, but its record has -?\d+"


def drop_queue_file(store: Path) -> str:
    queue_file(store).unlink()
    return r"queue 0 of A: 00000000000000000000 is missing: expected the entries of 50 records in it"


def foreign_queue(store: Path) -> str:
    shutil.copytree(store / "consumequeue" / "A" / "0", store / "consumequeue" / "A" / "9")
    return r"queue 9 of A: entry 0 points at \d+, where this queue has no record"


def drop_index_file(store: Path) -> str:
    sorted((store / "index").iterdir())[2].unlink()
    return r"index: the record at \d+ has a key with hash \d+, but no entry points to it"


def break_chain(store: Path) -> str:
    change(min((store / "index").iterdir()), entry_at(50, 80) + 16, struct.pack(">i", 79))
    return r"index: entry 80 of \d+ points back to 79: expected \d+"


def break_slot(store: Path) -> str:
    change(min((store / "index").iterdir()), 40 + 4 * 7, struct.pack(">i", 1))
    return r"index: slot 7 of \d+ points to entry 1: expected \d+, its newest"


@pytest.mark.parametrize(
    "harm",
    [
        *(break_body, break_entry, drop_entry, wrong_tags, drop_queue_file, foreign_queue),
        *(drop_index_file, break_chain, break_slot),
    ],
    ids=lambda harm: harm.__name__,
)
def test_whatever_was_changed_is_found(spark: SparkSession, store: Path, harm: Callable[[Path], str]) -> None:
    wanted = harm(store)
    found = audit(spark, store, shape=SMALL)
    assert not found.is_sound
    assert any(re.match(wanted, finding) for finding in found.findings), found.findings[:5]


def test_two_logs_that_differ_or_end_elsewhere_are_told(
    spark: SparkSession, sound: Path, store: Path
) -> None:
    files = sorted((store / "commitlog").iterdir())
    data = bytearray(files[-1].read_bytes())
    end = data.rindex(b"1499")
    data[end - 60 :] = bytes(len(data) - end + 60)
    files[-1].write_bytes(data)
    change(files[0], 70, b"\x7f")  # Within the address of a store host: no CRC covers it.
    found = audit(spark, sound, store, shape=SMALL)
    assert re.match(r"log: .*store ends at \d+, \d+ bytes before the other one", found.findings[0])
    assert re.match(r"log: the two differ from offset 70 on", found.findings[1])
    assert found.found == 2


def test_a_store_beside_its_running_broker_is_sound_as_far_as_it_is_confirmed(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = MessageStore(small_settings(tmp_path), owner_dispatches=True)
    store.open()
    try:
        for i in range(50):
            store.put(a_message(b"%d" % i))
        store.dispatch()
        store.put(a_message(b"not yet"))
        found: Audit = audit(spark, tmp_path, shape=SMALL)
        assert found.records == 50 and found.findings == []
    finally:
        store.close()


def test_an_index_of_another_shape_is_no_finding_but_a_question(spark: SparkSession, sound: Path) -> None:
    with pytest.raises(UsageError, match="give the broker's maxHashSlotNum and maxIndexNum"):
        audit(spark, sound, shape=FileShape(1000, 51, 200))


def test_a_deleted_topic_is_no_finding_and_is_not_brought_back(spark: SparkSession, tmp_path: Path) -> None:
    with servers(tmp_path) as running:
        for topic in ("Gone", "Again", "Kept"):
            make_topic(running.namesrv, topic, queues=2)
            fill(running.namesrv, topic, 20)
        with Admin(running.namesrv) as admin:
            admin.topics.delete("Gone")
            admin.topics.delete("Again")
        make_topic(running.namesrv, "Again", queues=2)
        fill(running.namesrv, "Again", 10)
        store = running.store()
        found = audit(spark, store)  # The broker still runs.
        assert found.findings == []
    found = audit(spark, store)
    assert found.findings == [] and found.records == 70
    assert "40 records of deleted topics, which belong to no queue" in found.notes
    verified = Verifier(InspectedFolder(store), deleted=deleted_topics(store)).run()
    assert verified.problems == [] and any("40 records of deleted" in each for each in verified.notes)
    done = rebuild(spark, store, tmp_path / "made")
    made = {path.name for path in (tmp_path / "made" / "consumequeue").iterdir()}
    assert done.deleted == 40 and {"Again", "Kept"} <= made and "Gone" not in made
    for queue_id in range(2):
        there = sorted((store / "consumequeue" / "Again" / str(queue_id)).iterdir())
        again = sorted((tmp_path / "made" / "consumequeue" / "Again" / str(queue_id)).iterdir())
        assert [path.name for path in again] == [path.name for path in there]
