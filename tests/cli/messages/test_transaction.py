"""`flaremq transaction`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.admin.test_transactions import Shop
from tests.cli.conftest import Ask

from flaremq.testing.clock import MovableClock
from flaremq.testing.embedded import EmbeddedThread
from flaremq.testing.fakes.wireclient import WireClient


@pytest.fixture(scope="module")
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, clock: MovableClock) -> Iterator[EmbeddedThread]:
    options = {"transactionCheckMax": 2, "transactionCheckInterval": 3_600_000}
    folder = tmp_path_factory.mktemp("servers")
    with EmbeddedThread(folder, brokers=2, options=options, clock=clock) as found:
        yield found


def park(ask: Ask, servers: EmbeddedThread, clock: MovableClock, *numbers: int) -> None:
    ask("topic", "create", "paid", "-q", 1)

    async def work() -> None:
        async with WireClient() as wire:
            await Shop(servers, wire, clock).park(*numbers)

    servers.run(work())


def delivered(ask: Ask) -> list[str]:
    lines = ask("tail", "paid", "--from", "begin", "--no-follow", "--json").lines
    return [json.loads(line)["body"] for line in lines]


def test_a_parked_transaction_is_listed_shown_and_committed_once(
    ask: Ask, servers: EmbeddedThread, clock: MovableClock
) -> None:
    assert ask("transaction", "list").out == "No transactions are open or parked.\n"
    park(ask, servers, clock, 0)
    (line,) = ask("transaction", "list", "--parked").lines[1:]
    assert line.split()[:6] == ["parked", "U0", "paid", "k0", "buyers", "2"]
    (found,) = ask("transaction", "list", "--json").document["transactions"]
    assert (found["state"], found["message_id"], found["checks"]) == ("parked", "U0", 2)
    assert ask("transaction", "show", "U0", "--json").document["body"] == "0"
    assert ask("transaction", "commit", "U0", "--dry-run").out == "would commit transaction U0 for paid\n"
    assert "deliver its message: add --yes" in ask("transaction", "commit", "U0").complaint
    assert ask("transaction", "commit", "U0", "--yes").out == "Transaction U0 is committed.\n"
    assert ask("transaction", "commit", "U0", "--yes").out == "Transaction U0 was committed before.\n"
    assert delivered(ask) == ["0"]
    assert "U0 was committed before" in ask("transaction", "rollback", "U0", "--yes").complaint
    assert ask("transaction", "list", "--parked").out == "No transactions are parked.\n"


def test_a_parked_transaction_is_resumed_or_rolled_back(
    ask: Ask, servers: EmbeddedThread, clock: MovableClock
) -> None:
    park(ask, servers, clock, 1, 2)
    assert "would ask producers buyers again" in ask("transaction", "resume", "U1", "--dry-run").out
    assert ask("transaction", "resume", "U1").out == "Producers are asked again about transaction U1.\n"
    assert "is not parked" in ask("transaction", "resume", "U1").complaint
    done = ask("transaction", "rollback", "U2", "--yes", "--json").document
    assert done == {"done": True, "message_id": "U2", "outcome": "rolled back", "changed": True}
    states = ask("transaction", "list", "--json").document["transactions"]
    assert [(each["message_id"], each["state"]) for each in states] == [("U1", "open")]


def test_what_is_unknown_is_one_line(ask: Ask) -> None:
    for words in (("show",), ("commit", "--yes"), ("rollback", "--yes"), ("resume",)):
        assert (
            "no broker has a parked or open transaction U99"
            in ask("transaction", words[0], "U99", *words[1:]).complaint
        )
