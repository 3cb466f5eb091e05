"""Beans: dataclasses as fastjson has Java's, read leniently and written exactly."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.base.errors import Malformed
from flaremq.model.message import MessageQueue
from flaremq.model.topic import DataVersion
from flaremq.protocol import beans
from flaremq.protocol.fastjson import Dialect


class Colour(Enum):
    RED = "r"
    BLUE = "b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID", "short": "s"}

    client_id: str
    names: tuple[str, ...] = ()
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    by_id: Mapping[int, str] = field(default_factory=dict)
    by_queue: Mapping[MessageQueue, int] = field(default_factory=dict)
    colour: Colour = Colour.RED
    on: bool = False
    rate: float = 0.0
    short: int = 0
    version: DataVersion | None = None
    anything: object = None


QUEUE = MessageQueue("T", "broker-a", 3)
FULL = Outer(
    client_id="c", names=("x", "y"), inner=Inner(size=1), inners=(Inner(), Inner(size=2)), by_id={0: "a",
    1: "b"},
    by_queue={QUEUE: 5}, colour=Colour.BLUE, on=True, rate=1.5, short=7, version=DataVersion(0, 1, 2),
    anything=[1],
)  # fmt: skip


def test_members_are_written_in_alphabetical_order_and_none_is_left_out() -> None:
    assert beans.encode(Outer(client_id="c")) == (
        b'{"byId":{},"byQueue":{},"clientID":"c","colour":"RED","inners":[],"names":[],"on":false,"rate":0.0,"s":0}'
    )


@pytest.mark.parametrize("dialect", Dialect)
def test_what_is_written_is_read_again_in_both_dialects(dialect: Dialect) -> None:
    assert beans.decode(Outer, beans.encode(FULL, dialect)) == FULL


def test_a_queue_can_be_a_key_raw_or_in_a_string() -> None:
    raw = b'{"clientID":"c","byQueue":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:5}}'
    inner = rb"{\"brokerName\":\"broker-a\",\"queueId\":3,\"topic\":\"T\"}"
    quoted = b'{"clientID":"c","byQueue":{"' + inner + b'":5}}'
    assert beans.decode(Outer, raw).by_queue == beans.decode(Outer, quoted).by_queue == {QUEUE: 5}


@pytest.mark.parametrize(
    ("member", "name", "value"),
    [
        (b'"colour":1', "colour", Colour.BLUE),
        (b'"colour":"GREEN"', "colour", Colour.RED),
        (b'"colour":9', "colour", Colour.RED),
        (b'"on":"TRUE"', "on", True),
        (b'"on":1', "on", True),
        (b'"rate":3', "rate", 3.0),
        (b'"s":"12"', "short", 12),
        (b'"short":12', "short", 12),
        (b'"names":["x",null,5]', "names", ("x", "5")),
        (b'"byId":{"7":"x",8:"y",9:null}', "by_id", {7: "x", 8: "y"}),
        (b'"inner":null', "inner", None),
        (b'"unknown":{"deep":[1]}', "on", False),
    ],
)
def test_reading_is_as_lenient_as_fastjson(member: bytes, name: str, value: object) -> None:
    assert getattr(beans.decode(Outer, b'{"clientID":"c",' + member + b"}"), name) == value


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"{}", "Outer lacks 'clientID'"),
        (b'{"clientID":[]}', r"Outer.clientID is '\[\]', expected text"),
        (b'{"clientID":"c","names":"x"}', "Outer.names is 'x', expected a list"),
        (b'{"clientID":"c","inner":[]}', "Outer.inner is .*an object"),
        (b'{"clientID":"c","inner":{"size":"x"}}', "Outer.inner.size is 'x', expected a whole number"),
        (b'{"clientID":"c","s":true}', "Outer.s is 'True', expected a whole number"),
        (b'{"clientID":"c","s":1.5}', "Outer.s is '1.5', expected a whole number"),
        (b'{"clientID":"c","on":"maybe"}', "expected true or false"),
        (b'{"clientID":"c","byId":{"x":"y"}}', "Outer.byId is 'x', expected a whole number"),
        (b'{"clientID":"c","byId":[]}', "Outer.byId is .*an object"),
        (b'{"clientID":"c","byQueue":{"x":1}}', "JSON at"),
        (b'{"clientID":"c","byQueue":{"5":1}}', "a key of Outer.byQueue is '5', expected an object"),
        (b'{"clientID":"c","byQueue":{{"topic":"T"}:1}}', "a key of Outer.byQueue lacks 'brokerName'"),
        (b'{"clientID":"c","colour":[]}', "Outer.colour is .*a name"),
        (b"[]", "expected an object"),
        (b"", "no body"),
    ],
)
def test_what_cannot_be_meant_is_malformed_and_named(body: bytes, match: str) -> None:
    with pytest.raises(Malformed, match=match):
        beans.decode(Outer, body)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
members = st.sampled_from(
    ["clientID", "names", "inner", "inners", "byId", "byQueue", "colour", "on", "version"]
)


@given(st.dictionaries(members, json))
def test_any_object_gives_a_bean_or_malformed(data: dict[str, object]) -> None:
    with suppress(Malformed):
        beans.of_object(Outer, data)
