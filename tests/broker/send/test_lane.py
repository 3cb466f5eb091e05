"""Sends through both lanes of a broker, as frames in and frames out."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.desks import DeskBench, Line, a_desk
from tests.protocol.samples import a_send

from flaremq.base.errors import DispatchBehind, FileNotReady, FlareError, PageCacheBusy
from flaremq.broker.stats.stats import Name
from flaremq.model.batch import join_batch
from flaremq.model.topic import QUEUE_TYPE, QUEUE_TYPE_BATCH, TopicConfig, TopicFilterType
from flaremq.protocol.codes import ONE_WAY, RequestCode, ResponseCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.store.settings import FlushDisk

TOPIC = "TopicTest"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskBench]:
    async with a_desk(tmp_path) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        yield desk


def numbered(number: int, **changes: str | None) -> Command:
    given = {"i": f"UNIQ_KEY\x01U{number}\x02WAIT\x01true\x02", **changes}
    command = a_send(**given)
    return replace(command, opaque=number, body=b"body %d" % number)


async def test_a_send_is_stored_and_its_answer_says_where(desk: DeskBench) -> None:
    (answer,) = await desk.ask(numbered(7, e="3"))
    (stored,) = desk.messages()
    assert (answer.code, answer.opaque) == (ResponseCode.SUCCESS, 7)
    assert answer.fields["msgId"] == stored.message_id
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("3", "0")
    assert (answer.fields["transactionId"], answer.fields["MSG_REGION"]) == ("U7", "DefaultRegion")
    assert (stored.topic, stored.body, str(stored.born_host)) == (TOPIC, b"body 7", "10.0.0.9:5000")
    assert stored.properties["CLUSTER"] == "DefaultCluster"


async def test_all_sends_of_a_turn_are_stored_by_one_append(desk: DeskBench) -> None:
    appends = []
    put_many = desk.store.put_many
    desk.store.put_many = lambda drafts: (appends.append(len(drafts)), put_many(drafts))[1]  # type: ignore[method-assign, func-returns-value]
    lines = [Line(port) for port in (5001, 5002, 5003)]
    for number, line in enumerate(lines):
        desk.deliver(line, numbered(10 * number), numbered(10 * number + 1))
    await desk.run()
    assert appends == [6]
    assert [[answer.opaque for answer in line.read()] for line in lines] == [[0, 1], [10, 11], [20, 21]]
    assert [line.writes for line in lines] == [1, 1, 1]


async def test_the_answer_speaks_as_the_request_did(desk: DeskBench) -> None:
    json, compact = numbered(1), replace(numbered(2), serialize_type=SerializeType.ROCKETMQ)
    answers = await desk.ask(json, compact)
    assert [answer.serialize_type for answer in answers] == [SerializeType.JSON, SerializeType.ROCKETMQ]


async def test_a_one_way_send_is_stored_without_a_word(desk: DeskBench) -> None:
    assert await desk.ask(replace(numbered(1), flag=ONE_WAY)) == []
    assert await desk.ask(replace(numbered(2, i="WAIT\x01true\x02"), flag=ONE_WAY)) == []
    assert [message.body for message in desk.messages()] == [b"body 1", b"body 2"]


async def test_sends_of_one_connection_are_stored_in_order_whichever_lane_they_take(desk: DeskBench) -> None:
    without_key = {"i": "WAIT\x01true\x02"}
    await desk.ask(*(numbered(n, e="0", **(without_key if n % 3 == 1 else {})) for n in range(12)))
    assert [message.body for message in desk.messages()] == [b"body %d" % n for n in range(12)]


async def test_a_message_without_an_id_gets_one(desk: DeskBench) -> None:
    (answer,) = await desk.ask(numbered(1, i="TAGS\x01A\x02"))
    (stored,) = desk.messages()
    assert stored.unique_key is not None
    assert len(stored.unique_key) == 32
    assert answer.fields["transactionId"] == stored.unique_key


async def test_the_long_names_of_the_first_version_are_understood(desk: DeskBench) -> None:
    long = {
        "producerGroup": "pg", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "2", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "5",
        "properties": "UNIQ_KEY\x01U\x02", "reconsumeTimes": "0", "unitMode": "false",
    }  # fmt: skip
    (answer,) = await desk.ask(Command(code=RequestCode.SEND_MESSAGE, ext_fields=long, body=b"x"))
    assert (answer.code, desk.messages()[0].flag) == (ResponseCode.SUCCESS, 5)


# Topics.


async def test_a_first_send_makes_its_topic(desk: DeskBench) -> None:
    (answer,) = await desk.ask(numbered(1, b="NewTopic", d="4", e="1"))
    assert answer.code == ResponseCode.SUCCESS
    made = desk.tables.topics.get("NewTopic")
    assert made is not None
    assert (made.write_queue_nums, made.read_queue_nums, made.perm) == (4, 4, 6)
    assert (await desk.ask(numbered(2, b="NewTopic", e="3")))[0].code == ResponseCode.SUCCESS


async def test_a_topic_is_not_made_where_that_is_forbidden(tmp_path: Path) -> None:
    async with a_desk(tmp_path, broker={"auto_create_topics": False}) as desk:
        (answer,) = await desk.ask(numbered(1, b="NewTopic"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "NewTopic" in (answer.remark or "")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"b": "../../etc"}, ResponseCode.INVALID_PARAMETER),
        ({"b": "a/b"}, ResponseCode.INVALID_PARAMETER),
        ({"b": "x" * 128}, ResponseCode.INVALID_PARAMETER),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"e": "4"}, ResponseCode.INVALID_PARAMETER),
        ({"e": "2147483647"}, ResponseCode.INVALID_PARAMETER),
        ({"i": "UNIQ_KEY\x01U\x02DELAY\x01soon\x02"}, ResponseCode.SYSTEM_ERROR),
        ({"i": "UNIQ_KEY\x01U\x02TRAN_MSG\x01true\x02", "f": "4"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "UNIQ_KEY\x01U\x02A\x01" + "v" * 32_760 + "\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"b": None}, ResponseCode.SYSTEM_ERROR),
        ({"e": "one"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_what_may_not_be_stored_is_refused_with_a_reason(
    desk: DeskBench, changes: dict[str, str | None], code: ResponseCode
) -> None:
    command = replace(a_send(**changes), body=b"x", opaque=9)
    (answer,) = await desk.ask(command)
    assert (answer.code, answer.opaque) == (code, 9)
    assert answer.remark
    assert answer.fields["TRACE_ON"] == "true"
    assert desk.messages() == []


async def test_one_message_too_large_harms_no_other(tmp_path: Path) -> None:
    async with a_desk(tmp_path, message_size_max=100) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        big = replace(numbered(2), body=b"x" * 101)
        answers = await desk.ask(numbered(1), big, numbered(3))
        assert [answer.code for answer in answers] == [0, ResponseCode.MESSAGE_ILLEGAL, 0]
        assert "101" in (answers[1].remark or "")
        assert "100" in (answers[1].remark or "")
        assert [message.body for message in desk.messages()] == [b"body 1", b"body 3"]


async def test_negative_queue_ids_let_the_broker_choose(desk: DeskBench) -> None:
    answers = await desk.ask(*(numbered(n, e="-1") for n in range(40)))
    assert {answer.code for answer in answers} == {0}
    assert {int(answer.fields["queueId"]) for answer in answers} == {0, 1, 2, 3}


async def test_topics_with_many_tags_are_marked_in_the_record(desk: DeskBench) -> None:
    desk.tables.topics.put(TopicConfig("Many", 1, 1, topic_filter_type=TopicFilterType.MULTI_TAG))
    await desk.ask(numbered(1, b="Many", e="0"))
    assert desk.messages()[0].sys_flag & 2


# Batches.


def a_batch(*bodies: bytes, **changes: str | None) -> Command:
    texts = [f"UNIQ_KEY\x01B{number}\x02" for number in range(len(bodies))]
    given = {"m": "true", "e": "1", **changes}
    command = a_send(**given)
    return replace(command, code=RequestCode.SEND_BATCH_MESSAGE, body=join_batch(bodies, texts))


async def test_a_batch_becomes_messages_of_their_own(desk: DeskBench) -> None:
    (answer,) = await desk.ask(a_batch(b"one", b"two", b"three"))
    stored = desk.messages()
    assert [message.body for message in stored] == [b"one", b"two", b"three"]
    assert answer.fields["msgId"] == ",".join(message.message_id for message in stored)
    assert [message.queue_offset for message in stored] == [0, 1, 2]
    assert "CLUSTER" not in stored[0].properties


async def test_a_topic_of_batches_keeps_one_record_for_all(desk: DeskBench) -> None:
    desk.tables.topics.put(TopicConfig("Batches", 4, 4, attributes={QUEUE_TYPE: QUEUE_TYPE_BATCH}))
    (answer,) = await desk.ask(a_batch(b"one", b"two", b="Batches"))
    (stored,) = desk.messages()
    assert stored.properties["INNER_NUM"] == "2"
    assert answer.fields["batchUniqId"] == "U1"


@pytest.mark.parametrize("body", [b"x", b"\0" * 40, b"\0\0\0\x16" + b"\0" * 12 + b"\xff" * 6])
async def test_a_batch_that_is_none_is_refused_whole(desk: DeskBench, body: bytes) -> None:
    (answer,) = await desk.ask(replace(a_batch(b"one"), body=body))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert desk.messages() == []


async def test_a_batch_may_not_go_to_a_retry_topic(desk: DeskBench) -> None:
    (answer,) = await desk.ask(a_batch(b"one", b="%RETRY%g", e="0"))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("waits", ["DELAY\x013\x02", "TIMER_DELAY_SEC\x0160\x02", "TRAN_MSG\x01true\x02"])
@pytest.mark.parametrize("topic", [TOPIC, "Batches"])
@pytest.mark.parametrize("is_outer", [True, False])
async def test_a_batch_that_would_have_to_wait_is_refused_whole(
    desk: DeskBench, waits: str, topic: str, is_outer: bool
) -> None:
    desk.tables.topics.put(TopicConfig("Batches", 4, 4, attributes={QUEUE_TYPE: QUEUE_TYPE_BATCH}))
    outer, inner = (waits, "") if is_outer else ("", waits)
    batch = a_batch(b"one", b=topic, i=f"UNIQ_KEY\x01U1\x02{outer}")
    (answer,) = await desk.ask(replace(batch, body=join_batch([b"one", b"two"], ["", inner])))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "send it alone" in (answer.remark or "")
    assert desk.messages() == []


# Retries.


@pytest.mark.parametrize(("times", "topic"), [("16", "%RETRY%g"), ("17", "%DLQ%g")])
async def test_a_retry_too_many_goes_to_the_dead_letters(desk: DeskBench, times: str, topic: str) -> None:
    (answer,) = await desk.ask(numbered(1, b="%RETRY%g", e="0", j=times))
    assert (answer.code, desk.messages()[0].topic) == (ResponseCode.SUCCESS, topic)


async def test_a_client_may_say_how_often_it_tries(desk: DeskBench) -> None:
    await desk.ask(numbered(1, b="%RETRY%g", e="0", j="3", l="2"))
    assert desk.messages()[0].topic == "%DLQ%g"


# Waiting for the disk.


async def test_under_sync_flush_nothing_is_answered_before_the_log_is_safe(tmp_path: Path) -> None:
    async with a_desk(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        line = Line()
        desk.deliver(line, numbered(1), numbered(2, i="WAIT\x01true\x02"))
        desk.turn.run()
        under_way = line.under_way
        await asyncio.wait_for(desk.acks.drain(), 60)
        answers = line.read()
    assert under_way == 2
    assert [answer.opaque for answer in answers] == [1, 2]
    assert line.under_way == 0


async def test_who_does_not_want_to_wait_is_answered_at_once(tmp_path: Path) -> None:
    async with a_desk(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        line = Line()
        desk.deliver(line, numbered(1, i="UNIQ_KEY\x01U\x02WAIT\x01false\x02"))
        desk.turn.run()
        assert [answer.code for answer in line.read()] == [0]


# Figures.


PLAIN = {"i": "WAIT\x01true\x02"}  # Without an id a send takes the plain lane.


@pytest.mark.parametrize("how", [{}, PLAIN], ids=["fast", "plain"])
async def test_the_time_of_a_put_ends_with_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    now_s = [1000.0]
    async with a_desk(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH) as desk:
        monkeypatch.setattr(desk.sends, "_now_s", lambda: now_s[0])
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        stats = desk.broker.stats
        desk.deliver(Line(), numbered(1, **how), numbered(2, **how))
        desk.turn.run()
        assert stats.put_times.longest_ms == 0  # Not answered: not timed yet.
        now_s[0] += 0.25  # So long the disk takes.
        await asyncio.wait_for(desk.acks.drain(), 60)
    assert stats.put_times.longest_ms == 250
    latency = stats._tables[Name.TOPIC_PUT_LATENCY][TOPIC]
    assert (latency.value, latency.times) == (500.0, 2)
    assert stats.rates.put_failed == 0


@pytest.mark.parametrize("how", [{}, PLAIN], ids=["fast", "plain"])
async def test_a_put_is_timed_under_async_flush_too(
    desk: DeskBench, monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    times = itertools.count(7.0, 0.004)  # Each look at the clock is 4 ms after the last.
    monkeypatch.setattr(desk.sends, "_now_s", lambda: next(times))
    await desk.ask(numbered(1, **how))
    stats = desk.broker.stats
    assert stats._tables[Name.TOPIC_PUT_LATENCY][TOPIC].times == 1
    stats.put_times.turn()
    assert "[0~10ms]:1" in stats.put_times.spread()


@pytest.mark.parametrize("how", [{}, PLAIN], ids=["fast", "plain"])
async def test_a_put_that_is_not_known_to_be_on_the_disk_counts_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    async with a_desk(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH, sync_flush_timeout_ms=10) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        waits, line, sound, flush = desk.acks, Line(), threading.Event(), desk.store.log.flush
        monkeypatch.setattr(desk.store.log, "flush", lambda pages: (sound.wait(30), flush(pages)))
        desk.deliver(line, numbered(1, **how))
        desk.turn.run()
        try:
            await asyncio.wait_for(waits.drain(), 20)  # The disk is held for longer.
        finally:
            sound.set()
        assert [answer.code for answer in line.read()] == [ResponseCode.FLUSH_DISK_TIMEOUT]
        assert desk.broker.stats.rates.put_failed == 1


@pytest.mark.parametrize("how", [{}, PLAIN, {"b": "Nowhere", "c": "None"}], ids=["fast", "plain", "no topic"])
async def test_a_send_that_is_refused_counts_as_failed_and_leaves_no_figure_of_its_topic(
    desk: DeskBench, monkeypatch: pytest.MonkeyPatch, how: dict[str, str]
) -> None:
    def full(*_given: object, **_other: object) -> int:
        raise PageCacheBusy("busy")

    monkeypatch.setattr(desk.store, "put_many", full)
    monkeypatch.setattr(desk.store, "put", full)
    (answer,) = await desk.ask(numbered(1, **how))
    assert answer.code != ResponseCode.SUCCESS
    stats = desk.broker.stats
    assert stats.rates.put_failed == 1
    assert stats.put_times._spread != [0] * len(stats.put_times._spread)
    assert "Nowhere" not in stats._tables[Name.TOPIC_PUT_LATENCY]


# Refusals before any work.


async def test_what_has_lain_unread_for_too_long_is_refused(desk: DeskBench) -> None:
    desk.turn._began_s -= 0.5  # The loop was late: connections are asked how late.
    late, fresh = Line(5001, waited_ms=300), Line(5002, waited_ms=100)
    desk.deliver(late, numbered(1))
    desk.deliver(fresh, numbered(2))
    await desk.run()
    (refused,), (served,) = late.read(), fresh.read()
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert (refused.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
    assert "300ms" in (refused.remark or "")
    assert served.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("error", "tag"),
    [
        (PageCacheBusy("an append takes 1200 ms, limit is 1000"), "[PCBUSY_CLEAN_QUEUE]broker busy"),
        (FileNotReady("no buffer of the pool is free"), "[REJECTREQUEST]system busy"),
        (DispatchBehind("600001 records are stored"), "[REJECTREQUEST]system busy"),
    ],
)
@pytest.mark.parametrize("properties", ["UNIQ_KEY\x01U\x02", "WAIT\x01true\x02"])
async def test_what_is_short_is_told_in_the_words_that_tools_look_for(
    desk: DeskBench, monkeypatch: pytest.MonkeyPatch, error: FlareError, tag: str, properties: str
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(desk.store, "put_many", refuse)
    monkeypatch.setattr(desk.store, "put", refuse)
    (answer,) = await desk.ask(numbered(1, i=properties))
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert (answer.remark or "").startswith(tag)
    assert str(error) in (answer.remark or "")


async def test_more_than_may_wait_for_the_disk_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with a_desk(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        desk.made.overload.limit = 2
        line = Line()
        desk.deliver(line, *(numbered(n) for n in range(3)))
        desk.turn.run()
        refused = line.read()
        await asyncio.wait_for(desk.acks.drain(), 60)
        assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
        assert all((answer.remark or "").startswith("[OVERLOAD]system busy") for answer in refused)
        assert len(refused) + len(line.read()) == 3
        assert len(desk.messages()) == 3 - len(refused)
        assert desk.made.overload.held == 0
