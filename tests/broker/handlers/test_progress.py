"""How far groups are, as requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.clients import BROKER, Desk, a_member, desk, wants

from flaremq.broker.handlers.progress import ProgressHandlers
from flaremq.model.message import MessageQueue
from flaremq.model.topic import TopicConfig
from flaremq.protocol import beans
from flaremq.protocol.bodies.cluster import TopicList
from flaremq.protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionResponseBody,
)
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.testing.fakes.builders import a_message

CODE = RequestCode


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    """Two topics with messages a second apart, and a group that has consumed some."""
    with desk(tmp_path) as made, made.store:
        made.serve(
            ProgressHandlers(
                made.tables, made.store, made.stats, made.offload, made.clock, lambda: "10.0.0.1:10911"
            ).table()
        )
        for topic, count in (("A", 3), ("B", 2)):
            made.topics.put(TopicConfig(topic, read_queue_nums=1, write_queue_nums=1, order=topic == "B"))
            for _ in range(count):
                made.clock.advance_ms(1000)
                made.store.put(a_message(topic=topic.encode()))
            made.offsets.commit("g", topic, 0, 1)
        made.store.dispatch()
        made.subscriptions.get("g")
        yield made


def queue(topic: str) -> MessageQueue:
    return MessageQueue(topic, BROKER, 0)


def stats_of(answer: Command) -> dict[MessageQueue, OffsetWrapper]:
    assert answer.code == 0
    return dict(beans.decode(ConsumeStats, answer.body).offset_table)


async def test_group_is_shown_with_every_topic_it_has_offsets_for(made: Desk) -> None:
    made.offsets.pulled("g", "A", 0, 2)
    begin_ms = made.clock.now_ms() - 5000
    found = stats_of(await made.ask(CODE.GET_CONSUME_STATS, {"consumerGroup": "g"}))
    assert found == {
        queue("A"): OffsetWrapper(
            broker_offset=3, consumer_offset=1, pull_offset=2, last_timestamp=begin_ms + 1000
        ),
        queue("B"): OffsetWrapper(
            broker_offset=2, consumer_offset=1, pull_offset=1, last_timestamp=begin_ms + 4000
        ),
    }


async def test_topics_that_a_connected_group_no_longer_wants_are_left_out(made: Desk) -> None:
    made.groups.heartbeat(a_member(), wants("g", "A"))
    assert set(stats_of(await made.ask(CODE.GET_CONSUME_STATS, {"consumerGroup": "g"}))) == {queue("A")}
    asked = {"consumerGroup": "g", "topic": "B"}
    assert stats_of(await made.ask(CODE.GET_CONSUME_STATS, asked)) == {}
    asked = {"consumerGroup": "g", "topicList": "B;Nowhere;"}
    assert set(stats_of(await made.ask(CODE.GET_CONSUME_STATS, asked))) == {queue("B")}


async def test_group_that_has_consumed_nothing_is_at_the_begin(made: Desk) -> None:
    asked = {"consumerGroup": "new", "topic": "A"}
    found = stats_of(await made.ask(CODE.GET_CONSUME_STATS, asked))
    assert found == {queue("A"): OffsetWrapper(broker_offset=3)}


async def test_all_groups_are_shown_with_what_they_have_before_them(made: Desk) -> None:
    answer = await made.ask(CODE.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    shown = beans.decode(ConsumeStatsList, answer.body)
    assert (shown.broker_addr, shown.total_diff, shown.total_inflight_diff) == ("10.0.0.1:10911", 3, 0)
    (mine,) = [each["g"] for each in shown.consume_stats_list if "g" in each]
    assert [set(each.offset_table) for each in mine] == [{queue("A")}, {queue("B")}]
    answer = await made.ask(CODE.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})
    assert beans.decode(ConsumeStatsList, answer.body).total_diff == 1


async def test_time_span_tells_how_old_the_next_message_is(made: Desk) -> None:
    answer = await made.ask(CODE.QUERY_CONSUME_TIME_SPAN, {"topic": "A", "group": "g"})
    (span,) = beans.decode(QueryConsumeTimeSpanBody, answer.body).consume_time_span_set
    begin_ms = made.clock.now_ms() - 5000
    assert span.message_queue == queue("A")
    assert (span.min_time_stamp, span.max_time_stamp) == (begin_ms + 1000, begin_ms + 3000)
    assert (span.consume_time_stamp, span.delay_time) == (begin_ms + 1000, 3000)
    made.offsets.commit("g", "A", 0, 3)
    answer = await made.ask(CODE.QUERY_CONSUME_TIME_SPAN, {"topic": "A", "group": "g"})
    (span,) = beans.decode(QueryConsumeTimeSpanBody, answer.body).consume_time_span_set
    assert span.delay_time == 0
    answer = await made.ask(CODE.QUERY_CONSUME_TIME_SPAN, {"topic": "Nowhere", "group": "g"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_empty_queue_has_no_times(made: Desk) -> None:
    made.topics.put(TopicConfig("Empty", read_queue_nums=1, write_queue_nums=1))
    answer = await made.ask(CODE.QUERY_CONSUME_TIME_SPAN, {"topic": "Empty", "group": "g"})
    (span,) = beans.decode(QueryConsumeTimeSpanBody, answer.body).consume_time_span_set
    assert (span.min_time_stamp, span.max_time_stamp, span.delay_time) == (-1, -1, 0)


async def test_topics_of_a_group_are_listed(made: Desk) -> None:
    answer = await made.ask(CODE.QUERY_TOPICS_BY_CONSUMER, {"group": "g"})
    listed = beans.decode(TopicList, answer.body)
    assert (listed.topic_list, listed.broker_addr) == (("A", "B"), "10.0.0.1:10911")


async def test_subscription_of_a_connected_group_is_shown(made: Desk) -> None:
    asked = {"group": "g", "topic": "A"}
    answer = await made.ask(CODE.QUERY_SUBSCRIPTION_BY_CONSUMER, asked)
    assert beans.decode(QuerySubscriptionResponseBody, answer.body).subscription_data is None
    made.groups.heartbeat(a_member(), wants("g", "A"))
    answer = await made.ask(CODE.QUERY_SUBSCRIPTION_BY_CONSUMER, asked)
    shown = beans.decode(QuerySubscriptionResponseBody, answer.body)
    assert shown.subscription_data == made.groups.subscription("g", "A")
    assert (shown.group, shown.topic) == ("g", "A")
