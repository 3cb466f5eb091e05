"""Headers in JSON: Java's to the byte, and others' as Java would read them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.samples import json_commands

from flaremq.base.errors import Malformed
from flaremq.protocol import json_header
from flaremq.protocol.codes import LanguageCode
from flaremq.protocol.command import Command


def test_an_answer_with_a_remark_is_written_as_java_writes_it() -> None:
    command = Command(code=17, flag=1, opaque=7, remark="no\ntopic", language=LanguageCode.JAVA)
    assert json_header.encode(command) == (
        b'{"code":17,"flag":1,"language":"JAVA","opaque":7,"remark":"no\\ntopic",'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )


def test_separators_of_properties_are_escaped_as_java_does() -> None:
    command = Command(code=310, ext_fields={"i": "TAGS\x01TagA\x02"})
    assert b'"i":"TAGS\\u0001TagA\\u0002"' in json_header.encode(command)


def test_a_line_feed_behind_the_header_is_no_matter() -> None:
    assert json_header.decode(b'{"code":11}\n').code == 11


def test_what_is_missing_is_what_java_takes_for_it() -> None:
    command = json_header.decode(b'{"code":34}')
    assert (command.flag, command.opaque, command.version) == (0, 0, 0)
    assert command.language is LanguageCode.JAVA
    assert command.ext_fields is None
    assert command.remark is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"3", "3"),
        (b"-3", "-3"),
        (b"true", "true"),
        (b"false", "false"),
        (b"1.50", "1.50"),
        (b'""', ""),
        (b'{"x":[1,"y"]}', '{"x":[1,"y"]}'),
        (b"9223372036854775807", "9223372036854775807"),
    ],
)
def test_any_value_of_an_ext_field_becomes_text(written: bytes, read: str) -> None:
    assert json_header.decode(b'{"code":1,"extFields":{"k":%b}}' % written).ext_fields == {"k": read}


def test_an_ext_field_that_is_null_is_none() -> None:
    assert json_header.decode(b'{"code":1,"extFields":{"k":null,"l":"x"}}').ext_fields == {"l": "x"}
    assert json_header.decode(b'{"code":1,"extFields":null}').ext_fields is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b'"GO"', LanguageCode.GO),
        (b"1", LanguageCode.CPP),
        (b'"COBOL"', None),
        (b"99", None),
        (b"null", None),
    ],
)
def test_a_language_goes_by_name_or_number_and_may_be_unknown(
    written: bytes, read: LanguageCode | None
) -> None:
    assert json_header.decode(b'{"code":1,"language":%b}' % written).language is read


def test_numbers_of_the_header_may_be_in_quotes() -> None:
    assert json_header.decode(b'{"code":"11","opaque":"-4"}').opaque == -4


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b'{"code":1',
        b'{"code":1}x',
        b'{"code":2147483648}',
        b'{"code":1.5}',
        b'{"code":"x"}',
        b'{"code":true}',
        b'{"code":1,"opaque":-2147483649}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":"x"}',
        b'{"code":"' + b"9" * 5000 + b'"}',
        b'{"code":1,"extFields":{"k":' + b"[" * 900 + b"]" * 900 + b"}}",
    ],
)
def test_what_java_cannot_read_is_malformed(header: bytes) -> None:
    with pytest.raises(Malformed):
        json_header.decode(header)


def test_the_dialect_of_fastjson_is_understood() -> None:
    command = json_header.decode(b"{code:11,'extFields':{topic:'T'}, /* so */ \"opaque\":3}")
    assert (command.code, command.opaque, command.ext_fields) == (11, 3, {"topic": "T"})


def test_bytes_that_are_no_utf8_are_replaced_as_java_does() -> None:
    assert json_header.decode(b'{"code":1,"remark":"a\xff"}').remark == "a\ufffd"


def test_half_a_character_becomes_a_question_mark_when_it_is_written() -> None:
    assert json_header.encode(Command(code=1, remark="\ud800")).count(b'"remark":"?"') == 1


@given(json_commands)
def test_what_is_encoded_is_decoded_again(command: Command) -> None:
    assert json_header.decode(json_header.encode(command), command.body) == command


@given(st.binary(max_size=50) | st.text(alphabet='{}[]":,code0 extFields\\', max_size=60).map(str.encode))
def test_any_bytes_give_a_command_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        json_header.decode(data)
