"""Beside a broker that is busy, reading a store tells of no damage that is not there, and of all that is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.cli.commands import flaremq
from tests.spark.read.busy import Busy, busy_broker

from flaremq.model.columns import Fact
from flaremq.spark.pipelines.store.audit import audit
from flaremq.spark.pipelines.store.rebuild import rebuild
from flaremq.store.offline.scan import StoreScan

RATE = 5000
LOOKS = int(os.environ.get("FLAREMQ_LOOKS", "15"))
"""Of the long run. The store grows meanwhile, so each takes longer than the one before."""


def verified(busy: Busy) -> list[str]:
    ended = flaremq("store", "verify", busy.store, "--json")
    document = json.loads(ended.out)
    assert document["records"] > 0 and document["index_entries"] > 0
    problems: list[str] = document["problems"]
    return problems


def damage_a_body(store: Path) -> None:
    """Spoil a message that was stored long ago."""
    scan = StoreScan(store)
    walked = next(scan.file_records(scan.log_files()[0]))
    with scan.log_files()[0].path.open("r+b") as file:
        file.seek(walked.facts[100 * Fact.WIDTH + Fact.BODY_AT])
        file.write(b"DAMAGE")


def look_often(spark: SparkSession, folder: Path, times: int) -> None:
    with busy_broker(folder, RATE) as busy:
        for _ in range(times):
            assert verified(busy) == []
        for _ in range(-(-times // 3)):
            found = audit(spark, busy.store)
            assert found.findings == [] and found.records > 1000 and found.index_keys > 1000
            assert any("when the audit began" in note for note in found.notes)
        for options in ({}, {"topic": "Busy"}):  # By the log, and by queues.
            rows = spark.read.format("rocketmq-store").options(**options).load(str(busy.store))
            assert rows.where("length(body) != 300").count() == 0
        made = rebuild(spark, busy.store, folder / "made")
        assert made.records > 1000 and made.missing == 0 and made.repeated == 0
        damage_a_body(busy.store)
        busy.more(1 << 20)
        problems = verified(busy)
        assert len([each for each in problems if "the CRC of the body is wrong" in each]) == 1, problems[:5]
        findings = audit(spark, busy.store).findings
        assert any("no whole record at offset" in each for each in findings), findings[:5]


def test_beside_a_busy_broker_only_true_damage_is_found(spark: SparkSession, tmp_path: Path) -> None:
    look_often(spark, tmp_path, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_beside_a_busy_broker_only_true_damage_is_found_however_often_one_looks(
    spark: SparkSession, tmp_path: Path
) -> None:
    look_often(spark, tmp_path, LOOKS)
