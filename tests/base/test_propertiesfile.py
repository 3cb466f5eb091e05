r"""Expected values are what java.util.Properties gives for the same text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import ConfigError
from flaremq.base.propertiesfile import parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("\n \t\f\n\r\n", {}),
        ("# a=b\n ! c=d\n\t#e=f", {}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("a\fb", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a == b", {"a": "= b"}),
        ("a : = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=b=c:d e", {"a": "b=c:d e"}),
        ("a=b#c", {"a": "b#c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\nc=3\n\rd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a=\u2028b\x85c\x0bd", {"a": "\u2028b\x85c\x0bd"}),
        ("中=文", {"中": "文"}),
    ],
)
def test_keys_values_and_comments(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\r\n\tc", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("# no\\\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a\\\n=b", {"a": "b"}),
        ("\\\n#a=b", {}),
        ("\\\n\na=b", {"a": "b"}),
        ("k\\\n  e\\\n  y = v", {"key": "v"}),
    ],
)
def test_a_backslash_at_the_end_continues_the_line(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"a\=b=c", {"a=b": "c"}),
        (r"a\:b c", {"a:b": "c"}),
        (r"a\ b=c", {"a b": "c"}),
        (r"\#a=b", {"#a": "b"}),
        (r"a=\t\n\r\f\\\q", {"a": "\t\n\r\f\\q"}),
        (r"a=\u4e2d\u6587", {"a": "中文"}),
        (r"\u0061=\U", {"a": "U"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        (r"a=\u00412", {"a": "A2"}),
        (r"a=\ b\ ", {"a": " b "}),
    ],
)
def test_escapes(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize(
    "escape", [r"\u", r"\u12", r"\u12g4", r"\u 123", "\\u\u0660\u0660\u0660\u0660", r"\u-123"]
)
@pytest.mark.parametrize("form", ["x=1\n\na={}", "x=1\n\n{}=a"])
def test_a_broken_unicode_escape_names_its_line(escape: str, form: str) -> None:
    with pytest.raises(ConfigError, match=r"line 3: \\u.* four hexadecimal digits"):
        parse_properties(form.format(escape))


@pytest.mark.parametrize("text", [r"a=\ud83d", r"a=\ude00\ud83d", "a=\ud83d"])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"line 1: .*half a surrogate pair"):
        parse_properties(text)


def test_the_line_named_is_where_the_entry_begins() -> None:
    with pytest.raises(ConfigError, match="line 2:"):
        parse_properties("# one\na=b\\\n c\\\n \\u12\n")


ODD = st.text(st.one_of(st.sampled_from("ab=: \t\f\\\n\r#!u0041"), st.characters()))


@given(ODD)
def test_any_text_gives_a_dict_or_a_config_error(text: str) -> None:
    try:
        found = parse_properties(text)
    except ConfigError:
        return
    assert all(isinstance(part, str) for pair in found.items() for part in pair)


def escaped(text: str) -> str:
    letters = {"\n": "\\n", "\r": "\\r"}
    return "".join(letters.get(char, f"\\{char}" if char in "\\=: \t\f#!" else char) for char in text)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text()))
def test_what_was_escaped_is_read_back(wanted: dict[str, str]) -> None:
    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in wanted.items())
    assert parse_properties(text) == wanted
