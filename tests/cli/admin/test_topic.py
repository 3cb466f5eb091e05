"""`flaremq topic`."""

from __future__ import annotations

import pytest
from tests.cli.commands import flaremq
from tests.cli.conftest import Ask

from flaremq.remoting.ports import free_port
from flaremq.testing.embedded import EmbeddedThread


def test_a_topic_is_made_shown_changed_and_deleted(ask: Ask) -> None:
    made = ask("topic", "create", "orders", "--queues", 2, "--type", "FIFO", "--json").document
    assert (made["done"], made["brokers"]) == (True, ["broker-a", "broker-b"])
    assert {"topic": "orders", "kind": "normal", "clusters": ["DefaultCluster"]} in ask(
        "topic", "list", "--json"
    ).document
    shown = ask("topic", "show", "orders", "--json").document["brokers"]["broker-b"]
    assert (shown["read_queues"], shown["perm"], shown["attributes"]) == (2, 6, {"message.type": "FIFO"})

    assert ask("topic", "update", "orders", "--perm", "r", "--write-queues", 3).status == 0
    shown = ask("topic", "show", "orders", "--json").document["brokers"]["broker-a"]
    assert (shown["read_queues"], shown["write_queues"], shown["perm"]) == (2, 3, 4)
    assert shown["attributes"] == {"message.type": "FIFO"}

    assert ask("topic", "delete", "orders", "--yes").status == 0
    assert "orders" in ask("topic", "route", "orders").complaint


def test_what_was_made_is_shown_to_people(ask: Ask) -> None:
    assert (
        "4 queues, perm rw is on broker-a."
        in ask("topic", "create", "shown", "-q", 4, "--broker", "broker-a").out
    )
    assert [line.split() for line in ask("topic", "route", "shown").lines][1][:5] == [
        *("broker-a", "DefaultCluster", "4", "4", "rw")
    ]
    assert "shown" in ask("topic", "list").out
    assert "TBW102" not in ask("topic", "list").out
    assert "TBW102" in ask("topic", "list", "--all").out


def test_queues_of_a_topic_are_counted(ask: Ask) -> None:
    ask("topic", "create", "counted", "-q", 1, "-b", "broker-a")
    ask("send", "counted", "x", "--count", 5)
    stats = ask("topic", "stats", "counted", "--json").document
    assert stats["messages"] == 5
    (queue,) = stats["queues"]
    assert (queue["broker"], queue["max_offset"], queue["messages"]) == ("broker-a", 5, 5)
    assert queue["newest"].endswith("Z") and queue["newest_ms"] > 0
    assert "5 messages in 1 queue," in ask("topic", "stats", "counted").out


def test_a_dry_run_changes_nothing(ask: Ask) -> None:
    assert "would create topic dry with 8 queues" in ask("topic", "create", "dry", "--dry-run").out
    assert "unknown" in ask("topic", "route", "dry").complaint
    ask("topic", "create", "dry")
    assert (
        "would change perm to r of topic dry" in ask("topic", "update", "dry", "--perm", "r", "--dry-run").out
    )
    assert "would delete topic dry with 0 messages" in ask("topic", "delete", "dry", "--dry-run").out
    assert ask("topic", "show", "dry", "--json").document["brokers"]["broker-a"]["perm"] == 6


def test_nothing_is_deleted_without_a_word(ask: Ask) -> None:
    ask("topic", "create", "kept")
    assert "--yes" in ask("topic", "delete", "kept").complaint
    assert ask("topic", "route", "kept").status == 0


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (2, ("create", "a b"), "' '"),
        (2, ("create", "x", "--perm", "maybe"), "rw, r, w or none"),
        (2, ("create", "x", "--attribute", "novalue"), "key=value"),
        (1, ("create", "x", "--cluster", "Nowhere"), "DefaultCluster"),
        (1, ("create", "x", "--broker", "broker-z"), "broker-a"),
        (2, ("update", "x"), "at least one setting"),
        (1, ("update", "nowhere", "--perm", "r"), "'nowhere'"),
        (1, ("show", "nowhere"), "'nowhere'"),
        (1, ("stats", "nowhere"), "'nowhere'"),
        (1, ("delete", "nowhere", "--yes"), "'nowhere'"),
    ],
)
def test_what_cannot_be_is_one_line(ask: Ask, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask("topic", *words).complaint_with(status)


def test_a_topic_that_is_there_is_not_made_again(ask: Ask) -> None:
    ask("topic", "create", "twice")
    assert "flaremq topic update" in ask("topic", "create", "twice").complaint


def test_without_a_name_server_it_is_one_line() -> None:
    address = f"127.0.0.1:{free_port()}"
    assert address in flaremq("topic", "list", "-n", address).complaint


def test_order_and_shares_of_queues_are_told(ask: Ask) -> None:
    ask("topic", "create", "ordered", "-q", 2)
    assert ask("topic", "order", "ordered", "--set", "broker-a:2;broker-b:2").status == 0
    assert ask("topic", "order", "ordered", "--json").document["order_conf"] == "broker-a:2;broker-b:2"
    assert ask("topic", "order", "ordered", "--delete", "--yes").status == 0
    assert ask("topic", "order", "ordered", "--json").document["order_conf"] is None
    shares = ask("topic", "allocate", "ordered", "c1", "c2", "--json").document
    assert shares["c2"] == [{"broker": "broker-b", "queue_id": 0}, {"broker": "broker-b", "queue_id": 1}]


def test_what_goes_in_and_out_is_told(ask: Ask) -> None:
    ask("topic", "create", "busy", "-q", 1)
    ask("group", "create", "busy_group")
    ask("group", "reset", "busy_group", "busy", "--to", "begin", "--yes")
    ask("send", "busy", "x")
    (row,) = ask("topic", "rates", "busy", "--json").document
    assert (row["topic"], row["group"], row["lag"]) == ("busy", "busy_group", 1)
    assert row["in_today"] == 1
    assert [each["topic"] for each in ask("topic", "rates", "busy", "--active", "--json").document] == [
        "busy"
    ]
    assert ask("topic", "producers", "busy", "nobody", "--json").document["clients"] == []


def test_what_a_broker_has_not_counted_is_unknown_and_not_nothing(ask: Ask, servers: EmbeddedThread) -> None:
    """Statistics begin with the broker; Apache's tell of a day only an hour later."""
    ask("topic", "create", "uncounted", "-q", 1, "-b", "broker-b")
    ask("send", "uncounted", "x")
    servers.stop("broker-b")
    servers.start("broker-b")
    (row,) = ask("topic", "rates", "uncounted", "--json").document
    assert row["in_today"] is None
    assert ask("topic", "rates", "uncounted").lines[1].split()[-2:] == ["-", "-"]
