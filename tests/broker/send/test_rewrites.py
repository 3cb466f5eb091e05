"""Rules on the way into the log: asked in order, each may send a message elsewhere or keep it out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clients import Desk, desk
from tests.broker.desks import DeskBench, a_desk
from tests.protocol.samples import a_send

from flaremq.base.errors import NotServed
from flaremq.broker.offload import Offload
from flaremq.broker.role import Role
from flaremq.broker.send.deduplication import Deduplication
from flaremq.broker.send.plain import PlainSends
from flaremq.broker.send.rewrites import Arrival, Rewrite
from flaremq.model.properties import MARKS
from flaremq.model.record import decode_many
from flaremq.model.topic import TopicConfig
from flaremq.protocol.codes import RequestCode, ResponseCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.store.drafts import NewMessage
from flaremq.testing.fakes.builders import a_message, batch_of

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
SEND = replace(a_send(b="Orders", e="1", i="KEYS\x01k\x02"), body=b"hello")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made, made.store:
        made.topics.put(TopicConfig("Orders", 4, 4))
        yield made


def sends(made: Desk, *rewrites: Rewrite) -> PlainSends:
    once = Deduplication(made.live, made.store, made.store.settings.root, Offload(1), made.clock)
    return PlainSends(
        made.live,
        made.store,
        HOST,
        made.tables,
        made.clock,
        rewrites=rewrites,
        once=once,
        role=Role(is_slave=False),
    )


def stored(made: Desk) -> list[tuple[str, int, dict[str, str]]]:
    view = made.store.log.slice(0, made.store.log.readable_end)
    return [(each.topic, each.queue_id, each.properties) for each in decode_many(bytes(view or b""))]


def elsewhere(message: NewMessage, known: dict[str, str], arrival: Arrival) -> NewMessage:
    known["REAL_TOPIC"] = arrival.header.topic
    return replace(message, topic=b"Waiting", queue_id=7)


def test_a_message_is_stored_where_a_rewrite_sends_it(made: Desk) -> None:
    sent = sends(made, elsewhere).take(HOST, SEND)
    ((topic, queue_id, properties),) = stored(made)
    assert (topic, queue_id, properties["REAL_TOPIC"], properties["KEYS"]) == ("Waiting", 7, "Orders", "k")
    assert sent.topic == "Waiting"


def test_rewrites_see_what_those_before_them_made(made: Desk) -> None:
    seen: list[bytes] = []

    def look(message: NewMessage, _known: dict[str, str], _arrival: Arrival) -> NewMessage:
        seen.append(message.topic)
        return message

    sends(made, look, elsewhere, look).take(HOST, SEND)
    assert seen == [b"Orders", b"Waiting"]


def test_one_that_refuses_keeps_a_message_out_of_the_log(made: Desk) -> None:
    def refuse(_message: NewMessage, _known: dict[str, str], _arrival: Arrival) -> NewMessage:
        raise NotServed("not today")

    def never(message: NewMessage, _known: dict[str, str], _arrival: Arrival) -> NewMessage:
        raise AssertionError(message)

    with pytest.raises(NotServed, match="not today"):
        sends(made, refuse, never).take(HOST, SEND)
    assert stored(made) == []


# What only brokers may note.

NUMBERED = "UNIQ_KEY\x01U\x02PRODUCER_SEQ\x01p:1\x02"
MARKED = "".join(f"{name}\x017\x02" for name in sorted(MARKS)) + "TIMER_OUT_MS\x017\x02KEYS\x01k\x02"


@asynccontextmanager
async def a_broker(folder: Path, **store: Any) -> AsyncIterator[DeskBench]:
    async with a_desk(folder, **store) as desk:
        desk.tables.topics.put(TopicConfig("Orders", 4, 4))
        yield desk


async def refusal(desk: DeskBench, request: Command) -> str:
    """Why nothing was stored."""
    (answer,) = await desk.ask(request)
    assert (answer.code, desk.messages()) == (ResponseCode.MESSAGE_ILLEGAL, [])
    return answer.remark or ""


@pytest.mark.parametrize("key", ["UNIQ_KEY\x01U\x02", ""], ids=["with an id", "without one"])
@pytest.mark.parametrize("form", SerializeType)
async def test_a_client_cannot_send_what_only_brokers_note(
    tmp_path: Path, key: str, form: SerializeType
) -> None:
    async with a_broker(tmp_path) as desk:
        for name in sorted(MARKS):
            text = f"{key}{name}\x017\x02KEYS\x01k\x02"
            await desk.ask(replace(SEND, ext_fields={**SEND.fields, "i": text}, serialize_type=form))
        found = desk.messages()
    assert len(found) == len(MARKS)
    for each in found:
        assert each.keys == ("k",)
        assert not MARKS & each.properties.keys()


async def test_a_prepared_or_delayed_message_has_the_notes_of_this_broker(tmp_path: Path) -> None:
    async with a_broker(tmp_path) as desk:
        for wish in ("TRAN_MSG\x01true\x02PGROUP\x01pg\x02", "DELAY\x013\x02", "TIMER_DELAY_SEC\x015\x02"):
            text = f"UNIQ_KEY\x01U\x02{wish}{MARKED}"
            (answer,) = await desk.ask(replace(SEND, ext_fields={**SEND.fields, "i": text}))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        found = desk.messages()
    assert [each.topic for each in found] == [
        "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
    ]  # fmt: skip
    for each in found:
        assert (each.properties["REAL_TOPIC"], each.properties["REAL_QID"]) == ("Orders", "1")
        assert MARKS & each.properties.keys() == {"REAL_TOPIC", "REAL_QID"}
        assert each.properties.get("TIMER_OUT_MS") != "7"


async def test_a_copy_of_a_numbered_message_has_no_number(tmp_path: Path) -> None:
    """It is not what the producer of that number has sent, also not after a restart."""
    copy = replace(SEND, ext_fields={**SEND.fields, "i": f"{NUMBERED}REAL_TOPIC\x01Orders\x02"})
    first = replace(SEND, ext_fields={**SEND.fields, "i": NUMBERED}, opaque=8)
    async with a_broker(tmp_path) as desk:
        await desk.ask(copy)
    async with a_broker(tmp_path) as desk:
        (answer,) = await desk.ask(first)
        assert "repeated" not in answer.fields
        assert len(desk.messages()) == 2


async def test_a_batch_that_names_places_in_light_queues_is_refused(tmp_path: Path) -> None:
    marked = a_message(properties=b"INNER_MULTI_QUEUE_OFFSET\x015\x02")
    told = a_message(b"INNER_MULTI_QUEUE_OFFSET\x015\x02", properties=b"KEYS\x01k\x02")
    async with a_broker(tmp_path) as desk:
        batch = replace(a_send(b="Orders", m="true"), code=RequestCode.SEND_BATCH_MESSAGE)
        remark = await refusal(desk, replace(batch, body=batch_of([told, marked]).body))
        assert "INNER_MULTI_QUEUE_OFFSET" in remark
        (answer,) = await desk.ask(replace(batch, body=batch_of([told, told]).body))
        assert answer.code == ResponseCode.SUCCESS, "a body may say what it likes"


@pytest.mark.parametrize(
    "names", ["other,%LMQ%a", "%LMQ%a,", "%LMQ%a/b", "%LMQ%a,%LMQ%a", "%LMQ%" + "x" * 123]
)
async def test_names_that_are_no_light_queues_are_refused(tmp_path: Path, names: str) -> None:
    text = f"UNIQ_KEY\x01U\x02INNER_MULTI_DISPATCH\x01{names}\x02"
    async with a_broker(tmp_path, lmq_enabled=True) as desk:
        remark = await refusal(desk, replace(SEND, ext_fields={**SEND.fields, "i": text}))
        assert "expected different names of light queues" in remark
        good = text.replace(names, "%LMQ%a,%LMQ%b")
        (answer,) = await desk.ask(replace(SEND, ext_fields={**SEND.fields, "i": good}))
        assert answer.code == ResponseCode.SUCCESS
