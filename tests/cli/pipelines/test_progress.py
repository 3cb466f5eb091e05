"""What a person reads while a stream runs is what the stream does."""

from __future__ import annotations

import pytest

from flaremq.cli.pipelines.progress import STARTING, BatchSpeed, line_of
from flaremq.cli.pipelines.spark import told_of

IDLE = {"message": "Waiting for next trigger", "isDataAvailable": False, "isTriggerActive": False}
READING = {"message": "Processing new data", "isDataAvailable": True, "isTriggerActive": True}
LOOKING = {"message": "Getting offsets", "isDataAvailable": False, "isTriggerActive": True}
FULL = BatchSpeed(rows_per_s=1200.0, seconds=1.5, waiting=0)


@pytest.mark.parametrize("status", [IDLE, LOOKING, {}])
def test_before_the_first_offsets_are_known_it_is_starting(status: dict[str, object]) -> None:
    assert line_of(status, 0, None) == STARTING
    assert line_of(status, 0, BatchSpeed(0.0, 0.1, None)) == STARTING  # The empty first batch.


def test_it_waits_for_messages_only_when_nothing_is_there_and_nothing_is_done() -> None:
    assert line_of(IDLE, 0, BatchSpeed(0.0, 0.1, 0)) == "0 messages; waiting for messages"
    assert line_of(IDLE, 0, BatchSpeed(0.0, 0.1, 236_626)) == "0 messages; 236,626 are waiting"
    assert line_of(LOOKING, 0, BatchSpeed(0.0, 0.1, 0)) == "0 messages; waiting for messages"
    assert line_of(READING, 0, BatchSpeed(0.0, 0.1, 0)) == "0 messages; reading"
    assert line_of(READING, 0, None) == "0 messages; reading"


def test_a_batch_job_tells_tasks_and_records_as_far_as_there_are_any() -> None:
    assert told_of(0, 0, 0) == "planning"
    assert told_of(4, 0, 0) == "0 of 4 tasks"
    assert told_of(4, 1, 81_920) == "1 of 4 tasks, 81,920 records read"
    assert told_of(0, 0, 150_001) == "planning, 150,001 records read"


def test_rows_and_the_rate_of_the_last_batch_are_told() -> None:
    assert line_of(READING, 5000, FULL) == (
        "5,000 messages, 1,200 per second in the last batch, which took 1.5 s; reading"
    )
