"""Expected values are those of Java's MessageDecoder and of `new String(bytes, UTF_8)`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.model import properties
from flaremq.model.properties import (
    RESERVED,
    Failure,
    add_failure,
    decode_properties,
    decode_text,
    encode_properties,
    failure_in,
    find_property,
    one_line,
)

WORDS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
NAMES = st.sampled_from([b"A", b"AB", b"B", b"TAGS", "中".encode()])
TANGLED = st.lists(st.sampled_from([b"A", b"AB", b"B", b"x", b"\x01", b"\x02", b"TAGS", "中".encode()])).map(
    b"".join
)


def test_pairs_are_written_as_java_writes_them() -> None:
    assert encode_properties({"KEYS": "k1 k2", "TAGS": "TagA"}) == b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02"
    assert encode_properties({}) == b""


def test_absent_values_are_skipped_and_empty_ones_written() -> None:
    assert encode_properties({"a": None, "b": "", "c": "1"}) == b"b\x01\x02c\x011\x02"


def test_text_is_utf8_and_half_a_character_a_question_mark() -> None:
    assert encode_properties({"中": "😀"}) == "中\x01😀\x02".encode()
    assert encode_properties({"a": "\ud83d"}) == b"a\x01?\x02"


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"", {}),
        (b"a\x01b\x02c\x01\x02d\x01x\x01y\x02e\x01f", {"a": "b", "d": "x\x01y", "e": "f"}),
        (b"a\x01b", {"a": "b"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x02b\x01c\x02", {"b": "c"}),
        (b"\x01a\x02", {}),
        (b"a\x01", {}),
        (b"ab", {}),
        (b"a\x01\x01\x02", {"a": "\x01"}),
        (b"a\x011\x02b\x012\x02a\x013\x02", {"b": "2", "a": "3"}),
        (b"a\x011\x02a\x01\x02", {"a": "1"}),
        ("中\x01文\x02".encode(), {"中": "文"}),
    ],
)
def test_pairs_are_read_as_java_reads_them(raw: bytes, found: dict[str, str]) -> None:
    assert decode_properties(raw) == found


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xe4\x01", "\ufffd\x01"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd\ufffd"),
        (b"\xf5\x80\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
    ],
)
def test_what_is_no_utf8_is_replaced_as_often_as_in_java(raw: bytes, text: str) -> None:
    assert decode_text(raw) == text


@given(st.dictionaries(WORDS, WORDS))
def test_what_was_written_is_read_back(wanted: dict[str, str]) -> None:
    assert decode_properties(encode_properties(wanted)) == wanted


@given(st.binary())
def test_any_bytes_can_be_read(raw: bytes) -> None:
    assert all(name and value for name, value in decode_properties(raw).items())


@given(TANGLED, NAMES)
def test_finding_one_gives_what_reading_all_gives(raw: bytes, name: bytes) -> None:
    found = find_property(raw, name)
    assert (None if found is None else found.decode()) == decode_properties(raw).get(name.decode())


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"", None),
        (b"TAGS", None),
        (b"TAGS\x01", None),
        (b"TAGS\x01\x02", None),
        (b"TAGS\x01a", b"a"),
        (b"XTAGS\x01a\x02", None),
        (b"X\x01TAGS\x01a\x02", None),
        (b"X\x01y\x02TAGS\x01a\x02", b"a"),
        (b"TAGS\x01a\x02TAGS\x01b\x02", b"b"),
        (b"TAGS\x01a\x02TAGS\x01\x02", b"a"),
        (b"TAGS\x01a\x02X\x01TAGS\x01b\x02", b"a"),
        (b"TAGS\x01a\x01b\x02", b"a\x01b"),
        (b"TAGS\x01\xff\x02", b"\xff"),
    ],
)
def test_one_property_is_found_where_it_counts(raw: bytes, value: bytes | None) -> None:
    assert find_property(raw, b"TAGS") == value


def test_the_reserved_names_are_exactly_java_s() -> None:
    assert len(RESERVED) == 51
    assert {"KEYS", "TAGS", "UNIQ_KEY", "1ST_POP_TIME", "__CRC32#", "TIMER_DEL_UNIQKEY"} <= RESERVED
    allowed = {
        *("INNER_NUM", "INNER_BASE", "TRACE_CONTEXT", "REDIRECT", "CHECK_IMMUNITY_TIME_IN_SECONDS"),
        *("__SHARDINGKEY", "__transactionId__", "TRANSACTION_CHECK_TIMES", "INNER_MULTI_DISPATCH"),
        "PROPERTY_FORWARD_QUEUE_ID",
    }
    assert not allowed & RESERVED


def test_every_name_stands_for_one_property() -> None:
    constants = [
        value
        for name, value in vars(properties).items()
        if name.isupper() and isinstance(value, str) and name not in ("NAME_END", "PAIR_END", "KEY_SEPARATOR")
    ]
    public = [value for value in constants if value != "flaremq-like-java"]
    assert len(set(public)) == len(public)
    assert set(public) > RESERVED


# Why a message failed.


@given(st.text(), st.integers(3, 60))
def test_a_reason_is_one_line_that_cannot_forge_a_property(text: str, size_max: int) -> None:
    line = one_line(text, size_max)
    assert len(line.encode()) <= size_max
    assert not set("\x00\x01\x02\n\r") & set(line)
    assert line == line.strip()
    assert one_line(line, size_max) == line


@given(st.integers(0, 33_000), st.text(min_size=1))
def test_a_reason_never_takes_the_room_that_brokers_need(filled: int, reason: str) -> None:
    known = {"fill": "x" * filled, "FAILURE_REASON": "old", "FAILURE_TIME": "1"}
    is_there = add_failure(known, reason, 1_700_000_000_000)
    assert is_there == ("FAILURE_REASON" in known) == ("FAILURE_TIME" in known)
    assert known.get("FAILURE_REASON") != "old" or one_line(reason) == "old"
    if is_there:
        assert len(encode_properties(known)) <= 32767 - 1024
        assert failure_in(known.get) == Failure(known["FAILURE_REASON"], 1_700_000_000_000)


def test_a_failure_whose_time_is_nonsense_keeps_its_reason() -> None:
    assert failure_in({"FAILURE_REASON": "no", "FAILURE_TIME": "soon"}.get) == Failure("no", 0)
    assert failure_in({"FAILURE_TIME": "1"}.get) is None
