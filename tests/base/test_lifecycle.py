import asyncio
import logging
import math
import queue
import threading
from collections.abc import Iterator

import pytest

from flaremq.base.errors import FlareError
from flaremq.base.lifecycle import Owned, Stack, Worker, repeat
from flaremq.testing.clock import settle

LONG_S = 30.0
"""A deadline that only a broken test reaches."""


class Heard:
    """Remembers how the steps of a worker ended."""

    def __init__(self) -> None:
        self.failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self.recoveries: queue.SimpleQueue[None] = queue.SimpleQueue()

    def failed(self, error: Exception) -> None:
        self.failures.put(error)

    def recovered(self) -> None:
        self.recoveries.put(None)


@pytest.fixture
def heard() -> Iterator[Heard]:
    listener = Heard()
    yield listener
    assert listener.failures.empty(), "a failure that the test did not expect"


class Rounds:
    """A step that tells when it is entered and how its pause ended.

    Who stops a worker waits for `entered` first: a stop between two steps ends the thread
    without another step, and there would be no answer to wait for.
    """

    def __init__(self) -> None:
        self.entered: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def step(self, worker: Worker) -> None:
        self.entered.put(None)
        self.answers.put(worker.pause(LONG_S))


def pausing(worker: Worker) -> None:
    worker.pause(LONG_S)


def test_a_worker_repeats_its_step_each_time_it_is_woken(heard: Heard) -> None:
    rounds = Rounds()
    worker = Worker("w", rounds.step, heard)
    worker.start()
    for _ in range(3):
        rounds.entered.get(timeout=LONG_S)
        worker.wake()
        assert rounds.answers.get(timeout=LONG_S) is True
    rounds.entered.get(timeout=LONG_S)
    worker.stop(LONG_S)
    assert rounds.answers.get(timeout=LONG_S) is False  # Stopped, not woken.
    assert rounds.answers.empty()
    assert not worker.alive


def test_a_pause_that_nobody_ends_ends_by_itself(heard: Heard) -> None:
    rounds: queue.SimpleQueue[bool] = queue.SimpleQueue()
    worker = Worker("w", lambda self: rounds.put(self.pause(0.001)), heard)
    worker.start()
    assert rounds.get(timeout=LONG_S) is False
    assert rounds.get(timeout=LONG_S) is False
    worker.stop(LONG_S)


def test_a_worker_rests_as_its_step_says_and_no_longer_than_it_is_woken(heard: Heard) -> None:
    steps: queue.SimpleQueue[None] = queue.SimpleQueue()
    rests_s = iter([None, 0.001, LONG_S, math.inf])

    def step(_worker: Worker) -> float | None:
        steps.put(None)
        return next(rests_s)

    worker = Worker("w", step, heard)
    worker.start()
    for _ in range(3):  # Without a rest, and after a short one.
        steps.get(timeout=LONG_S)
    worker.wake()
    steps.get(timeout=LONG_S)
    worker.stop(LONG_S)
    assert steps.empty()


def test_a_worker_may_rest_before_its_first_step(heard: Heard) -> None:
    rounds = Rounds()
    worker = Worker("w", rounds.step, heard, first_s=LONG_S)
    worker.start()
    worker.stop(LONG_S)
    assert rounds.entered.empty()


def test_one_step_can_be_done_without_a_thread(heard: Heard) -> None:
    results = iter([2.5, None])

    def step(_worker: Worker) -> float | None:
        try:
            return next(results)
        except StopIteration:
            raise OSError("no descriptor") from None

    worker = Worker("w", step, heard)
    assert [worker.once() for _ in range(4)] == [(2.5, True), (0.0, True), (0.05, False), (0.1, False)]
    assert [type(heard.failures.get(timeout=LONG_S)) for _ in range(2)] == [OSError, OSError]


def test_a_wake_before_the_pause_is_not_lost(heard: Heard) -> None:
    rounds = Rounds()
    worker = Worker("w", rounds.step, heard)
    worker.wake()
    worker.wake()
    worker.start()
    rounds.entered.get(timeout=LONG_S)
    assert rounds.answers.get(timeout=LONG_S) is True
    rounds.entered.get(timeout=LONG_S)
    worker.stop(LONG_S)
    assert rounds.answers.get(timeout=LONG_S) is False  # Two wakes are one.


def test_a_pause_after_stop_returns_at_once(heard: Heard) -> None:
    entered, leave = threading.Event(), threading.Event()
    answers: list[bool] = []

    def step(worker: Worker) -> None:
        entered.set()
        leave.wait(LONG_S)
        answers.append(worker.stopping)
        answers.append(worker.pause(LONG_S))
        answers.append(worker.pause(None))

    worker = Worker("w", step, heard)
    worker.start()
    assert entered.wait(LONG_S)
    with pytest.raises(FlareError, match=r"thread w did not end within 0.001 s.*stuck"):
        worker.stop(0.001)
    leave.set()
    worker.stop(LONG_S)
    assert answers == [True, False, False]


def test_the_thread_is_a_daemon_with_the_name_of_the_worker(heard: Heard) -> None:
    seen: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()

    def step(worker: Worker) -> None:
        seen.put(threading.current_thread())
        worker.pause(LONG_S)

    worker = Worker("flush-commitlog", step, heard)
    worker.start()
    thread = seen.get(timeout=LONG_S)
    assert (thread.name, thread.daemon) == ("flush-commitlog", True)
    worker.stop(LONG_S)


def test_a_step_that_fails_comes_again_and_its_recovery_is_told_once(
    heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    error, healed, steps = ZeroDivisionError("of all things"), threading.Event(), queue.SimpleQueue[None]()

    def step(worker: Worker) -> None:
        if not healed.is_set():
            raise error
        steps.put(None)
        worker.pause(0.001)

    worker = Worker("w", step, heard)
    worker.start()
    assert [heard.failures.get(timeout=LONG_S) for _ in range(2)] == [error, error]
    assert str(worker.failure) == "of all things"
    healed.set()
    for _ in range(3):
        steps.get(timeout=LONG_S)
    heard.recoveries.get(timeout=LONG_S)
    worker.stop(LONG_S)
    assert not isinstance(worker.failure, Exception)
    assert heard.recoveries.empty()
    while not heard.failures.empty():
        assert heard.failures.get() is error
    assert caplog.text.count("thread w failed and tries again in 0.05 s") == 1
    assert caplog.text.count("thread w has recovered") == 1


def test_no_wake_cuts_the_pause_after_a_failure_short_but_a_stop_does(heard: Heard) -> None:
    waits: list[float | None] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            if len(waits) == 10:
                worker.ask_to_stop()
            return False

    def step(worker: Worker) -> None:
        worker.wake()
        raise OSError("no")

    worker = Worker("w", step, heard)
    worker._stop_asked = Event()
    worker.start()
    worker._thread.join(LONG_S)
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert [str(heard.failures.get(timeout=0)) for _ in range(10)] == ["no"] * 10


def test_a_step_that_must_not_come_again_ends_its_worker(heard: Heard) -> None:
    def step(worker: Worker) -> None:
        worker.ask_to_stop()
        raise ZeroDivisionError("for good")

    worker = Worker("w", step, heard)
    worker.start()
    worker.stop(LONG_S)
    assert str(heard.failures.get(timeout=0)) == "for good"
    assert heard.recoveries.empty()


def test_stop_is_idempotent_and_safe_before_start(heard: Heard) -> None:
    worker = Worker("w", Worker.stop, heard)
    worker.stop(0)
    worker.stop(0)
    assert worker.stopping
    with pytest.raises(AssertionError, match="cannot start again"):
        worker.start()


def test_a_step_may_stop_its_own_worker(heard: Heard) -> None:
    worker = Worker("w", lambda self: self.stop(0), heard)
    worker.start()
    worker.stop(LONG_S)
    assert not worker.alive


async def test_owned_tasks_run_and_give_their_result() -> None:
    owned = Owned()

    async def answer() -> int:
        return 42

    task = owned.spawn("answer", answer())
    assert task.get_name() == "answer"
    assert await task == 42
    await settle()
    assert len(owned) == 0
    await owned.aclose(LONG_S)


async def test_aclose_cancels_every_task_and_waits_for_its_end() -> None:
    owned = Owned()
    cleaned: list[int] = []

    async def sleeper(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await settle()
            cleaned.append(number)

    tasks = [owned.spawn(f"sleeper-{number}", sleeper(number)) for number in range(3)]
    await settle()
    assert len(owned) == 3
    await owned.aclose(LONG_S)
    assert sorted(cleaned) == [0, 1, 2]
    assert all(task.cancelled() for task in tasks)
    await owned.aclose(LONG_S)


async def test_a_crashed_task_is_logged_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    owned = Owned()

    async def crash() -> None:
        raise ZeroDivisionError("of all things")

    other = owned.spawn("other", asyncio.Event().wait())
    owned.spawn("accident", crash())
    await settle()
    assert "task accident crashed" in caplog.text
    assert not other.done()
    await owned.aclose(LONG_S)


async def test_a_task_that_will_not_end_is_named() -> None:
    owned = Owned()
    leave = asyncio.Event()

    async def stubborn() -> None:
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                continue

    task = owned.spawn("stubborn", stubborn())
    await settle()
    with pytest.raises(FlareError, match="stubborn"):
        await owned.aclose(0.001)
    leave.set()
    await task


async def test_nothing_is_spawned_after_the_end() -> None:
    owned = Owned()
    await owned.aclose(LONG_S)
    with pytest.raises(FlareError, match="task late"):
        owned.spawn("late", settle())


async def test_a_task_may_close_its_own_owner() -> None:
    owned = Owned()
    other = owned.spawn("other", asyncio.Event().wait())
    closer = owned.spawn("closer", owned.aclose(LONG_S))
    await closer
    assert other.cancelled()


async def test_work_that_fails_is_logged_and_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rests: list[float] = []
    done: list[int] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        await settle()

    async def work() -> None:
        done.append(len(rests))
        if len(done) in (2, 3, 4):
            raise OSError("not now")
        if len(done) == 6:
            enough.set()
            await asyncio.Event().wait()

    owned = Owned()
    owned.spawn("work", repeat("the work of this test", work, lambda: 2.0 * len(done), sleep=sleep))
    await enough.wait()
    await owned.aclose(LONG_S)
    assert rests == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert caplog.text.count("the work of this test failed and will be repeated") == 1
    assert caplog.text.count("the work of this test succeeds again") == 1


class FakePart:
    def __init__(self, name: str, journal: list[str], fails: str = "") -> None:
        self.name = name
        self.journal = journal
        self.fails = fails

    def start(self) -> None:
        self._do("start")

    def stop(self) -> None:
        self._do("stop")

    def _do(self, what: str) -> None:
        self.journal.append(f"{what} {self.name}")
        if self.fails == what:
            raise OSError(f"{self.name} cannot {what}")


def stack_of(journal: list[str], **fails: str) -> Stack:
    stack = Stack()
    for name in ("a", "b", "c"):
        stack.start(name, FakePart(name, journal, fails.get(name, "")))
    return stack


def test_parts_start_upwards_and_stop_downwards() -> None:
    journal: list[str] = []
    stack = stack_of(journal)
    stack.stop()
    assert journal == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]
    stack.stop()
    assert len(journal) == 6  # What is stopped stays stopped.


def test_a_part_that_cannot_start_takes_down_those_below(caplog: pytest.LogCaptureFixture) -> None:
    journal: list[str] = []
    with pytest.raises(OSError, match="b cannot start"):
        stack_of(journal, b="start")
    assert journal == ["start a", "start b", "stop a"]
    assert "b did not start" in caplog.text


def test_a_part_that_cannot_stop_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    journal: list[str] = []
    stack = stack_of(journal, b="stop", c="stop")
    with pytest.raises(FlareError, match="c, b") as caught:
        stack.stop()
    assert journal[-3:] == ["stop c", "stop b", "stop a"]
    assert isinstance(caught.value.__cause__, OSError)
    assert "c did not stop cleanly" in caplog.text


def test_a_worker_is_a_part(heard: Heard) -> None:
    worker = Worker("w", pausing, heard)
    stack = Stack()
    stack.start("w", worker)
    assert worker.alive
    stack.stop()
    assert not worker.alive
