"""Attributes: what may be added, changed and removed, and when."""

from __future__ import annotations

import pytest

from flaremq.base.errors import UsageError
from flaremq.broker.tables.attributes import altered, parse_changes


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (None, {}),
        ("", {}),
        ("+message.type=FIFO", {"+message.type": "FIFO"}),
        (" +a=1 , -b ,", {"+a": "1", "-b": ""}),
        ("+a=x=y", {"+a": "x=y"}),
    ],
)
def test_changes_are_read_from_text(text: str | None, changes: dict[str, str]) -> None:
    assert parse_changes(text) == changes


@pytest.mark.parametrize("text", ["+a", "-a=1", "+a=1,+a=2"])
def test_text_that_says_no_change_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="attribute"):
        parse_changes(text)


def test_attributes_are_kept_without_their_signs() -> None:
    assert altered(None, {"+message.type": "FIFO"}) == {"message.type": "FIFO"}
    assert altered({"message.type": "FIFO"}, {"+message.type": "DELAY"}) == {"message.type": "DELAY"}
    assert altered({"message.type": "FIFO"}, {"-message.type": ""}) == {}
    assert altered({"message.type": "FIFO"}, {}) == {"message.type": "FIFO"}


def test_kind_of_queue_is_chosen_when_a_topic_is_made() -> None:
    assert altered(None, {"+queue.type": "BatchCQ"}) == {"queue.type": "BatchCQ"}
    with pytest.raises(UsageError, match="fixed when a topic is created"):
        altered({}, {"+queue.type": "BatchCQ"})
    with pytest.raises(UsageError, match="fixed when a topic is created"):
        altered({"queue.type": "BatchCQ"}, {"-queue.type": ""})


@pytest.mark.parametrize(
    ("current", "changes", "why"),
    [
        (None, {"message.type": "FIFO"}, "cannot be read"),
        (None, {"+": "FIFO"}, "cannot be read"),
        (None, {"+a+b": "1"}, "cannot be read"),
        (None, {"-message.type": ""}, "cannot be removed on creation"),
        ({}, {"-message.type": ""}, "not set"),
        ({}, {"+colour": "red"}, "is unknown"),
        ({}, {"+message.type": "PURPLE"}, "expected one of"),
        ({}, {"+reserve.time": "3"}, "tiered storage"),
        ({"message.type": "FIFO"}, {"+message.type": "DELAY", "-message.type": ""}, "twice"),
    ],
)
def test_change_that_cannot_be_is_refused(
    current: dict[str, str] | None, changes: dict[str, str], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        altered(current, changes)


def test_group_has_no_attributes_to_change() -> None:
    assert altered({"old": "1"}, {}, known={}) == {"old": "1"}
    with pytest.raises(UsageError, match="known attributes: none"):
        altered(None, {"+a": "1"}, known={})
