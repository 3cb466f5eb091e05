"""Fetching from real brokers: every message of a range once and in order, however much an answer brings."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.servers import fill, forget_oldest, make_topic, send, servers

from flaremq.admin.sync import Admin
from flaremq.arrow.batches import Decoder
from flaremq.base.errors import DataLost, FlareError, InvalidExpression, NotServed, PeerError
from flaremq.client.consumer.bulkpull import PullFrames, PullLine
from flaremq.model.message import Message, MessageQueue
from flaremq.model.topic import GroupConfig
from flaremq.spark.clients import close_links
from flaremq.spark.read import fetch as room
from flaremq.spark.read.fetch import FetchPlan, chunks
from flaremq.spark.read.options import Filter
from flaremq.spark.read.partitions import QueueRange
from flaremq.spark.read.pullranges import PullRange
from flaremq.testing.cluster import Cluster
from flaremq.testing.embedded import EmbeddedThread

SMALL_FILES: dict[str, object] = {
    "maxMessageSize": 16 << 10,
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 20 * 100,
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("two"), brokers=2) as running:
        yield running


def whole(got: dict[MessageQueue, int]) -> list[QueueRange]:
    return [
        QueueRange(queue.topic, queue.broker_name, queue.queue_id, 0, count)
        for queue, count in sorted(got.items(), key=lambda pair: pair[0])
    ]


def read(plan: FetchPlan, ranges: list[QueueRange]) -> list[tuple[str, int, int, int]]:
    """Broker, queue, offset and number of every row, in the order in which they come."""
    rows = []
    for chunk in chunks(plan, ranges):
        columns = ("brokerName", "queueId", "queueOffset", "body")
        decoder = Decoder(columns, broker_name=chunk.broker, tags=plan.filter.tags or None)
        for batch in decoder.batches(chunk.data, chunk.begin, chunk.end):
            named = [column.to_pylist() for column in batch.columns]
            rows += [(*row[:3], int(row[3][:8])) for row in zip(*named, strict=True)]
    return rows


def expected(ranges: list[QueueRange]) -> list[tuple[str, int, int]]:
    return [(each.broker, each.queue, offset) for each in ranges for offset in range(each.begin, each.end)]


def test_all_messages_of_two_brokers_come_once_and_in_order(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "All", queues=3)
    got = fill(two.namesrv, "All", 5000)
    assert len(got) == 6
    rows = read(FetchPlan(two.namesrv), whole(got))
    assert [row[:3] for row in rows] == expected(whole(got))
    assert sorted(row[3] for row in rows) == list(range(5000))


def test_parts_of_queues_are_exactly_those_parts(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Parts", queues=2)
    got = fill(two.namesrv, "Parts", 2000)
    parts = [
        QueueRange(each.topic, each.broker, each.queue, each.begin + 7 + number, each.end - 11 * number)
        for number, each in enumerate(whole(got))
    ]
    assert [row[:3] for row in read(FetchPlan(two.namesrv), parts)] == expected(parts)


def test_large_messages_come_in_short_answers(two: EmbeddedThread) -> None:
    """A broker gives no more than 256 KiB at a time, whatever their number."""
    make_topic(two.namesrv, "Large", queues=1)
    sizes = [100, 90_000, 30_000, 200_000, 10]
    got = send(
        two.namesrv,
        [Message("Large", b"%08d" % number + bytes(sizes[number % 5])) for number in range(200)],
    )
    rows = read(FetchPlan(two.namesrv), whole(got))
    assert [row[:3] for row in rows] == expected(whole(got))


def test_tags_leave_out_the_others_and_a_range_in_which_nothing_matches_ends(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Tags", queues=1)
    got = fill(two.namesrv, "Tags", 9000, tags=["a"] * 8 + ["b"])
    rows = read(FetchPlan(two.namesrv, filter=Filter(tags=("b", "never"))), whole(got))
    assert sorted(row[3] for row in rows) == list(range(8, 9000, 9))
    assert [row[:3] for row in rows] == sorted(row[:3] for row in rows)
    assert read(FetchPlan(two.namesrv, filter=Filter(tags=("never",))), whole(got)) == []


def test_sql_chooses_by_properties(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Sql", queues=1)
    got = fill(two.namesrv, "Sql", 600)
    plan = FetchPlan(two.namesrv, filter=Filter(sql="n BETWEEN 100 AND 199"))
    assert sorted(row[3] for row in read(plan, whole(got))) == list(range(100, 200))
    with pytest.raises(InvalidExpression, match="correct the expression"):
        read(FetchPlan(two.namesrv, filter=Filter(sql="n BETWEEN")), whole(got))


def test_whoever_stops_reading_early_leaves_nothing_behind(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Early", queues=1)
    got = fill(two.namesrv, "Early", 3000, size=2000)
    reading = chunks(FetchPlan(two.namesrv), whole(got))
    assert len(next(reading).data)
    reading.close()
    assert len(read(FetchPlan(two.namesrv), whole(got))) == 3000


class CountedLine(PullLine[PullRange]):
    """Tells what goes over it."""

    asked = 0
    given_up = threading.Event()

    def ask(self, what: PullRange, frames: PullFrames, offset: int, count: int) -> None:
        CountedLine.asked += 1
        super().ask(what, frames, offset, count)

    def give_up(self, error: FlareError) -> None:
        CountedLine.given_up.set()
        super().give_up(error)


def test_a_broker_that_gives_more_is_asked_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PullLine", CountedLine)
    generous = {"maxTransferCountOnMessageInMemory": 500, "maxTransferBytesOnMessageInMemory": 1 << 20}
    with servers(tmp_path, options=dict(generous)) as one:
        make_topic(one.namesrv, "T", queues=1)
        got = fill(one.namesrv, "T", 4000)
        CountedLine.asked = 0
        assert [row[:3] for row in read(FetchPlan(one.namesrv), whole(got))] == expected(whole(got))
        assert CountedLine.asked <= 12


def test_a_broker_that_makes_no_groups_is_read_in_the_name_of_the_tools(tmp_path: Path) -> None:
    with servers(tmp_path, options={"autoCreateSubscriptionGroup": False}) as one:
        make_topic(one.namesrv, "T", queues=2)
        got = fill(one.namesrv, "T", 300)
        assert len(read(FetchPlan(one.namesrv), whole(got))) == 300
        with pytest.raises(FlareError, match="subscription group"):
            read(FetchPlan(one.namesrv, group="own"), whole(got))


def test_sql_at_a_broker_without_it_is_an_error_at_once(tmp_path: Path) -> None:
    with servers(tmp_path, options={"enablePropertyFilter": False}) as one:
        make_topic(one.namesrv, "T", queues=1)
        got = fill(one.namesrv, "T", 10)
        with pytest.raises((PeerError, NotServed), match="not support"):
            read(FetchPlan(one.namesrv, filter=Filter(sql="n > 1")), whole(got))


def test_messages_that_are_gone_are_an_error_that_names_them_or_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with servers(tmp_path, options=SMALL_FILES) as one:
        make_topic(one.namesrv, "T", queues=1)
        got = fill(one.namesrv, "T", 1000)
        forget_oldest(one)
        with Admin(one.namesrv) as admin:
            least = admin.topics.stats("T").queues[0].min_offset
        assert least > 0
        with pytest.raises(DataLost) as caught:
            read(FetchPlan(one.namesrv), whole(got))
        assert f"T@broker-a:0 [0, {least})" in str(caught.value)
        with caplog.at_level(logging.WARNING):
            rows = read(FetchPlan(one.namesrv, fail_on_data_loss=False), whole(got))
        assert [row[2] for row in rows] == list(range(least, 1000))
        assert len([line for line in caplog.messages if f"[0, {least})" in line]) == 1


def test_a_range_beyond_the_head_waits_and_is_given_when_it_is_there(tmp_path: Path) -> None:
    with servers(tmp_path) as one:
        make_topic(one.namesrv, "T", queues=1)
        fill(one.namesrv, "T", 10)
        found: list[tuple[str, int, int, int]] = []
        ranges = [QueueRange("T", "broker-a", 0, 0, 20)]
        reading = threading.Thread(target=lambda: found.extend(read(FetchPlan(one.namesrv), ranges)))
        reading.start()
        fill(one.namesrv, "T", 10)
        reading.join(60)
        assert [row[:3] for row in found] == expected(ranges)


def test_a_head_that_stays_behind_is_an_error_when_the_time_is_over(tmp_path: Path) -> None:
    with servers(tmp_path) as one:
        make_topic(one.namesrv, "T", queues=1)
        fill(one.namesrv, "T", 10)
        ranges = [QueueRange("T", "broker-a", 0, 0, 20)]
        with pytest.raises(DataLost, match=r"T@broker-a:0: \[10, 20\), but it ends at 10"):
            read(FetchPlan(one.namesrv, timeout_s=0.2), ranges)
        late = FetchPlan(one.namesrv, timeout_s=0.2, fail_on_data_loss=False)
        assert len(read(late, ranges)) == 10


def test_a_topic_that_was_deleted_meanwhile_is_lost_data(tmp_path: Path) -> None:
    with servers(tmp_path) as one:
        make_topic(one.namesrv, "T", queues=1)
        got = fill(one.namesrv, "T", 10)
        assert len(read(FetchPlan(one.namesrv), whole(got))) == 10
        with Admin(one.namesrv) as admin:
            admin.topics.delete("T")
        with pytest.raises(DataLost, match=r"T@broker-a:0 \[0, 10\)"):
            read(FetchPlan(one.namesrv), whole(got))
        assert read(FetchPlan(one.namesrv, fail_on_data_loss=False), whole(got)) == []


def test_a_broker_that_stops_in_the_middle_and_returns_is_read_to_the_end(tmp_path: Path) -> None:
    with servers(tmp_path, brokers=2) as both:
        make_topic(both.namesrv, "T", queues=1)
        got = fill(both.namesrv, "T", 6000, size=3000)
        ranges = whole(got)
        reading = chunks(FetchPlan(both.namesrv), ranges)
        data = [next(reading)]
        both.stop("broker-a")
        restart = threading.Thread(target=both.start, args=("broker-a",))
        restart.start()
        data += list(reading)
        restart.join()
        decoder = Decoder(("queueOffset",))
        offsets = [
            offset
            for chunk in data
            for batch in decoder.batches(chunk.data, chunk.begin, chunk.end)
            for offset in batch.column(0).to_pylist()
        ]
        assert offsets == [offset for each in ranges for offset in range(each.begin, each.end)]


def test_a_broker_that_stays_away_is_an_error_when_the_time_is_over(tmp_path: Path) -> None:
    with servers(tmp_path) as one:
        make_topic(one.namesrv, "T", queues=1)
        got = fill(one.namesrv, "T", 10)
        one.stop("broker-a")
        with pytest.raises(PeerError):
            read(FetchPlan(one.namesrv, timeout_s=0.3), whole(got))


def test_a_broker_that_hangs_is_given_up_and_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_ANSWER_LIMIT_S", 0.2)
    monkeypatch.setattr(room, "PullLine", CountedLine)
    CountedLine.given_up.clear()
    hangs, release = threading.Event(), threading.Event()

    async def hang() -> None:
        hangs.set()
        release.wait(60)

    with servers(tmp_path) as one:
        make_topic(one.namesrv, "T", queues=1)
        got = fill(one.namesrv, "T", 200)
        assert len(read(FetchPlan(one.namesrv), whole(got))) == 200
        hanging = threading.Thread(target=one.run, args=(hang(),))
        hanging.start()
        assert hangs.wait(60)
        found: list[tuple[str, int, int, int]] = []
        reading = threading.Thread(target=lambda: found.extend(read(FetchPlan(one.namesrv), whole(got))))
        reading.start()
        assert CountedLine.given_up.wait(60)
        release.set()
        reading.join(60)
        hanging.join(60)
        assert [row[:3] for row in found] == expected(whole(got))


def test_a_slave_that_cannot_help_is_left_for_its_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Here the slave has nothing at all, and its master sends everybody there."""
    with Cluster(tmp_path) as cluster:
        namesrv = f"127.0.0.1:{cluster.namesrv().port}"
        cluster.broker("broker-a", namesrv, slaveReadEnable=True)
        nowhere: dict[str, Any] = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:1"}
        cluster.broker("slave", namesrv, brokerName="broker-a", **nowhere)
        make_topic(namesrv, "T", queues=2)
        got = fill(namesrv, "T", 3000)
        with Admin(namesrv) as admin:
            admin.groups.create(GroupConfig("sent-away", broker_id=1))
        try:
            with caplog.at_level(logging.INFO, logger="flaremq.spark"):
                rows = read(FetchPlan(namesrv, group="sent-away"), whole(got))
        finally:
            close_links()
    assert [row[:3] for row in rows] == expected(whole(got))
    assert [line for line in caplog.messages if "a slave of broker-a cannot serve" in line]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_what_a_slave_lacks_while_its_master_is_away_is_waited_for(
    tmp_path: Path, fail_on_data_loss: bool
) -> None:
    with Cluster(tmp_path) as cluster:
        namesrv = f"127.0.0.1:{cluster.namesrv().port}"
        master = cluster.broker("broker-a", namesrv)
        cluster.broker(
            "slave",
            namesrv,
            brokerName="broker-a",
            brokerId=1,
            brokerRole="SLAVE",
            haMasterAddress="127.0.0.1:1",
        )
        make_topic(namesrv, "T", queues=2)
        got = fill(namesrv, "T", 100)
        master.stop()
        found: list[tuple[str, int, int, int]] = []
        plan = FetchPlan(namesrv, fail_on_data_loss=fail_on_data_loss)
        reading = threading.Thread(target=lambda: found.extend(read(plan, whole(got))))
        try:
            reading.start()
            reading.join(1.5)
            assert reading.is_alive() and not found
            store = tmp_path / "broker-a" / "store"
            cluster.broker("again", namesrv, brokerName="broker-a", storePathRootDir=store)
            reading.join(60)
        finally:
            close_links()
    assert [row[:3] for row in found] == expected(whole(got))
