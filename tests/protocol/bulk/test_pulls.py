"""Pulls by the many: their numbers in columns, their texts where they lie."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.samples import requests
from tests.protocol.bulk.turns import a_turn, deliveries
from tests.protocol.samples import a_pull, a_send

from flaremq.protocol import fields
from flaremq.protocol.bulk import burst
from flaremq.protocol.bulk.columns import Frame, Plain, Pull
from flaremq.protocol.codes import SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame
from flaremq.protocol.headers.pull import PullMessageRequestHeader
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.protocol.bulk._pulls")


class Parsed:
    def __init__(self, twin: Any, *delivered: bytes) -> None:
        self.turn = a_turn(burst, *delivered)
        turn = self.turn
        self.pulls: array[int] = twin.parse_pulls(turn.data, turn.chunks, turn.frames, turn.pairs)

    def __len__(self) -> int:
        return len(self.pulls) // Pull.WIDTH

    def text(self, column: int) -> str:
        at, size = self.pulls[column], self.pulls[column + 1]
        return self.turn.data[at : at + size].decode()

    @property
    def plain(self) -> list[int]:
        return [self.turn.frame(row)[Frame.PLAIN] for row in range(self.turn.count)]


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def with_form(command: Command, serialize: SerializeType) -> bytes:
    return encode_frame(
        Command(code=command.code, opaque=command.opaque, ext_fields=command.fields, serialize_type=serialize)
    )


def says_the_same(parsed: Parsed, header: PullMessageRequestHeader) -> None:
    pull = parsed.pulls
    assert parsed.text(Pull.GROUP_AT) == header.consumer_group
    assert parsed.text(Pull.TOPIC_AT) == header.topic
    assert parsed.text(Pull.SUBSCRIPTION_AT) == (header.subscription or "")
    assert parsed.text(Pull.EXPRESSION_TYPE_AT) == (header.expression_type or "")
    assert (pull[Pull.QUEUE_ID], pull[Pull.QUEUE_OFFSET]) == (header.queue_id, header.queue_offset)
    assert (pull[Pull.MAX_MSG_NUMS], pull[Pull.SYS_FLAG]) == (header.max_msg_nums, header.sys_flag)
    assert (pull[Pull.COMMIT_OFFSET], pull[Pull.SUB_VERSION]) == (header.commit_offset, header.sub_version)
    assert pull[Pull.SUSPEND_TIMEOUT_MILLIS] == header.suspend_timeout_millis
    assert pull[Pull.MAX_MSG_BYTES] == (-1 if header.max_msg_bytes is None else header.max_msg_bytes)


@pytest.mark.parametrize("serialize", SerializeType)
def test_an_ordinary_pull_becomes_a_row(twin: Any, serialize: SerializeType) -> None:
    parsed = Parsed(twin, encode_frame(a_send()), with_form(a_pull(subscription="TagA || 中文"), serialize))
    assert len(parsed) == 1
    says_the_same(parsed, fields.decode(PullMessageRequestHeader, a_pull(subscription="TagA || 中文").fields))
    row = [parsed.pulls[column] for column in (Pull.FRAME, Pull.CHUNK, Pull.SERIALIZE, Pull.OPAQUE)]
    assert row == [1, 1, serialize, 9]


def test_real_pulls_are_ordinary_and_mean_what_their_header_says(twin: Any) -> None:
    for sample in requests("PULL_MESSAGE", "LITE_PULL_MESSAGE"):
        parsed = Parsed(twin, sample.frame)
        assert parsed.plain == [Plain.NO]
        says_the_same(parsed, fields.decode(PullMessageRequestHeader, sample.command.fields))


@pytest.mark.parametrize(
    "changes",
    [
        {"consumerGroup": None}, {"consumerGroup": ""}, {"topic": None}, {"queueId": None},
        {"queueOffset": None},
        {"maxMsgNums": None}, {"sysFlag": None}, {"commitOffset": None}, {"suspendTimeoutMillis": None},
        {"subVersion": None}, {"queueId": "x"}, {"queueId": "2147483648"}, {"queueOffset": "1" * 19},
        {"maxMsgBytes": ""}, {"maxMsgBytes": "1.5"}, {"requestSource": "0"}, {"proxyFrowardClientId": "c"},
        {"ns": "n"},
    ],
)  # fmt: skip
def test_a_pull_that_is_not_ordinary_goes_to_the_plain_lane(
    twin: Any, changes: dict[str, str | None]
) -> None:
    parsed = Parsed(twin, encode_frame(a_pull(**changes)), encode_frame(a_pull()))
    assert parsed.plain == [Plain.FIELDS, Plain.NO]
    assert len(parsed) == 1


def test_a_subscription_with_an_escape_goes_to_the_plain_lane(twin: Any) -> None:
    assert Parsed(twin, encode_frame(a_pull(subscription='a = "b"'))).plain == [Plain.FIELDS]


def test_what_may_be_left_out_may_be_left_out(twin: Any) -> None:
    parsed = Parsed(twin, encode_frame(a_pull(expressionType=None, maxMsgBytes=None, bname=None, ReqT="0")))
    assert parsed.pulls[Pull.EXPRESSION_TYPE_SIZE] == parsed.pulls[Pull.SUBSCRIPTION_SIZE] == 0
    assert parsed.pulls[Pull.MAX_MSG_BYTES] == -1


def test_an_answer_is_no_pull(twin: Any) -> None:
    parsed = Parsed(twin, encode_frame(Command(code=11, flag=1, ext_fields=a_pull().fields)))
    assert (len(parsed), parsed.plain) == (0, [Plain.NO])


def test_rows_that_speak_of_what_is_not_there_are_a_bug_of_the_caller(twin: Any) -> None:
    turn = a_turn(burst, encode_frame(a_pull()))
    turn.pairs[0] = len(turn.data) + 1
    with pytest.raises(ValueError, match="frame 0 speaks of what is not there"):
        twin.parse_pulls(turn.data, turn.chunks, turn.frames, turn.pairs)


pull_like = st.dictionaries(
    st.sampled_from([*a_pull().fields, "subscription", "ReqT", "x"]),
    st.sampled_from(["", "1", "-1", "x", "é", "\n", "9" * 18, "9" * 19, "*"]),
)


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(st.lists(st.tuples(pull_like, st.sampled_from(SerializeType)), max_size=3), deliveries)
def test_twins_agree_on_any_pulls(
    given: list[tuple[dict[str, str], SerializeType]], delivered: list[bytes]
) -> None:
    frames = [
        with_form(Command(code=11, ext_fields={**a_pull().fields, **changes}), form)
        for changes, form in given
    ]
    seen = [Parsed(module, *frames, *delivered) for module in TWINS]
    assert seen[0].pulls == seen[1].pulls
    assert seen[0].plain == seen[1].plain
