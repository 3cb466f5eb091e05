"""Numbered messages: each is stored once, and a repeated send gets the first receipt."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path

import pytest
from tests.broker.desks import DeskBench, Line, a_desk
from tests.protocol.samples import a_send

from flaremq.broker.send.deduplication import MARKER, Deduplication
from flaremq.model.batch import join_batch
from flaremq.model.message import StoredMessage
from flaremq.model.topic import QUEUE_TYPE, QUEUE_TYPE_BATCH, TopicConfig
from flaremq.protocol.codes import ONE_WAY, RequestCode, ResponseCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.store.settings import BrokerRole, FlushDisk
from flaremq.testing.clock import ManualClock

TOPIC = "TopicTest"
WHERE = ("msgId", "queueId", "queueOffset", "transactionId", "recallHandle")


def numbered(value: str, body: bytes = b"hello", *, more: str = "", key: str = "U", **fields: str) -> Command:
    text = f"UNIQ_KEY\x01{key}\x02PRODUCER_SEQ\x01{value}\x02{more}"
    return replace(a_send(**{"b": TOPIC, "i": text, **fields}), body=body)


def place(answer: Command) -> list[str | None]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [answer.fields.get(name) for name in WHERE]


def is_repeated(answer: Command) -> bool:
    return answer.fields.get("repeated") == "true"


def sent(desk: DeskBench) -> list[StoredMessage]:
    return [each for each in desk.messages() if each.get("PRODUCER_SEQ")]


def windows_of(desk: DeskBench) -> Deduplication:
    (found,) = (feature for feature in desk.made.inner if isinstance(feature, Deduplication))
    return found


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskBench]:
    async with a_desk(tmp_path, timer_enabled=True) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        yield desk


# What is repeated.


@pytest.mark.parametrize("serialize", SerializeType)
async def test_a_repeated_send_gets_the_first_receipt_and_is_not_stored(
    desk: DeskBench, serialize: SerializeType
) -> None:
    send = replace(numbered("p:1"), serialize_type=serialize)
    (first,) = await desk.ask(send)
    (again,) = await desk.ask(send)
    assert place(again) == place(first)
    assert (is_repeated(first), is_repeated(again)) == (False, True)
    assert len(sent(desk)) == 1


async def test_a_repeated_send_in_the_same_turn_is_not_stored(desk: DeskBench) -> None:
    answers = await desk.ask(numbered("p:1"), numbered("p:2", b"other"), numbered("p:1"), numbered("q:1"))
    assert [is_repeated(answer) for answer in answers] == [False, False, True, False]
    assert place(answers[2]) == place(answers[0])
    assert len(sent(desk)) == 3


async def test_the_first_id_is_in_the_receipt_of_a_new_send_with_the_same_number(desk: DeskBench) -> None:
    await desk.ask(numbered("p:1", key="first"))
    (again,) = await desk.ask(numbered("p:1", key="second", e="0"))
    assert (again.fields["transactionId"], again.fields["queueId"]) == ("first", "3")


async def test_messages_without_a_number_are_never_compared(desk: DeskBench) -> None:
    send = a_send(b=TOPIC)
    answers = await desk.ask(send, send, send)
    assert len({answer.fields["msgId"] for answer in answers}) == 3


async def test_with_the_window_off_nothing_is_compared(tmp_path: Path) -> None:
    async with a_desk(tmp_path, broker={"deduplication_count": 0}) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        answers = await desk.ask(numbered("p:1"), numbered("p:1"), numbered("no number at all"))
        assert [answer.code for answer in answers] == [0, 0, 0]
        assert len(sent(desk)) == 3


async def test_the_window_can_be_switched_off_and_on_while_the_broker_runs(desk: DeskBench) -> None:
    await desk.ask(numbered("p:1"))
    for count, repeated in ((0, False), (16, False), (16, True)):
        desk.broker.configuration.update({"deduplicationWindowCount": str(count)})
        (answer,) = await desk.ask(numbered("p:1"))
        assert is_repeated(answer) is repeated


async def test_a_one_way_send_is_stored_once(desk: DeskBench) -> None:
    send = replace(numbered("p:1"), flag=ONE_WAY)
    assert await desk.ask(send, send) == []
    assert len(sent(desk)) == 1


async def test_an_answer_that_was_lost_on_one_connection_comes_on_another(desk: DeskBench) -> None:
    (first,) = await desk.ask(numbered("p:1"), line=Line(5001))
    (again,) = await desk.ask(numbered("p:1"), line=Line(5002))
    assert place(again) == place(first)


LATER = {
    "delay level": "DELAY\x013\x02",
    "timer": "TIMER_DELAY_SEC\x01100\x02",
    "half": "TRAN_MSG\x01true\x02PGROUP\x01pg\x02",
}


@pytest.mark.parametrize("kind", LATER)
async def test_a_message_that_waits_is_stored_once_and_keeps_its_handles(desk: DeskBench, kind: str) -> None:
    (first,) = await desk.ask(numbered("p:1", more=LATER[kind], f="4" if kind == "half" else "0"))
    (again,) = await desk.ask(
        numbered("p:1", more=LATER[kind], key="other", f="4" if kind == "half" else "0")
    )
    assert place(again) == place(first)
    assert (again.fields.get("recallHandle") is None) == (kind != "timer")
    assert len(sent(desk)) == 1


async def test_a_body_that_was_compressed_in_another_way_is_the_same(desk: DeskBench) -> None:
    body = b"hello " * 1000
    (first,) = await desk.ask(numbered("p:1", zlib.compress(body, 1), f="769"))
    (again,) = await desk.ask(numbered("p:1", zlib.compress(body, 9), f="769"))
    (plain,) = await desk.ask(numbered("p:1", body))
    assert place(again) == place(plain) == place(first)


@pytest.mark.parametrize(
    "other", [numbered("p:1", b"another"), numbered("p:1", b="Another"), numbered("p:1", b"x", f="769")]
)
async def test_another_message_with_the_same_number_is_refused(desk: DeskBench, other: Command) -> None:
    desk.tables.topics.put(TopicConfig("Another", 4, 4))
    await desk.ask(numbered("p:1"))
    (answer,) = await desk.ask(other)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark is not None and "stored already" in answer.remark and "'p'" in answer.remark
    assert len(sent(desk)) == 1


@pytest.mark.parametrize("value", ["p", "p:-1", "p:01", f"{'p' * 65}:1", "p p:1", "p:9223372036854775808"])
async def test_a_number_that_makes_no_sense_is_refused(desk: DeskBench, value: str) -> None:
    (answer,) = await desk.ask(numbered(value))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark is not None and "expected <producer id>:<sequence>" in answer.remark
    assert not desk.messages()


async def test_copies_are_not_compared(desk: DeskBench) -> None:
    await desk.ask(numbered("p:1"))
    answers = await desk.ask(numbered("p:1", j="1"), numbered("p:1", more="REAL_TOPIC\x01x\x02"))
    assert not any(map(is_repeated, answers))
    assert len([each for each in desk.messages() if each.topic == TOPIC]) == 3


# The window.


async def test_a_message_from_before_the_window_is_refused(tmp_path: Path) -> None:
    async with a_desk(tmp_path, broker={"deduplication_count": 16}) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        for number in range(17):
            await desk.ask(numbered(f"p:{number}"))
        (answer,) = await desk.ask(numbered("p:0"))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        for word in ("sequence 0", "newest is 16", "up to 16 messages", "deduplicationWindowCount"):
            assert word in (answer.remark or "")
        assert is_repeated((await desk.ask(numbered("p:1")))[0])


async def test_a_message_is_kept_for_its_time_even_if_more_come_than_a_small_window_has_room_for(
    tmp_path: Path,
) -> None:
    async with a_desk(tmp_path, broker={"deduplication_count": 1024, "deduplication_span_s": 10}) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await desk.ask(*(numbered(f"p:{number}") for number in range(300)))
        assert is_repeated((await desk.ask(numbered("p:0")))[0])


async def test_producers_beyond_the_limit_are_refused_until_an_idle_one_is_forgotten(tmp_path: Path) -> None:
    async with a_desk(
        tmp_path, broker={"deduplication_producers_max": 1, "deduplication_span_s": 10}
    ) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await desk.ask(numbered("p:1"))
        (refused,) = await desk.ask(numbered("q:1"))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert refused.remark is not None and "deduplicationProducersMax" in refused.remark
        desk.clock.advance_ms(11_000)
        (taken,) = await desk.ask(numbered("q:1"))
        assert taken.code == ResponseCode.SUCCESS


# Batches.


def a_batch(*parts: tuple[str | None, bytes], **fields: str) -> Command:
    texts = [
        f"UNIQ_KEY\x01{number}\x02" + ("" if value is None else f"PRODUCER_SEQ\x01{value}\x02")
        for number, (value, _) in enumerate(parts)
    ]
    body = join_batch([body for _, body in parts], texts)
    fields = {"b": TOPIC, "m": "true", "i": "WAIT\x01true\x02", **fields}
    return replace(a_send(**fields), code=RequestCode.SEND_BATCH_MESSAGE, body=body)


async def test_a_repeated_batch_is_stored_once(desk: DeskBench) -> None:
    batch = a_batch(("p:1", b"a"), ("p:2", b"b"), ("p:3", b"c"))
    (first,) = await desk.ask(batch)
    (again,) = await desk.ask(batch)
    assert place(again) == place(first)
    assert is_repeated(again)
    assert [each.body for each in sent(desk)] == [b"a", b"b", b"c"]
    assert is_repeated((await desk.ask(numbered("p:2", b"b")))[0])


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (a_batch(("p:1", b"a"), ("p:9", b"b")), "1 of the 2 messages of a batch are stored already"),
        (a_batch(("p:5", b"a"), (None, b"b")), "only some parts of a batch"),
        (a_batch(("p:5", b"a"), ("p:5", b"b")), "the same sequence"),
        (a_batch((None, b"a"), i="PRODUCER_SEQ\x01p:7\x02"), "expected it in the properties of every"),
        (a_batch(("p:1", b"z"), ("p:2", b"b")), "with another body"),
    ],
)
async def test_a_batch_that_cannot_be_compared_is_refused(desk: DeskBench, batch: Command, why: str) -> None:
    await desk.ask(a_batch(("p:1", b"a"), ("p:2", b"b")))
    (answer,) = await desk.ask(batch)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert why in (answer.remark or "")
    assert len(sent(desk)) == 2


async def test_a_batch_without_numbers_is_not_compared(desk: DeskBench) -> None:
    batch = a_batch((None, b"a PRODUCER_SEQ in a body"), (None, b"b"))
    answers = await desk.ask(batch, batch)
    assert len({answer.fields["msgId"] for answer in answers}) == 2


async def test_a_batch_that_is_stored_as_one_record_goes_by_its_first_message(tmp_path: Path) -> None:
    batch = a_batch(("p:1", b"a"), ("p:2", b"b"), i="UNIQ_KEY\x01B\x02")
    async with a_desk(tmp_path) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4, attributes={QUEUE_TYPE: QUEUE_TYPE_BATCH}))
        first, again = await desk.ask(batch, batch)
        assert place(again) == place(first)
        assert again.fields["batchUniqId"] == first.fields["batchUniqId"]
    async with a_desk(tmp_path) as desk:
        (later,) = await desk.ask(batch)
        assert place(later) == place(first)


# Safety.


async def test_a_repeated_send_waits_until_the_first_is_on_the_disk(tmp_path: Path) -> None:
    async with a_desk(tmp_path, flush_disk=FlushDisk.SYNC_FLUSH) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        flush = desk.store.log.flush
        desk.store.log.flush = lambda *_: None  # type: ignore[method-assign]
        lines = Line(5001), Line(5002)
        desk.deliver(lines[0], numbered("p:1"))
        desk.deliver(lines[1], numbered("p:1"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [line.read() for line in lines] == [[], []]
        desk.store.log.flush = flush  # type: ignore[method-assign]
        desk.store.workers.log_flusher.put()
        await desk.acks.drain()
        (first,), (again,) = lines[0].read(), lines[1].read()
        assert place(again) == place(first)
        assert (lines[0].under_way, lines[1].under_way) == (0, 0)


async def test_a_refused_message_is_not_remembered(desk: DeskBench) -> None:
    (refused,) = await desk.ask(numbered("p:1", b"x" * 5_000_000))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    (taken,) = await desk.ask(numbered("p:1"))
    assert place(taken)
    assert not is_repeated(taken)


async def test_repeated_sends_are_counted(desk: DeskBench) -> None:
    await desk.ask(numbered("p:1"), numbered("p:1"), numbered("p:1"))
    assert windows_of(desk).figures() == {"deduplicationProducers": "1"}
    assert desk.broker.stats.rates.put_repeated == 2
    assert desk.broker.stats.rates.put == 1


# After a restart.

MESSAGES = [
    numbered("p:1"),
    numbered("p:2", more=LATER["delay level"]),
    numbered("p:3", more=LATER["timer"]),
    numbered("p:4", more=LATER["half"], f="4"),
    a_batch(("q:1", b"a"), ("q:2", b"b")),
]


MARKERS = {
    "kept": '{"walkFrom": 0}',
    "lost": None,
    "damaged": '{"walkFrom": 7',
    "of another kind": '{"walkFrom": "0"}',
    "between records": '{"walkFrom": 7}',
    "beyond the log": '{"walkFrom": 1000000000}',
}


@pytest.mark.parametrize("marker", MARKERS)
async def test_the_window_survives_a_restart(tmp_path: Path, marker: str) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path, clock=clock) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        firsts = await desk.ask(*MESSAGES)
    path = tmp_path / "config" / MARKER
    assert json.loads(path.read_text()) == {"walkFrom": 0}
    text = MARKERS[marker]
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    async with a_desk(tmp_path, clock=clock) as desk:
        again = await desk.ask(*MESSAGES)
        assert list(map(place, again)) == list(map(place, firsts))
        assert all(map(is_repeated, again))


async def test_a_broker_without_numbered_messages_walks_nothing(tmp_path: Path) -> None:
    async with a_desk(tmp_path) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await desk.ask(a_send(b=TOPIC))
        end = desk.store.log.end
    assert json.loads((tmp_path / "config" / MARKER).read_text()) == {"walkFrom": end}
    async with a_desk(tmp_path) as desk:
        assert windows_of(desk).walked == 0


async def test_the_log_is_walked_from_the_first_message_that_is_needed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path, clock=clock, broker={"deduplication_span_s": 10}) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await desk.ask(numbered("p:1"))
        clock.advance_ms(11_000)
        await desk.ask(numbered("p:2"), a_send(b=TOPIC))
    async with a_desk(tmp_path, clock=clock, broker={"deduplication_span_s": 10}) as desk:
        assert windows_of(desk).walked == 2
        assert is_repeated((await desk.ask(numbered("p:2")))[0])


@pytest.mark.parametrize("tidies", [False, True])
async def test_a_slave_that_becomes_the_master_knows_what_it_has_copied(tmp_path: Path, tidies: bool) -> None:
    """It had no numbered message when it started, and so noted that there was nothing to read."""
    clock = ManualClock()
    async with a_desk(tmp_path / "master", clock=clock) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        (first,) = await desk.ask(numbered("p:1"))
        copied = bytes(desk.store.log.slice(0, desk.store.log.end) or b"")
    async with a_desk(tmp_path / "slave", clock=clock, role=BrokerRole.SLAVE) as desk:
        desk.store.append_raw(0, memoryview(copied))
        if tidies:
            (task,) = windows_of(desk).tasks()
            work = task.work()
            assert isawaitable(work)
            await work
    async with a_desk(tmp_path / "slave", clock=clock) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        (again,) = await desk.ask(numbered("p:1"))
        assert is_repeated(again)
        assert place(again)[1:3] == place(first)[1:3]


async def test_once_all_producers_are_forgotten_a_start_walks_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    async with a_desk(tmp_path, clock=clock) as desk:
        desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
        await desk.ask(numbered("p:1"))
        clock.advance_ms(600_001)
        (task,) = windows_of(desk).tasks()
        work = task.work()
        assert isawaitable(work)
        await work
        path, end = tmp_path / "config" / MARKER, desk.store.log.end
        assert json.loads(path.read_text()) == {"walkFrom": end}
        (new,) = await desk.ask(numbered("p:1"))
        assert not is_repeated(new)


async def test_a_marker_that_cannot_be_written_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config" / MARKER).mkdir(parents=True)
    for repeated in (False, True):
        async with a_desk(tmp_path) as desk:
            desk.tables.topics.put(TopicConfig(TOPIC, 4, 4))
            (answer,) = await desk.ask(numbered("p:1"))
            assert is_repeated(answer) is repeated
    assert "the next start reads more of the log" in caplog.text


async def test_a_message_that_has_left_the_log_is_answered_from_the_window(desk: DeskBench) -> None:
    (first,) = await desk.ask(numbered("p:1"))
    desk.store.reader.record = lambda *_: None  # type: ignore[method-assign]
    (again,) = await desk.ask(numbered("p:1"))
    assert place(again) == place(first)
