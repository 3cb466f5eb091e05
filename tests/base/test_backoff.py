"""Attempts repeated with growing pauses, over a clock that only sleeping moves."""

from __future__ import annotations

import pytest

from flaremq.base.backoff import Backoff, retry
from flaremq.base.errors import FlareError, NoRoute, UsageError


class FakeTime:
    def __init__(self) -> None:
        self.s = 100.0
        self.slept: list[float] = []

    def now_s(self) -> float:
        return self.s

    async def sleep(self, pause_s: float) -> None:
        self.slept.append(pause_s)
        self.s += pause_s


class Flaky:
    """Fails as often as it has errors, and takes a second for each attempt."""

    def __init__(self, time: FakeTime, *errors: FlareError) -> None:
        self._time = time
        self._errors = list(errors)
        self.attempts = 0

    async def __call__(self) -> str:
        self.attempts += 1
        self._time.s += 1
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


async def tried(time: FakeTime, attempt: Flaky, timeout_s: float) -> str:
    backoff = Backoff(1, 4, timeout_s=timeout_s, now_s=time.now_s)
    return await retry(attempt, backoff, may_pass=lambda error: error.retriable, sleep=time.sleep)


async def test_a_success_needs_no_pause() -> None:
    time = FakeTime()
    assert await tried(time, Flaky(time), 60) == "answer"
    assert time.slept == []


async def test_pauses_double_up_to_the_longest() -> None:
    time = FakeTime()
    assert await tried(time, Flaky(time, *(NoRoute("away") for _ in range(5))), 60) == "answer"
    assert time.slept == [1, 2, 4, 4, 4]


async def test_the_last_error_is_raised_when_the_next_attempt_would_come_after_the_deadline() -> None:
    time = FakeTime()
    attempt = Flaky(time, *(NoRoute(f"away {number}") for number in range(9)))
    with pytest.raises(NoRoute, match="away 2"):
        await tried(time, attempt, 9)
    assert time.slept == [1, 2]  # Three attempts and two pauses: 6 s, and 4 more would be 10.


async def test_an_attempt_may_begin_at_the_deadline_itself() -> None:
    time = FakeTime()
    attempt = Flaky(time, NoRoute("away"), NoRoute("away"))
    assert await tried(time, attempt, 5) == "answer"
    assert attempt.attempts == 3


async def test_an_error_that_will_not_pass_is_raised_at_once() -> None:
    time = FakeTime()
    attempt = Flaky(time, UsageError("no such topic"))
    with pytest.raises(UsageError, match="no such topic"):
        await tried(time, attempt, 60)
    assert attempt.attempts == 1 and time.slept == []


async def test_without_a_timeout_there_is_one_attempt() -> None:
    time = FakeTime()
    attempt = Flaky(time, NoRoute("away"))
    with pytest.raises(NoRoute):
        await tried(time, attempt, 0)
    assert attempt.attempts == 1
