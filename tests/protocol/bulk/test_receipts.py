"""Answers to sends by the many: where each message was stored, in columns."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.samples import samples
from tests.protocol.bulk.turns import Turn, a_turn, spoiled
from tests.protocol.samples import a_send

from flaremq.protocol.bulk import burst
from flaremq.protocol.bulk.columns import Frame, Plain, Stored
from flaremq.protocol.codes import RESPONSE, ResponseCode, SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.protocol.bulk._receipts")
FIELDS = {
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
    "msgId": "7F00000100002A9F0000000000000190",
    "queueId": "3",
    "queueOffset": "4294967296",
    "transactionId": "7F0000010E2E82B7B1BF51A226A40000",
}
REAL = [sample.frame for sample in samples() if sample.name.startswith("SEND_MESSAGE")]


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def an_answer(
    code: int = 0,
    body: bytes | None = None,
    serialize: SerializeType = SerializeType.JSON,
    flag: int = RESPONSE,
    **changes: str | None,
) -> bytes:
    found = {name: value for name, value in {**FIELDS, **changes}.items() if value is not None}
    return encode_frame(
        Command(code=code, opaque=7, flag=flag, ext_fields=found, body=body, serialize_type=serialize)
    )


def parsed(twin: Any, turn: Turn) -> array[int]:
    rows: array[int] = twin.parse_receipts(turn.data, turn.chunks, turn.frames, turn.pairs)
    return rows


@pytest.mark.parametrize("serialize", SerializeType)
def test_an_answer_becomes_a_row(twin: Any, serialize: SerializeType) -> None:
    turn = a_turn(burst, encode_frame(a_send()), an_answer(serialize=serialize))
    row = parsed(twin, turn)
    assert list(row[:5]) == [1, 1, 7, 3, 4294967296]
    at, size = row[Stored.ID_AT], row[Stored.ID_SIZE]
    assert turn.data[at : at + size].decode() == FIELDS["msgId"]
    at, size = row[Stored.REGION_AT], row[Stored.REGION_SIZE]
    assert turn.data[at : at + size].decode() == "DefaultRegion"


@pytest.mark.parametrize(
    "changes",
    [
        {"MSG_REGION": None},
        {"MSG_REGION": ""},
        {"TRACE_ON": "false"},
        {"TRACE_ON": "false", "MSG_REGION": None},
    ],
)
def test_an_answer_without_region_or_with_trace_off_has_none(twin: Any, changes: dict[str, Any]) -> None:
    row = parsed(twin, a_turn(burst, an_answer(**changes)))
    assert (row[Stored.REGION_AT], row[Stored.REGION_SIZE]) == (0, 0)


@pytest.mark.parametrize(
    "frame",
    [
        an_answer(ResponseCode.FLUSH_DISK_TIMEOUT),
        an_answer(ResponseCode.SYSTEM_BUSY),
        an_answer(body=b"more"),
        an_answer(flag=0),
        an_answer(msgId=None),
        an_answer(queueId="many"),
        an_answer(queueId="4294967296"),
        an_answer(queueOffset="99999999999999999999"),
        an_answer(recallHandle="djEg"),
        an_answer(msgId='"'),
        an_answer(MSG_REGION='"'),
    ],
)
def test_an_answer_that_says_more_or_less_is_left_to_the_plain_way(twin: Any, frame: bytes) -> None:
    turn = a_turn(burst, frame)
    assert not parsed(twin, turn)
    assert turn.frame(0)[Frame.PLAIN] in (Plain.NO, Plain.HEADER)


@given(
    st.lists(
        spoiled(
            st.sampled_from(
                [
                    *REAL,
                    *(an_answer(), an_answer(serialize=SerializeType.ROCKETMQ), an_answer(TRACE_ON="false")),
                    an_answer(MSG_REGION="", serialize=SerializeType.ROCKETMQ),
                ]
            )
        )
    )
)
def test_both_twins_read_the_same_rows_out_of_anything(delivered: list[bytes]) -> None:
    turns = [a_turn(burst, *delivered) for _ in TWINS]
    rows = [parsed(twin, turn) for twin, turn in zip(TWINS, turns, strict=True)]
    assert all(row == rows[0] for row in rows)


def test_rows_that_point_outside_of_their_buffers_are_not_followed(twin: Any) -> None:
    turn = a_turn(burst, an_answer())
    turn.frames[Frame.BODY_AT] = 10_000
    with pytest.raises(ValueError, match="speaks of what is not there"):
        parsed(twin, turn)
