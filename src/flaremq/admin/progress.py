"""Progress of groups: lag in messages and in time, and the owners of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from flaremq.admin.members import Rosters, members_of
from flaremq.admin.servers import ServerAddress, ServerCalls
from flaremq.admin.topics import Topics
from flaremq.admin.values.groups import (
    GroupMembers,
    GroupProgress,
    GroupSummary,
    QueueProgress,
    QueueSpan,
)
from flaremq.admin.values.outcome import Answers, Gathered
from flaremq.admin.wording import time_or_none
from flaremq.base.errors import FlareError, NotServed, TopicNotFound
from flaremq.client.api import body_of
from flaremq.model.message import MessageQueue
from flaremq.model.names import dlq_topic
from flaremq.protocol.bodies.cluster import TopicList
from flaremq.protocol.bodies.stats import ConsumeStats, OffsetWrapper, QueryConsumeTimeSpanBody
from flaremq.protocol.codes import RequestCode
from flaremq.protocol.headers import group as headers


async def progress(
    servers: ServerCalls, rosters: Rosters, group: str, topic: str | None, *, owners: bool
) -> GroupProgress:
    answers, online = await asyncio.gather(stats(servers, rosters, group, topic), rosters.online(group))
    failed = {**online.failed, **answers.failed}
    members = members_of(group, online) if online.found else None
    owned: Mapping[MessageQueue, str] = {}
    if owners and members is not None:
        owned, silent = await _owners(rosters, members)
        failed |= silent
    dead, lost = await _dead_letters(servers, group)
    rows = {queue: row for each in answers.found.values() for queue, row in each.offset_table.items()}
    return GroupProgress(
        group,
        tuple(_queue_progress(queue, rows[queue], owned.get(queue)) for queue in sorted(rows)),
        sum(each.consume_tps for each in answers.found.values()),
        0 if members is None else len(members.members),
        dead,
        {**lost, **failed},
    )


async def stats(
    servers: ServerCalls, rosters: Rosters, group: str, topic: str | None
) -> Gathered[ConsumeStats]:
    header = headers.GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)

    async def ask(server: ServerAddress) -> ConsumeStats:
        answer = await servers.api.ask(server.address, RequestCode.GET_CONSUME_STATS, header)
        return body_of(ConsumeStats, answer)

    return await servers.each(await rosters.homes(group), ask, f"offsets of {group}")


def _queue_progress(queue: MessageQueue, row: OffsetWrapper, owner: str | None) -> QueueProgress:
    return QueueProgress(
        queue,
        row.broker_offset,
        row.consumer_offset,
        max(row.pull_offset, row.consumer_offset),  # Brokers before 5 do not report what is fetched.
        time_or_none(row.last_timestamp),
        owner,
    )


async def _owners(
    rosters: Rosters, members: GroupMembers
) -> tuple[Mapping[MessageQueue, str], dict[str, FlareError]]:
    """The owner of each queue, and the members that did not answer."""
    owned: dict[MessageQueue, str] = {}
    silent: dict[str, FlareError] = {}

    async def ask(client_id: str, brokers: tuple[str, ...]) -> None:
        try:
            said = await rosters.running_at(members.group, client_id, brokers)
        except FlareError as error:
            silent[client_id] = error
            return
        for queue in (*said.mq_table, *said.mq_pop_table):
            owned[queue] = client_id

    await asyncio.gather(*(ask(each.client_id, each.brokers) for each in members.members))
    return owned, silent


async def _dead_letters(servers: ServerCalls, group: str) -> tuple[int, Mapping[str, FlareError]]:
    try:
        found = await Topics(servers).stats(dlq_topic(group))
    except TopicNotFound:
        return 0, {}  # No message of the group has ever become a dead letter.
    return found.count, found.failed


async def summary(servers: ServerCalls, rosters: Rosters, group: str) -> GroupSummary:
    answers, online = await asyncio.gather(stats(servers, rosters, group, None), rosters.online(group))
    members = members_of(group, online) if online.found else None
    oldest = None if members is None else min(members.members, key=lambda each: each.version)
    rows = [row for each in answers.found.values() for row in each.offset_table.values()]
    return GroupSummary(
        group,
        0 if members is None else len(members.members),
        None if oldest is None else oldest.version_name,
        None if members is None else members.consume_type,
        None if members is None else members.message_model,
        sum(each.consume_tps for each in answers.found.values()),
        sum(max(0, row.broker_offset - row.consumer_offset) for row in rows),
    )


async def topics(servers: ServerCalls, group: str) -> Answers[str]:
    rosters = Rosters(servers)
    header = headers.QueryTopicsByConsumerRequestHeader(group=group)

    async def ask(server: ServerAddress) -> tuple[str, ...]:
        try:
            answer = await servers.api.ask(server.address, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
            return body_of(TopicList, answer).topic_list
        except NotServed:  # Up to 4.9 only the offsets themselves show it.
            asked = headers.GetConsumeStatsRequestHeader(consumer_group=group)
            answer = await servers.api.ask(server.address, RequestCode.GET_CONSUME_STATS, asked)
            return tuple(queue.topic for queue in body_of(ConsumeStats, answer).offset_table)

    answers = await servers.each(await rosters.homes(group), ask, f"topics of {group}")
    found = {topic for each in answers.found.values() for topic in each}
    return Answers(tuple(sorted(found)), answers.failed)


async def spans(servers: ServerCalls, group: str, topic: str) -> Answers[QueueSpan]:
    header = headers.QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)

    async def ask(server: ServerAddress) -> QueryConsumeTimeSpanBody:
        answer = await servers.api.ask(server.address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        return body_of(QueryConsumeTimeSpanBody, answer)

    answers = await servers.each(await servers.of_topic(topic), ask, f"{group} with {topic} in time")
    found = [
        QueueSpan(
            each.message_queue,
            time_or_none(each.min_time_stamp),
            time_or_none(each.max_time_stamp),
            time_or_none(each.consume_time_stamp),
            max(0, each.delay_time),
        )
        for body in answers.found.values()
        for each in body.consume_time_span_set
    ]
    return Answers(tuple(sorted(found, key=lambda each: each.queue)), answers.failed)
