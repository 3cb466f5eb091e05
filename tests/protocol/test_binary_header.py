"""Compact headers: lengths that add up, and lengths that do not."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.samples import compact_commands

from flaremq.base.errors import Malformed, UsageError
from flaremq.protocol import binary_header
from flaremq.protocol.codes import RequestCode, SerializeType
from flaremq.protocol.command import Command

COMPACT = SerializeType.ROCKETMQ
SMALLEST = bytes(binary_header.FIXED_SIZE)


@given(compact_commands)
def test_what_is_encoded_is_decoded_again(command: Command) -> None:
    assert binary_header.decode(binary_header.encode(command), command.body) == command


def test_an_empty_text_cannot_be_told_from_none() -> None:
    command = Command(code=1, remark="", ext_fields={"k": "", "l": "x"}, serialize_type=COMPACT)
    decoded = binary_header.decode(binary_header.encode(command))
    assert decoded.remark is None
    assert decoded.ext_fields == {"l": "x"}


def test_of_equal_names_the_last_one_stands() -> None:
    one = binary_header.encode(Command(code=1, ext_fields={"k": "1"}, serialize_type=COMPACT))
    pair = one[binary_header.FIXED_SIZE :]
    header = one[:17] + (2 * len(pair)).to_bytes(4, "big") + pair + pair[:-1] + b"2"
    assert binary_header.decode(header).ext_fields == {"k": "2"}


def test_codes_of_pop_are_what_they_were_before_they_lost_bits() -> None:
    pop = Command(code=RequestCode.POP_MESSAGE, serialize_type=COMPACT)
    raw = binary_header.encode(pop)
    assert raw[:2] == bytes.fromhex("0d72")
    assert binary_header.decode(raw).code == 200050


def test_the_code_of_an_answer_is_taken_as_it_is() -> None:
    raw = binary_header.encode(Command(code=3442, flag=1, serialize_type=COMPACT))
    assert binary_header.decode(raw).code == 3442


def test_a_language_that_nobody_knows_is_none() -> None:
    assert binary_header.decode(SMALLEST[:2] + b"\xf0" + SMALLEST[3:]).language is None


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (SMALLEST[:-1], "a compact header of 20 bytes, expected at least 21"),
        (SMALLEST[:13] + b"\0\0\0\1" + SMALLEST[17:], "a remark of 1 bytes in a compact header of 21"),
        (SMALLEST[:13] + b"\xff\xff\xff\xff" + SMALLEST[17:], "a remark of -1 bytes"),
        (SMALLEST[:17] + b"\0\0\0\1", "fields of 1 bytes, with 0 left"),
        (SMALLEST + b"x", "fields of 0 bytes, with 1 left"),
        (SMALLEST[:17] + b"\0\0\0\1x", "goes beyond its header"),
        (SMALLEST[:17] + b"\0\0\0\6\0\1k\0\0\0", "goes beyond its header"),
        (SMALLEST[:17] + b"\0\0\0\7\0\1k\0\0\0\1", "goes beyond its header"),
        (SMALLEST[:17] + b"\0\0\0\6\xff\xff\0\0\0\0", "goes beyond its header"),
    ],
)
def test_lengths_that_do_not_add_up_are_malformed(header: bytes, match: str) -> None:
    with pytest.raises(Malformed, match=match):
        binary_header.decode(header)


def test_a_name_that_needs_more_than_its_two_bytes_of_length_is_refused() -> None:
    with pytest.raises(UsageError, match="name of 32768 bytes, the limit is 32767"):
        binary_header.encode(Command(code=1, ext_fields={"k" * 32768: "v"}, serialize_type=COMPACT))


@given(st.binary(min_size=21, max_size=60))
def test_any_bytes_give_a_command_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        binary_header.decode(data)
    with suppress(Malformed):
        binary_header.decode(data[:13] + bytes(4) + (len(data) - 21).to_bytes(4, "big") + data[21:])
