"""What a slave copies from its master, and when it counts."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.broker.delay.timerscenes import Scene
from tests.broker.desks import DeskBench
from tests.broker.replicas.pairs import MASTER, VIP, a_pair
from tests.broker.transactions.scenes import Scene as TransactionScene
from tests.protocol.samples import a_send

from flaremq.broker.delay.levels import DelayedMessages
from flaremq.broker.replicas import calls
from flaremq.model.topic import DataVersion, GroupConfig, TopicConfig
from flaremq.protocol import beans, fastjson
from flaremq.protocol.bodies.cluster import KVTable
from flaremq.protocol.bodies.group import SubscriptionGroupWrapper
from flaremq.protocol.bodies.pop import (
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from flaremq.protocol.codes import RequestCode, ResponseCode
from flaremq.protocol.command import Command

CODE = RequestCode
TOPIC, GROUP = "Orders", "billing"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
SCHEDULE = b"SCHEDULE_TOPIC_XXXX"


def config(desk: DeskBench, name: str) -> bytes:
    return (desk.store.settings.root / "config" / name).read_bytes()


async def send(desk: DeskBench, count: int, topic: str = TOPIC, **properties: str) -> None:
    known = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    sends = [
        replace(a_send(b=topic, e="0", i=f"UNIQ_KEY\x01U{n}\x02{known}"), body=b"%d" % n)
        for n in range(count)
    ]
    for answer in await desk.ask(*sends):
        assert answer.code == ResponseCode.SUCCESS, answer.remark


def refused(code: int) -> Callable[[Command], Command]:
    return lambda _answer: Command(code=code, remark="no")


# Topics and groups.


async def test_topics_are_the_masters_within_three_seconds(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 3, perm=4, attributes={"message.type": "FIFO"}))
        assert set(await pair.copy()) == {3.0}
        assert pair.slave.tables.topics.all() == pair.master.tables.topics.all()
        assert pair.slave.tables.topics.version == pair.master.tables.topics.version
        assert b'"Orders"' in config(pair.slave, "topics.json")
        pair.master.tables.topics.put(TopicConfig(TOPIC, 8, 8))
        await pair.copy()
        assert pair.slave.tables.topics.get(TOPIC) == TopicConfig(TOPIC, 8, 8)


async def test_tables_are_fetched_only_when_they_differ(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        await pair.copy()
        pair.asked.clear()
        await pair.copy()
        for code, count in (
            (CODE.GET_ALL_TOPIC_CONFIG, "maxTopicNum"),
            (CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "maxGroupNum"),
        ):
            ((_, request),) = pair.requests(code)
            assert request.fields[count] == "1"


async def test_a_table_comes_page_by_page_and_again_when_it_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_PAGE", 5)
    async with a_pair(tmp_path) as pair:
        topics = pair.master.tables.topics
        topics.put(TopicConfig(TOPIC, 4, 4))
        changes = [f"T{n}" for n in range(3)]

        def and_changes(answer: Command) -> Command:
            if changes:
                topics.put(TopicConfig(changes.pop(), 1, 1))
            return answer

        pair.changes[CODE.GET_ALL_TOPIC_CONFIG] = and_changes
        await pair.copy()
        assert pair.slave.tables.topics.all() == topics.all()
        assert len(pair.requests(CODE.GET_ALL_TOPIC_CONFIG)) > len(topics.all()) // 5


async def test_a_master_that_knows_no_pages_tells_everything_at_once(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.knows_pages = False
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        pair.master.tables.subscriptions.put(GroupConfig(GROUP))
        await pair.copy()
        assert pair.slave.tables.topics.all() == pair.master.tables.topics.all()
        assert pair.slave.tables.subscriptions.all() == pair.master.tables.subscriptions.all()


async def test_a_topic_that_the_master_has_deleted_goes_with_its_queues_and_offsets(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await send(pair.master, 3)
        pair.replicate()
        await pair.copy()
        pair.slave.tables.offsets.commit(GROUP, TOPIC, 0, 2)
        assert pair.slave.store.max_offset(TOPIC.encode(), 0) == 3
        pair.master.tables.topics.remove(TOPIC)
        await pair.copy()
        assert pair.slave.tables.topics.get(TOPIC) is None
        assert pair.slave.store.queues.get(TOPIC.encode(), 0) is None
        assert pair.slave.tables.offsets.get(GROUP, TOPIC, 0) == -1
        assert pair.slave.tables.deleted.all() == {TOPIC: pair.slave.store.log.end}
        assert b"Orders" in config(pair.slave, "deletedTopics.json")


async def test_a_copy_that_is_older_than_what_a_groups_log_has_told_meanwhile_does_not_count(
    tmp_path: Path,
) -> None:
    """It would take the newest topic away again, with its messages, and the next news would hide that."""
    async with a_pair(tmp_path) as pair:
        topics, groups = pair.slave.tables.topics, pair.slave.tables.subscriptions
        pair.master.tables.topics.put(TopicConfig("Old", 4, 4))
        pair.master.tables.subscriptions.put(GroupConfig("old"))

        def with_news(code: RequestCode) -> Callable[[Command], Command]:
            def changed(answer: Command) -> Command:
                if code is RequestCode.GET_ALL_TOPIC_CONFIG:
                    topics.adopt({TOPIC: TopicConfig(TOPIC, 4, 4)}, [], DataVersion(1, 8, 0))
                else:
                    table = {GROUP: GroupConfig(GROUP)}
                    told = SubscriptionGroupWrapper(
                        subscription_group_table=table, data_version=DataVersion(1, 8, 0)
                    )
                    groups.adopt(told, [])
                return answer

            return changed

        codes = RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        for code in codes:
            pair.changes[code] = with_news(code)
        await pair.copy()
        assert topics.get(TOPIC) is not None and groups.contains(GROUP)
        assert pair.slave.tables.deleted.all() == {}
        pair.changes.clear()
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        pair.master.tables.subscriptions.put(GroupConfig(GROUP))
        await pair.copy()
        assert {"Old", TOPIC} <= topics.all().keys()
        assert groups.contains("old") and groups.contains(GROUP)


@pytest.mark.parametrize("older", [DataVersion(), DataVersion(1, 9, 0), DataVersion(2, 4, 0)], ids=str)
async def test_a_member_of_a_group_takes_no_older_table_from_one_that_led_before(
    tmp_path: Path, older: DataVersion
) -> None:
    """It may have started again with an empty disk, and is asked until the next leader is known."""
    async with a_pair(tmp_path) as pair:
        pair.sync._counts_on = True
        ours, masters = pair.slave.tables, pair.master.tables
        ours.topics.adopt({TOPIC: TopicConfig(TOPIC, 4, 4)}, [], DataVersion(2, 5, 0))
        told = SubscriptionGroupWrapper(
            subscription_group_table={GROUP: GroupConfig(GROUP)}, data_version=DataVersion(2, 5, 0)
        )
        ours.subscriptions.adopt(told, [])
        ours.offsets.adopt({(TOPIC, GROUP): {0: 7}}, DataVersion(2, 5, 0))
        masters.offsets.commit(GROUP, TOPIC, 0, 3)
        for table in (masters.topics, masters.subscriptions, masters.offsets):
            table.version = older
        await pair.copy()
        assert ours.topics.get(TOPIC) is not None and ours.subscriptions.contains(GROUP)
        assert ours.offsets.get(GROUP, TOPIC, 0) == 7
        assert ours.deleted.all() == {}
        for table in (masters.topics, masters.subscriptions, masters.offsets):
            table.version = DataVersion(3, 1, 0)
        await pair.copy()
        assert ours.topics.get(TOPIC) is None and not ours.subscriptions.contains(GROUP)


async def test_groups_and_what_is_forbidden_to_them_are_the_masters(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        groups = pair.master.tables.subscriptions
        groups.put(GroupConfig(GROUP, retry_max_times=3))
        groups.set_forbidden(GROUP, TOPIC, True)
        pair.slave.tables.subscriptions.put(GroupConfig("only-here"))
        await pair.copy()
        ours = pair.slave.tables.subscriptions
        assert (ours.all(), ours.version) == (groups.all(), groups.version)
        assert ours.is_forbidden(GROUP, TOPIC)
        assert b'"billing"' in config(pair.slave, "subscriptionGroup.json")
        groups.remove(GROUP)
        await pair.copy()
        assert not ours.contains(GROUP) and not ours.is_forbidden(GROUP, TOPIC)


# Consumer offsets.


async def test_offsets_follow_the_master_but_for_what_was_committed_here(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        theirs, ours = pair.master.tables.offsets, pair.slave.tables.offsets
        theirs.commit(GROUP, TOPIC, 0, 10)
        theirs.commit(GROUP, TOPIC, 1, 10)
        await pair.copy()
        assert ours.queues(GROUP, TOPIC) == {0: 10, 1: 10}
        pair.gone = {MASTER, VIP}
        await pair.copy()
        ours.commit(GROUP, TOPIC, 0, 25)
        pair.gone.clear()
        theirs.commit(GROUP, TOPIC, 0, 8)  # It has crashed, and forgotten a little.
        theirs.commit(GROUP, TOPIC, 1, 11)
        await pair.copy()
        assert ours.queues(GROUP, TOPIC) == {0: 25, 1: 11}
        theirs.commit(GROUP, TOPIC, 0, 9)
        await pair.copy()
        assert ours.queues(GROUP, TOPIC) == {0: 9, 1: 11}
        assert ours.version == theirs.version
        await pair.slave.tables.save()
        assert b'"Orders@billing":{0:9,1:11}' in config(pair.slave, "consumerOffset.json")


async def test_a_connection_that_was_lost_counts_as_a_master_that_was_away(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        theirs, ours = pair.master.tables.offsets, pair.slave.tables.offsets
        for lost, expected in (("10.0.0.9:1", 8), (MASTER, 25)):
            theirs.commit(GROUP, TOPIC, 0, 10)
            await pair.copy()
            ours.commit(GROUP, TOPIC, 0, 25)
            theirs.commit(GROUP, TOPIC, 0, 8)
            pair.sync.connection_lost(lost)
            await pair.copy()
            assert ours.get(GROUP, TOPIC, 0) == expected


# How far deliveries are.


async def test_delay_offsets_count_when_the_log_has_what_was_delivered(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await send(pair.master, 4, DELAY="1")
        pair.replicate()
        (delayed,) = (each for each in pair.master.made.inner if isinstance(each, DelayedMessages))
        pair.clock.advance_ms(2_000)
        await delayed.deliver()
        pair.master.store.log.flush(0)
        await delayed.save()
        assert pair.master.tables.delays.get(1) == 4
        await pair.copy()
        assert pair.slave.tables.delays.get(1) == 0  # Promoted now, it delivers them itself.
        pair.replicate()
        await pair.copy()
        assert pair.slave.tables.delays.wrapper() == pair.master.tables.delays.wrapper()
        (ours,) = (each for each in pair.slave.made.inner if isinstance(each, DelayedMessages))
        await ours.save()
        assert b"1:4" in config(pair.slave, "delayOffset.json")


async def test_delay_offsets_never_go_beyond_what_our_queue_has(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.delays.set(3, 7)
        await pair.copy()
        assert pair.slave.tables.delays.get(3) == 0


async def test_a_master_that_tells_no_end_of_its_log_is_asked_for_it(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await send(pair.master, 1, DELAY="1")
        pair.master.tables.delays.set(1, 1)
        pair.changes[CODE.GET_ALL_DELAY_OFFSET] = lambda answer: replace(answer, ext_fields={})
        ends = ["1000000", "1"]
        pair.changes[CODE.GET_BROKER_RUNTIME_INFO] = lambda answer: replace(
            answer, body=beans.encode(KVTable(table={"commitLogMaxOffset": ends.pop(0)}))
        )
        pair.replicate()
        await pair.copy()
        assert pair.slave.tables.delays.get(1) == 0
        await pair.copy()
        assert pair.slave.tables.delays.get(1) == 1


async def test_a_log_that_still_waits_to_be_delivered_stays(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await send(pair.master, 2)
        first = pair.master.store.log.end
        await send(pair.master, 2, DELAY="1")
        pair.replicate()
        (delayed,) = (each for each in pair.slave.made.inner if isinstance(each, DelayedMessages))
        assert delayed.needed_from() == first
        pair.master.tables.delays.set(1, 1)
        await pair.copy()
        found = delayed.needed_from()
        assert found is not None and found > first
        pair.master.tables.delays.set(1, 2)
        await pair.copy()
        assert delayed.needed_from() is None


async def test_transactions_that_have_ended_count_when_the_log_has_their_end(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        scene = TransactionScene(pair.master, pair.clock)
        await scene.prepare(0)
        pair.replicate()
        (theirs,) = (each for each in pair.master.made.inner if type(each) is type(scene.transactions))
        (ours,) = (each for each in pair.slave.made.inner if type(each) is type(scene.transactions))
        assert ours.needed_from() == 0
        await scene.end(0, "8")
        pair.master.store.log.flush(0)
        theirs.save()
        await pair.copy()
        assert pair.slave.tables.offsets.get("CID_RMQ_SYS_TRANS", HALF, 0) <= 0
        pair.replicate()
        await pair.copy()
        assert pair.slave.tables.offsets.get("CID_RMQ_SYS_TRANS", HALF, 0) == 1
        assert ours.needed_from() is None
        await ours.check()
        ours.save()
        assert not len(ours.ledger)


async def test_the_wheel_goes_as_far_as_the_masters_and_delivers_nothing(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        scene = Scene(pair.master, pair.clock)
        await scene.send(0, DELAY_SEC=5)
        await scene.send(1, DELAY_SEC=60)
        await scene.after(1_000)
        pair.master.store.log.flush(0)
        await scene.timers.save()
        pair.replicate()
        end = pair.slave.store.log.end
        await pair.copy()
        await pair.timers.run()
        begin_ms = scene.timers.files.read_ms
        first_ms = pair.timers.files.wheel.next_occupied(begin_ms, begin_ms + 100_000)
        assert first_ms == scene.timers.files.wheel.next_occupied(begin_ms, begin_ms + 100_000)
        assert pair.timers.files.queue_offset == 2
        assert pair.timers.counts.wrapper() == scene.timers.counts.wrapper()
        assert first_ms is not None and pair.timers.slot_count(first_ms) == 1
        assert await scene.after(10_000) == [b"0"]
        pair.master.store.log.flush(0)
        await scene.timers.save()
        await pair.copy()
        await pair.timers.run()
        assert pair.timers.slot_count(first_ms) == 1  # What was delivered is not in our log yet.
        pair.replicate()
        await pair.copy()
        await pair.timers.run()
        assert pair.timers.slot_count(first_ms) == 0
        assert pair.timers.files.read_ms == scene.timers.progress.read_ms
        assert pair.slave.store.log.end == pair.master.store.log.end > end


async def test_a_master_of_rocketmq_tells_its_progress_in_four_numbers_or_in_seven(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        now_ms = pair.clock.now_ms()
        for count in (4, 7):
            body = struct.pack(f">{count}q", now_ms + count * 1000, *range(1, count))
            pair.changes[CODE.GET_TIMER_CHECK_POINT] = partial(replace, body=body)
            await pair.copy()
            await pair.timers.run()
            assert pair.timers.files.read_ms == (now_ms + count * 1000) // 1000 * 1000
        assert pair.requests(CODE.GET_TIMER_CHECK_POINT)[0][0] == VIP


async def test_timers_are_left_alone_where_they_are_switched_off(tmp_path: Path) -> None:
    async with a_pair(tmp_path, slave={"timer_enabled": False}) as pair:
        await pair.copy()
        assert not pair.requests(CODE.GET_TIMER_CHECK_POINT) and not pair.requests(CODE.GET_TIMER_METRICS)


async def test_request_modes_survive(tmp_path: Path) -> None:
    body = SetMessageRequestModeRequestBody(
        topic=TOPIC, consumer_group=GROUP, mode=MessageRequestMode.POP, pop_share_queue_num=8
    )
    modes = MessageRequestModeSerializeWrapper(message_request_mode_map={TOPIC: {GROUP: body}})
    async with a_pair(tmp_path) as pair:
        pair.master.tables.modes.replace(modes)
        await pair.copy()
        assert pair.slave.tables.modes.wrapper() == modes
        await pair.slave.tables.save()
    async with a_pair(tmp_path) as pair:
        assert pair.slave.tables.modes.wrapper() == modes
        assert fastjson.loads(config(pair.slave, "messageRequestMode.json")) == {
            "messageRequestModeMap": {
                TOPIC: {GROUP: {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 8, "topic": TOPIC}}
            }
        }


# What can go wrong.


async def test_each_kind_fails_alone_and_is_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_pair(tmp_path) as pair:
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        pair.master.tables.offsets.commit(GROUP, TOPIC, 0, 10)
        pair.changes[CODE.GET_ALL_TOPIC_CONFIG] = lambda answer: replace(answer, body=b"{nonsense")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                await pair.copy()
        (line,) = [each for each in caplog.messages if "could not be copied" in each]
        assert line == "the master's topics could not be copied, trying again"
        assert pair.slave.tables.topics.get(TOPIC) is None
        assert pair.slave.tables.offsets.get(GROUP, TOPIC, 0) == 10
        del pair.changes[CODE.GET_ALL_TOPIC_CONFIG]
        await pair.copy()
        assert pair.slave.tables.topics.get(TOPIC) is not None


@pytest.mark.parametrize("code", [ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR])
async def test_what_the_master_does_not_have_is_asked_for_less_often(tmp_path: Path, code: int) -> None:
    async with a_pair(tmp_path) as pair:
        pair.changes[CODE.GET_ALL_MESSAGE_REQUEST_MODE] = refused(code)
        await pair.copy()
        assert sorted(await pair.copy()) == [3.0] * 6 + [10.0]


async def test_a_kind_that_takes_long_is_copied_less_often(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:

        def slowly(answer: Command) -> Command:
            pair.clock.advance_ms(2_000)
            return answer

        pair.changes[CODE.GET_ALL_CONSUMER_OFFSET] = slowly
        await pair.copy()
        assert max(await pair.copy()) >= 18.0


async def test_the_main_port_is_asked_where_the_vip_port_does_not_answer(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        await pair.copy()
        assert {address for address, _ in pair.requests(CODE.GET_ALL_TOPIC_CONFIG)} == {VIP}
        pair.gone = {VIP}
        pair.master.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        pair.asked.clear()
        await pair.copy()
        assert pair.slave.tables.topics.get(TOPIC) is not None
        pair.asked.clear()
        await pair.copy()
        assert {address for address, _ in pair.asked} == {MASTER}
        pair.clock.advance_ms(61_000)
        pair.gone.clear()
        await pair.copy()
        assert VIP in {address for address, _ in pair.asked}


@pytest.mark.parametrize("master", ["", "10.0.0.2:10911"])
async def test_nobody_is_asked_while_no_other_broker_is_the_master(tmp_path: Path, master: str) -> None:
    async with a_pair(tmp_path) as pair:
        pair.role.master = master
        await pair.copy()
        assert not pair.asked


async def test_another_master_is_followed_from_the_next_round_on(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        theirs, ours = pair.master.tables.offsets, pair.slave.tables.offsets
        theirs.commit(GROUP, TOPIC, 0, 10)
        await pair.copy()
        pair.role.learn("10.0.0.7:10911", "")
        ours.commit(GROUP, TOPIC, 0, 25)
        theirs.commit(GROUP, TOPIC, 0, 9)
        pair.asked.clear()
        await pair.copy()
        assert {address.partition(":")[0] for address, _ in pair.asked} == {"10.0.0.7"}
        assert ours.get(GROUP, TOPIC, 0) == 25


# The master's side.


@pytest.mark.parametrize(
    "code",
    [
        *(CODE.GET_ALL_TOPIC_CONFIG, CODE.GET_ALL_CONSUMER_OFFSET, CODE.GET_ALL_DELAY_OFFSET),
        *(CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, CODE.GET_ALL_MESSAGE_REQUEST_MODE),
        *(CODE.GET_TIMER_CHECK_POINT, CODE.GET_TIMER_METRICS),
    ],
    ids=lambda code: code.name,
)
async def test_a_new_master_answers_its_slaves_with_a_body(tmp_path: Path, code: RequestCode) -> None:
    async with a_pair(tmp_path) as pair:
        answer = await pair.ask(MASTER, Command(code=code), 1)
        assert answer.code == ResponseCode.SUCCESS and answer.body


@pytest.mark.parametrize("code", [CODE.GET_TIMER_CHECK_POINT, CODE.GET_TIMER_METRICS])
async def test_a_master_without_timers_says_so(tmp_path: Path, code: RequestCode) -> None:
    async with a_pair(tmp_path, timer_enabled=False) as pair:
        answer = await pair.ask(MASTER, Command(code=code), 1)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "timerWheelEnable" in (answer.remark or "")
