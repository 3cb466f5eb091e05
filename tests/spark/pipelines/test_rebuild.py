"""Queues and index made anew by Spark are, byte for byte, those that the broker made."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flaremq.base.errors import CorruptStore, StoreLocked, UsageError
from flaremq.spark.pipelines.store.rebuild import FileShape, rebuild, shape_of
from flaremq.store.store import MessageStore
from flaremq.testing.fakes.builders import a_message, small_settings

SMALL = FileShape(queue_file_size=1000, index_slots=50, index_entries=200)


def written(root: Path, count: int = 1500, **settings: Any) -> None:
    """Topics, queues, keys and kinds of messages in no order at all, always the same ones."""
    dice = random.Random(7)
    store = MessageStore(small_settings(root, **settings))
    store.open()
    for i in range(count):
        keys = b" ".join(b"key-%d" % dice.randrange(400) for _ in range(dice.randrange(4)))
        properties = b"TAGS\x01t%d\x02KEYS\x01%s\x02UNIQ_KEY\x01%032X\x02" % (dice.randrange(3), keys, i)
        delayed = dice.random() < 0.1
        store.put(
            a_message(
                b"%d" % i + b"." * dice.randrange(300),
                topic=b"SCHEDULE_TOPIC_XXXX"
                if delayed
                else (b"A", b"Bee", b"%RETRY%group")[dice.randrange(3)],
                queue_id=dice.randrange(3),
                properties=(b"DELAY\x013\x02" if delayed else b"")
                + (properties if dice.random() < 0.9 else b""),
                sys_flag=dice.choice((0, 0, 0, 4, 8, 12)),
            )
        )
    store.dispatch()
    store.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same_index(made: Path, wanted: Path) -> None:
    """Names tell when a file was made, so they differ; their order does not."""
    made_files, wanted_files = sorted(made.iterdir()), sorted(wanted.iterdir())
    assert [path.read_bytes() for path in made_files] == [path.read_bytes() for path in wanted_files]
    assert len(made_files) > 5


def test_what_is_rebuilt_is_what_the_broker_has_made(spark: SparkSession, tmp_path: Path) -> None:
    store, to = tmp_path / "store", tmp_path / "made"
    written(store)
    done = rebuild(spark, store, to, shape=SMALL)
    assert contents(to / "consumequeue") == contents(store / "consumequeue")
    same_index(to / "index", store / "index")
    assert (done.records, done.repeated, done.missing, done.kept) == (1500, 0, 0, ())
    assert done.queues == 12 and done.queue_files == len(contents(to / "consumequeue"))
    assert {path.name for path in to.iterdir()} == {"consumequeue", "index"}


def test_a_store_whose_beginning_was_deleted_is_rebuilt_from_what_is_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    written(store)
    for path in sorted((store / "commitlog").iterdir())[:2]:
        path.unlink()
    by_broker = tmp_path / "by_broker"
    shutil.copytree(store, by_broker)
    for kind in ("consumequeue", "index"):
        shutil.rmtree(by_broker / kind)
    again = MessageStore(small_settings(by_broker))
    again.open()
    again.dispatch()
    again.close()
    done = rebuild(spark, store, shape=SMALL)
    assert contents(store / "consumequeue") == contents(by_broker / "consumequeue")
    same_index(store / "index", by_broker / "index")
    assert sorted(path.name.split(".")[0] for path in done.kept) == ["consumequeue", "index"]
    assert all(path.is_dir() for path in done.kept)
    opened = MessageStore(small_settings(store))
    opened.open()
    opened.close()


def test_a_store_without_keys_has_queues_and_no_index(spark: SparkSession, tmp_path: Path) -> None:
    store = MessageStore(small_settings(tmp_path / "store"))
    store.open()
    for number in range(20):
        store.put(a_message(b"%d" % number, properties=b""))
    store.dispatch()
    store.close()
    done = rebuild(spark, tmp_path / "store", tmp_path / "made", shape=SMALL)
    assert (done.records, done.index_files, done.index_entries) == (20, 0, 0)
    assert contents(tmp_path / "made" / "consumequeue") == contents(tmp_path / "store" / "consumequeue")
    assert list((tmp_path / "made" / "index").iterdir()) == []


def test_a_store_that_a_broker_has_open_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    store = MessageStore(small_settings(tmp_path))
    store.open()
    try:
        with pytest.raises(StoreLocked, match="a broker has this store open"):
            rebuild(spark, tmp_path)
    finally:
        store.close()


def test_damage_ends_it_before_anything_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path, 300)
    before = contents(tmp_path / "consumequeue")
    path = min((tmp_path / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[3000] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(Exception, match="no whole record at offset") as failure:
        rebuild(spark, tmp_path, shape=SMALL)
    assert CorruptStore.__name__ in str(failure.value)
    assert contents(tmp_path / "consumequeue") == before
    assert not (tmp_path / ".rebuild").exists()


def test_nothing_is_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "store", 10)
    (tmp_path / "to" / "index" / "x").mkdir(parents=True)
    with pytest.raises(UsageError, match="is not empty: expected a new or empty folder"):
        rebuild(spark, tmp_path / "store", tmp_path / "to")
    with pytest.raises(UsageError, match="does not exist: expected a store"):
        rebuild(spark, tmp_path / "nothing")


def test_the_size_of_files_is_that_of_those_which_are_there(tmp_path: Path) -> None:
    written(tmp_path, 10)
    assert shape_of(tmp_path).queue_file_size == 1000
    assert shape_of(tmp_path / "elsewhere") == FileShape()
    with pytest.raises(UsageError, match="queue files of 30 bytes: expected a multiple of 20"):
        FileShape(queue_file_size=30)
