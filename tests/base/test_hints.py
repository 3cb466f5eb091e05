"""The next step that an error carries."""

from __future__ import annotations

import pickle

from flaremq.base.errors import FlareError, Hint, InvalidName, Malformed


def test_an_error_without_a_hint_is_what_happened() -> None:
    error = InvalidName("topic 'a b' holds a space")
    assert str(error) == error.fact == "topic 'a b' holds a space"


def test_a_program_reads_the_hint_after_what_happened() -> None:
    error = FlareError("topic 'x' is unknown").with_hint(Hint.LIST_TOPICS)
    assert error.fact == "topic 'x' is unknown"
    assert str(error) == "topic 'x' is unknown; see `topics.list`"


def test_a_hint_survives_the_way_to_another_process() -> None:
    error = Malformed("not a record", at=7).with_hint(Hint.READ_LOG)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.hint, copy.at) == (str(error), Hint.READ_LOG, 7)
