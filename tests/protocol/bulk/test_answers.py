"""Answers by the many: Java's to the byte, and the same as the plain lane's."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.samples import answers_to
from tests.protocol.samples import int32

from flaremq.model.columns import Draft
from flaremq.model.msgid import decode_offset_id
from flaremq.protocol import fields
from flaremq.protocol.bulk.answers import encode_answer
from flaremq.protocol.bulk.columns import Frame, PullAnswer, Send
from flaremq.protocol.codes import LanguageCode, SerializeType
from flaremq.protocol.command import Command, response_to
from flaremq.protocol.frame import FrameDecoder, decode_frame, encode_frame
from flaremq.protocol.headers.pull import PullMessageResponseHeader
from flaremq.protocol.headers.send import SendMessageResponseHeader
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.protocol.bulk._answers")
HOST = bytes.fromhex("7F000002000051AF")


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


class Stored:
    """Sends after the append: their tables, as an answer needs them."""

    def __init__(self) -> None:
        self.drafts: array[int] = array("q")
        self.sends: array[int] = array("q")
        self.heads = bytearray()

    def add(
        self,
        physical: int,
        queue: tuple[int, int],
        opaque: int,
        key: bytes,
        serialize: int = 0,
        one_way: int = 0,
        chunk: int = 0,
        handle: bytes = b"",
    ) -> Stored:
        draft, send = [0] * Draft.WIDTH, [0] * Send.WIDTH
        draft[Draft.PHYSICAL_OFFSET] = physical
        send[Send.QUEUE_ID], draft[Draft.QUEUE_OFFSET] = queue
        send[Send.OPAQUE], send[Send.SERIALIZE], send[Send.ONE_WAY] = opaque, serialize, one_way
        send[Send.CHUNK] = chunk
        send[Send.UNIQUE_KEY_AT], send[Send.UNIQUE_KEY_SIZE] = len(self.heads), len(key)
        send[Send.HANDLE_AT], send[Send.HANDLE_SIZE] = len(self.heads) + len(key), len(handle)
        self.drafts.extend(draft)
        self.sends.extend(send)
        self.heads += key + handle
        return self

    def answered(self, answers: Any, code: int = 0) -> bytes:
        return b"".join(frames for _, frames in self.by_chunk(answers, code))

    def by_chunk(self, answers: Any, code: int = 0) -> list[tuple[int, bytes]]:
        made: list[tuple[int, bytes]] = answers.encode(self.drafts, self.sends, self.heads, code)
        return made


def test_an_answer_to_a_send_is_javas_to_the_byte(twin: Any) -> None:
    answers = twin.SendAnswers(HOST)
    seen = 0
    for sample in answers_to("SEND_MESSAGE_V2"):
        given = sample.command.fields
        where = decode_offset_id(given["msgId"])
        assert where.host.encode() == HOST
        stored = Stored().add(
            where.physical_offset,
            (int(given["queueId"]), int(given["queueOffset"])),
            sample.command.opaque,
            given.get("transactionId", "").encode(),
        )
        assert stored.answered(answers) == sample.frame
        seen += 1
    assert seen > 5


def test_a_compact_answer_has_its_fields_in_the_order_of_the_class(twin: Any) -> None:
    stored = Stored().add(4096, (3, 17), -5, b"U1", serialize=1)
    (command,) = FrameDecoder().feed(stored.answered(twin.SendAnswers(HOST)))
    assert list(command.fields) == [
        "msgId",
        "queueId",
        "queueOffset",
        "transactionId",
        "TRACE_ON",
        "MSG_REGION",
    ]
    assert command.fields["msgId"] == "7F000002000051AF0000000000001000"
    assert (command.opaque, command.code, command.version) == (-5, 0, 479)
    assert command.serialize_type is SerializeType.ROCKETMQ


def test_answers_of_one_connection_come_in_one_piece_and_the_one_way_get_none(twin: Any) -> None:
    stored = (
        Stored()
        .add(1, (0, 1), 1, b"a")
        .add(2, (0, 2), 2, b"b", one_way=1)
        .add(3, (0, 3), 3, b"c", serialize=1)
    )
    stored.add(4, (0, 4), 4, b"d", chunk=2)
    stored.add(5, (0, 5), 5, b"e", chunk=3, one_way=1)
    answers = stored.by_chunk(twin.SendAnswers(HOST))
    opaques = {chunk: [each.opaque for each in FrameDecoder().feed(frames)] for chunk, frames in answers}
    assert opaques == {0: [1, 3], 2: [4]}


def test_a_late_flush_is_answered_with_all_that_a_success_has(twin: Any) -> None:
    stored = Stored().add(1, (0, 1), 1, b"a").add(1, (0, 1), 1, b"a", serialize=1)
    for command in FrameDecoder().feed(stored.answered(twin.SendAnswers(HOST), code=10)):
        assert command.code == 10
        assert fields.decode(SendMessageResponseHeader, command.fields).queue_offset == 1


def test_region_and_tracing_are_the_brokers(twin: Any) -> None:
    answers = twin.SendAnswers(HOST, b"north", False)
    command = decode_frame(Stored().add(1, (0, 1), 1, b"").answered(answers))
    assert (command.fields["MSG_REGION"], command.fields["TRACE_ON"]) == ("north", "false")
    assert "transactionId" not in command.fields


def test_a_host_of_ipv6_makes_a_longer_id(twin: Any) -> None:
    command = decode_frame(Stored().add(1, (0, 1), 1, b"").answered(twin.SendAnswers(bytes(20))))
    assert len(command.fields["msgId"]) == 56


def test_what_cannot_be_written_is_refused(twin: Any) -> None:
    with pytest.raises(ValueError, match="store host of 7 bytes"):
        twin.SendAnswers(bytes(7))
    for region in (b"", b'"', b"\\", b"\x1f", b"\x7f", "é".encode()):
        with pytest.raises(ValueError, match="region"):
            twin.SendAnswers(HOST, region)
    stored = Stored().add(1, (0, 1), 1, b"key")
    stored.sends.extend(stored.sends)
    with pytest.raises(ValueError, match="1 drafts for 2 sends"):
        stored.answered(twin.SendAnswers(HOST))
    stored = Stored().add(1, (0, 1), 1, b"key")
    stored.sends[Send.UNIQUE_KEY_SIZE] = 4
    with pytest.raises(ValueError, match="row 0: bytes 0\\+4 of a buffer of 3"):
        stored.answered(twin.SendAnswers(HOST))
    stored = Stored().add(1, (0, 1), 1, b"key", handle=b"handle")
    stored.sends[Send.HANDLE_SIZE] = 7
    with pytest.raises(ValueError, match="row 0: bytes 3\\+7 of a buffer of 9"):
        stored.answered(twin.SendAnswers(HOST))


rows = st.tuples(
    st.integers(0, (1 << 63) - 1),
    st.tuples(int32, st.integers(-(1 << 63), (1 << 63) - 1)),
    int32,
    st.from_regex(rb"[A-Z0-9 ]{0,40}", fullmatch=True),
    st.integers(0, 1),
    st.sampled_from([b"", b"aGFuZGxl"]),
)


@given(st.lists(rows, max_size=4), st.sampled_from([0, 10, 12]))
def test_twins_write_the_same_and_a_decoder_reads_it(
    given: list[tuple[int, tuple[int, int], int, bytes, int, bytes]], code: int
) -> None:
    stored = Stored()
    for physical, queue, opaque, key, serialize, handle in given:
        stored.add(physical, queue, opaque, key, serialize, handle=handle)
    written = {stored.answered(module.SendAnswers(HOST), code) for module in TWINS}
    assert len(written) == 1
    commands = FrameDecoder().feed(written.pop())
    assert [(command.opaque, command.code) for command in commands] == [(row[2], code) for row in given]
    assert [command.fields["queueOffset"] for command in commands] == [str(row[1][1]) for row in given]
    assert [command.fields.get("recallHandle", "").encode() for command in commands] == [
        row[5] for row in given
    ]


@given(
    opaque=int32,
    code=st.sampled_from([0, 1, 16]),
    remark=st.sampled_from(["", "why not"]),
    known=st.sampled_from([{}, {"msgId": "m", "queueId": "3"}]),
    serialize=st.sampled_from(SerializeType),
)
def test_an_answer_without_a_body_is_that_of_the_plain_encoder(
    opaque: int, code: int, remark: str, known: dict[str, str], serialize: SerializeType
) -> None:
    request = Command(code=37, opaque=opaque, serialize_type=serialize)
    plain = encode_frame(response_to(request, code, remark or None, ext_fields=known))
    raw = {name.encode(): value.encode() for name, value in known.items()}
    assert encode_answer(serialize, opaque, code, remark.encode(), raw) == plain


def an_answer(
    serialize: int, opaque: int, code: int, header: PullMessageResponseHeader, body_size: int
) -> array[int]:
    return array(
        "q",
        (serialize, opaque, code, header.suggest_which_broker_id, header.next_begin_offset, header.min_offset,
         header.max_offset, header.topic_sys_flag or 0, header.group_sys_flag or 0, body_size),
    )  # fmt: skip


def test_the_header_of_an_answer_to_a_pull_is_javas_to_the_byte(twin: Any) -> None:
    seen = set()
    for sample in answers_to("PULL_MESSAGE", "LITE_PULL_MESSAGE"):
        command = sample.command
        if not command.fields:
            continue
        header = fields.decode(PullMessageResponseHeader, command.fields)
        body = bytes(command.body or b"")
        answer = an_answer(0, command.opaque, command.code, header, len(body))
        assert twin.encode_pull_header(answer, (command.remark or "").encode()) + body == sample.frame
        seen.add(command.code)
    assert seen == {0, 19, 21}


def test_a_compact_answer_to_a_pull_is_read_again(twin: Any) -> None:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=1,
        next_begin_offset=20,
        min_offset=0,
        max_offset=30,
        topic_sys_flag=2,
        group_sys_flag=3,
    )
    raw = twin.encode_pull_header(an_answer(1, -7, 0, header, 4)) + b"body"
    command = decode_frame(raw)
    expected = Command(
        code=0, opaque=-7, flag=1, ext_fields=fields.encode(header), body=b"body", remark="FOUND",
        language=LanguageCode.JAVA, serialize_type=SerializeType.ROCKETMQ,
    )  # fmt: skip
    assert command == expected
    assert encode_frame(expected) == raw
    assert list(command.fields) == list(fields.encode(header))


def test_a_remark_that_would_need_an_escape_is_refused(twin: Any) -> None:
    answer = array("q", [0] * PullAnswer.WIDTH)
    for remark in (b'"', b"\\", b"\n", b"\x80", b"x" * 256):
        with pytest.raises(ValueError, match="remark"):
            twin.encode_pull_header(answer, remark)
    with pytest.raises(ValueError, match="an answer of 9 columns, expected 10"):
        twin.encode_pull_header(answer[1:])
    assert decode_frame(twin.encode_pull_header(answer, b"")).remark is None


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=6, max_size=6), int32, int32, st.integers(0, 1)
)
def test_twins_write_the_same_pull_headers(
    numbers: list[int], opaque: int, code: int, serialize: int
) -> None:
    answer = array("q", [serialize, opaque, code, *numbers, 1000])
    assert len({module.encode_pull_header(answer, b"FOUND") for module in TWINS}) == 1


@given(
    requests=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(-(2**31), 2**31 - 1),
            st.sampled_from([0, 0, 2]),
            st.sampled_from([*SerializeType]),
        ),
        max_size=8,
    ),
    outcome=st.sampled_from([(0, b""), (1, b"the disk failed")]),
)
def test_many_equal_answers_are_the_answers_one_by_one(
    requests: list[tuple[int, int, int, SerializeType]], outcome: tuple[int, bytes]
) -> None:
    frames = array("q", bytes(8 * Frame.WIDTH * len(requests)))
    for row, (chunk, opaque, flag, serialize) in enumerate(requests):
        f = row * Frame.WIDTH
        frames[f + Frame.CHUNK], frames[f + Frame.OPAQUE] = chunk, opaque
        frames[f + Frame.FLAG], frames[f + Frame.SERIALIZE] = flag, serialize
    for twin in TWINS:
        found = twin.encode_answers(frames, range(len(requests)), *outcome)
        assert b"".join(answers for _, answers in found) == b"".join(
            encode_answer(serialize, opaque, *outcome) for _, opaque, flag, serialize in requests if not flag
        )
        chunks = [chunk for chunk, _, flag, _ in requests if not flag]
        assert {chunk for chunk, _ in found} == set(chunks)
        with pytest.raises(IndexError):
            twin.encode_answers(frames, [len(requests)], *outcome)
