"""The turn: whatever way bytes are cut into deliveries, the same frames come out, in order, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.desks import Line, deliver
from tests.protocol.samples import commands

from flaremq.protocol.bulk.columns import Frame
from flaremq.protocol.codes import FRAME_SIZE_MAX, RESPONSE
from flaremq.protocol.command import Command
from flaremq.protocol.frame import FrameDecoder, encode_frame
from flaremq.remoting import turn as module
from flaremq.remoting.turn import Batch, PlainRow, Turn, leave_all

KNOWN = 4711


class EchoLane:
    """Takes every frame of one code, and writes the opaque back."""

    codes = frozenset({KNOWN})
    age_max_ms = 50

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.seen: list[int] = []

    def parse(self, batch: Batch) -> int:
        frames = batch.frames
        self.rows = [
            f
            for f in range(0, len(frames), Frame.WIDTH)
            if frames[f + Frame.CODE] == KNOWN
            and not frames[f + Frame.PLAIN]
            and not frames[f + Frame.FLAG] & 1
        ]
        return len(self.rows)

    def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
        if self.rows or plain:
            self.batches.append(len(self.rows))
        self.seen += [batch.frames[f + Frame.OPAQUE] for f in self.rows]
        self.seen += [each.command.opaque for each in plain]


def run(deliveries: list[tuple[Line, bytes]], *, per_turn: int = 1) -> None:
    """Deliver them one by one, `per_turn` in each turn."""

    async def go() -> None:
        turn = Turn()
        for number, (line, data) in enumerate(deliveries):
            deliver(turn, line, data)
            if number % per_turn == per_turn - 1:
                turn.run()
        turn.run()

    asyncio.run(go())


@given(
    st.lists(st.lists(commands, min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(1, 40),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_any_cut_into_deliveries_gives_the_same_commands(said, size, per_turn, random) -> None:  # type: ignore[no-untyped-def]
    lines, pieces = [Line(5000 + n) for n in range(len(said))], []
    for line, commands_of_it in zip(lines, said, strict=True):
        data = b"".join(map(encode_frame, commands_of_it))
        pieces.append([(line, data[at : at + size]) for at in range(0, len(data), size)])
    deliveries = []
    while any(pieces):
        deliveries.append(random.choice([each for each in pieces if each]).pop(0))
    run(deliveries, per_turn=per_turn)
    for line, commands_of_it in zip(lines, said, strict=True):
        reference = FrameDecoder().feed(b"".join(map(encode_frame, commands_of_it)))
        assert line.commands == reference
        assert line.inlet is not None
        assert (line.inlet.rest, line.inlet.large, line.errors) == (b"", None, [])


@pytest.mark.parametrize("size", [1_000, 300_000, 5_000_000, FRAME_SIZE_MAX - 200])
def test_frames_of_any_allowed_size_come_through(size: int) -> None:
    body = bytes(range(256)) * (size // 256)
    data = encode_frame(Command(code=1, body=body)) + encode_frame(Command(code=2))
    line = Line()
    run([(line, data[at : at + 70_000]) for at in range(0, len(data), 70_000)])
    assert [(command.code, command.body) for command in line.commands] == [(1, body), (2, None)]


def test_a_large_frame_takes_no_more_memory_than_it_has_brought() -> None:
    line = Line()
    announced = (10_000_000).to_bytes(4, "big") + (50).to_bytes(4, "big")
    run([(line, announced + b"x" * 100)])
    assert line.inlet is not None
    assert line.inlet.large is not None
    assert len(line.inlet.large.room()) < 300_000


def test_more_than_the_buffer_holds_is_served_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFER_SIZE", 200_000)
    lines = [Line(5000 + n) for n in range(10)]
    data = b"".join(encode_frame(Command(code=n, body=b"x" * 1000)) for n in range(50))
    run([(line, data) for line in lines], per_turn=10)
    assert all([command.code for command in line.commands] == list(range(50)) for line in lines)


def test_a_connection_that_sends_nonsense_is_closed_and_no_other() -> None:
    good, bad = Line(5001), Line(5002)
    frame = encode_frame(Command(code=1))
    run([(bad, frame + b"\xff" * 20), (good, frame)], per_turn=2)
    assert (len(bad.commands), len(bad.errors)) == (1, 1)
    assert (len(good.commands), good.errors) == (1, [])


def test_a_header_that_cannot_be_read_ends_its_connection_and_what_stands_before_is_served() -> None:
    line = Line()
    nonsense = b"{nonsense}"
    frame = (4 + len(nonsense)).to_bytes(4, "big") + len(nonsense).to_bytes(4, "big") + nonsense
    run([(line, encode_frame(Command(code=1)) + frame)])
    assert (len(line.commands), len(line.errors)) == (1, 1)


async def test_frames_of_all_connections_in_one_turn_reach_a_lane_together() -> None:
    lane = EchoLane()
    turn = Turn((lane,))
    for port in range(5):
        deliver(turn, Line(port), encode_frame(Command(code=KNOWN, opaque=port)))
    await asyncio.sleep(0)
    assert (lane.batches, lane.seen) == ([5], [0, 1, 2, 3, 4])


async def test_answers_of_a_peer_go_to_its_connection_and_never_to_a_lane() -> None:
    lane, line = EchoLane(), Line()
    turn = Turn((lane,))
    deliver(turn, line, encode_frame(Command(code=KNOWN, flag=RESPONSE, opaque=3)))
    turn.run()
    assert (lane.seen, [command.opaque for command in line.commands]) == ([], [3])


async def test_while_draining_lanes_rest() -> None:
    lane, line = EchoLane(), Line()
    turn = Turn((lane,))
    turn.draining = True
    deliver(turn, line, encode_frame(Command(code=KNOWN)))
    turn.run()
    assert (lane.seen, len(line.commands)) == ([], 1)


async def test_what_a_lane_leaves_comes_to_it_as_commands_in_order() -> None:
    class Reluctant(EchoLane):
        def parse(self, batch: Batch) -> int:
            leave_all(batch, self.codes)
            return super().parse(batch)

    lane = Reluctant()
    turn = Turn((lane,))
    deliver(turn, Line(), b"".join(encode_frame(Command(code=KNOWN, opaque=n)) for n in range(4)))
    turn.run()
    assert (lane.batches, lane.seen) == ([0], [0, 1, 2, 3])


async def test_a_lane_with_a_bug_closes_the_connections_of_its_turn_and_the_next_turn_goes_on() -> None:
    class Broken(EchoLane):
        def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
            if self.rows:
                raise RuntimeError("a bug")

    turn, first, second = Turn((Broken(),)), Line(1), Line(2)
    deliver(turn, first, encode_frame(Command(code=KNOWN)))
    turn.run()
    deliver(turn, second, encode_frame(Command(code=1)))
    turn.run()
    assert (len(first.errors), len(second.commands)) == (1, 1)


class Ages(EchoLane):
    """Notes the ages that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.ages: list[Sequence[int] | None] = []

    def run(self, batch: Batch, plain: Sequence[PlainRow]) -> None:
        self.ages.append(batch.waited_ms)


def aged(
    *, since_ms: int, rested_ms: int, lines: Sequence[Line], counts: Sequence[int]
) -> Sequence[int] | None:
    """The ages of a turn, so long after the last one began and ended."""

    async def go() -> Sequence[int] | None:
        lane = Ages()
        turn = Turn((lane,))
        for line, count in zip(lines, counts, strict=True):
            deliver(turn, line, encode_frame(Command(code=KNOWN)) * count)
        turn._began_s, turn._ended_s = perf_counter() - since_ms / 1000, perf_counter() - rested_ms / 1000
        turn.run()
        (found,) = lane.ages
        return found

    return asyncio.run(go())


def test_while_turns_follow_each_other_quickly_nobody_asks_for_ages() -> None:
    assert aged(since_ms=20, rested_ms=0, lines=[Line(waited_ms=300)], counts=[1]) is None


def test_a_limit_of_a_lane_below_200_ms_counts() -> None:
    assert aged(since_ms=60, rested_ms=0, lines=[Line(waited_ms=55)], counts=[1]) == [55]


def test_of_several_requests_behind_a_slow_turn_the_first_may_be_as_old_as_it() -> None:
    lines = [Line(1, waited_ms=1), Line(2, waited_ms=1)]
    ages = aged(since_ms=300, rested_ms=0, lines=lines, counts=[3, 1])
    assert ages is not None
    steady, single = ages
    assert 300 <= steady < 1000
    assert single == 1


def test_where_the_loop_has_rested_nothing_is_older_than_the_longest_wait_of_anybody() -> None:
    lines = [Line(1, waited_ms=2), Line(2, waited_ms=90)]
    assert aged(since_ms=60_000, rested_ms=59_000, lines=lines, counts=[3, 1]) == [90, 90]
    alone = [Line(1, waited_ms=2)]
    assert aged(since_ms=60_000, rested_ms=59_000, lines=alone, counts=[3]) == [2]
