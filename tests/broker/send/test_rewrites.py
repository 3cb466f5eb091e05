"""Rules on the way into the log: asked in order, each may send a message elsewhere or keep it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.clients import Desk, desk
from tests.protocol.samples import a_send

from flaremq.base.errors import NotServed
from flaremq.broker.offload import Offload
from flaremq.broker.send.deduplication import Deduplication
from flaremq.broker.send.plain import PlainSends
from flaremq.broker.send.rewrites import Arrival, Rewrite
from flaremq.model.record import decode_many
from flaremq.model.topic import TopicConfig
from flaremq.store.drafts import NewMessage

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
SEND = replace(a_send(b="Orders", e="1", i="KEYS\x01k\x02"), body=b"hello")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made, made.store:
        made.topics.put(TopicConfig("Orders", 4, 4))
        yield made


def sends(made: Desk, *rewrites: Rewrite) -> PlainSends:
    once = Deduplication(made.live, made.store, made.store.settings.root, Offload(1), made.clock)
    return PlainSends(made.live, made.store, HOST, made.tables, made.clock, rewrites=rewrites, once=once)


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
