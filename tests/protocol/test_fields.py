"""Ext fields: text on the wire, typed on our side, and errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import PeerError
from flaremq.protocol import fields
from flaremq.protocol.fields import Codec, Header, Long, camel
from flaremq.protocol.headers.pull import BoundaryType, SearchOffsetRequestHeader
from flaremq.protocol.headers.send import (
    LETTERED,
    LETTERS,
    SendMessageRequestHeader,
    decode_send,
    encode_send,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Header):
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"odd_name": "OddName"}

    queue_id: int
    offset: Long
    topic: str
    is_force: bool = False
    rate: float | None = None
    odd_name: str | None = None


GIVEN = {"queueId": "3", "offset": "9223372036854775807", "topic": "T"}


def test_names_are_javas() -> None:
    assert camel("suggest_which_broker_id") == "suggestWhichBrokerId"
    assert camel("topic") == "topic"


def test_fields_are_read_by_their_types() -> None:
    sample = fields.decode(
        Sample, {**GIVEN, "isForce": "TRUE", "rate": "1.5", "OddName": "x", "unknown": "y"}
    )
    assert sample == Sample(
        queue_id=3, offset=(1 << 63) - 1, topic="T", is_force=True, rate=1.5, odd_name="x"
    )


def test_fields_are_written_as_text_and_none_is_left_out() -> None:
    sample = Sample(queue_id=-1, offset=5, topic="", is_force=True, rate=1e7)
    assert fields.encode(sample) == {
        "queueId": "-1",
        "offset": "5",
        "topic": "",
        "isForce": "true",
        "rate": "1.0E7",
    }


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("+7", 7), ("-2147483648", -(1 << 31)), ("0000000000012", 12), ("007", 7)]
)
def test_numbers_are_what_java_parses(text: str, number: int) -> None:
    assert fields.decode(Sample, {**GIVEN, "queueId": text}).queue_id == number


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1.0", "x", "2147483648", "--1", "٣", "1_0", "0x1", "+"])
def test_what_java_cannot_parse_is_refused_by_name(text: str) -> None:
    with pytest.raises(PeerError, match=r"Sample: field 'queueId' is .*whole number of 32 bits") as caught:
        fields.decode(Sample, {**GIVEN, "queueId": text})
    assert caught.value.response_code == 1


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "1e3"])
def test_a_long_has_64_bits(text: str) -> None:
    with pytest.raises(PeerError, match=r"field 'offset' .* 64 bits"):
        fields.decode(Sample, {**GIVEN, "offset": text})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(PeerError, match="Sample: field 'topic' is missing, expected text"):
        fields.decode(Sample, {"queueId": "3", "offset": "1"})


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", False), ("yes", False), ("false", False)]
)
def test_only_true_is_true(text: str, value: bool) -> None:
    assert fields.decode(Sample, {**GIVEN, "isForce": text}).is_force is value


def test_an_optional_number_that_is_empty_is_none_but_one_that_is_wrong_is_told() -> None:
    assert fields.decode(Sample, {**GIVEN, "rate": ""}).rate is None
    with pytest.raises(PeerError, match="field 'rate' is 'fast', expected a number"):
        fields.decode(Sample, {**GIVEN, "rate": "fast"})


@pytest.mark.parametrize(
    ("text", "boundary"),
    [("UPPER", BoundaryType.UPPER), ("upper", BoundaryType.UPPER), ("x", BoundaryType.LOWER)],
)
def test_a_boundary_is_lower_unless_it_is_upper(text: str, boundary: BoundaryType) -> None:
    given = {"topic": "T", "queueId": "0", "timestamp": "5", "boundaryType": text}
    header = fields.decode(SearchOffsetRequestHeader, given)
    assert header.boundary_type is boundary
    assert fields.encode(header)["boundaryType"] == boundary.name


SEND = SendMessageRequestHeader(
    producer_group="pg", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
    sys_flag=0,
    born_timestamp=1700000000000, flag=0, properties="TAGS\x01A\x02", reconsume_times=0, unit_mode=False,
    batch=False,
    bname="broker-a",
)  # fmt: skip


def test_a_send_has_letters_or_names_as_its_code_says() -> None:
    assert set(encode_send(310, SEND)) == set("abcdefghijkmn")
    assert "producerGroup" in encode_send(10, SEND)
    for code in (10, 324, *LETTERED):
        assert decode_send(code, encode_send(code, SEND)) == SEND


def test_every_field_of_a_send_has_a_letter_of_its_own() -> None:
    assert sorted(LETTERS.values()) == list("abcdefghijklmn")


def test_a_codec_can_have_other_names() -> None:
    renamed = Codec(Sample, {"topic": "t", "OddName": "o"})
    assert renamed.decode({"queueId": "1", "offset": "2", "t": "T", "o": "x"}).odd_name == "x"


@given(
    st.dictionaries(st.sampled_from(["queueId", "offset", "topic", "isForce", "rate"]), st.text(max_size=6))
)
def test_any_fields_give_a_header_or_our_own_error(given_fields: dict[str, str]) -> None:
    with suppress(PeerError):
        fields.decode(Sample, given_fields)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=5))
def test_what_is_encoded_is_decoded_again(queue_id: int, offset: int, topic: str) -> None:
    sample = Sample(queue_id=queue_id, offset=offset, topic=topic)
    assert fields.decode(Sample, fields.encode(sample)) == sample
