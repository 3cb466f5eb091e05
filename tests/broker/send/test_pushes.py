"""What replies say and how they are pushed: both twins read and write the same."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.broker.send.pushes import NAMES
from flaremq.protocol.bulk.columns import Frame, Kind, Request
from flaremq.protocol.frame import FrameDecoder
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.broker.send._pushes")
ATTRIBUTES = (
    *(
        "frame",
        "topic",
        "queue_id",
        "flag",
        "sys_flag",
        "born_timestamp_ms",
        "properties",
        "body",
        "client_id",
    ),
    *("born_host", "reconsume_times", "prepared_transaction_offset"),
)
ORDINARY = rb"CORRELATION_ID\u0001c1\u0002REPLY_TO_CLIENT\u0001me@1\u0002UNIQ_KEY\u0001U1\u0002"
USUAL = (
    *(b"askers", b"Orders", b"TBW102", b"8", b"3", b"1", b"1700000000000", b"0", ORDINARY),
    *(b"0", b"false", b"16", b"false", b"broker-a"),
)

parts = st.sampled_from(
    [
        rb"\u0001",
        rb"\u0002",
        b"UNIQ_KEY",
        b"REPLY_TO_CLIENT",
        b"DELAY",
        b"TIMER_X",
        b"__x",
        b"v",
        b"\\",
        rb"\\",
    ]
)
strange = st.lists(parts, max_size=10).map(b"".join)
pairs = st.lists(
    st.tuples(
        st.sampled_from([b"UNIQ_KEY", b"UNIQ_KEY", b"REPLY_TO_CLIENT", b"A", b"TRAN_MSG", b"INNER_NUM"]),
        st.sampled_from([b"U1", b"me@1", rb"a\u0001b", b""]),
    ),
    max_size=5,
).map(lambda found: rb"\u0002".join(rb"%b\u0001%b" % pair for pair in found))
values = st.sampled_from(
    [b"", b"0", b"00", b"7", b"true", b"false", b"123456789", b"1234567890", b"9" * 18, b"1x"]
)


def a_turn(replies: list[tuple[tuple[bytes | None, ...], int, int, bytes]]) -> tuple[bytes, Any, Any]:
    """Their bytes, frames and rows: fields, kind of the properties, serialization and body of each."""
    data, frames, rows = bytearray(), array("q"), array("q")
    for number, (texts, kind, serialize, body) in enumerate(replies):
        row = [number, *Request.MISSING * len(NAMES)]
        for field, text in enumerate(texts):
            if text is not None:
                row[1 + 3 * field : 4 + 3 * field] = [len(data), len(text), kind if field == 8 else Kind.TEXT]
                data += text
        frame = [0] * Frame.WIDTH
        frame[Frame.BODY_AT], frame[Frame.BODY_SIZE], frame[Frame.SERIALIZE] = len(data), len(body), serialize
        data += body
        rows.extend(row)
        frames.extend(frame)
    return bytes(data), frames, rows


def read(twin: ModuleType, turn: tuple[bytes, Any, Any]) -> list[Any]:
    found = []
    for frame, draft in twin.read_replies(*turn, b"TAIL\x01t\x02"):
        said = None
        if draft is not None:
            said = [getattr(draft, name) for name in ATTRIBUTES]
            said.append(draft.push(-7, 1_700_000_000_001, b"10.0.0.9:5000", b"10.0.0.1:10911"))
        found.append((frame, said))
    return found


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 13), st.one_of(st.none(), values), max_size=2),
            st.one_of(st.just(ORDINARY), st.just(ORDINARY.removesuffix(rb"\u0002")), strange, pairs),
            st.sampled_from([Kind.ESCAPED, Kind.ESCAPED, Kind.TEXT, Kind.WIDE, Kind.ESCAPED | Kind.WIDE]),
            st.sampled_from([0, 0, 0, 1]),
            st.binary(max_size=10),
        ),
        max_size=4,
    )
)
def test_twins_read_and_push_the_same(
    given: list[tuple[dict[int, bytes | None], bytes, int, int, bytes]],
) -> None:
    replies = []
    for changes, properties, kind, serialize, body in given:
        texts = [changes.get(field, usual) for field, usual in enumerate(USUAL)]
        if 8 not in changes:
            texts[8] = properties
        replies.append((tuple(texts), kind, serialize, body))
    found = [read(twin, a_turn(replies)) for twin in TWINS]
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("twin", TWINS, ids=twin_name)
def test_a_push_says_what_the_reply_said_and_when_it_was_pushed(twin: ModuleType) -> None:
    ((_, said),) = read(twin, a_turn([(USUAL, Kind.ESCAPED, 0, b"yes")]))
    assert said[:4] == [0, b"Orders", 3, 0]
    assert said[6] == ORDINARY.replace(rb"\u0001", b"\x01").replace(rb"\u0002", b"\x02") + b"TAIL\x01t\x02"
    assert (said[7], said[8]) == (b"yes", b"me@1")
    (pushed,) = FrameDecoder().feed(said[-1])
    assert (pushed.opaque, pushed.body, pushed.fields["topic"]) == (-7, b"yes", "Orders")
    assert pushed.fields["properties"].endswith("UNIQ_KEY\x01U1\x02PUSH_REPLY_TIME\x011700000000001\x02")
    assert (pushed.fields["bornHost"], pushed.fields["storeHost"]) == ("10.0.0.9:5000", "10.0.0.1:10911")


@pytest.mark.parametrize("twin", TWINS, ids=twin_name)
def test_more_properties_than_a_reply_has_are_read_alone(twin: ModuleType) -> None:
    for count, is_taken in ((29, True), (30, False)):
        properties = ORDINARY + b"".join(rb"P%d\u0001v\u0002" % number for number in range(count))
        ((_, said),) = read(twin, a_turn([((*USUAL[:8], properties, *USUAL[9:]), Kind.ESCAPED, 0, b"yes")]))
        assert (said is not None) == is_taken
