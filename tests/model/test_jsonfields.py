import json
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed
from flaremq.model.jsonfields import Fields


class Colour(Enum):
    RED = 1
    BLUE = 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_members_are_told_by_type() -> None:
    fields = Fields(
        "x", json.loads('{"t":"a","i":5,"l":[1,"2"],"b":true,"e":"BLUE","m":{"k":"v"},"o":{"i":6},"s":[{}]}')
    )
    assert fields.text("t") == "a"
    assert fields.integer("i", 0) == 5
    assert fields.integers("l", ()) == (1, 2)
    assert fields.boolean("b", False) is True
    assert fields.enum("e", Colour.RED) is Colour.BLUE
    assert fields.texts("m") == {"k": "v"}
    inner, inners = fields.inner("o"), fields.inners("s")
    assert inner is not None
    assert inner.integer("i", 0) == 6
    assert inners is not None
    assert len(inners) == 1


@pytest.mark.parametrize("data", [{}, dict.fromkeys("tilbemos")])
def test_what_is_absent_or_null_is_the_default(data: dict[str, object]) -> None:
    fields = Fields("x", data)
    assert fields.text("t", "d") == "d"
    assert fields.integer("i", 7) == 7
    assert fields.integers("l", (7,)) == (7,)
    assert fields.boolean("b", True) is True
    assert fields.enum("e", Colour.RED) is Colour.RED
    assert fields.texts("m") == {}
    assert fields.inner("o") is None
    assert fields.inners("s") is None


def test_text_without_a_default_must_be_there() -> None:
    with pytest.raises(Malformed, match="t of x is None, expected text"):
        Fields("x", {}).text("t")


@given(JSON)
def test_any_value_is_read_or_malformed(value: object) -> None:
    fields = Fields("x", {"v": value})
    for read in (
        lambda: fields.text("v", ""),
        lambda: fields.integer("v", 0),
        lambda: fields.integers("v", ()),
        lambda: fields.boolean("v", False),
        lambda: fields.enum("v", Colour.RED),
        lambda: fields.texts("v"),
        lambda: fields.inner("v"),
        lambda: fields.inners("v"),
    ):
        try:
            read()
        except Malformed as error:
            assert str(error).startswith("v of x is ")  # noqa: PT017
