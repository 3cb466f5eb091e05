"""The frame of a send: whatever the words are, it says what the plain way says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.protocol.frame import decode_frame
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.protocol.bulk._frames")
TEMPLATE = (b'{"code":310,"extFields":{"f":"', b'},"flag":0,"opaque":', b',"version":479}')
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"))


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


@given(TEXT, st.binary(max_size=300), INT32, st.integers(0, 2**62), INT32, INT32)
def test_both_twins_write_a_frame_that_says_what_was_given(
    properties: str, body: bytes, sys_flag: int, born_ms: int, flag: int, opaque: int
) -> None:
    numbers = (sys_flag, born_ms, flag, opaque)
    frames = [twin.send_frame(TEMPLATE, properties, body, numbers) for twin in TWINS]
    assert all(frame == frames[0] for frame in frames)
    command = decode_frame(frames[0])
    assert (command.code, command.opaque, command.body) == (310, opaque, body or None)
    wanted = {"f": str(sys_flag), "g": str(born_ms), "h": str(flag), "i": properties}
    assert dict(command.fields) == wanted


def test_every_character_that_json_escapes_comes_back(twin: Any) -> None:
    properties = "".join(map(chr, range(0x80))) + "é中😀"
    command = decode_frame(twin.send_frame(TEMPLATE, properties, b"x", (0, 0, 0, 0)))
    assert command.fields["i"] == properties


def test_half_a_pair_of_surrogates_is_refused(twin: Any) -> None:
    with pytest.raises(UnicodeEncodeError):
        twin.send_frame(TEMPLATE, "\ud800", b"x", (0, 0, 0, 0))
