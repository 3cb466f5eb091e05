"""Texts of servers, and values made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.admin import orderconf
from flaremq.admin.values.topics import MessageType, Perm, TopicSettings
from flaremq.admin.wording import (
    first_number,
    settings_of_text,
    settings_to_text,
    time_or_none,
    version_name,
    whole,
)
from flaremq.model.topic import TopicConfig

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT.filter(str.strip), TEXT, min_size=1))
def test_settings_survive_the_way_to_a_server_and_back(settings: dict[str, str]) -> None:
    text = settings_to_text(settings)
    assert text.isascii()  # Java reads other bytes as Latin-1.
    assert settings_of_text(text) == settings


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (213, "V4_0_0"),
        (317, "V4_5_2"),
        (399, "V4_9_3"),
        (400, "V4_9_4_SNAPSHOT"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
        (612, "HIGHER_VERSION"),
        (9999, "HIGHER_VERSION"),
        (121, "V3 (121)"),
        (0, "V3 (0)"),
    ],
)
def test_versions_have_javas_names(number: int, name: str) -> None:
    assert version_name(number) == name


def test_figures_that_are_none_are_none() -> None:
    assert [whole(text) for text in ("12", "-1", "x", "", None)] == [12, -1, None, None, None]
    assert [first_number(text) for text in ("1.5 2 3", " 7 ", "x", "", None)] == [1.5, 7.0, None, None, None]
    assert [time_or_none(ms) for ms in (5, 0, -1, (1 << 63) - 1)] == [5, None, None, None]


def test_an_order_is_changed_broker_by_broker() -> None:
    assert orderconf.changed(None, {"b": 2, "a": 1}, []) == "a:1;b:2"
    assert orderconf.changed("a:1;b:2;nonsense", {"a": 4}, ["b"]) == "a:4"
    assert orderconf.changed("a:1", {}, ["a"]) == ""
    assert orderconf.parse(" a:1 ;b:2;") == {"a": 1, "b": 2}


def test_settings_of_a_topic_that_others_have_made() -> None:
    odd = TopicConfig("t", 1, 1, perm=15, attributes={"message.type": "PRIORITY"})
    found = TopicSettings.of(odd)
    assert found.message_type is None
    assert Perm.INHERIT in found.perm and Perm.READ_WRITE in found.perm and int(found.perm) == 15
    assert TopicSettings(attributes={"message.type": "DELAY"}).message_type is MessageType.DELAY
