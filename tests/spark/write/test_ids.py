"""Ids that are derived: the same for the same, different for all else, and of the form that others read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flaremq.model.msgid import decode_unique_id
from flaremq.spark.write.ids import derived_id, derived_ids


@given(st.integers(0, 1 << 20), st.integers(0, 50), st.integers(0, 50))
def test_ids_do_not_depend_on_how_rows_are_cut_into_batches(first: int, some: int, more: int) -> None:
    whole = derived_ids("q/1/0", first, some + more)
    assert whole == derived_ids("q/1/0", first, some) + derived_ids("q/1/0", first + some, more)
    assert len(whole) == some + more


def test_no_two_rows_have_the_same_id() -> None:
    many = derived_ids("q/1/0", 65_000, 140_000)
    assert len(set(many)) == 140_000
    for other in ("q/1/1", "q/2/0", "r/1/0"):
        assert not set(derived_ids(other, 65_000, 140_000)) & set(many)


def test_ids_have_the_form_of_those_that_clients_make_and_are_none_of_these() -> None:
    for text in (derived_ids("q/1/0", 65_536 + 7, 1)[0], derived_id("again", "0" * 32)):
        assert len(text) == 32 and text == text.upper()
        parts = decode_unique_id(text)
        assert int(parts.ip.split(".")[0]) >= 240  # No host has such an address.
        assert parts.span_ms == 0
    assert decode_unique_id(derived_ids("q/1/0", 65_536 + 7, 1)[0]).counter == 7
