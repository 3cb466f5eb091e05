"""`flaremq message waiting` and `cancel` when not all messages that wait could be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from flaremq.admin.values.messages import WaitingMessages
from flaremq.base.errors import MessageNotFound
from flaremq.cli.messages import waiting
from flaremq.client.message import Recall

PARTIAL = "the newest 6 of 20 records of timers were read"


@pytest.fixture(autouse=True)
def recalled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is recalled at a cluster of which not all was read."""
    handles: list[str] = []

    def recall(handle: str) -> Recall:
        handles.append(handle)
        return Recall.CANCELLED

    messages = SimpleNamespace(
        waiting=lambda _topic: WaitingMessages((), partial={"broker-a": PARTIAL}), recall=recall
    )

    @contextmanager
    def connected(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(messages=messages)

    monkeypatch.setattr(waiting, "connected", connected)
    return handles


def test_a_partial_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    waiting.waiting()
    assert f"incomplete: broker-a: {PARTIAL}" in capsys.readouterr().err


def test_nobody_is_told_that_a_message_does_not_wait_which_was_not_read() -> None:
    with pytest.raises(MessageNotFound, match="newest 6 of 20 records"):
        waiting.cancel("0A00000100002A139A5507123456ABCD")


def test_a_handle_cancels_whatever_could_be_read(recalled: list[str]) -> None:
    handle = "djEgVCBicm9rZXItYSAxNzAwMDAwMDYwMDAxIDBBMDAwMDAxMDAwMDJBMTM5QTU1MDcxMjM0NTZBQkNE"
    waiting.cancel(handle)
    assert recalled == [handle]
