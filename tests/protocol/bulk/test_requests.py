"""Requests of one code, many at once: where their fields lie."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.bulk.turns import a_turn, deliveries
from tests.protocol.samples import a_pull, a_send

from flaremq.protocol.bulk import burst
from flaremq.protocol.bulk.columns import Frame, Kind, Plain
from flaremq.protocol.codes import RESPONSE, RequestCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.protocol.bulk._requests")
CODE = RequestCode.END_TRANSACTION
LETTERS = tuple(bytes([letter]) for letter in b"abcdefghijklmn")
NAMES = (b"producerGroup", b"msgId", b"commitLogOffset")


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def an_end(**fields: str) -> Command:
    return Command(code=CODE, opaque=5, ext_fields={"producerGroup": "pg", "commitLogOffset": "77", **fields})


def parsed(twin: Any, *delivered: bytes, names: tuple[bytes, ...] = NAMES) -> tuple[Any, Any]:
    turn = a_turn(burst, *delivered)
    rows = twin.parse_requests(turn.data, turn.chunks, turn.frames, turn.pairs, (CODE,), names)
    width = 1 + 3 * len(names)
    found = []
    for r in range(0, len(rows), width):
        places = zip(rows[r + 1 : r + width : 3], rows[r + 2 : r + width : 3], strict=True)
        found.append((rows[r], [turn.data[at : at + size] if at >= 0 else None for at, size in places]))
    return turn, found


@pytest.mark.parametrize("serialize", SerializeType)
def test_a_row_tells_where_each_field_lies(twin: Any, serialize: SerializeType) -> None:
    end = Command(code=CODE, ext_fields=an_end().fields, serialize_type=serialize)
    _, rows = parsed(twin, encode_frame(a_pull()) + encode_frame(end), encode_frame(an_end(msgId="m")))
    assert rows == [(1, [b"pg", None, b"77"]), (2, [b"pg", b"m", b"77"])]


def test_the_kind_of_a_value_is_told(twin: Any) -> None:
    turn = a_turn(burst, encode_frame(an_end(msgId="a\x01b")))
    rows = twin.parse_requests(turn.data, turn.chunks, turn.frames, turn.pairs, (CODE,), NAMES)
    assert list(rows[3::3]) == [Kind.TEXT, Kind.ESCAPED, Kind.TEXT]


def test_a_request_with_another_field_goes_to_the_plain_lane(twin: Any) -> None:
    turn, rows = parsed(twin, encode_frame(an_end(AccessKey="ak")), encode_frame(an_end(Signature="")))
    assert [turn.frame(row)[Frame.PLAIN] for row in (0, 1)] == [Plain.FIELDS, Plain.NO]
    assert [row for row, _ in rows] == [1]


def test_other_codes_and_answers_are_left_as_they_are(twin: Any) -> None:
    answer = Command(code=CODE, flag=RESPONSE, ext_fields=an_end().fields)
    turn, rows = parsed(twin, encode_frame(a_send()), encode_frame(answer))
    assert rows == []
    assert [turn.frame(row)[Frame.PLAIN] for row in (0, 1)] == [Plain.NO, Plain.NO]


def test_too_many_names_are_a_bug_of_the_caller(twin: Any) -> None:
    with pytest.raises(ValueError, match="33 names, at most 32 are possible"):
        parsed(twin, b"", names=tuple(b"%d" % n for n in range(33)))


def test_rows_that_speak_of_what_is_not_there_are_a_bug_of_the_caller(twin: Any) -> None:
    turn = a_turn(burst, encode_frame(an_end()))
    for place, value in enumerate((-1, -5, 1 << 62, (1 << 63) - 1)):
        pairs = array("q", turn.pairs)
        pairs[place] = value
        with pytest.raises(ValueError, match="speaks of what is not there"):
            twin.parse_requests(turn.data, turn.chunks, turn.frames, pairs, (CODE,), NAMES)


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(deliveries, st.sampled_from([(b"producerGroup", b"topic"), LETTERS]))
def test_twins_agree_on_any_bytes(delivered: list[bytes], names: tuple[bytes, ...]) -> None:
    codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE)
    seen = []
    for module in TWINS:
        turn = a_turn(burst, *delivered)
        rows = module.parse_requests(turn.data, turn.chunks, turn.frames, turn.pairs, codes, names)
        seen.append((rows, turn.frames))
    assert seen[0] == seen[1]
