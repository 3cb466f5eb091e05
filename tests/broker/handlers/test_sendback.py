"""Messages that a consumer gives back: tried again, or laid with the dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.desks import DeskBench, a_desk
from tests.broker.nobody import Nobody
from tests.protocol.samples import a_send

from flaremq.broker.delay.levels import DelayedMessages
from flaremq.model.message import StoredMessage
from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command

GROUP = "billing"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskBench]:
    async with a_desk(tmp_path) as desk:
        desk.tables.topics.put(TopicConfig("TopicTest", 4, 4))
        await desk.ask(replace(a_send(e="1", h="7"), body=b"order 17"))
        yield desk


async def give_back(desk: DeskBench, message: StoredMessage, **changes: Any) -> Command:
    fields = {
        "offset": str(message.physical_offset),
        "group": GROUP,
        "delayLevel": "0",
        "originMsgId": "U1",
        "originTopic": "TopicTest",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
        **changes,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    request = Command(code=RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=given)
    answer = await desk.router().answer(Nobody(), request)
    assert answer is not None
    return answer


async def delivered(desk: DeskBench, after_ms: int) -> StoredMessage:
    """The newest message, when so much time has passed."""
    (feature,) = (each for each in desk.made.inner if isinstance(each, DelayedMessages))
    await desk.run()
    desk.clock.advance_ms(after_ms)
    await feature.deliver()
    await desk.run()
    return desk.messages()[-1]


@pytest.mark.parametrize(("level", "reconsumed", "span_s"), [(0, 0, 10), (0, 1, 30), (2, 0, 5), (1, 3, 1)])
async def test_a_message_given_back_waits_for_its_level_or_longer_with_each_retry(
    desk: DeskBench, level: int, reconsumed: int, span_s: int
) -> None:
    for _ in range(reconsumed):
        await give_back(desk, desk.messages()[-1])
        await delivered(desk, 7_200_000)
    await give_back(desk, desk.messages()[-1], delayLevel=str(level))
    waiting = await delivered(desk, span_s * 1000 - 1)
    assert waiting.topic == "SCHEDULE_TOPIC_XXXX"
    retry = await delivered(desk, 1)
    assert (retry.topic, retry.reconsume_times) == ("%RETRY%billing", reconsumed + 1)


async def test_a_message_given_back_comes_to_the_retry_topic_of_its_group(desk: DeskBench) -> None:
    (first,) = desk.messages()
    answer = await give_back(desk, first)
    retry = await delivered(desk, 10_000)
    assert answer.code == ResponseCode.SUCCESS
    assert (retry.topic, retry.body, retry.flag, retry.reconsume_times) == (
        "%RETRY%billing",
        b"order 17",
        7,
        1,
    )
    assert (retry.born_timestamp_ms, retry.born_host) == (first.born_timestamp_ms, first.born_host)
    assert retry.properties["RETRY_TOPIC"] == "TopicTest"
    assert retry.properties["ORIGIN_MESSAGE_ID"] == first.message_id
    assert retry.unique_key == first.unique_key
    made = desk.tables.topics.get("%RETRY%billing")
    assert made is not None
    assert (made.read_queue_nums, made.perm) == (1, 6)


async def test_origin_and_topic_stay_those_of_the_first_try(desk: DeskBench) -> None:
    (first,) = desk.messages()
    for _ in range(3):
        await give_back(desk, desk.messages()[-1])
    last = desk.messages()[-1]
    assert last.reconsume_times == 3
    assert last.properties["ORIGIN_MESSAGE_ID"] == first.message_id
    assert last.properties["RETRY_TOPIC"] == "TopicTest"


@pytest.mark.parametrize("changes", [{"delayLevel": "-1"}, {"maxReconsumeTimes": "0"}])
async def test_after_the_last_try_it_is_laid_with_the_dead_letters(
    desk: DeskBench, changes: dict[str, str]
) -> None:
    await give_back(desk, desk.messages()[0], **changes)
    assert desk.messages()[-1].topic == "%DLQ%billing"
    made = desk.tables.topics.get("%DLQ%billing")
    assert made is not None
    assert (made.write_queue_nums, made.perm) == (1, 6)


async def test_the_groups_own_limit_counts_where_the_client_names_none(desk: DeskBench) -> None:
    desk.tables.subscriptions.put(GroupConfig(GROUP, retry_max_times=0))
    await give_back(desk, desk.messages()[0], maxReconsumeTimes=None)
    assert desk.messages()[-1].topic == "%DLQ%billing"


async def test_a_group_without_retry_queues_gets_its_yes_and_nothing_is_stored(desk: DeskBench) -> None:
    desk.tables.subscriptions.put(GroupConfig(GROUP, retry_queue_nums=0))
    answer = await give_back(desk, desk.messages()[0])
    assert (answer.code, len(desk.messages())) == (ResponseCode.SUCCESS, 1)


@pytest.mark.parametrize("offset", ["5", "99999999", "-1"])
async def test_an_offset_without_a_message_is_told(desk: DeskBench, offset: str) -> None:
    answer = await give_back(desk, desk.messages()[0], offset=offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"look message by offset failed, {offset}" in (answer.remark or "")


async def test_an_unknown_group_is_refused_where_none_may_be_made(tmp_path: Path) -> None:
    async with a_desk(tmp_path, broker={"auto_create_groups": False}) as desk:
        desk.tables.topics.put(TopicConfig("TopicTest", 4, 4))
        await desk.ask(replace(a_send(), body=b"x"))
        answer = await give_back(desk, desk.messages()[0])
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_what_is_given_back_can_be_consumed_when_it_is_due(desk: DeskBench) -> None:
    message = desk.messages()[0]
    await give_back(desk, message)
    await delivered(desk, 10_000)
    assert desk.store.max_offset(b"%RETRY%billing", 0) == 1
