"""What of a queue is fetched and not yet consumed: no offset is stored that would skip a message."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaremq.client.consumer.processqueue import LOCK_VALID_S, MessageRun, ProcessQueue, QueueLimits
from flaremq.client.message import ReceivedMessage
from flaremq.model.columns import Fact
from flaremq.model.message import MessageQueue

QUEUE = MessageQueue("TopicTest", "broker-a", 0)
WIDE = QueueLimits(10**6, 10**9, 10**6)


def message(offset: int) -> ReceivedMessage:
    facts = [0] * Fact.WIDTH
    facts[Fact.QUEUE_OFFSET] = offset
    return ReceivedMessage(bytes(100), QUEUE, facts)


def filled(offsets: Iterable[int], start: int = 0) -> ProcessQueue:
    held = ProcessQueue(QUEUE, start)
    messages = [message(offset) for offset in offsets]
    held.put(messages, messages[-1].queue_offset + 1 if messages else start)
    return held


def test_a_queue_that_has_nothing_commits_where_the_next_pull_begins() -> None:
    held = ProcessQueue(QUEUE, 7)
    assert (held.commit_offset, held.position, held.is_answered) == (7, 7, False)
    held.put([], 12)  # What lay between was not for us.
    assert (held.commit_offset, held.position, held.is_answered) == (12, 12, True)


def test_messages_are_taken_in_order_and_counted_until_they_are_done() -> None:
    held = filled(range(5))
    assert (held.count, held.size) == (5, 500)
    run = held.take(3)
    assert run is not None
    assert [each.queue_offset for each in run.todo] == [0, 1, 2]
    assert (held.count, held.position, held.commit_offset) == (5, 3, 0)
    held.done(run)
    assert (held.count, held.size, held.commit_offset) == (2, 200, 3)


def test_what_is_done_out_of_order_waits_for_what_came_before_it() -> None:
    held = filled(range(6))
    first, second = held.take(3), held.take(3)
    assert first is not None and second is not None and held.take(1) is None
    held.done(second)
    assert held.commit_offset == 0
    held.done(first, first.messages[:2])
    assert held.commit_offset == 2
    held.done(first)
    assert held.commit_offset == 6


def test_done_twice_is_done_once() -> None:
    held = filled(range(4))
    run = held.take(4)
    assert run is not None
    held.done(run, run.messages[:1])
    held.done(run, run.messages[:2])
    assert held.count == 2
    held.done(run)
    held.done(run)
    held.done(run, run.messages)
    assert (held.count, held.size, held.commit_offset) == (0, 0, 4)


def test_a_run_that_is_handed_back_is_the_next_to_be_taken_without_what_was_done() -> None:
    held = filled(range(6))
    run = held.take(3)
    assert run is not None
    run.todo.clear()
    held.done(run, run.messages[:1])
    held.hand_back(run)
    assert held.position == 1
    assert held.peek() is run.messages[1]
    assert held.take(1) is run
    assert [each.queue_offset for each in run.todo] == [1, 2]


def test_a_part_of_a_run_ends_on_its_own() -> None:
    held = filled(range(4))
    run = held.take(4)
    assert run is not None
    part = held.part(run, run.messages[1:2])
    assert part is not None and part.left == run.messages[1:2]
    held.done(run)
    assert (held.count, held.commit_offset) == (1, 1)
    assert held.part(run, run.messages) is None
    held.done(part)
    assert (held.count, held.commit_offset) == (0, 4)


def test_a_run_of_which_all_is_parted_is_over() -> None:
    held = filled(range(2))
    run = held.take(2)
    assert run is not None
    part = held.part(run, run.messages)
    assert part is not None
    held.done(run)
    assert (held.count, held.commit_offset) == (2, 0)
    held.done(part)
    assert (held.count, held.commit_offset) == (0, 2)


def test_what_a_worker_has_not_begun_can_be_taken_away() -> None:
    held = filled(range(4))
    run = held.take(4)
    assert run is not None
    begun = run.todo.popleft()
    rest = run.unbegun()
    assert [each.queue_offset for each in rest] == [1, 2, 3]
    assert not run.todo and begun not in rest


def test_an_offset_that_is_kept_is_not_passed() -> None:
    held = filled(range(4))
    run = held.take(4)
    assert run is not None
    held.kept_offset = run.first_offset
    held.done(run)
    assert (held.commit_offset, held.position) == (0, 4)
    held.kept_offset = None
    assert held.commit_offset == 4


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (QueueLimits(5, 10**6, 10**6), "5 messages"),
        (QueueLimits(6, 500, 10**6), "500 bytes"),
        (QueueLimits(6, 10**6, 40), "apart"),
    ],
)
def test_each_limit_says_when_it_is_passed(limits: QueueLimits, word: str) -> None:
    held = filled([0, 1, 2, 3, 50])
    assert word in (held.excess(limits) or "")
    assert held.excess(WIDE) is None


def test_order_knows_no_span() -> None:
    assert filled([0, 5000]).excess(QueueLimits(10, 10**6, None)) is None


def test_who_waits_for_room_is_told_of_it() -> None:
    held, told = filled(range(4)), []
    held.on_room = lambda: told.append(held.count)
    run = held.take(4)
    assert run is not None
    held.done(run, run.messages[:1])
    held.done(run)
    held.done(run)
    assert told == [3, 0]


def test_a_lock_counts_for_a_while() -> None:
    held = ProcessQueue(QUEUE, 0)
    assert not held.is_locked(0.0)
    held.lock(10.0, 1)
    assert held.is_locked(10.0 + LOCK_VALID_S - 1)
    assert not held.is_locked(10.0 + LOCK_VALID_S)


@given(st.data())
def test_whatever_ends_first_no_offset_is_stored_that_skips_a_message(data: st.DataObject) -> None:
    held, unfinished, runs = ProcessQueue(QUEUE, 0), set[int](), list[MessageRun]()
    for _ in range(data.draw(st.integers(1, 40))):
        act = data.draw(st.sampled_from(["put", "take", "done", "some", "back", "part"]))
        if act == "put":
            gaps = data.draw(st.lists(st.integers(0, 3), max_size=8))
            offsets, at = [], held.next_offset
            for gap in gaps:
                offsets.append(at + gap)
                at += gap + 1
            held.put([message(offset) for offset in offsets], at)
            unfinished.update(offsets)
        elif act == "take":
            run = held.take(data.draw(st.integers(1, 5)))
            runs += [] if run is None else [run]
        elif runs:
            run = runs.pop(data.draw(st.integers(0, len(runs) - 1)))
            places = data.draw(st.sets(st.integers(0, len(run.messages) - 1)))
            some = [run.messages[place] for place in sorted(places)]
            if act == "done":
                unfinished -= {each.queue_offset for each in run.left}
                held.done(run)
            elif act == "some":
                unfinished -= {each.queue_offset for each in some if run.has(each)}
                held.done(run, some)
                runs += [run] if len(run) else []
            elif act == "back":
                held.hand_back(run)
            else:
                part = held.part(run, some)
                runs += [each for each in (run, part) if each is not None and len(each)]
        assert held.commit_offset == min(unfinished, default=held.next_offset)
        assert (held.count, held.size) == (len(unfinished), 100 * len(unfinished))
    while (run := held.take(3)) is not None:
        runs.append(run)
    for run in runs:
        held.done(run)
    assert (held.commit_offset, held.count, held.size) == (held.next_offset, 0, 0)
