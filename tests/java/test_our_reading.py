"""What Spark reads with, at Apache RocketMQ's servers: ranges, filters, places, waits and progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.java.peers import Apache, Peers
from tests.java.toolchain import Toolchain
from tests.spark.read.test_fetch import expected, read, whole
from tests.spark.servers import fill, make_topic

from flaremq.admin.sync import Admin
from flaremq.base.errors import InvalidExpression
from flaremq.client.sync import Producer
from flaremq.model.message import Message
from flaremq.model.queuekey import key_of
from flaremq.spark.clients import close_links
from flaremq.spark.read.bounds import Bound, BoundKind
from flaremq.spark.read.fetch import FetchPlan
from flaremq.spark.read.groupcommit import commit
from flaremq.spark.read.options import BatchLimits, Filter, ReadOptions
from flaremq.spark.read.planner import StreamPlanner

pytestmark = pytest.mark.java


@pytest.fixture(scope="module", params=("5.3.3", "5.5.0", "4.9.7"))
def namesrv(
    request: pytest.FixtureRequest, java_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    kind = Apache(java_toolchain, version=request.param)
    with Peers(tmp_path_factory.mktemp("apache")) as peers:
        server = peers.namesrv(kind)
        peers.broker(kind, server.address, options={"enablePropertyFilter": True})
        yield server.address
        close_links()


def test_ranges_come_whole_and_filters_leave_out(namesrv: str) -> None:
    make_topic(namesrv, "Ranges", queues=3)
    got = fill(namesrv, "Ranges", 5000, tags=["a", "b"])
    assert [row[:3] for row in read(FetchPlan(namesrv), whole(got))] == expected(whole(got))
    tagged = read(FetchPlan(namesrv, filter=Filter(tags=("b",))), whole(got))
    assert sorted(row[3] for row in tagged) == list(range(1, 5000, 2))
    chosen = read(FetchPlan(namesrv, filter=Filter(sql="n >= 100 AND n < 300")), whole(got))
    assert sorted(row[3] for row in chosen) == list(range(100, 300))
    assert read(FetchPlan(namesrv, filter=Filter(tags=("never",))), whole(got)) == []
    wrong = {"nameServer": namesrv, "topic": "Ranges", "sql": "n >="}
    with pytest.raises(InvalidExpression):  # Its pulls would say nothing, and bring whatever they like.
        StreamPlanner(ReadOptions.of(wrong, streaming=True)).begin(Bound(BoundKind.EARLIEST))


def test_large_messages_come_in_short_answers(namesrv: str) -> None:
    make_topic(namesrv, "Large", queues=1)
    got = fill(namesrv, "Large", 60, size=100_000)
    assert [row[:3] for row in read(FetchPlan(namesrv), whole(got))] == expected(whole(got))


def test_a_stream_waits_is_woken_and_tells_its_progress(namesrv: str) -> None:
    make_topic(namesrv, "Course", queues=2)
    options = {"nameServer": namesrv, "topicPattern": "Cour.*", "group": "course"}
    run = StreamPlanner(ReadOptions.of(options, streaming=True))
    known = run.begin(Bound(BoundKind.EARLIEST))
    assert known.keys() == {key for key in known if key.startswith("Course@")} and len(known) == 2
    with Producer("p", namesrv) as producer, ThreadPoolExecutor(1) as waiting:
        for _ in range(5):
            after = waiting.submit(run.next, known, BatchLimits(), 60)
            receipt = producer.send(Message("Course", b"x"))
            known = {**known, key_of(receipt.queue): receipt.queue_offset + 1}
            assert after.result(30) == known
    between_ms = time.time_ns() // 1_000_000 + 2
    while time.time_ns() // 1_000_000 <= between_ms:
        pass
    fill(namesrv, "Course", 20)
    assert run.begin(Bound(BoundKind.TIME, between_ms)) == known
    commit(namesrv, "course", known)
    assert run.begin(Bound(BoundKind.GROUP)) == known
    with Admin(namesrv) as admin:
        found = admin.groups.progress("course", "Course", owners=False).queues
    assert sum(each.broker_offset - each.consumer_offset for each in found) == 20
    run.close()
