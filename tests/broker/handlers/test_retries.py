"""Messages that failed: why, how long they wait for the next attempt, and those with no room for more."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.desks import DeskBench, a_desk
from tests.broker.handlers.test_sendback import GROUP, give_back
from tests.broker.nobody import Nobody
from tests.protocol.samples import a_send

from flaremq.base.units import DAY_MS, HOUR_MS, MINUTE_MS, MiB
from flaremq.broker.delay.levels import DelayedMessages
from flaremq.broker.delay.timers import Timers
from flaremq.model.layout import PROPERTIES_SIZE_MAX
from flaremq.model.message import StoredMessage
from flaremq.model.retrypolicy import Customized, Exponential, RetryPolicy, RetryPolicyType
from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command

RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
SECOND = 1_000


class Scene:
    """A broker with one message, whose time is moved by hand."""

    def __init__(self, desk: DeskBench) -> None:
        self.desk = desk

    def of(self, topic: str) -> list[StoredMessage]:
        return [each for each in self.desk.messages() if each.topic == topic]

    async def after(self, span_ms: int, topic: str = RETRY) -> list[StoredMessage]:
        """Let time pass, and say what has come to a topic by then."""
        await self.desk.run()
        self.desk.clock.advance_ms(span_ms)
        for feature in self.desk.made.inner:
            if isinstance(feature, DelayedMessages):
                await feature.deliver()
            elif isinstance(feature, Timers):
                await feature.run()
        await self.desk.run()
        return self.of(topic)

    def policy(self, policy: RetryPolicy) -> None:
        self.desk.tables.subscriptions.put(GroupConfig(GROUP, group_retry_policy=policy))


@asynccontextmanager
async def a_scene(folder: Path, text: str | None = None, **store: Any) -> AsyncIterator[Scene]:
    async with a_desk(folder, **{"commitlog_file_size": MiB, **store}) as desk:
        desk.tables.topics.put(TopicConfig("TopicTest", 4, 4))
        send = a_send(e="1") if text is None else a_send(e="1", i=text)
        (answer,) = await desk.ask(replace(send, body=b"order 17"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        yield Scene(desk)


# Reasons.


async def test_the_reason_is_a_property_of_the_retry_and_of_the_dead_letter(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        answer = await give_back(scene.desk, scene.desk.messages()[0], failureReason="KeyError: 'price'")
        (retry,) = await scene.after(10 * SECOND)
        assert retry.properties["FAILURE_REASON"] == "KeyError: 'price'"
        assert answer.fields == {"reasonStored": "true"}
        now_ms = scene.desk.clock.now_ms()
        await give_back(scene.desk, retry, delayLevel="-1", failureReason="no such customer")
        (dead,) = scene.of(DLQ)
    assert dead.properties["FAILURE_REASON"] == "no such customer"
    assert dead.properties["FAILURE_TIME"] == str(now_ms)


async def test_clients_that_give_no_reason_get_the_answer_that_they_know(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await give_back(scene.desk, scene.desk.messages()[0], failureReason="first")
        (retry,) = await scene.after(10 * SECOND)
        answer = await give_back(scene.desk, retry, delayLevel="-1")
        (dead,) = scene.of(DLQ)
    assert answer.fields == {}
    assert not {"FAILURE_REASON", "FAILURE_TIME"} & dead.properties.keys(), "that of another attempt"


async def test_a_reason_cannot_forge_other_properties_or_fill_the_message(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        reason = "bad\x02KEYS\x01forged\x02\r\n\t" + "ä" * 5000
        await give_back(scene.desk, scene.desk.messages()[0], delayLevel="-1", failureReason=reason)
        (dead,) = scene.of(DLQ)
    assert "KEYS" not in dead.properties
    assert dead.properties["FAILURE_REASON"].startswith("bad KEYS forged ää")
    assert len(dead.properties["FAILURE_REASON"].encode()) <= 1000


# Policies.


@pytest.mark.parametrize("timers", [True, False], ids=["timers", "levels"])
async def test_a_group_waits_as_its_policy_says(tmp_path: Path, timers: bool) -> None:
    async with a_scene(tmp_path, timer_enabled=timers) as scene:
        customized = Customized.after((5 * SECOND, 30 * SECOND, MINUTE_MS))
        scene.policy(RetryPolicy(customized=customized))
        message = scene.desk.messages()[0]
        for times, span_ms in enumerate((5 * SECOND, 30 * SECOND, MINUTE_MS, MINUTE_MS)):
            await give_back(scene.desk, message)
            assert len(await scene.after(span_ms - 1)) == times
            *_, message = await scene.after(SECOND)
            assert message.reconsume_times == times + 1


async def test_without_timers_the_next_longer_delay_level_counts(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_enabled=False) as scene:
        scene.policy(RetryPolicy(customized=Customized.after((31 * SECOND, 3 * HOUR_MS))))
        await give_back(scene.desk, scene.desk.messages()[0])
        assert await scene.after(MINUTE_MS - 1) == []
        (retry,) = await scene.after(1)
        await give_back(scene.desk, retry)
        assert len(await scene.after(2 * HOUR_MS - 1)) == 1
        assert len(await scene.after(1)) == 2, "no level is as long, so the longest"


async def test_an_exponential_policy_doubles_up_to_its_limit(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        growing = Exponential(2 * SECOND, 6 * SECOND, 2)
        scene.policy(RetryPolicy(RetryPolicyType.EXPONENTIAL, exponential=growing))
        message = scene.desk.messages()[0]
        for times, span_ms in enumerate((2 * SECOND, 4 * SECOND, 6 * SECOND)):
            await give_back(scene.desk, message)
            assert len(await scene.after(span_ms - 1)) == times
            *_, message = await scene.after(SECOND)


async def test_a_delay_of_nothing_is_a_retry_at_once(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.policy(RetryPolicy(customized=Customized.after((0,))))
        await give_back(scene.desk, scene.desk.messages()[0])
        assert len(scene.of(RETRY)) == 1


async def test_a_consumer_that_chooses_a_level_has_its_way(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        scene.policy(RetryPolicy(customized=Customized.after((HOUR_MS,))))
        await give_back(scene.desk, scene.desk.messages()[0], delayLevel="1")
        assert len(await scene.after(SECOND)) == 1


async def test_a_policy_beyond_the_limit_of_timers_waits_as_long_as_they_can(tmp_path: Path) -> None:
    async with a_scene(tmp_path, timer_delay_max_s=60) as scene:
        scene.policy(RetryPolicy(customized=Customized.after((DAY_MS,))))
        await give_back(scene.desk, scene.desk.messages()[0])
        assert await scene.after(MINUTE_MS - 1) == []
        assert len(await scene.after(SECOND)) == 1


async def test_a_dead_letter_of_a_timer_does_not_wait_again(tmp_path: Path) -> None:
    """An orderly consumer sends it as a new message, with all its properties."""
    async with a_scene(tmp_path) as scene:
        scene.desk.tables.subscriptions.put(GroupConfig(GROUP))
        scene.desk.tables.topics.put(TopicConfig(RETRY, 1, 1))
        text = "UNIQ_KEY\x01U9\x02TIMER_DELAY_SEC\x013600\x02RETRY_TOPIC\x01TopicTest\x02"
        await scene.desk.ask(replace(a_send(b=RETRY, e="0", i=text, j="3", l="2"), body=b"late"))
        assert [each.body for each in scene.of(DLQ)] == [b"late"]


# Messages without room for another property (the limit is 32,767 bytes of properties).


def filled(size: int, **more: str) -> str:
    """Properties of that many bytes."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in {"UNIQ_KEY": "U1", **more}.items())
    return text + "fill\x01" + "x" * (size - len(text) - 6) + "\x02"


async def largest(folder: Path, **more: str) -> int:
    """As many bytes of properties as a broker accepts for such a message."""
    async with a_desk(folder, commitlog_file_size=MiB) as desk:
        desk.tables.topics.put(TopicConfig("TopicTest", 4, 4))
        for size in range(PROPERTIES_SIZE_MAX, 0, -1):
            (answer,) = await desk.ask(a_send(e="1", i=filled(size, **more)))
            if answer.code == ResponseCode.SUCCESS:
                return size
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    raise AssertionError("none is accepted")


@pytest.mark.parametrize("short_of", [0, 100, 300, 1000])
async def test_a_message_with_full_properties_is_never_stuck(tmp_path: Path, short_of: int) -> None:
    """Fault 31, as the next two."""
    size = await largest(tmp_path / "probe") - short_of
    async with a_scene(tmp_path / "store", filled(size)) as scene:
        answer = await give_back(
            scene.desk, scene.desk.messages()[0], failureReason="ValueError: " + "y" * 900
        )
        assert answer.code == ResponseCode.SUCCESS
        found = await scene.after(10 * SECOND, RETRY) or scene.of(DLQ)
        assert [each.body for each in found] == [b"order 17"]
        assert found[0].properties["fill"] == scene.desk.messages()[0].properties["fill"]
        assert scene.of(DLQ) == (found if short_of < 300 else []), "one that cannot be retried is dead"
        answer = await give_back(scene.desk, found[0], delayLevel="-1", failureReason="no")
        assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("asked", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}], ids=["level", "timer"])
async def test_what_is_accepted_with_full_properties_and_a_delay_is_delivered(
    tmp_path: Path, asked: dict[str, str]
) -> None:
    size = await largest(tmp_path / "probe", **asked)
    async with a_scene(tmp_path / "store", filled(size, **asked)) as scene:
        assert scene.of("TopicTest") == []
        assert [each.body for each in await scene.after(2 * SECOND, "TopicTest")] == [b"order 17"]


async def test_the_largest_body_passes_every_stage(tmp_path: Path) -> None:
    async with a_scene(tmp_path, message_size_max=4096) as scene:
        (answer,) = await scene.desk.ask(replace(a_send(e="1"), body=b"x" * 4096))
        assert answer.code == ResponseCode.SUCCESS
        (refused,) = await scene.desk.ask(replace(a_send(e="1"), body=b"x" * 4097))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        message = scene.of("TopicTest")[-1]
        await give_back(scene.desk, message, failureReason="r" * 1000)
        (retry,) = await scene.after(10 * SECOND)
        await give_back(scene.desk, retry, delayLevel="-1", failureReason="r" * 1000)
        assert [len(each.body) for each in scene.of(DLQ)] == [4096]


# Crashes.


async def test_a_dead_letter_topic_that_a_crash_has_lost_is_made_again(tmp_path: Path) -> None:
    """Topics are saved a moment after they are made: a kill may come before."""
    async with a_scene(tmp_path) as scene:
        await give_back(scene.desk, scene.desk.messages()[0], delayLevel="-1")
        await scene.desk.run()
    file = tmp_path / "config" / "topics.json"
    saved = json.loads(file.read_text())
    del saved["topicConfigTable"][DLQ]
    file.write_text(json.dumps(saved))
    async with a_desk(tmp_path, commitlog_file_size=MiB) as desk:
        config = desk.tables.topics.get(DLQ)
        assert config is not None and (config.read_queue_nums, config.perm) == (1, 6)
        assert [each.body for each in desk.messages() if each.topic == DLQ] == [b"order 17"]


async def test_a_message_given_back_comes_though_a_crash_has_lost_its_retry_topic(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await give_back(scene.desk, scene.desk.messages()[0], delayLevel="1")
        await scene.desk.run()
    file = tmp_path / "config" / "topics.json"
    saved = json.loads(file.read_text())
    del saved["topicConfigTable"][RETRY]
    file.write_text(json.dumps(saved))
    async with a_desk(tmp_path, commitlog_file_size=MiB) as desk:
        again = Scene(desk)
        assert [each.body for each in await again.after(SECOND)] == [b"order 17"]


async def test_a_dead_letter_topic_that_was_deleted_stays_deleted(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        await give_back(scene.desk, scene.desk.messages()[0], delayLevel="-1")
        await scene.desk.run()
        request = Command(code=RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": DLQ})
        answer = await scene.desk.router().answer(Nobody(), request)
        assert answer is not None and answer.code == ResponseCode.SUCCESS
    async with a_desk(tmp_path, commitlog_file_size=MiB) as desk:
        assert desk.tables.topics.get(DLQ) is None
