"""Sends by the many: ordinary ones become drafts, all others are left to the plain lane."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.samples import requests
from tests.protocol.bulk.turns import HOST, Turn, a_turn, deliveries
from tests.protocol.samples import a_pull, a_send, int32

from flaremq.model.columns import Draft, Drafts
from flaremq.model.encode import Encoder
from flaremq.model.properties import decode_properties, encode_properties
from flaremq.model.record import decode
from flaremq.protocol import json_header
from flaremq.protocol.bulk import burst
from flaremq.protocol.bulk._sends_py import (
    LETTERS,
    NAMES,
    PLAIN_PREFIXES,
    PLAIN_PROPERTIES,
    PROPERTY_COUNT_MAX,
)
from flaremq.protocol.bulk.columns import Chunk, Frame, Plain, Send, SendKind, Target
from flaremq.protocol.codes import ONE_WAY, RESPONSE, SerializeType
from flaremq.protocol.command import Command
from flaremq.protocol.frame import encode_frame
from flaremq.protocol.headers.send import LETTERS as WIRE_LETTERS
from flaremq.protocol.headers.send import decode_send, encode_send
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.protocol.bulk._sends")
TAIL = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01c\x02"


class Parsed:
    """What parse_sends made of a turn."""

    def __init__(self, twin: Any, *delivered: bytes, tail: bytes = TAIL) -> None:
        self.turn: Turn = a_turn(burst, *delivered)
        self.heads = bytearray(HOST)
        self.drafts: array[int]
        self.sends: array[int]
        self.targets: array[int]
        self.drafts, self.sends, self.targets = twin.parse_sends(
            self.turn.data, self.turn.chunks, self.turn.frames, self.turn.pairs, self.heads, tail
        )

    def __len__(self) -> int:
        return len(self.sends) // Send.WIDTH

    def draft(self, row: int, column: int) -> int:
        return self.drafts[row * Draft.WIDTH + column]

    def send(self, row: int, column: int) -> int:
        return self.sends[row * Send.WIDTH + column]

    def head(self, row: int, column: int) -> bytes:
        at, size = self.draft(row, column), self.draft(row, column + 1)
        return bytes(self.heads[at : at + size])

    def text(self, row: int, column: int) -> bytes:
        at, size = self.send(row, column), self.send(row, column + 1)
        return self.turn.data[at : at + size]

    @property
    def plain(self) -> list[int]:
        return [self.turn.frame(row)[Frame.PLAIN] for row in range(self.turn.count)]

    def result(self) -> tuple[object, ...]:
        return self.turn.frames, self.drafts, self.sends, self.targets, self.heads


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def with_form(command: Command, serialize: SerializeType) -> bytes:
    changed = Command(
        code=command.code, opaque=command.opaque, flag=command.flag, ext_fields=command.ext_fields,
        body=command.body, language=command.language, serialize_type=serialize,
    )  # fmt: skip
    return encode_frame(changed)


@pytest.mark.parametrize("serialize", SerializeType)
def test_an_ordinary_send_becomes_a_draft(twin: Any, serialize: SerializeType) -> None:
    parsed = Parsed(twin, with_form(a_send(f="769", h="5", j="2"), serialize))
    assert len(parsed) == 1
    assert parsed.head(0, Draft.TOPIC_AT) == b"TopicTest"
    properties = b"UNIQ_KEY\x01U1\x02WAIT\x01true\x02TAGS\x01TagA\x02" + TAIL
    assert parsed.head(0, Draft.PROPERTIES_AT) == properties
    assert parsed.head(0, Draft.BORN_HOST_AT) == HOST
    body_at = parsed.draft(0, Draft.BODY_AT)
    assert parsed.turn.data[body_at : body_at + parsed.draft(0, Draft.BODY_SIZE)] == b"hello"
    numbers = {
        Draft.QUEUE_ID: 3, Draft.QUEUE: -1, Draft.STEP: 1, Draft.TOGETHER: 1, Draft.FLAG: 5,
        Draft.SYS_FLAG: 769,
        Draft.BORN_TIMESTAMP: 1700000000000, Draft.RECONSUME_TIMES: 2, Draft.PREPARED_OFFSET: 0,
    }  # fmt: skip
    assert {column: parsed.draft(0, column) for column in numbers} == numbers


def test_the_other_half_tells_who_sent_it_and_how_to_answer(twin: Any) -> None:
    parsed = Parsed(twin, b"", encode_frame(a_pull()) + encode_frame(a_send()))
    assert parsed.send(0, Send.FRAME) == 1
    assert parsed.send(0, Send.CHUNK) == 1
    assert (parsed.send(0, Send.OPAQUE), parsed.send(0, Send.SERIALIZE), parsed.send(0, Send.ONE_WAY)) == (
        7,
        0,
        0,
    )
    assert parsed.text(0, Send.GROUP_AT) == b"pg"
    assert parsed.text(0, Send.DEFAULT_TOPIC_AT) == b"TBW102"
    assert parsed.send(0, Send.DEFAULT_TOPIC_QUEUE_NUMS) == 4
    key_at = parsed.send(0, Send.UNIQUE_KEY_AT)
    assert parsed.heads[key_at : key_at + parsed.send(0, Send.UNIQUE_KEY_SIZE)] == b"U1"
    assert parsed.send(0, Send.WAIT) == 1


def test_the_number_that_a_producer_gave_is_told(twin: Any) -> None:
    keyed = "UNIQ_KEY\x01U1\x02"
    values = ("", "a-1:0", "b.2:9223372036854775807")
    sends = [a_send(i=keyed + (f"PRODUCER_SEQ\x01{value}\x02" if value else "")) for value in values]
    parsed = Parsed(twin, *map(encode_frame, sends))
    ids = [parsed.send(row, Send.PRODUCER_AT) for row in range(3)]
    sizes = [parsed.send(row, Send.PRODUCER_SIZE) for row in range(3)]
    found = [bytes(parsed.heads[at : at + size]) for at, size in zip(ids, sizes, strict=True)]
    assert found == [b"", b"a-1", b"b.2"]
    assert [parsed.send(row, Send.SEQUENCE) for row in range(3)] == [-1, 0, 2**63 - 1]


def test_a_message_that_is_sent_back_has_no_number_to_compare(twin: Any) -> None:
    parsed = Parsed(twin, encode_frame(a_send(j="1", i="UNIQ_KEY\x01U1\x02PRODUCER_SEQ\x01a:1\x02")))
    assert parsed.send(0, Send.SEQUENCE) == -1


@pytest.mark.parametrize(
    "more",
    ["PRODUCER_SEQ\x01a\x02", "PRODUCER_SEQ\x01a:01\x02", "PRODUCER_SEQ\x01a:1\x02REAL_TOPIC\x01T\x02"],
)
def test_a_number_that_makes_no_sense_is_left_to_the_plain_lane(twin: Any, more: str) -> None:
    parsed = Parsed(twin, encode_frame(a_send(i=f"UNIQ_KEY\x01U1\x02{more}")))
    assert (len(parsed), parsed.plain) == (0, [Plain.FIELDS])


numbers = st.text("ab:.-_ 0129", max_size=24) | st.integers(0, 2**64).map(lambda number: f"p:{number}")


@given(st.lists(numbers.filter(bool), max_size=4))
def test_both_twins_read_numbers_alike(values: list[str]) -> None:
    frames = b"".join(
        encode_frame(a_send(i=f"UNIQ_KEY\x01U1\x02PRODUCER_SEQ\x01{value}\x02")) for value in values
    )
    results = [Parsed(twin, frames).result() for twin in TWINS]
    assert all(result == results[0] for result in results)


def test_drafts_can_be_stored_as_they_are(twin: Any) -> None:
    parsed = Parsed(twin, encode_frame(a_send()))
    parsed.drafts[Draft.QUEUE] = 0
    out, drafts = bytearray(1000), Drafts(parsed.drafts, parsed.heads, parsed.turn.data)
    assert Encoder(HOST).encode_many(drafts, 0, out, 0, 0, array("q", [5]), 1) == 1
    stored = decode(bytes(out))
    assert (stored.topic, stored.body, stored.queue_id, stored.queue_offset) == ("TopicTest", b"hello", 3, 5)
    assert stored.properties["TRACE_ON"] == "true"


def test_queues_are_told_once_for_all_their_rows(twin: Any) -> None:
    sends = [a_send(e="1"), a_send(b="Other", e="1"), a_send(e="2"), a_send(e="1")]
    parsed = Parsed(twin, *map(encode_frame, sends))
    rows = [
        list(parsed.targets[t * Target.WIDTH : (t + 1) * Target.WIDTH])
        for t in range(len(parsed.targets) // Target.WIDTH)
    ]
    topics = [bytes(parsed.heads[row[0] : row[0] + row[1]]) for row in rows]
    assert topics == [b"TopicTest", b"Other", b"TopicTest"]
    assert [row[Target.QUEUE_ID :] for row in rows] == [[1, 0, 2], [1, 1, 1], [2, 2, 1]]
    assert [parsed.send(row, Send.TARGET) for row in range(4)] == [0, 1, 2, 0]


def test_many_queues_are_all_told_apart(twin: Any) -> None:
    sends = [a_send(b=f"T{n % 300}", e=str(n // 300)) for n in range(900)]
    parsed = Parsed(twin, b"".join(map(encode_frame, sends)))
    assert len(parsed.targets) // Target.WIDTH == 900
    assert [parsed.send(row, Send.TARGET) for row in range(900)] == list(range(900))


def test_a_send_by_names_is_the_same_as_one_by_letters(twin: Any) -> None:
    letters = a_send()
    header = decode_send(310, letters.fields)
    names = Command(code=10, opaque=7, ext_fields=encode_send(10, header), body=b"hello")
    one, other = Parsed(twin, encode_frame(letters)), Parsed(twin, encode_frame(names))
    assert one.drafts[: Draft.BODY_AT] == other.drafts[: Draft.BODY_AT]
    assert one.drafts[Draft.QUEUE_ID :] == other.drafts[Draft.QUEUE_ID :]
    assert one.heads == other.heads


def test_properties_without_an_end_are_ended(twin: Any) -> None:
    parsed = Parsed(twin, encode_frame(a_send(i="UNIQ_KEY\x01U1\x02seq\x010")), tail=b"")
    assert parsed.head(0, Draft.PROPERTIES_AT) == b"UNIQ_KEY\x01U1\x02seq\x010\x02"


@pytest.mark.parametrize(
    ("properties", "stored"),
    [
        ("UNIQ_KEY\x01U1\x02k\x01é中😀\x02", "UNIQ_KEY\x01U1\x02k\x01é中😀\x02"),
        ('UNIQ_KEY\x01U1\x02"k"\x01\\\n\t\x00\x02', 'UNIQ_KEY\x01U1\x02"k"\x01\\\n\t\x00\x02'),
        ("UNIQ_KEY\x01U1\x02k\x01a\x01b\x02", "UNIQ_KEY\x01U1\x02k\x01a\x01b\x02"),
        ("UNIQ_KEY\x01U1\x02DELAYED\x01x\x02", "UNIQ_KEY\x01U1\x02DELAYED\x01x\x02"),
    ],
)
@pytest.mark.parametrize("serialize", SerializeType)
def test_properties_are_stored_letter_by_letter(
    twin: Any, properties: str, stored: str, serialize: SerializeType
) -> None:
    parsed = Parsed(twin, with_form(a_send(i=properties), serialize), tail=b"")
    assert parsed.head(0, Draft.PROPERTIES_AT) == stored.encode()


def framed(header: bytes, body: bytes = b"hello") -> bytes:
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


@pytest.mark.parametrize(
    ("escaped", "meant"),
    [
        (rb"\u00e9\u4E2d", "é中"),
        (rb"\/\"\\\b\f\n\r\t", '/"\\\b\f\n\r\t'),
        (rb"\u0000\u007F\u0009", "\x00\x7f\t"),
        (rb"\uFFFF", "\uffff"),
    ],
)
def test_escapes_of_other_writers_mean_the_same(twin: Any, escaped: bytes, meant: str) -> None:
    header = json_header.encode(a_send(i="UNIQ_KEY\x01U1\x02k\x01HERE\x02")).replace(b"HERE", escaped)
    parsed = Parsed(twin, framed(header), tail=b"")
    assert parsed.head(0, Draft.PROPERTIES_AT) == f"UNIQ_KEY\x01U1\x02k\x01{meant}\x02".encode()


@pytest.mark.parametrize(
    "escaped", [rb"\ud83d\ude00", rb"\ud83d", rb"\u12", rb"\u00zz", rb"\q", rb"\'", b"\xff", b"\xed\xa0\x80"]
)
def test_escapes_and_bytes_that_are_half_or_no_characters_go_to_the_plain_lane(
    twin: Any, escaped: bytes
) -> None:
    header = json_header.encode(a_send(i="UNIQ_KEY\x01U1\x02k\x01HERE\x02")).replace(b"HERE", escaped)
    assert Parsed(twin, framed(header)).plain == [Plain.FIELDS]


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_name_with_an_escape_goes_to_the_plain_lane(twin: Any, name: str) -> None:
    assert Parsed(twin, encode_frame(a_send(**{name: "a\nb"}))).plain == [Plain.FIELDS]


def test_a_message_that_need_not_wait_says_so(twin: Any) -> None:
    parsed = Parsed(twin, encode_frame(a_send(i="UNIQ_KEY\x01U1\x02WAIT\x01false\x02")))
    assert parsed.send(0, Send.WAIT) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"a": None}, {"a": ""}, {"b": None}, {"b": ""}, {"c": None}, {"d": None}, {"e": None}, {"f": None},
        {"g": None},
        {"h": None}, {"i": None}, {"i": ""}, {"e": "-1"}, {"e": "x"}, {"e": ""}, {"e": "2147483648"},
        {"e": "+1"},
        {"g": "1.5"}, {"f": "4"}, {"f": "16"}, {"f": "128"}, {"f": "2048"}, {"j": "x"}, {"l": "x"},
        {"k": "true"},
        {"m": "true"}, {"m": "0"}, {"b": "%RETRY%g"}, {"AccessKey": "ak"}, {"lo": "true"},
        {"i": "TAGS\x01TagA\x02"}, {"i": "UNIQ_KEY\x01U1\x02DELAY\x013\x02", "j": "1"},
        {"i": "UNIQ_KEY\x01U1\x02WAIT\x01no\x02"},
        {"i": "UNIQ_KEY\x01U1\x02x\x02"}, {"i": "UNIQ_KEY\x01U1\x02x\x01\x02"},
        {"i": "UNIQ_KEY\x01U1\x02\x01x\x02"},
        {"i": "UNIQ_KEY\x01U1\x02\x02"}, {"i": "UNIQ_KEY\x01U1\x02k\x011\x02k\x012\x02"},
        {"i": 'UNIQ_KEY\x01"\x02'},
        {"i": "UNIQ_KEY\x01é\x02"}, {"i": "UNIQ_KEY\x01U1\x02k\x01" + "x" * 32767 + "\x02"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("serialize", SerializeType)
def test_what_is_not_ordinary_goes_to_the_plain_lane_and_leaves_no_trace(
    twin: Any, changes: dict[str, str | None], serialize: SerializeType
) -> None:
    parsed = Parsed(twin, with_form(a_send(**changes), serialize), with_form(a_send(), serialize))
    alone = Parsed(twin, with_form(a_send(), serialize))
    assert parsed.plain == [Plain.FIELDS, Plain.NO]
    assert len(parsed) == 1
    assert parsed.heads == alone.heads


@pytest.mark.parametrize(
    "name",
    [
        *(name.decode() for name in PLAIN_PROPERTIES if name != b"DELAY"),
        *(prefix.decode() + "x" for prefix in PLAIN_PREFIXES),
    ],
)
def test_properties_that_a_broker_acts_upon_go_to_the_plain_lane(twin: Any, name: str) -> None:
    parsed = Parsed(twin, encode_frame(a_send(i=f"UNIQ_KEY\x01U1\x02{name}\x011\x02")))
    assert parsed.plain == [Plain.FIELDS]


@pytest.mark.parametrize(
    ("more", "kind", "value"),
    [
        ("", SendKind.AT_ONCE, 0),
        ("DELAY\x013\x02", SendKind.LEVEL, 3),
        ("DELAY\x0199\x02", SendKind.LEVEL, 99),
        ("TIMER_DELAY_SEC\x0160\x02", SendKind.AFTER, 60_000),
        ("TIMER_DELAY_MS\x01060\x02", SendKind.AFTER, 60),
        ("TIMER_DELIVER_MS\x01999999999999999\x02", SendKind.MOMENT, 999_999_999_999_999),
        ("PGROUP\x01pg\x02TRAN_MSG\x01true\x02", SendKind.PREPARED, 0),
    ],
)
def test_what_a_message_asks_for_is_told(twin: Any, more: str, kind: int, value: int) -> None:
    parsed = Parsed(twin, encode_frame(a_send(e="2", i=f"UNIQ_KEY\x01U1\x02{more}")))
    assert (parsed.send(0, Send.KIND), parsed.send(0, Send.VALUE)) == (kind, value)
    assert parsed.send(0, Send.QUEUE_ID) == 2


@pytest.mark.parametrize("sys_flag", ["4", "5"])
def test_the_flag_of_a_prepared_message_is_not_stored(twin: Any, sys_flag: str) -> None:
    properties = "UNIQ_KEY\x01U1\x02PGROUP\x01pg\x02TRAN_MSG\x01true\x02"
    parsed = Parsed(twin, encode_frame(a_send(f=sys_flag, i=properties)))
    assert parsed.draft(0, Draft.SYS_FLAG) == int(sys_flag) & 1


@pytest.mark.parametrize(
    "more",
    [
        "DELAY\x010\x02", "DELAY\x0103\x02", "DELAY\x01100\x02", "DELAY\x01-1\x02", "DELAY\x01x\x02",
        "TIMER_DELAY_SEC\x01-5\x02", "TIMER_DELAY_MS\x011e3\x02",
        "TIMER_DELIVER_MS\x011000000000000000\x02", "TIMER_OUT_MS\x015\x02",
        "DELAY\x013\x02TIMER_DELAY_SEC\x015\x02", "DELAY\x013\x02REAL_TOPIC\x01x\x02",
        "REAL_QID\x011\x02TIMER_DELAY_SEC\x015\x02", "TRAN_MSG\x01true\x02",
        "TRAN_MSG\x01true\x02PGROUP\x01 \x02", "TRAN_MSG\x01True\x02PGROUP\x01pg\x02",
        "TRAN_MSG\x01true\x02PGROUP\x01é\x02",
        "TRAN_MSG\x01true\x02PGROUP\x01pg\x02__transactionId__\x01x\x02",
    ],
)  # fmt: skip
def test_wishes_that_are_not_ordinary_go_to_the_plain_lane(twin: Any, more: str) -> None:
    parsed = Parsed(twin, encode_frame(a_send(i=f"UNIQ_KEY\x01U1\x02{more}")))
    assert parsed.plain == [Plain.FIELDS]


def test_a_batch_or_no_body_or_many_properties_go_to_the_plain_lane(twin: Any) -> None:
    send = a_send()
    bodiless = Command(code=310, ext_fields=send.fields)
    batch = Command(code=320, ext_fields={**send.fields, "m": "true"}, body=b"x")
    many = a_send(i="UNIQ_KEY\x01U1\x02" + "".join(f"k{n}\x01v\x02" for n in range(PROPERTY_COUNT_MAX)))
    enough = a_send(i="UNIQ_KEY\x01U1\x02" + "".join(f"k{n}\x01v\x02" for n in range(PROPERTY_COUNT_MAX - 1)))
    parsed = Parsed(twin, *map(encode_frame, (bodiless, batch, many, enough)))
    assert parsed.plain == [Plain.FIELDS, Plain.FIELDS, Plain.FIELDS, Plain.NO]


def test_an_answer_is_no_send_and_a_one_way_send_is_one(twin: Any) -> None:
    send = a_send()
    answer = Command(code=310, flag=RESPONSE, ext_fields=send.fields, body=b"x")
    oneway = Command(code=310, flag=ONE_WAY, ext_fields=send.fields, body=b"x")
    parsed = Parsed(twin, *map(encode_frame, (answer, oneway)))
    assert parsed.plain == [Plain.NO, Plain.NO]
    assert len(parsed) == 1
    assert parsed.send(0, Send.ONE_WAY) == 1


def test_fields_that_cpp_leaves_empty_are_no_matter(twin: Any) -> None:
    parsed = Parsed(twin, encode_frame(a_send(Signature="", AccessKey="", OnsChannel="")))
    assert len(parsed) == 1


def test_real_sends_are_ordinary_but_for_those_that_ask_for_more(twin: Any) -> None:
    for sample in requests("SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE"):
        parsed, given = Parsed(twin, sample.frame, tail=b""), sample.command.fields
        properties = decode_properties(given["i"].encode())
        ordinary = "UNIQ_KEY" in properties and "POP_CK" not in properties and given.get("m") != "true"
        assert (len(parsed) == 1) == ordinary, sample
        if ordinary:
            assert parsed.head(0, Draft.PROPERTIES_AT) == encode_properties(properties)


def test_rows_that_speak_of_what_is_not_there_are_a_bug_of_the_caller(twin: Any) -> None:
    turn = a_turn(burst, encode_frame(a_send()))
    for column, value in ((Frame.CHUNK, 1), (Frame.PAIRS, 99), (Frame.BODY_SIZE, 1 << 40), (Frame.AT, -1)):
        frames = array("q", turn.frames)
        frames[column] = value
        with pytest.raises(ValueError, match="frame 0 speaks of what is not there"):
            twin.parse_sends(turn.data, turn.chunks, frames, turn.pairs, bytearray(), b"")
    for place, value in enumerate((-1, -5, 1 << 62, (1 << 63) - 1)):
        pairs = array("q", turn.pairs)
        pairs[place] = value
        with pytest.raises(ValueError, match="speaks of what is not there"):
            twin.parse_sends(turn.data, turn.chunks, turn.frames, pairs, bytearray(), b"")


def test_letters_and_names_are_those_of_the_header() -> None:
    assert {name.decode(): chr(ord("a") + number) for name, number in NAMES.items()} == WIRE_LETTERS
    assert sorted(LETTERS.values()) == list(range(14))


words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12
)


@given(
    topic=st.from_regex(r"[a-zA-Z0-9_-]{1,40}", fullmatch=True),
    numbers=st.tuples(st.integers(0, 99), int32, st.integers(-(10**18) + 1, 10**18 - 1), int32),
    properties=st.dictionaries(words, words, max_size=5),
    serialize=st.sampled_from(SerializeType),
    body=st.binary(min_size=1, max_size=30),
)
def test_both_lanes_read_the_same(
    topic: str,
    numbers: tuple[int, int, int, int],
    properties: dict[str, str],
    serialize: SerializeType,
    body: bytes,
) -> None:
    """What the fast lane takes, it understands as the header classes of the plain lane do."""
    properties = {**properties, "UNIQ_KEY": "0A01"}
    queue_id, flag, born, times = map(str, numbers)
    raw = encode_properties(properties)
    command = a_send(b=topic, e=queue_id, h=flag, g=born, j=times, i=raw.decode())
    frame = with_form(Command(code=310, ext_fields=command.fields, body=body), serialize)
    for module in TWINS:
        parsed = Parsed(module, frame)
        if parsed.plain == [Plain.FIELDS]:
            names = [name.encode() for name in properties]
            assert any(n in PLAIN_PROPERTIES or n.startswith(PLAIN_PREFIXES) or n == b"WAIT" for n in names)
            continue
        header = decode_send(310, burst.command_of(parsed.turn.data, parsed.turn.frames, 0).fields)
        assert parsed.head(0, Draft.TOPIC_AT).decode() == header.topic == topic
        assert parsed.head(0, Draft.PROPERTIES_AT) == raw + TAIL
        assert parsed.draft(0, Draft.QUEUE_ID) == header.queue_id
        assert parsed.draft(0, Draft.FLAG) == header.flag
        assert parsed.draft(0, Draft.BORN_TIMESTAMP) == header.born_timestamp
        assert parsed.draft(0, Draft.RECONSUME_TIMES) == header.reconsume_times


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(deliveries, st.sampled_from([b"", TAIL]))
def test_twins_agree_on_any_bytes(delivered: list[bytes], tail: bytes) -> None:
    seen = [Parsed(module, *delivered, tail=tail).result() for module in TWINS]
    assert seen[0] == seen[1]


sendlike = st.dictionaries(
    st.sampled_from([*"abcdefghijklmn", "x", ""]),
    st.sampled_from(["", "1", "-1", "false", "true", "T", "%T", "é", "\x00", "99999999999999999999"])
    | st.text(alphabet="kUNIQ_KEYWAT\x01\x02é\\\"", max_size=20).map(lambda more: "UNIQ_KEY\x01U\x02" + more)
    | st.lists(st.tuples(
        st.sampled_from(["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG",
                         "PGROUP", "REAL_TOPIC", "TIMER_", "__transactionId__", "POP_CK_OFFSET",
                         "1ST_POP_TIME", "1ST_POP", "TRANSACTION_CHECK_TIMES", "REAL_QID"]),
        st.sampled_from(["true", "pg", " ", "0", "07", "7", "99", "100", "-1", "9" * 15, "9" * 16]),
    ), max_size=3).map(lambda pairs: "UNIQ_KEY\x01U\x02" + "".join(f"{n}\x01{v}\x02" for n, v in pairs)),
)  # fmt: skip


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(
    st.lists(st.tuples(sendlike, st.sampled_from(SerializeType), st.sampled_from([10, 310, 320])), max_size=3)
)
def test_twins_agree_on_strange_sends(given: list[tuple[dict[str, str], SerializeType, int]]) -> None:
    frames = []
    for changes, serialize, code in given:
        fields = {**a_send().fields, **changes}
        frames.append(with_form(Command(code=code, ext_fields=fields, body=b"x"), serialize))
    seen = [Parsed(module, *frames).result() for module in TWINS]
    assert seen[0] == seen[1]


def test_a_chunk_without_an_address_gives_a_draft_without_one(twin: Any) -> None:
    turn = a_turn(burst, encode_frame(a_send()))
    turn.chunks[Chunk.BORN_HOST_SIZE] = 0
    drafts, _, _ = twin.parse_sends(turn.data, turn.chunks, turn.frames, turn.pairs, bytearray())
    assert drafts[Draft.BORN_HOST_SIZE] == 0
