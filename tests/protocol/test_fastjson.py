"""fastjson's dialect: all that Java writes is read, and what we write is Java's to the byte."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed
from flaremq.protocol.fastjson import Dialect, ObjectKey, dumps, java_double, load_object, loads, quote
from flaremq.protocol.fastjson_reader import DEPTH_MAX, read

QUEUE = ObjectKey((("brokerName", "broker-a"), ("queueId", 0), ("topic", "T")))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1}', {"a": 1}),
        ('{0:"a",1:"b"}', {0: "a", 1: "b"}),
        ('{-1:{2:3}}', {-1: {2: 3}}),
        ('{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}', {QUEUE: 5}),
        ('{[1,2]:3}', {(1, 2): 3}),
        ("{a:1,_b$:'x'}", {"a": 1, "_b$": "x"}),
        ("{'it\\'s':\"so\"}", {"it's": "so"}),
        ('{"a":1} // that is all', {"a": 1}),
        ('/* first */ [1, /* then */ 2]', [1, 2]),
        ('{"a":true,"b":false,"c":null}', {"a": True, "b": False, "c": None}),
        ("[1.5,-2e3,0]", [1.5, -2000.0, 0]),
        ('["\\u0001\\x41\\v\\/"]', ["\x01A\v/"]),
        ('{0:"\\ud83d\\ude00"}', {0: "😀"}),
        ('{0:"\\ud83d"}', {0: "\ufffd"}),
        ("{}", {}),
        ("[]", []),
        (' {0 : [ ] , 1 : { } } ', {0: [], 1: {}}),
    ],
)  # fmt: skip
def test_what_fastjson_reads_is_read(text: str, value: object) -> None:
    assert loads(text) == value
    assert read(text) == value


def test_an_object_that_was_a_key_can_be_an_object_again() -> None:
    assert dict(QUEUE)["topic"] == "T"
    assert hash(QUEUE) == hash(ObjectKey(QUEUE))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"a":[{"x":1}],"b":{"$ref":"$.a[0]"}}', {"a": [{"x": 1}], "b": {"x": 1}}),
        (
            r'{"t":{"%RETRY%g":{"x":1},"T":{"$ref":"$.t.\\%RETRY\\%g"}}}',
            {"t": {"%RETRY%g": {"x": 1}, "T": {"x": 1}}},
        ),
        ('{"a":{"$ref":"$"}}', {"a": None}),
        ('{"a":{"b":{"$ref":".."}}}', {"a": {"b": None}}),
        ('{"a":{"$ref":"@"}}', {"a": None}),
        ('{"a":{"$ref":"$.gone.away"}}', {"a": None}),
        ('{"a":{"$ref":"$.a[7]"}}', {"a": None}),
        ('{"a":{"$ref":"what"}}', {"a": None}),
        ('{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}', {"a": None, "b": None}),
        ('{"a":{"$ref":5}}', {"a": {"$ref": 5}}),
        ('{"a":{"$ref":"$","b":1}}', {"a": {"$ref": "$", "b": 1}}),
        ('{0:{"x":1},"b":{"$ref":"$.0"}}', {0: {"x": 1}, "b": {"x": 1}}),
    ],
)
def test_references_are_followed_unless_they_lead_in_a_circle(text: str, value: object) -> None:
    assert loads(text) == value


def test_a_reference_in_a_real_registration_is_followed() -> None:
    body = (
        '{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},'
        '"mappingDataVersion":{"$ref":"$.topicConfigSerializeWrapper.dataVersion"}}}'
    )
    wrapper = load_object(body)["topicConfigSerializeWrapper"]
    assert isinstance(wrapper, dict)
    assert wrapper["mappingDataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": 7}


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "[", "[1", '{"a"}', '{"a":}', '{"a":1,}', "[1,]", "{0}", '"a', "tru", "truely", "01x",
     "1.2.3", "1e", "--1", "{a b:1}", '{"a":1}}', '["\\q"]', '["\\u12"]', "nul", "/* open", "{,}", "x"],
)  # fmt: skip
def test_what_nobody_can_read_is_malformed_and_says_where(text: str) -> None:
    with pytest.raises(Malformed, match="JSON at character"):
        loads(text)


def test_a_number_has_a_limit_where_there_is_no_other_reader() -> None:
    assert read("1" * 40) == int("1" * 40)
    with pytest.raises(Malformed, match="a value"):
        read("1" * 41)


def test_depth_has_a_limit() -> None:
    deep = "{0:" * DEPTH_MAX + "1" + "}" * DEPTH_MAX
    assert read(deep)
    with pytest.raises(Malformed, match=f"no more than {DEPTH_MAX}"):
        read("{0:" + deep + "}")


@pytest.mark.parametrize(("body", "match"), [(None, "no body"), (b"", "no body"), (b"[1]", "that is list")])
def test_who_needs_an_object_is_told_that_there_is_none(body: bytes | None, match: str) -> None:
    with pytest.raises(Malformed, match=match):
        load_object(body)


@pytest.mark.parametrize(
    ("value", "java", "standard"),
    [
        ({0: "a", 1: "b"}, '{0:"a",1:"b"}', '{"0":"a","1":"b"}'),
        ({QUEUE: 5}, '{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}',
         '{"{\\"brokerName\\":\\"broker-a\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":5}'),
        ({"a": None, "b": 1}, '{"b":1}', '{"b":1}'),
        ([None, 1], "[null,1]", "[null,1]"),
        ([], "[]", "[]"),
        ({}, "{}", "{}"),
        ("é中😀", '"é中😀"', '"\\u00E9\\u4E2D\\uD83D\\uDE00"'),
        ("</a/>", '"</a/>"', '"<\\/a/>"'),
        ('"\\/', '"\\"\\\\/"', '"\\"\\\\/"'),
        ("\x00\x01\b\t\n\v\f\r\x1f\x7f\x9f\u2028",
         '"\\u0000\\u0001\\b\\t\\n\\u000B\\f\\r\\u001F\\u007F\\u009F\\u2028"',
         '"\\u0000\\u0001\\b\\t\\n\\u000B\\f\\r\\u001F\\u007F\\u009F\\u2028"'),
        (1 << 60, "1152921504606846976", '"1152921504606846976"'),
        (True, "true", "true"),
        (0.0, "0.0", "0.0"),
        (float("nan"), "null", "null"),
        (Dialect.STANDARD, '"STANDARD"', '"STANDARD"'),
    ],
)  # fmt: skip
def test_values_are_written_as_java_writes_them(value: object, java: str, standard: str) -> None:
    assert dumps(value).decode() == java
    assert dumps(value, Dialect.STANDARD).decode() == standard


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (4.16, "4.16"), (0.06666666666666667, "0.06666666666666667"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (-12345678.9, "-1.23456789E7"),
        (1e300, "1.0E300"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity"),
    ],
)  # fmt: skip
def test_doubles_have_javas_form(value: float, text: str) -> None:
    assert java_double(value) == text


def test_a_value_without_a_form_is_a_bug_of_the_caller() -> None:
    with pytest.raises(TypeError, match="object has no form"):
        dumps(object())


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain = st.recursive(
    st.booleans()
    | st.integers(-(1 << 53), 1 << 53)
    | text
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(text | st.integers(-99, 99), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_what_is_written_is_read_again(value: object) -> None:
    assert read(dumps(value).decode()) == value
    assert loads(dumps(value)) == value or "$ref" in str(value)


@given(plain)
def test_the_standard_dialect_is_json_for_everybody(value: object) -> None:
    assert json.loads(dumps(value, Dialect.STANDARD)) == json.loads(json.dumps(value))


@given(text)
def test_a_quoted_string_is_one_for_any_reader(value: str) -> None:
    assert json.loads(quote(value)) == value
    assert json.loads(quote(value, standard=True)) == value
    assert quote(value, standard=True).isascii()


@given(st.text(alphabet="{}[]:,\"'\\01.e-tru nl$ref/*u", max_size=30))
def test_any_text_gives_a_value_or_malformed(value: str) -> None:
    with suppress(Malformed):
        loads(value)


@given(st.binary(max_size=30))
def test_any_bytes_give_a_value_or_malformed(value: bytes) -> None:
    with suppress(Malformed):
        loads(value)
