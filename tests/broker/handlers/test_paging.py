"""Tables by the page."""

from __future__ import annotations

import pytest

from flaremq.base.errors import InvalidParameter, Malformed
from flaremq.broker.handlers.paging import PAGE_MAX, page
from flaremq.model.topic import DataVersion
from flaremq.protocol import fastjson

VERSION = DataVersion(0, 3, 1_700_000_000_000)
KNOWN = fastjson.dumps(VERSION.to_dict()).decode()
TABLE = {name: name.upper() for name in "dbca"}


def test_pages_follow_each_other_by_name() -> None:
    assert page(TABLE, VERSION, None, 0, 2) == {"a": "A", "b": "B"}
    assert page(TABLE, VERSION, KNOWN, 2, 2) == {"c": "C", "d": "D"}
    assert page(TABLE, VERSION, KNOWN, 4, 2) == {}


@pytest.mark.parametrize("size", range(1, 8))
@pytest.mark.parametrize("count", range(1, 4))
def test_no_page_leaves_a_single_entry_which_a_slave_of_rocketmq_would_not_ask_for(
    size: int, count: int
) -> None:
    table = {f"{n}": n for n in range(size)}
    found = page(table, VERSION, None, 0, count)
    while len(found) < size - 1:
        found |= page(table, VERSION, KNOWN, len(found), count)
    assert found == table


@pytest.mark.parametrize("known", [None, "", '{"counter":2,"stateVersion":0,"timestamp":1700000000000}'])
def test_first_page_is_given_again_when_the_table_has_changed(known: str | None) -> None:
    assert page(TABLE, VERSION, known, 2, 2) == {"a": "A", "b": "B"}


def test_page_has_a_largest_size() -> None:
    large = {f"{n:05}": n for n in range(PAGE_MAX + 5)}
    assert len(page(large, VERSION, None, 0, None)) == PAGE_MAX
    assert len(page(large, VERSION, None, 0, PAGE_MAX * 2)) == PAGE_MAX


@pytest.mark.parametrize(("begin", "count"), [(-1, 5), (0, 0), (0, -3)])
def test_page_that_cannot_be_is_refused(begin: int, count: int) -> None:
    with pytest.raises(InvalidParameter, match="expected a start of 0 or more"):
        page(TABLE, VERSION, None, begin, count)


def test_version_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Malformed):
        page(TABLE, VERSION, "not JSON", 0, 1)
