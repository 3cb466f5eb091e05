"""Each check of a history finds what it is for, and nothing else: a sound history, broken in one way each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from flaremq.testing.sim.checks import CHECKS, LOSSLESS_CHECKS, Evidence, Violated, examine
from flaremq.testing.sim.history import CommittedOffset, Failover, History, QueueName, ReadOp, SendOp

PLAIN: QueueName = ("Plain", "broker-a", 0)
FIFO: QueueName = ("Fifo", "broker-a", 0)
LATER: QueueName = ("Later", "broker-a", 0)
READER = "reader-1"


def sound() -> Evidence:
    """A client sends three messages, two of them ordered, a delayed one, a timer that it cancels, and two
    transactions; one more send is refused, and another one has no answer. Its group handles what came, and a
    reader reads it."""
    history = History(topics=[("broker-a", "Plain")], readers={"client-0": READER})
    history.seeks.append((0, READER, PLAIN))
    history.readers["client-0"] = READER
    placed = [
        *(("p0", "plain", PLAIN, 0), ("p1", "plain", PLAIN, 1), ("n2", "once", PLAIN, 2)),
        *(("f0", "fifo", FIFO, 0), ("f1", "fifo", FIFO, 1)),
    ]
    for at, (value, kind, queue, offset) in enumerate(placed):
        history.sends[value] = SendOp(
            value, kind, "client-0", at, ended_s=at + 0.5, queue=queue, offset=offset, place=1000 * at
        )
    history.sends["d"] = SendOp("d", "delayed", "client-0", 10.0, due_s=13.0, ended_s=10.5)
    history.sends["t"] = SendOp("t", "timer", "client-0", 11.0, due_s=30.0, ended_s=11.5)
    history.sends["t"].may_be_cancelled, history.sends["t"].cancelled_s = True, 12.0
    history.sends["c"] = SendOp("c", "commit", "client-0", 12.0, ended_s=12.5)
    history.sends["r"] = SendOp("r", "rollback", "client-0", 13.0)
    history.sends["refused"] = SendOp("refused", "plain", "client-0", 14.0, is_refused=True)
    history.sends["unknown"] = SendOp("unknown", "plain", "client-0", 15.0)
    for at, (value, _, queue, offset) in enumerate(placed):
        read = ReadOp(value, "client-0", 20.0 + at, queue, offset, 1000 * at)
        history.handled.append(read)
        if queue == PLAIN:
            history.pulls.append(replace(read, reader=READER))
    history.handled += [ReadOp("d", "client-0", 26.0, LATER, 0), ReadOp("c", "client-0", 27.0, LATER, 1)]
    history.progress = [
        CommittedOffset("group-Plain", PLAIN, 1, handled=1),
        CommittedOffset(READER, PLAIN, 2, pulled=2, handled=3),
        CommittedOffset("group-Plain", PLAIN, 3, pulled=2, handled=3),
        CommittedOffset("group-Fifo", FIFO, 2, pulled=2, handled=5),
    ]
    history.failovers = [Failover("broker-a", 40.0, "group-Plain", PLAIN, kept=1, found=3)]
    content = {
        PLAIN: {0: "p0", 1: "p1", 2: "n2", 3: "unknown"},
        FIFO: {0: "f0", 1: "f1"},
        LATER: {0: "d", 1: "c"},
    }
    return Evidence(history, content, topics={"broker-a": {"Plain"}})


def violated(evidence: Evidence) -> set[str]:
    """All checks that fail. Of values that were never sent, those behind the first know nothing."""
    found = set[str]()
    for check in (*CHECKS, *LOSSLESS_CHECKS):
        try:
            check(evidence)
        except Violated as failed:
            found.add(failed.check)
        if "unknown value" in found:
            break
    return found


def test_a_sound_history_passes() -> None:
    examine(sound())


Broken = Callable[[Evidence], Evidence | None]


def topic_gone(evidence: Evidence) -> Evidence:
    return replace(evidence, topics={"broker-a": {"Fifo"}})


def never_sent(evidence: Evidence) -> None:
    evidence.history.handled.append(ReadOp("other", "client-0", 30.0, LATER, 9))


def refused_and_stored(evidence: Evidence) -> None:
    evidence.content[PLAIN][4] = "refused"


def refused_and_read(evidence: Evidence) -> None:
    evidence.history.handled.append(ReadOp("refused", "client-0", 30.0, LATER, 9))


def another_value_for_a_receipt(evidence: Evidence) -> None:
    """The reader and the end agree with each other; the receipt names their place for another message."""
    evidence.history.sends["late"] = SendOp(
        "late", "commit", "other", 3.0, ended_s=3.5, queue=PLAIN, offset=0
    )
    evidence.content[LATER][9] = "late"
    evidence.history.handled.append(ReadOp("late", "client-0", 30.0, LATER, 9))
    evidence.history.pulls.append(ReadOp("late", READER, 30.0, LATER, 9))


def another_value_for_a_handler(evidence: Evidence) -> None:
    evidence.history.handled.append(ReadOp("unknown", "client-0", 30.0, PLAIN, 0))


def another_value_at_a_byte(evidence: Evidence) -> None:
    evidence.history.handled.append(ReadOp("unknown", "client-0", 30.0, PLAIN, 3, 1000))


def lost(evidence: Evidence) -> None:
    del evidence.content[FIFO][1]


def moved(evidence: Evidence) -> None:
    evidence.content[FIFO] = {0: "f0", 2: "f1"}


def twice(evidence: Evidence) -> None:
    evidence.content[PLAIN][4] = "n2"


def sent_out_of_order(evidence: Evidence) -> None:
    """By another client that got its places in the wrong order."""
    for value, offset in (("x", 3), ("y", 2)):
        evidence.history.sends[value] = SendOp(
            value, "commit", "other", 3.0, ended_s=3.5, queue=LATER, offset=offset
        )
        evidence.content[LATER][offset] = value
        evidence.history.handled.append(ReadOp(value, "client-0", 30.0, LATER, offset))
    evidence.history.seeks.append((3, READER, LATER))
    evidence.history.pulls += [
        ReadOp(evidence.content[LATER][at], READER, 30.0, LATER, at) for at in range(4)
    ]


def skipped_and_gone_back(evidence: Evidence) -> None:
    first, second, third = evidence.history.pulls
    evidence.history.pulls = [second, third, first]
    evidence.history.progress = []


def read_and_gone(evidence: Evidence) -> None:
    evidence.history.pulls.append(ReadOp("unknown", READER, 30.0, PLAIN, 3))
    del evidence.content[PLAIN][3]


def passed_over(evidence: Evidence) -> None:
    """By a reader of an earlier life: those of today have seen all. Where it began is not asked."""
    evidence.history.seeks.append((3, "reader-0", PLAIN))
    evidence.history.pulls.append(ReadOp("p1", "reader-0", 30.0, PLAIN, 1))


def never_read(evidence: Evidence) -> None:
    evidence.history.pulls.pop()


def never_handled(evidence: Evidence) -> None:
    evidence.history.handled = [read for read in evidence.history.handled if read.value != "c"]


def overtaken(evidence: Evidence) -> None:
    handled = evidence.history.handled
    handled[3], handled[4] = handled[4], handled[3]


def committed_before_it_was_handled(evidence: Evidence) -> None:
    evidence.history.progress[0] = CommittedOffset("group-Plain", PLAIN, 2, handled=1)


def committed_after_an_ordered_failure(evidence: Evidence) -> None:
    handled = evidence.history.handled
    handled[4] = replace(handled[4], ok=False)
    handled.append(replace(handled[4], ok=True))


def committed_before_it_was_polled(evidence: Evidence) -> None:
    """The group of push consumers has handled it, and that is no reader's merit."""
    evidence.history.progress[1] = CommittedOffset(READER, PLAIN, 3, pulled=2, handled=3)


def gone_back_too_far(evidence: Evidence) -> None:
    evidence.history.failovers.append(Failover("broker-a", 41.0, "group-Plain", PLAIN, kept=2, found=1))


def forgotten(evidence: Evidence) -> None:
    evidence.history.failovers.append(Failover("broker-a", 41.0, "group-Plain", PLAIN, kept=0, found=-1))


def rolled_back_and_seen(evidence: Evidence) -> None:
    evidence.content[LATER][2] = "r"


def committed_twice(evidence: Evidence) -> None:
    evidence.content[LATER][2] = "c"


def too_early(evidence: Evidence) -> None:
    evidence.history.sends["d"].due_s = 26.5


def cancelled_and_come(evidence: Evidence) -> None:
    evidence.history.handled.append(ReadOp("t", "client-0", 30.0, LATER, 2))


@pytest.mark.parametrize(
    ("breaks", "check"),
    [
        (topic_gone, "lost topic"),
        (never_sent, "unknown value"),
        (refused_and_stored, "refused send"),
        (refused_and_read, "refused send"),
        (another_value_for_a_receipt, "two values"),
        (another_value_for_a_handler, "two values"),
        (another_value_at_a_byte, "two values"),
        (lost, "lost send"),
        (moved, "moved send"),
        (twice, "stored twice"),
        (sent_out_of_order, "send order"),
        (skipped_and_gone_back, "poll order"),
        (read_and_gone, "unread"),
        (passed_over, "unread send"),
        (never_read, "unseen"),
        (never_handled, "not consumed"),
        (overtaken, "fifo"),
        (committed_before_it_was_handled, "committed unread"),
        (committed_after_an_ordered_failure, "committed unread"),
        (committed_before_it_was_polled, "committed unread"),
        (gone_back_too_far, "offset back"),
        (forgotten, "offset back"),
        (rolled_back_and_seen, "rolled back"),
        (committed_twice, "committed twice"),
        (too_early, "early"),
        (cancelled_and_come, "cancelled"),
    ],
)
def test_a_history_that_is_broken_in_one_way_fails_one_check(breaks: Broken, check: str) -> None:
    evidence = sound()
    assert violated(breaks(evidence) or evidence) == {check}


def test_what_may_be_lost_is_not_missed() -> None:
    evidence = replace(sound(), is_lossless=False)
    lost(evidence)
    never_read(evidence)
    gone_back_too_far(evidence)
    examine(evidence)


def test_clocks_that_were_set_say_nothing_of_moments() -> None:
    evidence = replace(sound(), has_true_clocks=False)
    too_early(evidence)
    examine(evidence)


def test_a_reader_that_begins_anew_may_go_back() -> None:
    evidence = sound()
    evidence.history.seeks.append((3, READER, PLAIN))
    evidence.history.pulls += evidence.history.pulls[:2]
    examine(evidence)


def test_a_message_whose_cancel_has_no_answer_may_come_or_not() -> None:
    evidence = sound()
    evidence.history.sends["t"].cancelled_s = None
    examine(evidence)
    cancelled_and_come(evidence)
    examine(evidence)


def test_a_message_that_came_too_late_to_be_cancelled_must_come() -> None:
    evidence = sound()
    timer = evidence.history.sends["t"]
    timer.may_be_cancelled, timer.cancelled_s = False, None
    assert violated(evidence) == {"not consumed"}


def test_what_clients_met_is_counted() -> None:
    evidence = sound()
    evidence.content[PLAIN][4] = "unknown"
    evidence.history.handled.append(evidence.history.handled[0])
    assert evidence.history.counts(evidence.content) == Counter(
        {
            "acknowledged": 8,
            "unknown": 2,
            "refused": 1,
            "cancelled": 1,
            "stored again (plain)": 1,
            "handled again": 1,
            "offsets watched": 4,
            "offsets after a failover": 1,
        }
    )
