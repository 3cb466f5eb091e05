"""`flaremq send` that ends before all is sent: whatever the reason, it says how many messages are stored."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
from tests.cli.commands import AT_A_TERMINAL
from tests.cli.conftest import Ask

from flaremq.store.flags import Flag
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.patience import load_factor


@contextmanager
def sending(servers: EmbeddedThread, topic: str, *words: str, numbers: bool = True) -> Iterator[Sender]:
    """`seq 1000000 | flaremq send TOPIC`, or with a pipe that the test writes to."""
    command = [*AT_A_TERMINAL, "send", topic, "-n", servers.namesrv, *words]
    with ExitStack() as stack:
        given: int | IO[str] | None = subprocess.PIPE
        if numbers:
            source = stack.enter_context(
                subprocess.Popen(["seq", "1000000"], stdout=subprocess.PIPE, text=True)
            )
            stack.callback(source.kill)
            given = source.stdout
        process = stack.enter_context(
            subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        yield Sender(process)


class Sender:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.receipts = 0

    def wait_for(self, receipts: int) -> None:
        assert self.process.stdout is not None
        for _ in range(receipts):
            assert self.process.stdout.readline().endswith("OK\n")
            self.receipts += 1

    def press_ctrl_c_until_it_ends(self) -> None:
        """As somebody impatient does; two at one moment would be one."""
        for _ in range(50):
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)
                return

    def end(self) -> tuple[int, str]:
        """Its status, and what it said on stderr. All receipts are counted."""
        assert self.process.stdout is not None and self.process.stderr is not None
        self.receipts += len(self.process.stdout.readlines())
        return self.process.wait(30), self.process.stderr.read()


def stored(ask: Ask, topic: str) -> int:
    return int(ask("topic", "stats", topic, "--json").document["messages"])


@pytest.mark.parametrize("words", [("--rate", "1000"), ()], ids=["with a rate", "as fast as it goes"])
def test_ctrl_c_says_how_many_messages_are_stored(
    ask: Ask, servers: EmbeddedThread, words: tuple[str, ...]
) -> None:
    topic = f"interrupted{len(words)}"
    ask("topic", "create", topic)
    with sending(servers, topic, *words) as sender:
        sender.wait_for(300)
        sender.process.send_signal(signal.SIGINT)
        status, err = sender.end()
    assert status == 130
    assert err == f"flaremq: interrupted: {sender.receipts:,} messages stored\n"
    assert stored(ask, topic) == sender.receipts


def test_ctrl_c_ends_a_send_that_waits_for_its_input(ask: Ask, servers: EmbeddedThread) -> None:
    ask("topic", "create", "waiting")
    with sending(servers, "waiting", numbers=False) as sender:
        assert sender.process.stdin is not None
        sender.process.stdin.write("one\n")
        sender.process.stdin.flush()
        sender.wait_for(1)
        sender.process.send_signal(signal.SIGINT)
        assert sender.process.wait(30) == 130
        assert sender.process.stderr is not None
        assert sender.process.stderr.read() == "flaremq: interrupted: 1 message stored\n"


def test_a_second_ctrl_c_does_not_wait_for_answers(ask: Ask, servers: EmbeddedThread) -> None:
    ask("topic", "create", "impatient", "-q", 1, "-b", "broker-a")
    with sending(servers, "impatient", "--timeout", "60") as sender:
        sender.wait_for(300)
        with servers_silent(servers):
            sender.press_ctrl_c_until_it_ends()
        status, err = sender.end()
    assert status == 130
    assert err.startswith(f"flaremq: interrupted: {sender.receipts:,} messages stored")
    assert err.count("\n") == 1


@contextmanager
def servers_silent(servers: EmbeddedThread) -> Iterator[None]:
    """The event loop of all servers stands still."""
    held, go = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        go.wait(30)

    waiting = threading.Thread(target=lambda: servers.run(hold()))
    waiting.start()
    held.wait(30)
    try:
        yield
    finally:
        go.set()
        waiting.join()


def test_a_broker_whose_disk_is_full_ends_it_with_the_number_of_messages_stored(
    ask: Ask, servers: EmbeddedThread
) -> None:
    ask("topic", "create", "filled", "-q", 1, "-b", "broker-a")
    broker = servers.brokers[0]
    try:
        with sending(servers, "filled", "--rate", "2000", "--timeout", "1") as sender:
            sender.wait_for(300)
            broker.store.flags.set(Flag.DISK_FULL, "the disk is 96% full")
            status, err = sender.end()
    finally:
        broker.store.flags.clear(Flag.DISK_FULL)
    assert status == 1
    assert re.match(rf"flaremq: {sender.receipts:,} messages stored, [\d,]+ failed: .*96% full", err), err
    assert err.count("\n") == 1
    assert stored(ask, "filled") == sender.receipts


def test_input_that_cannot_be_read_is_one_line(servers: EmbeddedThread) -> None:
    with Path("/proc/self/mem").open("rb") as unreadable:
        done = subprocess.run(
            [*AT_A_TERMINAL, "send", "unread", "-n", servers.namesrv],
            stdin=unreadable, capture_output=True, text=True, timeout=30 * load_factor(), check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("flaremq: stdin cannot be read: ") and done.stderr.count("\n") == 1
