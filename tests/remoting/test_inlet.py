"""Both twins of the inlet read alike, whatever comes in which order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.remoting.large import Large
from flaremq.testing.twins import twin_name, twins

TWINS = twins("flaremq.remoting._inlet")


class Bench:
    """Connections of one port, with what was asked of their turn."""

    def __init__(self, twin: Any, count: int = 3, size: int = 400_000) -> None:
        self.asked: list[str] = []
        self.served: list[tuple[int, bytes]] = []
        self.reads = twin.Reads(size, lambda: self.asked.append("first"), self.run)
        self.inlets = [twin.Inlet(self.reads, number) for number in range(count)]

    def deliver(self, number: int, data: bytes) -> None:
        room = self.inlets[number].get_buffer(-1)
        room[: len(data)] = data
        self.inlets[number].buffer_updated(len(data))

    def run(self) -> None:
        self.asked.append("run")
        self.served += [(source, bytes(large.whole())) for source, large in self.reads.take_larges()]
        sources, ends = self.reads.take()
        at = 0
        for source, end in zip(sources, ends, strict=True):
            self.served.append((source, bytes(self.reads.view[at:end])))
            at = end
        self.reads.done()


@pytest.fixture(params=TWINS, ids=twin_name)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_what_connections_deliver_lies_one_behind_the_other(twin: Any) -> None:
    bench = Bench(twin)
    bench.deliver(0, b"one")
    bench.deliver(1, b"two")
    bench.run()
    assert bench.served == [(0, b"one"), (1, b"two")]
    assert bench.asked == ["first", "run"]


def test_two_reads_of_one_connection_are_one_delivery(twin: Any) -> None:
    bench = Bench(twin)
    bench.deliver(0, b"one")
    bench.deliver(0, b"two")
    bench.run()
    assert bench.served == [(0, b"onetwo")]


def test_a_connection_that_comes_back_behind_others_ends_the_turn(twin: Any) -> None:
    bench = Bench(twin)
    for number, data in ((0, b"a"), (1, b"b"), (0, b"c")):
        bench.deliver(number, data)
    bench.run()
    assert bench.served == [(0, b"a"), (1, b"b"), (0, b"c")]
    assert bench.asked == ["first", "run", "first", "run"]


def test_the_rest_of_the_last_turn_comes_first(twin: Any) -> None:
    bench = Bench(twin)
    bench.inlets[0].rest = b"half "
    bench.deliver(0, b"frame")
    bench.run()
    assert (bench.served, bench.inlets[0].rest) == ([(0, b"half frame")], b"")


def test_a_full_buffer_ends_the_turn(twin: Any) -> None:
    bench = Bench(twin, count=10, size=200_000)
    for number in range(10):
        bench.deliver(number, b"x" * 50_000)
    bench.run()
    assert [source for source, _ in bench.served] == list(range(10))
    assert bench.asked.count("run") > 1


def test_a_large_frame_is_collected_apart(twin: Any) -> None:
    bench = Bench(twin)
    bench.inlets[0].large = Large(500_000, b"x" * 10)
    while bench.inlets[0].large is not None:
        room = len(bench.inlets[0].get_buffer(-1))
        bench.deliver(0, b"y" * min(room, 70_000))
    bench.run()
    assert bench.served == [(0, b"x" * 10 + b"y" * 499_990)]


def test_until_somebody_has_looked_nothing_is_delivered(twin: Any) -> None:
    class Guard:
        seen = b""

        def entered(self, data: bytes) -> None:
            self.seen += data

    bench, guard = Bench(twin), Guard()
    inlet = twin.Inlet(bench.reads, guard, True)
    inlet.get_buffer(-1)[:7] = b"knocked"
    inlet.buffer_updated(7)
    bench.run()
    assert (guard.seen, bench.served, inlet.count) == (b"knocked", [], 1)


@pytest.mark.parametrize(
    "before",
    [[(0, 350_000)], [(0, 1), (1, 1)], [(1, 350_000)], [(0, 1), (1, 350_000)]],
    ids=["full of its own", "others since", "full of others", "both"],
)
def test_no_turn_is_served_while_the_loop_asks_where_to_read_to(
    twin: Any, before: list[tuple[int, int]]
) -> None:
    """A turn may pause or close the connection, and libuv would call what is not there any more."""
    bench = Bench(twin)
    for number, size in before:
        bench.inlets[number].deliver(b"x" * size)
    runs = bench.asked.count("run")
    room = bench.inlets[0].get_buffer(-1)
    assert bench.asked.count("run") == runs
    room[:4] = b"more"
    bench.inlets[0].buffer_updated(4)
    assert bench.asked.count("run") == runs + 1
    bench.run()
    assert b"".join(data for number, data in bench.served if number == 0).endswith(b"more")


def test_bytes_from_the_spare_buffer_fill_a_large_frame_and_go_on_behind_it(twin: Any) -> None:
    bench = Bench(twin)
    bench.inlets[0].deliver(b"a")
    bench.inlets[1].deliver(b"b")
    room = bench.inlets[0].get_buffer(-1)
    room[:10] = b"0123456789"
    run = bench.reads.full

    def begins_a_large_one() -> None:
        run()
        bench.inlets[0].large = Large(8, b"head")

    bench.reads.full = begins_a_large_one
    bench.inlets[0].buffer_updated(10)
    bench.run()
    assert bench.served == [(0, b"a"), (1, b"b"), (0, b"head0123"), (0, b"456789")]


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=30), st.booleans()), max_size=30))
def test_both_twins_serve_the_same(said: list[tuple[int, bytes, bool]]) -> None:
    benches = [Bench(twin) for twin in TWINS]
    for number, data, ends in said:
        for bench in benches:
            bench.deliver(number, data)
            if ends:
                bench.run()
    for bench in benches:
        bench.run()
        assert (bench.served, bench.asked) == (benches[0].served, benches[0].asked)
