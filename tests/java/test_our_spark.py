"""A directory that Java's store wrote, read and rebuilt by Spark: the same rows, the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.java.driver import JavaStores
from tests.java.files import assert_same_index
from tests.java.sides import SMALL
from tests.java.test_from_java import put_variety_by_java
from tests.spark.conftest import java, spark  # noqa: F401 - Fixtures.

from flaremq.spark.pipelines.store.audit import audit
from flaremq.spark.pipelines.store.rebuild import FileShape, rebuild

pytestmark = pytest.mark.java

SHAPE = FileShape(
    int(str(SMALL["mappedFileSizeConsumeQueue"])),
    int(str(SMALL["maxHashSlotNum"])),
    int(str(SMALL["maxIndexNum"])),
)


@pytest.fixture
def written(java_store: JavaStores, tmp_path: Path) -> tuple[Path, list[tuple[str, int, int, bytes]]]:
    """A folder of Java's, and what Java says of the messages in it."""
    root = tmp_path / "store"
    with java_store() as java_:
        java_.open(root, options=SMALL)
        put_variety_by_java(java_, 0, 600)
        java_.wait_dispatched()
        queues = java_.scan()
        assert java_.close()
    found = [
        (queue.topic, queue.queue_id, message.physical_offset, message.body or b"")
        for queue in queues
        for message in queue.messages
    ]
    return root, sorted(found)


def contents(folder: Path) -> dict[str, bytes]:
    """Files that hold something: Java makes one ahead here and there."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in files.items() if data.strip(b"\0")}


def test_spark_reads_rebuilds_and_audits_what_java_wrote(
    spark: SparkSession,  # noqa: F811
    written: tuple[Path, list[tuple[str, int, int, bytes]]],
    tmp_path: Path,
) -> None:
    root, theirs = written
    columns = "topic,queueId,physicalOffset,body"
    rows = spark.read.format("rocketmq-store").option("columns", columns).load(str(root)).collect()
    ours = sorted((row[0], row[1], row[2], bytes(row[3])) for row in rows)
    assert ours == theirs
    done = rebuild(spark, root, tmp_path / "made", shape=SHAPE)
    assert done.records == len(theirs)
    assert contents(tmp_path / "made" / "consumequeue") == contents(root / "consumequeue")
    (tmp_path / "made" / "commitlog").symlink_to(root / "commitlog")
    assert_same_index(tmp_path / "made", root)
    found = audit(spark, root, shape=SHAPE)
    assert found.findings == []
    assert found.records == len(theirs)
