"""Both twins, one suite. Expected values printed by Java's String.hashCode."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.model._tags")


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("中文", 646394),
        ("中文😀", 622957533),
    ],
)
def test_agrees_with_java(twin: Any, text: str, expected: int) -> None:
    assert twin.java_hash(text) == expected


def test_bytes_are_refused(twin: Any) -> None:
    with pytest.raises(TypeError):
        twin.java_hash(b"TagA")


@pytest.mark.skipif(len(TWINS) == 1, reason="the extension is not built")
@given(st.text())
def test_twins_agree(text: str) -> None:
    python, compiled = TWINS
    assert compiled.java_hash(text) == python.java_hash(text)
