"""Pulls that wait: places for all, looks in slices, and looks that take their time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from flaremq.base.errors import Busy
from flaremq.broker.pull.longpoll import LongPoll
from flaremq.testing.clock import settle


@dataclass(eq=False)
class Pull:
    owner: object = "someone"
    is_open: bool = True
    answered: list[bool] = field(default_factory=list)
    """For each answer, whether it was the last look that gave it."""


class Looks:
    """What a look finds: nothing, unless `finds` says otherwise."""

    def __init__(self) -> None:
        self.count = 0
        self.finds = False
        self.look: Callable[[Pull, bool], bool | Awaitable[bool]] = self.at_once

    def __call__(self, pull: Pull, last: bool) -> bool | Awaitable[bool]:
        self.count += 1
        return self.look(pull, last)

    def at_once(self, pull: Pull, last: bool) -> bool:
        if self.finds or last:
            pull.answered.append(last)
        return self.finds or last


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
async def polls(looks: Looks) -> AsyncIterator[LongPoll[Pull]]:
    polls: LongPoll[Pull] = LongPoll(looks, limit=100_000)
    yield polls
    await polls.aclose()


async def most_at_once(looks: Looks, until: Callable[[], bool]) -> int:
    """How many looks the loop did at most before it served others, until something was so."""
    most, before = 0, looks.count
    async with asyncio.timeout(60):
        while not until():
            await asyncio.sleep(0)
            most, before = max(most, looks.count - before), looks.count
    return most


async def test_a_connection_may_hold_a_tenth_of_all_places_and_gets_them_back(looks: Looks) -> None:
    polls: LongPoll[Pull] = LongPoll(looks, limit=100)
    taken = [polls.park(b"T", 0, Pull("greedy"), 60) for _ in range(11)]
    assert taken == [True] * 10 + [False]
    assert polls.park(b"T", 0, Pull("modest"), 60)
    looks.finds = True
    polls.arrived(b"T", 0, 1)
    await settle()
    looks.finds = False
    assert len(polls) == 0
    assert polls.park(b"T", 0, Pull("greedy"), 60)
    polls.close()


async def test_where_all_places_are_taken_a_pull_is_refused(looks: Looks) -> None:
    polls: LongPoll[Pull] = LongPoll(looks, limit=3)
    for owner in range(3):
        assert polls.park(b"T", 0, Pull(owner), 60)
    with pytest.raises(Busy, match="3 pulls wait"):
        polls.park(b"T", 0, Pull(4), 60)
    polls.close()


def busy(looks: Looks) -> None:
    """From now on each look takes a twentieth of a millisecond."""

    def look(pull: Pull, last: bool) -> bool:
        until_s = time.monotonic() + 0.00005
        while time.monotonic() < until_s:
            pass
        return looks.at_once(pull, last)

    looks.look = look


@pytest.mark.parametrize("how", ["sweep", "arrival", "end of time"])
async def test_twenty_thousand_looks_do_not_hold_up_the_loop(
    polls: LongPoll[Pull], looks: Looks, how: str
) -> None:
    busy(looks)
    hold_s = 0.0 if how == "end of time" else 60
    for number in range(20_000):
        polls.park(b"T", number % 7, Pull(number % 50), hold_s)
    if how == "sweep":
        polls._sweep()
    elif how == "arrival":
        for queue in range(7):
            polls.arrived(b"T", queue, 1)
    most = await most_at_once(looks, lambda: looks.count >= 20_000)
    assert most < 5_000  # A quarter of a second: all at once would take a second.
    await settle()
    assert len(polls) == (0 if how == "end of time" else 20_000)


async def test_a_message_that_comes_while_pulls_stand_in_line_is_seen(
    polls: LongPoll[Pull], looks: Looks
) -> None:
    busy(looks)
    pulls = [Pull(number % 50) for number in range(2000)]
    for pull in pulls:
        polls.park(b"T", 0, pull, 60)
    polls._sweep()
    assert 0 < looks.count < 2000
    looks.finds = True
    polls.arrived(b"T", 0, 1)
    await most_at_once(looks, lambda: len(polls) == 0)
    assert all(pull.answered == [False] for pull in pulls)


class Slow:
    """Looks that end when the test says so."""

    def __init__(self, looks: Looks) -> None:
        self.waiting: list[asyncio.Future[bool]] = []
        looks.look = self

    def __call__(self, pull: Pull, last: bool) -> Awaitable[bool]:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)

        async def look() -> bool:
            found = await future
            if found or last:
                pull.answered.append(last)
            return found or last

        return look()

    async def end(self, found: bool) -> None:
        self.waiting.pop(0).set_result(found)
        await settle()


async def test_a_slow_look_is_waited_for_and_its_pull_kept(polls: LongPoll[Pull], looks: Looks) -> None:
    slow, pull = Slow(looks), Pull()
    polls.park(b"T", 0, pull, 60)
    polls.arrived(b"T", 0, 1)
    await settle()
    assert (len(slow.waiting), len(polls)) == (1, 1)
    await slow.end(False)
    assert len(polls) == 1
    polls.arrived(b"T", 0, 2)
    await settle()
    await slow.end(True)
    assert (pull.answered, len(polls)) == ([False], 0)


async def test_what_comes_during_a_slow_look_is_looked_at_afterwards(
    polls: LongPoll[Pull], looks: Looks
) -> None:
    slow, pull = Slow(looks), Pull()
    polls.park(b"T", 0, pull, 60)
    polls.arrived(b"T", 0, 1)
    await settle()
    polls.arrived(b"T", 0, 2)
    await settle()
    assert len(slow.waiting) == 1  # Never two at a time for one pull.
    await slow.end(False)
    assert len(slow.waiting) == 1
    await slow.end(True)
    assert pull.answered == [False]


async def test_a_pull_whose_time_ends_during_a_slow_look_is_answered_once(
    polls: LongPoll[Pull], looks: Looks
) -> None:
    slow, pull = Slow(looks), Pull()
    polls.park(b"T", 0, pull, 0.01)
    polls.arrived(b"T", 0, 1)
    await settle()
    async with asyncio.timeout(60):
        while polls._deadlines:
            await asyncio.sleep(0)
    await slow.end(False)
    await slow.end(False)
    assert (pull.answered, len(polls)) == ([True], 0)


async def test_closing_waits_for_slow_looks(looks: Looks) -> None:
    polls: LongPoll[Pull] = LongPoll(looks, limit=10)
    slow, pull = Slow(looks), Pull()
    polls.park(b"T", 0, pull, 60)
    polls.arrived(b"T", 0, 1)
    await settle()
    looks.look = looks.at_once
    closing = asyncio.create_task(polls.aclose())
    await settle()
    assert not closing.done()
    await slow.end(False)
    await closing
    assert (pull.answered, len(polls)) == ([True], 0)


async def test_what_another_thread_tells_while_a_pull_is_put_back_is_looked_for_again(
    polls: LongPoll[Pull], looks: Looks
) -> None:
    pull = Pull()

    def find_nothing_just_before_more_comes(_pull: Pull, _last: bool) -> bool:
        looks.look, looks.finds = looks.at_once, True
        teller = threading.Thread(target=polls.arrived, args=(b"T", 0, 2))
        teller.start()
        teller.join()
        return False

    looks.look = find_nothing_just_before_more_comes
    polls.park(b"T", 0, pull, 60)
    polls.arrived(b"T", 0, 1)
    await settle()
    assert pull.answered == [False]
