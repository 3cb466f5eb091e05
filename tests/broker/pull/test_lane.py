"""Pulls: what is found, what is refused and why, and what waits until there is more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.desks import DeskBench, Line, a_desk
from tests.protocol.samples import a_pull, a_send

from flaremq.base.errors import DiskFull
from flaremq.broker.stats.stats import Name
from flaremq.broker.tables.producers import ClientMember
from flaremq.model.record import decode_many
from flaremq.model.topic import GroupConfig, TopicConfig
from flaremq.protocol.bodies.group import ConsumerData, MessageModel, SubscriptionData
from flaremq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from flaremq.protocol.command import Command
from flaremq.store.queue.consumequeue import ConsumeQueue
from flaremq.testing.cluster import eventually

TOPIC, GROUP = "TopicTest", "g1"
NOT_FOUND, AGAIN, MOVED = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskBench]:
    async with a_desk(tmp_path) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        yield desk


async def put(desk: DeskBench, count: int, tag: str = "TagA", queue: int = 0, **more: str) -> None:
    extra = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
    sends = [
        replace(a_send(e=str(queue), i=f"UNIQ_KEY\x01U{n}\x02TAGS\x01{tag}\x02{extra}"), body=b"body %d" % n)
        for n in range(count)
    ]
    for answer in await desk.ask(*sends):
        assert answer.code == ResponseCode.SUCCESS, answer.remark


def pull(offset: int = 0, *, hold_ms: int = 0, **changes: Any) -> Command:
    """A pull that brings its own subscription; it may wait if it says for how long."""
    given = {
        "queueId": "0",
        "queueOffset": str(offset),
        "sysFlag": "6" if hold_ms else "4",
        "suspendTimeoutMillis": str(hold_ms),
        "subscription": "*",
        **changes,
    }
    return a_pull(**given)


async def answers(line: Line) -> list[Command]:
    """Once there are any: another thread may be at it."""

    async def any_written() -> bool:
        return bool(line.written)

    await eventually("it is answered", any_written)
    return line.read()


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_many(answer.body or b"")]


async def test_a_pull_finds_what_was_sent(desk: DeskBench) -> None:
    await put(desk, 3)
    (answer,) = await desk.ask(pull(1))
    assert (answer.code, answer.remark, bodies(answer)) == (0, "FOUND", [b"body 1", b"body 2"])
    assert answer.fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


async def test_a_pull_gets_no_more_than_it_asks_for(desk: DeskBench) -> None:
    await put(desk, 5)
    (answer,) = await desk.ask(pull(1, maxMsgNums="2"))
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"body 1", b"body 2"], "3")


async def test_tags_choose_and_the_next_offset_passes_what_was_left_out(desk: DeskBench) -> None:
    await put(desk, 2, "TagA")
    await put(desk, 2, "TagB")
    (found,) = await desk.ask(pull(0, subscription="TagB"))
    (nothing,) = await desk.ask(pull(0, subscription="TagC"))
    assert (bodies(found), found.fields["nextBeginOffset"]) == ([b"body 0", b"body 1"], "4")
    assert (nothing.code, nothing.remark, nothing.fields["nextBeginOffset"]) == (
        AGAIN,
        "NO_MATCHED_MESSAGE",
        "4",
    )


async def test_expressions_choose_by_properties(desk: DeskBench) -> None:
    await put(desk, 2, price="3")
    await put(desk, 2, price="30")
    line = Line()
    desk.deliver(line, pull(0, subscription="price > 5", expressionType="SQL92"))
    await desk.run()
    for _ in range(100):
        if line.written:
            break
        await asyncio.to_thread(lambda: None)  # The choice is made in another thread.
    (answer,) = line.read()
    assert len(bodies(answer)) == 2
    assert answer.fields["nextBeginOffset"] == "4"


async def test_a_bad_expression_is_refused_with_the_place_of_the_error(desk: DeskBench) -> None:
    (answer,) = await desk.ask(pull(0, subscription="price > > 5", expressionType="SQL92"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "8" in (answer.remark or "")


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [(3, NOT_FOUND, "3"), (4, MOVED, "3"), (1_000_000, MOVED, "3"), (-1, MOVED, "0")],
)
async def test_offsets_outside_of_the_queue_are_corrected(
    desk: DeskBench, offset: int, code: ResponseCode, next_offset: str
) -> None:
    await put(desk, 3)
    (answer,) = await desk.ask(pull(offset))
    assert (answer.code, answer.fields["nextBeginOffset"]) == (code, next_offset)


async def test_a_consumer_is_not_sent_back_from_what_lies_in_the_log_but_in_no_queue_yet(
    desk: DeskBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: a slave that has room has shown it to the consumer, which now asks the master."""
    await put(desk, 1)

    def refuse(_queue: ConsumeQueue, *_entries: Any) -> None:
        raise DiskFull("no room for more entries")

    producer, reader, waiting = Line(), Line(), Line()
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "append", refuse)
        desk.deliver(producer, a_send(e="0"), a_send(e="0"))
        await answers(producer)
        desk.deliver(reader, pull(3))
        desk.deliver(waiting, pull(3, hold_ms=15_000))
        (answer,) = await answers(reader)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (NOT_FOUND, "3")
    await put(desk, 1)
    (answer,) = await answers(waiting)
    assert bodies(answer) == [b"body 0"]


@pytest.mark.parametrize(("offset", "code"), [(0, NOT_FOUND), (5, MOVED)])
async def test_an_empty_queue_sends_everybody_to_its_begin(
    desk: DeskBench, offset: int, code: ResponseCode
) -> None:
    (answer,) = await desk.ask(pull(offset))
    assert (answer.code, answer.fields["nextBeginOffset"]) == (code, "0")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "4"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"sysFlag": "0"}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"queueOffset": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"topic": None}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_pull_that_cannot_be_is_refused_with_a_reason(
    desk: DeskBench, changes: dict[str, Any], code: ResponseCode
) -> None:
    (answer,) = await desk.ask(pull(0, **changes))
    assert (answer.code, answer.opaque) == (code, 9)
    assert answer.remark


async def test_who_forbids_a_pull_is_told(tmp_path: Path) -> None:
    async with a_desk(tmp_path, broker={"permission": 2}) as desk:
        (by_broker,) = await desk.ask(pull(0))
    async with a_desk(tmp_path / "b") as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4, perm=2))
        (by_topic,) = await desk.ask(pull(0))
        desk.tables.subscriptions.put(GroupConfig(GROUP, consume_enable=False))
        (by_group,) = await desk.ask(pull(0))
    assert [answer.code for answer in (by_broker, by_topic, by_group)] == [ResponseCode.NO_PERMISSION] * 3
    assert [a.fields["forbiddenType"] for a in (by_broker, by_topic, by_group)] == ["1", "3", "2"]


async def test_without_auto_creation_an_unknown_group_is_refused(tmp_path: Path) -> None:
    async with a_desk(tmp_path, broker={"auto_create_groups": False}) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        (answer,) = await desk.ask(pull(0))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


# Subscriptions by heartbeat.


def joined(desk: DeskBench, line: Line, expression: str = "*", version: int = 5, **more: Any) -> None:
    member = ClientMember(peer=line, client_id="c1", language=LanguageCode.JAVA, version=479, last_seen_ms=0)  # type: ignore[arg-type]
    wanted = SubscriptionData.of(TOPIC, expression, sub_version=version)
    desk.tables.groups.heartbeat(
        member, ConsumerData(group_name=GROUP, subscription_data_set=(wanted,), **more)
    )


async def test_without_one_of_its_own_the_groups_subscription_counts(desk: DeskBench) -> None:
    await put(desk, 1, "TagA")
    await put(desk, 1, "TagB")
    line = Line()
    joined(desk, line, "TagB")
    (answer,) = await desk.ask(pull(0, sysFlag="0", subVersion="5", subscription=None), line=line)
    assert answer.fields["nextBeginOffset"] == "2"
    assert len(bodies(answer)) == 1


async def test_a_pull_ahead_of_its_heartbeat_is_sent_back(desk: DeskBench) -> None:
    line = Line()
    joined(desk, line, version=5)
    (answer,) = await desk.ask(pull(0, sysFlag="0", subVersion="6"), line=line)
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_a_group_that_may_not_broadcast_is_refused(desk: DeskBench) -> None:
    line = Line()
    desk.tables.subscriptions.put(GroupConfig(GROUP, consume_broadcast_enable=False))
    joined(desk, line, message_model=MessageModel.BROADCASTING)
    (answer,) = await desk.ask(pull(0, sysFlag="0", subVersion="5"), line=line)
    assert (answer.code, answer.fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "4")


# Offsets.


async def test_a_pull_may_bring_the_offset_to_commit(desk: DeskBench) -> None:
    await desk.ask(pull(0, sysFlag="5", commitOffset="17"))
    assert desk.tables.offsets.get(GROUP, TOPIC, 0) == 17
    await desk.ask(pull(0, sysFlag="4", commitOffset="99"))
    assert desk.tables.offsets.get(GROUP, TOPIC, 0) == 17


async def test_an_offset_counts_when_its_pull_comes_however_late_that_is_served(desk: DeskBench) -> None:
    """A consumer that stops commits the offset of its last message, while an earlier pull is still served."""
    await put(desk, 1)
    late, full = Line(5001), Line(5002)
    full.is_full = True
    with desk.store.dispatcher._lock:  # As if a file was being made: the pull at the end is served later.
        desk.deliver(late, replace(a_send(e="0"), body=b"another"), pull(1, sysFlag="5", commitOffset="0"))
        desk.deliver(full, pull(0, sysFlag="5", commitOffset="0"))
        desk.turn.run()
        desk.tables.offsets.commit(GROUP, TOPIC, 0, 1)
    full.is_full = False
    for work in full.waiting:
        work()

    async def are_served() -> bool:
        return len(late.written) > 1 and bool(full.written)

    await eventually("both are served", are_served)
    assert desk.tables.offsets.get(GROUP, TOPIC, 0) == 1


async def test_a_reset_is_told_once_to_who_pulls_next(desk: DeskBench) -> None:
    await put(desk, 3)
    desk.tables.offsets.reset(GROUP, TOPIC, 0, 1)
    (told,) = await desk.ask(pull(3))
    (again,) = await desk.ask(pull(1))
    assert (told.code, told.remark, told.fields["nextBeginOffset"]) == (MOVED, "OFFSET_RESET", "1")
    assert told.body is None
    assert again.code == ResponseCode.SUCCESS


# Waiting.


async def test_a_pull_that_may_wait_is_answered_in_the_turn_in_which_a_message_comes(desk: DeskBench) -> None:
    line = Line()
    assert await desk.ask(pull(0, hold_ms=15_000), line=line) == []
    assert len(desk.pulls.parked) == 1
    await put(desk, 1)
    (answer,) = line.read()
    assert bodies(answer) == [b"body 0"]
    assert len(desk.pulls.parked) == 0


async def test_messages_of_other_queues_and_tags_do_not_wake_it(desk: DeskBench) -> None:
    line = Line()
    await desk.ask(pull(0, hold_ms=15_000, subscription="TagB"), line=line)
    await put(desk, 1, queue=1)
    await put(desk, 3, "TagA")
    assert line.read() == []
    await put(desk, 1, "TagB")
    (answer,) = line.read()
    assert (len(bodies(answer)), answer.fields["nextBeginOffset"]) == (1, "4")


async def test_when_its_time_is_over_it_is_told_that_there_is_nothing(desk: DeskBench) -> None:
    line = Line()
    await desk.ask(pull(0, hold_ms=20), line=line)
    async with asyncio.timeout(60):
        while not line.written:
            await asyncio.sleep(0)
    (answer,) = line.read()
    assert (answer.code, answer.fields["nextBeginOffset"]) == (NOT_FOUND, "0")


async def test_what_it_has_passed_over_meanwhile_it_need_not_look_at_again(desk: DeskBench) -> None:
    line = Line()
    await desk.ask(pull(0, hold_ms=1000, subscription="TagB"), line=line)
    await put(desk, 3, "TagA")
    async with asyncio.timeout(60):
        while not line.written:
            await asyncio.sleep(0)
    (answer,) = line.read()
    assert (answer.code, answer.fields["nextBeginOffset"]) == (AGAIN, "3")


async def test_who_may_not_wait_or_has_gone_is_not_kept(desk: DeskBench) -> None:
    (answer,) = await desk.ask(pull(0))
    assert answer.code == NOT_FOUND
    line = Line()
    await desk.ask(pull(0, hold_ms=15_000), line=line)
    line.is_open = False
    await put(desk, 1)
    assert (len(desk.pulls.parked), line.read()) == (0, [])


async def test_many_who_wait_for_one_queue_are_all_answered(desk: DeskBench) -> None:
    lines = [Line(6000 + n) for n in range(50)]
    for line in lines:
        await desk.ask(pull(0, hold_ms=15_000), line=line)
    await put(desk, 1)
    assert all(len(line.read()) == 1 for line in lines)


async def test_when_the_broker_stops_everyone_who_waits_is_answered(tmp_path: Path) -> None:
    line = Line()
    async with a_desk(tmp_path) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await desk.ask(pull(0, hold_ms=15_000), line=line)
        assert line.read() == []
    assert [answer.code for answer in line.read()] == [NOT_FOUND]


async def test_there_is_a_limit_to_how_many_may_wait(desk: DeskBench) -> None:
    desk.pulls.parked._limit = 2
    for _ in range(2):
        assert await desk.ask(pull(0, hold_ms=15_000)) == []
    (answer,) = await desk.ask(pull(0, hold_ms=15_000))
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert (answer.remark or "").startswith("[OVERLOAD]")


async def test_lite_pulls_are_served_unless_they_are_switched_off(desk: DeskBench) -> None:
    await put(desk, 1)
    lite = replace(pull(0, sysFlag="20"), code=RequestCode.LITE_PULL_MESSAGE)
    assert (await desk.ask(lite))[0].code == ResponseCode.SUCCESS
    desk.broker.configuration.update({"litePullMessageEnable": "false"})
    assert (await desk.ask(lite))[0].code == ResponseCode.NO_PERMISSION


async def test_who_does_not_read_is_not_served_until_it_does(desk: DeskBench) -> None:
    await put(desk, 1)
    line = Line()
    line.is_full = True
    assert await desk.ask(pull(0), pull(0), line=line) == []
    line.is_full = False
    for work in line.waiting:
        work()
    assert [len(bodies(answer)) for answer in line.read()] == [1, 1]


async def test_who_does_not_read_is_not_told_either_what_was_refused(desk: DeskBench) -> None:
    line = Line()
    line.is_full = True
    assert await desk.ask(pull(0, topic="Nobody"), line=line) == []
    line.is_full = False
    for work in line.waiting:
        work()
    assert [answer.code for answer in line.read()] == [ResponseCode.TOPIC_NOT_EXIST]


async def test_a_pull_waits_for_the_queue_that_another_thread_is_making(desk: DeskBench) -> None:
    line = Line()
    with desk.store.dispatcher._lock:  # As if a file was being made.
        desk.deliver(line, replace(a_send(e="0"), body=b"first"), pull(0))
        desk.turn.run()
    async with asyncio.timeout(60):
        while len(answers := line.read_all()) < 2:
            await asyncio.sleep(0)
    assert bodies(answers[1]) == [b"first"]


async def test_what_was_allowed_is_looked_at_again_when_anything_has_changed(desk: DeskBench) -> None:
    await put(desk, 1)
    line = Line()
    joined(desk, line)
    ask = pull(0, sysFlag="0", subVersion="5", subscription=None)
    assert (await desk.ask(ask, line=line))[0].code == ResponseCode.SUCCESS
    desk.tables.subscriptions.set_forbidden(GROUP, TOPIC, True)
    assert (await desk.ask(ask, line=line))[0].code == ResponseCode.NO_PERMISSION
    desk.tables.subscriptions.set_forbidden(GROUP, TOPIC, False)
    assert (await desk.ask(ask, line=line))[0].code == ResponseCode.SUCCESS
    joined(desk, line, "TagB", version=6)
    assert (await desk.ask(ask, line=line))[0].code == AGAIN
    desk.tables.subscriptions.put(GroupConfig(GROUP, consume_enable=False))
    assert (await desk.ask(ask, line=line))[0].code == ResponseCode.NO_PERMISSION
    desk.tables.subscriptions.put(GroupConfig(GROUP))
    desk.tables.topics.put(TopicConfig(TOPIC, 4, 4, perm=2))
    assert (await desk.ask(ask, line=line))[0].code == ResponseCode.NO_PERMISSION
    desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
    desk.tables.groups.closed(line)  # type: ignore[arg-type]
    assert (await desk.ask(ask, line=line))[0].code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_pull_that_has_lain_unread_for_too_long_is_refused(desk: DeskBench) -> None:
    await put(desk, 1)
    desk.turn._began_s -= 6.0  # The loop was late: connections are asked how late.
    late, fresh = Line(5001, waited_ms=5001), Line(5002, waited_ms=5000)
    desk.deliver(late, pull(0))
    desk.deliver(fresh, pull(0))
    await desk.run()
    (refused,), (served,) = late.read(), fresh.read()
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert (refused.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
    assert served.code == ResponseCode.SUCCESS


async def test_how_long_pulls_of_a_group_take_is_counted(desk: DeskBench) -> None:
    await put(desk, 1)
    await desk.ask(pull(0), pull(0))
    items = dict(desk.broker.stats._tables[Name.GROUP_GET_LATENCY])
    assert items[f"{TOPIC}@{GROUP}"].times == 2
    assert items[f"{TOPIC}@{GROUP}"].value > 0


async def test_bit_maps_beside_queue_entries_say_which_groups_want_a_message(tmp_path: Path) -> None:
    wanted = SubscriptionData.of(TOPIC, "price > 5", "SQL92", sub_version=5)
    async with a_desk(tmp_path, broker={"calculate_bit_maps": True}, ext_enabled=True) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        member = ClientMember(
            peer=Line(),  # type: ignore[arg-type]
            client_id="c1",
            language=LanguageCode.JAVA,
            version=479,
            last_seen_ms=0,
        )
        desk.tables.groups.heartbeat(member, ConsumerData(group_name=GROUP, subscription_data_set=(wanted,)))
        await put(desk, 1, price="3")
        await put(desk, 1, price="30")
        queue, ext = desk.store.queues.get(TOPIC.encode(), 0), desk.store.queues.ext((TOPIC.encode(), 0))
        assert isinstance(queue, ConsumeQueue)
        assert ext is not None
        units = [ext.get(entry[2]) for entry in (queue.entry(0), queue.entry(1)) if entry is not None]
        assert [unit is not None and any(unit.bit_map) for unit in units] == [False, True]
        assert all(unit is not None and unit.bit_map for unit in units)


async def test_who_has_its_share_of_places_is_told_at_once_that_there_is_nothing(desk: DeskBench) -> None:
    desk.pulls.parked._limit = 20
    line = Line()
    for _ in range(2):
        assert await desk.ask(pull(0, hold_ms=15_000), line=line) == []
    (answer,) = await desk.ask(pull(0, hold_ms=15_000), line=line)
    assert answer.code == NOT_FOUND
    assert await desk.ask(pull(0, hold_ms=15_000)) == []


async def test_expressions_of_pulls_that_wait_are_not_evaluated_in_the_loop(
    desk: DeskBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, get = set[int](), desk.store.get

    def noted(*args: Any, **options: Any) -> Any:
        threads.add(threading.get_ident())
        return get(*args, **options)

    monkeypatch.setattr(desk.store, "get", noted)
    line = Line()
    desk.deliver(line, pull(0, hold_ms=15_000, subscription="TAGS = 'TagB'", expressionType="SQL92"))
    await eventually("it is parked", lambda: parked(desk, 1))
    await put(desk, 3, "TagA")
    await put(desk, 1, "TagB")
    await eventually("it is answered", lambda: parked(desk, 0))
    (answer,) = line.read()
    assert (len(bodies(answer)), answer.fields["nextBeginOffset"]) == (1, "4")
    assert threads
    assert threading.get_ident() not in threads


async def test_what_comes_while_an_expression_is_evaluated_for_a_new_pull_is_not_left_lying(
    desk: DeskBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has read, and the pull is not parked yet: nobody is there to be woken."""
    aside = desk.pulls._aside
    run = aside.run

    async def held_up(work: Callable[[], Any]) -> Any:
        result = await run(work)
        monkeypatch.undo()
        await put(desk, 1, "TagB")
        return result

    await put(desk, 1, "TagB")
    monkeypatch.setattr(aside, "run", held_up)
    assert desk.pulls.parked._sweeper is not None
    desk.pulls.parked._sweeper.cancel()  # It would find the message, but seconds later.
    line = Line()
    desk.deliver(line, pull(1, hold_ms=600_000, subscription="TAGS = 'TagB'", expressionType="SQL92"))

    async def is_answered() -> bool:
        return bool(line.written)

    await eventually("it is answered", is_answered, 10)
    (answer,) = line.read()
    assert len(bodies(answer)) == 1


async def parked(desk: DeskBench, count: int) -> bool:
    return len(desk.pulls.parked) == count
