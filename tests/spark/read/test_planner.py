"""The course of a stream at real brokers, without Spark: what each batch takes, and what is waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.spark.servers import fill, forget_oldest, make_topic, servers

from flaremq.admin.sync import Admin
from flaremq.base.errors import ConfigError, DataLost, PeerError, TopicNotFound, UsageError
from flaremq.client.sync import Producer
from flaremq.model.message import Message, MessageQueue
from flaremq.model.queuekey import key_of
from flaremq.spark.read import planner
from flaremq.spark.read import planner as room
from flaremq.spark.read.bounds import Bound, BoundKind
from flaremq.spark.read.groupcommit import commit
from flaremq.spark.read.options import BatchLimits, ReadOptions
from flaremq.spark.read.planner import StreamPlanner
from flaremq.testing.embedded import EmbeddedThread

ALL = BatchLimits()
SMALL_FILES: dict[str, object] = {
    "maxMessageSize": 16 << 10,
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 20 * 100,
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedThread]:
    with servers(tmp_path_factory.mktemp("two"), brokers=2) as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """New queues are looked for far more often than in earnest."""
    monkeypatch.setattr(room, "_LIST_S", 0.05)


def course(running: EmbeddedThread, **options: str) -> StreamPlanner:
    return StreamPlanner(ReadOptions.of({"nameServer": running.namesrv, **options}, streaming=True))


def by_key(got: dict[MessageQueue, int]) -> dict[str, int]:
    return {key_of(queue): count for queue, count in got.items()}


def zero(known: dict[str, int]) -> dict[str, int]:
    return dict.fromkeys(known, 0)


def test_a_stream_begins_where_it_is_told_and_takes_what_is_there(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Begin", queues=2)
    got = by_key(fill(two.namesrv, "Begin", 100))
    run = course(two, topic="Begin")
    assert run.begin(Bound(BoundKind.EARLIEST)) == zero(got)
    assert run.begin(Bound(BoundKind.LATEST)) == got
    one = min(got)
    given = run.begin(Bound(BoundKind.OFFSETS, offsets={one: 3}))
    assert given == {**got, one: 3}
    assert run.next(zero(got), ALL, 0) == got
    assert run.ends == got
    run.close()


def test_a_time_and_a_group_are_places_to_begin_at(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Places", queues=2)
    first = by_key(fill(two.namesrv, "Places", 50))
    with Admin(two.namesrv) as admin:
        last_ms = max(each.last_update_ms or 0 for each in admin.topics.stats("Places").queues)
    between_ms = last_ms + 1
    while time.time_ns() // 1_000_000 <= between_ms:
        pass
    both = {key: count + first[key] for key, count in by_key(fill(two.namesrv, "Places", 50)).items()}
    run = course(two, topic="Places", group="readers")
    assert run.begin(Bound(BoundKind.TIME, between_ms)) == first
    assert run.begin(Bound(BoundKind.TIME, 1)) == zero(first)
    assert run.begin(Bound(BoundKind.TIME, between_ms + 10_000_000)) == both
    assert run.begin(Bound(BoundKind.GROUP)) == both  # It has no offsets yet.
    commit(two.namesrv, "readers", dict.fromkeys(first, 7))
    assert run.begin(Bound(BoundKind.GROUP)) == dict.fromkeys(first, 7)
    run.close()


def test_a_limit_is_shared_until_everything_is_taken(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Limits", queues=3)
    got = by_key(fill(two.namesrv, "Limits", 1000))
    run, known, sizes = course(two, topic="Limits"), zero(got), []
    while known != got:
        after = run.next(known, BatchLimits(offsets_max=300), 0)
        taken = {key: after[key] - known[key] for key in got}
        assert all(taken.values())
        sizes.append(sum(taken.values()))
        known = after
    assert sizes == [300, 300, 300, 100]
    run.close()


def test_a_limit_in_bytes_counts_messages_by_their_size(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Bytes", queues=1)
    got = by_key(fill(two.namesrv, "Bytes", 400, size=3000))
    run = course(two, topic="Bytes")
    after = run.next(zero(got), BatchLimits(bytes_max=330_000), 0)
    assert 80 <= sum(after.values()) <= 110  # A record is the body and some 200 bytes.
    both = run.next(zero(got), BatchLimits(offsets_max=20, bytes_max=330_000), 0)
    assert sum(both.values()) == 20
    run.close()


@pytest.mark.parametrize("held", [True, False], ids=["held pulls", "many queues"])
def test_a_wait_ends_soon_after_a_message_arrives_in_any_queue(
    two: EmbeddedThread, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not held:
        monkeypatch.setattr(planner, "_QUEUES_MAX", 0)
    make_topic(two.namesrv, "Wake", queues=4)
    run = course(two, topic="Wake")
    known = run.begin(Bound(BoundKind.LATEST))
    with Producer("wake", two.namesrv) as producer:
        for _ in range(5):
            with ThreadPoolExecutor(1) as waiting:
                after = waiting.submit(run.next, known, ALL, 60)
                receipt = producer.send(Message("Wake", b"x"))
                known = {**known, key_of(receipt.queue): receipt.queue_offset + 1}
                assert after.result(30) == known
    run.close()


def test_a_wait_without_anything_new_gives_the_same_again(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Quiet", queues=1)
    fill(two.namesrv, "Quiet", 10)
    run = course(two, topic="Quiet")
    known = run.begin(Bound(BoundKind.LATEST))
    assert run.next(known, ALL, 0.2) == known
    run.close()


def test_few_messages_wait_for_more_but_not_for_ever(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Least", queues=1)
    run = course(two, topic="Least")
    empty = run.begin(Bound(BoundKind.LATEST))
    fill(two.namesrv, "Least", 5)
    least = BatchLimits(offsets_min=10, delay_s=3600)
    known = run.next(empty, least, 0)
    assert sum(known.values()) == 5  # The first batch waits for nobody.
    fill(two.namesrv, "Least", 5)
    assert run.next(known, least, 0.1) == known
    assert sum(run.next(known, BatchLimits(offsets_min=10, delay_s=0.001), 0).values()) == 10
    fill(two.namesrv, "Least", 5)
    assert sum(run.next(known, least, 30).values()) == 15
    run.close()


def test_what_comes_after_the_freeze_is_not_taken(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Frozen", queues=2)
    got = by_key(fill(two.namesrv, "Frozen", 100))
    run = course(two, topic="Frozen")
    run.freeze()
    fill(two.namesrv, "Frozen", 50)
    half = run.next(zero(got), BatchLimits(offsets_max=60), 60)
    assert sum(half.values()) == 60
    assert run.next(half, BatchLimits(offsets_max=60), 60) == got
    assert run.next(got, BatchLimits(offsets_max=60), 60) == got
    run.close()


def test_new_topics_of_a_pattern_and_new_queues_begin_at_their_first_message(
    two: EmbeddedThread, quick: None
) -> None:
    make_topic(two.namesrv, "pat-one", queues=1)
    run = course(two, topicPattern="pat-.*")
    known = run.begin(Bound(BoundKind.LATEST))
    assert known == {"pat-one@broker-a:0": 0, "pat-one@broker-b:0": 0}
    make_topic(two.namesrv, "pat-two", queues=1)
    make_topic(two.namesrv, "other", queues=1)
    fill(two.namesrv, "pat-two", 20)
    pinned = run.next(known, ALL, 30)
    assert pinned == {**known, "pat-two@broker-a:0": 0, "pat-two@broker-b:0": 0}
    assert sum(run.next(pinned, ALL, 30).values()) == 20
    make_topic(two.namesrv, "pat-one", queues=2)
    assert run.next(pinned, BatchLimits(offsets_max=1), 30).keys() >= pinned.keys()
    run.close()


def test_special_topics_are_read_only_where_a_pattern_names_them(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "%DLQ%billing", queues=1)
    make_topic(two.namesrv, "billing", queues=1)
    usual, dead = course(two, topicPattern=".*billing"), course(two, topicPattern="%DLQ%.*")
    assert {key.partition("@")[0] for key in usual.begin(Bound(BoundKind.EARLIEST))} == {"billing"}
    assert {key.partition("@")[0] for key in dead.begin(Bound(BoundKind.EARLIEST))} == {"%DLQ%billing"}
    everything = course(two, topicPattern=".*").begin(Bound(BoundKind.EARLIEST))
    assert not [key for key in everything if key.startswith(("%", "TBW", "rmq_", "RMQ_", "broker-"))]


def test_what_cannot_be_read_is_said_at_the_start(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Said", queues=1)
    with pytest.raises(TopicNotFound, match="'Sayd' is unknown"):
        course(two, topic="Sayd").begin(Bound(BoundKind.LATEST))
    with pytest.raises(TopicNotFound, match="Said@broker-a:5 do not exist"):
        course(two, queues='["Said@broker-a:5"]').begin(Bound(BoundKind.LATEST))
    with pytest.raises(ConfigError, match="offset 9 is given for Said@broker-a:0, which ends at 0"):
        course(two, topic="Said").begin(Bound(BoundKind.OFFSETS, offsets={"Said@broker-a:0": 9}))
    with pytest.raises(ConfigError, match="Other@broker-a:0, which is not read"):
        course(two, topic="Said").begin(Bound(BoundKind.OFFSETS, offsets={"Other@broker-a:0": 9}))
    with pytest.raises(UsageError, match="belongs to another query"):
        course(two, topic="Said").next({"Other@broker-a:0": 9}, ALL, 0)


def test_single_queues_can_be_chosen(two: EmbeddedThread) -> None:
    make_topic(two.namesrv, "Single", queues=3)
    run = course(two, queues='{"Single": {"broker-b": [2]}}')
    assert run.begin(Bound(BoundKind.EARLIEST)) == {"Single@broker-b:2": 0}


def test_lost_data_is_an_error_or_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with servers(tmp_path, options=SMALL_FILES) as one:
        make_topic(one.namesrv, "T", queues=1)
        fill(one.namesrv, "T", 1000)
        forget_oldest(one)
        with pytest.raises(DataLost, match=r"T@broker-a:0 \[5, \d+\)"):
            course(one, topic="T").next({"T@broker-a:0": 5}, ALL, 0)
        run = course(one, topic="T", failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            assert run.next({"T@broker-a:0": 5}, ALL, 0) == {"T@broker-a:0": 1000}
        assert [line for line in caplog.messages if "T@broker-a:0 [5, " in line]
        with caplog.at_level(logging.WARNING):
            assert run.next({"T@broker-a:0": 2000}, ALL, 0) == {"T@broker-a:0": 2000}
        assert [line for line in caplog.messages if "was read up to 2000 before" in line]


def test_a_broker_that_is_away_keeps_its_place_and_the_others_go_on(tmp_path: Path, quick: None) -> None:
    with servers(tmp_path, brokers=2) as both:
        make_topic(both.namesrv, "T", queues=1)
        run = course(both, topic="T")
        known = run.begin(Bound(BoundKind.LATEST))
        both.stop("broker-a")
        fill(both.namesrv, "T", 10)
        after = run.next(known, ALL, 30)
        assert after == {"T@broker-a:0": 0, "T@broker-b:0": 10}
        both.start("broker-a")
        with Producer("p", both.namesrv) as producer:
            producer.send(Message("T", b"x"), to=MessageQueue("T", "broker-a", 0))
        assert run.next(after, ALL, 30) == {"T@broker-a:0": 1, "T@broker-b:0": 10}
        run.close()


def test_a_broker_that_stays_away_is_an_error_when_the_time_is_over(tmp_path: Path) -> None:
    with servers(tmp_path) as one:
        make_topic(one.namesrv, "T", queues=1)
        run = course(one, topic="T", brokerTimeout="300ms")
        assert run.begin(Bound(BoundKind.LATEST)) == {"T@broker-a:0": 0}
        one.stop("broker-a")
        with pytest.raises(PeerError, match="brokerTimeout"):
            run.next({"T@broker-a:0": 0}, ALL, 4)  # Before the queues are listed anew.


def test_progress_that_cannot_be_told_is_a_warning_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with servers(tmp_path, options={"autoCreateSubscriptionGroup": False}) as one:
        make_topic(one.namesrv, "T", queues=1)
        with caplog.at_level(logging.WARNING):
            commit(one.namesrv, "unknown", {"T@broker-a:0": 0})
        assert [line for line in caplog.messages if "cannot commit the offsets of unknown" in line]
        one.stop("broker-a")
        commit(one.namesrv, "unknown", {"T@broker-a:0": 0})
