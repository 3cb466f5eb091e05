"""Messages that wait, many at once: both twins change the rows in the same way."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.broker.send.redirect import WaitingPlace
from flaremq.model.columns import Draft
from flaremq.model.timers import Handle, handle_lead
from flaremq.protocol.bulk.columns import Send
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.broker.send._redirect")
TAIL = b"CLUSTER\x01c\x02"


def a_place(**changes: Any) -> WaitingPlace:
    plain = WaitingPlace(3, 5, 4, 1, 17, b"REAL_TOPIC\x01T\x02", False, b"")
    return plain._replace(**changes)


def some_rows(messages: list[tuple[bytes, bytes]]) -> tuple[bytearray, array[int], array[int]]:
    """Heads, drafts and sends of messages with these properties and keys."""
    heads, drafts, sends = bytearray(b"head:WAIT"), array("q"), array("q")
    for properties, key in messages:
        draft, send = [0] * Draft.WIDTH, [0] * Send.WIDTH
        draft[Draft.PROPERTIES_AT], draft[Draft.PROPERTIES_SIZE] = len(heads), len(properties) + len(TAIL)
        heads += properties + TAIL
        send[Send.UNIQUE_KEY_AT], send[Send.UNIQUE_KEY_SIZE] = len(heads), len(key)
        heads += key
        drafts.extend(draft)
        sends.extend(send)
    return heads, drafts, sends


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_message_waits_with_what_is_added_to_it(twin: Any) -> None:
    heads, drafts, sends = some_rows([(b"A\x011\x02", b"K0"), (b"B\x012\x02", b"K1")])
    assert twin.redirect(heads, drafts, sends, [1], a_place(names_transaction=True), len(TAIL)) == []
    d = Draft.WIDTH
    assert list(drafts[:d]) == list(some_rows([(b"A\x011\x02", b"K0")])[1])
    assert (drafts[d + Draft.QUEUE_ID], drafts[d + Draft.QUEUE]) == (1, 17)
    topic = drafts[d + Draft.TOPIC_AT], drafts[d + Draft.TOPIC_SIZE]
    assert (*topic, sends[Send.WIDTH + Send.TARGET]) == (5, 4, 3)
    at, size = drafts[d + Draft.PROPERTIES_AT], drafts[d + Draft.PROPERTIES_SIZE]
    added = b"B\x012\x02REAL_TOPIC\x01T\x02__transactionId__\x01K1\x02" + TAIL
    assert bytes(heads[at : at + size]) == added
    assert sends[Send.WIDTH + Send.HANDLE_SIZE] == 0


@pytest.mark.parametrize("key", ["", "K", "KE", "KEY", "7F00000100002A9F0000000000000000"])
def test_a_timer_message_gets_what_cancels_it(twin: Any, key: str) -> None:
    heads, drafts, sends = some_rows([(b"A\x011\x02", key.encode())])
    place = a_place(handle=handle_lead("Orders", "broker-a", 1_700_000_000_001))
    assert twin.redirect(heads, drafts, sends, [0], place, len(TAIL)) == []
    at, size = sends[Send.HANDLE_AT], sends[Send.HANDLE_SIZE]
    assert heads[at : at + size].decode() == str(Handle("Orders", "broker-a", 1_700_000_000_001, key))


def test_a_message_whose_properties_would_be_too_long_is_left(twin: Any) -> None:
    room = 32767 - len(TAIL) - len(a_place().added)
    heads, drafts, sends = some_rows([(b"x" * room, b"K"), (b"x" * (room + 1), b"K")])
    before = drafts[Draft.WIDTH :]
    assert twin.redirect(heads, drafts, sends, [0, 1], a_place(), len(TAIL)) == [1]
    assert drafts[Draft.PROPERTIES_SIZE] == 32767
    assert drafts[Draft.WIDTH :] == before


def test_rows_that_speak_of_what_is_not_there_are_a_bug_of_the_caller(twin: Any) -> None:
    for column, value in ((Draft.PROPERTIES_AT, -1), (Draft.PROPERTIES_SIZE, 10_000)):
        heads, drafts, sends = some_rows([(b"A\x011\x02", b"K")])
        drafts[column] = value
        with pytest.raises(ValueError, match="row 0 speaks of what is not there"):
            twin.redirect(heads, drafts, sends, [0], a_place(), len(TAIL))


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(
    messages=st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), min_size=1, max_size=5),
    names_transaction=st.booleans(),
    handle=st.binary(max_size=30),
    chosen=st.sets(st.integers(0, 4)),
)
def test_twins_give_the_same_bytes(
    messages: list[tuple[bytes, bytes]], names_transaction: bool, handle: bytes, chosen: set[int]
) -> None:
    place = a_place(names_transaction=names_transaction, handle=handle)
    rows = sorted(row for row in chosen if row < len(messages))
    seen = []
    for module in TWINS:
        heads, drafts, sends = some_rows(messages)
        left = module.redirect(heads, drafts, sends, rows, place, len(TAIL))
        seen.append((left, heads, drafts, sends))
    assert seen[0] == seen[1]
