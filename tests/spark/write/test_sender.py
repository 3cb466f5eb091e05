"""What a task sends, without Spark around it: tests that Apache's servers pass too."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.servers import make_topic, servers, wait_until_holds

from flaremq.base.errors import FlareError, MessageIllegal, UsageError
from flaremq.spark.clients import cluster_client
from flaremq.spark.read.batch import planned
from flaremq.spark.read.fetch import FetchPlan
from flaremq.spark.read.options import ReadOptions
from flaremq.spark.read.task import ReadTask, RowReader
from flaremq.spark.schema import spark_schema
from flaremq.spark.write.ids import derived_ids
from flaremq.spark.write.options import WriteOptions
from flaremq.spark.write.writer import WriteTask, send_rows
from flaremq.testing.cluster import Cluster
from flaremq.testing.patience import load_factor


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers(tmp_path_factory.mktemp("two"), brokers=2) as running:
        yield running.namesrv


def send(namesrv: str, topic: str, *batches: dict[str, pa.Array], **options: str) -> int:
    said = WriteOptions.of({"nameServer": namesrv, "topic": topic, **options}, streaming=False)
    return send_rows(said, (pa.RecordBatch.from_pydict(each) for each in batches), WriteTask("write", 3))


def stored(namesrv: str, topic: str, count: int) -> list[dict[str, Any]]:
    """All of them, once there are so many, in the order of their queues."""
    wait_until_holds(namesrv, topic, count)
    options, link = ReadOptions.of({"nameServer": namesrv, "topic": topic}), cluster_client(namesrv)
    task = ReadTask(link.run(planned(link.client, options)), FetchPlan.of(options))
    rows = [row for batch in RowReader(spark_schema()).rows(task) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["brokerName"], row["queueId"], row["queueOffset"]))


def bodies(numbers: range) -> pa.Array:
    return pa.array([b"%d" % number for number in numbers])


def test_rows_without_an_order_all_arrive_as_they_are(namesrv: str) -> None:
    make_topic(namesrv, "Plain", queues=3)
    parts = [range(2000), range(2000, 2001), range(2001, 5000)]
    batches = [
        {
            "body": bodies(part),
            "keys": pa.array([[f"k{n}", "all"] for n in part]),
            "tags": pa.array(["even" if n % 2 == 0 else None for n in part]),
            "properties": pa.array(
                [[("n", str(n)), ("wörd", "ü")] for n in part], pa.map_(pa.string(), pa.string())
            ),
        }
        for part in parts
    ]
    assert send(namesrv, "Plain", *batches, window="100", delivery="idempotent", writeId="w") == 5000
    rows = stored(namesrv, "Plain", 5000)
    assert sorted(int(row["body"]) for row in rows) == list(range(5000))
    ids = derived_ids("write/3", 0, 5000)
    for row in rows:
        number = int(row["body"])
        assert row["msgId"] == ids[number]
        assert row["keys"] == f"k{number} all"
        assert row["tags"] == ("even" if number % 2 == 0 else None)
        assert {**dict(row["properties"]), "n": str(number), "wörd": "ü"} == dict(row["properties"])
    assert len({(row["brokerName"], row["queueId"]) for row in rows}) >= 3


def test_rows_of_a_key_stay_in_order_between_others(namesrv: str) -> None:
    make_topic(namesrv, "Keyed", queues=2)
    batches = [
        {
            "body": bodies(part),
            "shardingKey": pa.array([f"s{n % 5}" if n % 4 else None for n in part]),
            "tags": pa.array(["grün"] * len(part)),
        }
        for part in (range(3000), range(3000, 6000))
    ]
    assert send(namesrv, "Keyed", *batches, window="500") == 6000
    by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    rows = stored(namesrv, "Keyed", 6000)
    assert sorted(int(row["body"]) for row in rows) == list(range(6000))
    for row in rows:
        assert row["tags"] == "grün"
        key = dict(row["properties"]).get("__SHARDINGKEY")
        if key is not None:
            assert int(row["body"]) % 5 == int(key[1:])
            by_key[key].append(row)
    assert len(by_key) == 5
    for of_key in by_key.values():
        assert len({(row["brokerName"], row["queueId"]) for row in of_key}) == 1
        numbers = [int(row["body"]) for row in of_key]
        assert numbers == sorted(numbers)


def test_large_rows_go_alone_in_their_turn(namesrv: str) -> None:
    make_topic(namesrv, "Large", queues=1)
    sizes = [10, 700_000, 10, 300_000, 300_000, 10, 10]
    batch = {
        "body": pa.array([bytes([65 + n]) * size for n, size in enumerate(sizes)]),
        "orderKey": pa.array(["one"] * len(sizes)),
    }
    send(namesrv, "Large", batch, compressAbove="500KiB")
    rows = stored(namesrv, "Large", len(sizes))
    assert [row["body"][:1] for row in rows] == [bytes([65 + n]) for n in range(len(sizes))]
    assert [len(row["body"]) for row in rows] == sizes
    assert [row["sysFlag"] & 1 for row in rows] == [size > 500 << 10 for size in sizes]


def test_rows_without_an_order_go_in_batches_and_large_ones_compressed_by_themselves(namesrv: str) -> None:
    make_topic(namesrv, "Mixed", queues=2)
    sizes = [10, 5000, 10, 4095, 4096, 10] * 50
    batch = {"body": pa.array([bytes([65 + n % 6]) * size for n, size in enumerate(sizes)])}
    assert send(namesrv, "Mixed", batch) == len(sizes)
    rows = stored(namesrv, "Mixed", len(sizes))
    assert sorted(len(row["body"]) for row in rows) == sorted(sizes)
    for row in rows:
        is_large = len(row["body"]) > 4095
        assert row["sysFlag"] & 1 == is_large
        # A broker writes its region into a message that came by itself, and not into those of a batch.
        assert ("MSG_REGION" in dict(row["properties"])) == is_large


def test_a_delayed_row_goes_by_itself(namesrv: str) -> None:
    make_topic(namesrv, "Delayed", queues=1)
    batch = {"body": bodies(range(3)), "delayLevel": pa.array([None, 1, None], pa.int32())}
    send(namesrv, "Delayed", batch)
    rows = sorted(stored(namesrv, "Delayed", 3), key=lambda row: row["storeTimestamp"])
    assert int(rows[-1]["body"]) == 1
    assert rows[-1]["storeTimestamp"] - rows[0]["storeTimestamp"] >= timedelta(seconds=1)


def test_a_retry_goes_by_itself(namesrv: str) -> None:
    with pytest.raises(FlareError, match="refuses SEND_MESSAGE_V2"):  # And not a batch.
        send(namesrv, "%RETRY%nobody", {"body": bodies(range(3))})


def test_a_row_goes_to_the_queue_that_it_names(namesrv: str) -> None:
    make_topic(namesrv, "Places", queues=3)
    numbers = pa.array([2, 0, 2, None, 2], pa.int32())
    batch = {"body": bodies(range(5)), "queueId": numbers, "brokerName": pa.array(["broker-a"] * 5)}
    for ordered in ("true", "false"):
        send(namesrv, "Places", batch, ordered=ordered)
    found: dict[int, list[int]] = defaultdict(list)
    for row in stored(namesrv, "Places", 10):
        found[int(row["body"])].append(row["queueId"])
    assert [found[n] for n in (0, 1, 2, 4)] == [[2, 2], [0, 0], [2, 2], [2, 2]]
    assert len(found[3]) == 2
    with pytest.raises(UsageError, match=r"'Places' has no writable queue nobody:2: it has broker-a:0"):
        send(namesrv, "Places", {**batch, "brokerName": pa.array(["nobody"] * 5)})


def test_a_row_that_cannot_be_sent_fails_all_that_come_after(namesrv: str) -> None:
    make_topic(namesrv, "Bad", queues=1)
    good, bad = {"body": bodies(range(10))}, {"body": pa.array([b"x", b""])}
    with pytest.raises(MessageIllegal, match="empty body"):
        send(namesrv, "Bad", good, bad, good)
    assert len(stored(namesrv, "Bad", 0)) <= 10
    with pytest.raises(FlareError, match=r"127\.0\.0\.1:1\b"):
        send("127.0.0.1:1", "Bad", good, timeout="1s")


@pytest.mark.parametrize("column", ["keys", "orderKey"])
def test_rows_wait_for_a_broker_that_is_started_again(tmp_path: Path, column: str) -> None:
    with Cluster(tmp_path) as cluster, ThreadPoolExecutor() as pool:
        namesrv = cluster.namesrv().address
        broker = cluster.broker("broker-a", namesrv)
        make_topic(namesrv, "Waits", queues=2)
        batches = [
            {"body": bodies(range(at, at + 100)), column: pa.array(["k"] * 100)} for at in (0, 100, 200)
        ]
        assert send(namesrv, "Waits", batches[0]) == 100
        broker.kill()
        sending = pool.submit(send, namesrv, "Waits", *batches[1:])
        cluster.again(broker)
        assert sending.result() == 200
        rows = stored(namesrv, "Waits", 300)
        assert {int(row["body"]) for row in rows} == set(range(300))


def test_rows_wait_for_a_broker_no_longer_than_it_is_said(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv().address
        broker = cluster.broker("broker-a", namesrv)
        make_topic(namesrv, "Late", queues=1)
        assert send(namesrv, "Late", {"body": bodies(range(3))}) == 3
        broker.kill()
        with pytest.raises(FlareError, match=r"^a batch of 3 messages to 'Late': failed after "):
            send(namesrv, "Late", {"body": bodies(range(3))}, brokerTimeout="500ms")


@pytest.mark.parametrize("size", [100, 1 << 20], ids=["in batches", "one by one"])
def test_a_broker_that_is_stopped_fails_the_write_in_time(tmp_path: Path, size: int) -> None:
    """Its kernel still takes what fits into its buffers, and then nothing more."""
    with Cluster(tmp_path) as cluster:
        namesrv = cluster.namesrv().address
        broker = cluster.broker("broker-a", namesrv)
        make_topic(namesrv, "Stuck", queues=1)
        assert send(namesrv, "Stuck", {"body": bodies(range(3))}) == 3
        rows = pa.array([os.urandom(size) for _ in range(40)])
        os.kill(broker.pid, signal.SIGSTOP)
        began_s = time.monotonic()
        try:
            with pytest.raises(FlareError, match=r"within 0\.5 s"):
                send(namesrv, "Stuck", {"body": rows}, timeout="500ms", brokerTimeout="1s")
            assert time.monotonic() - began_s < 6 * load_factor()
        finally:
            os.kill(broker.pid, signal.SIGCONT)
