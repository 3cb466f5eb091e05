"""`flaremq cluster`."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Ask

from flaremq.testing.embedded import EmbeddedThread


def test_clusters_and_brokers_are_listed(ask: Ask, servers: EmbeddedThread) -> None:
    assert ask("cluster", "list", "--json").document == [
        {"cluster": "DefaultCluster", "brokers": ["broker-a", "broker-b"]}
    ]
    found = ask("cluster", "brokers", "--json").document["brokers"]
    assert [each["address"] for each in found] == servers.addresses
    assert all(each["runtime"]["boot_ms"] > 0 for each in found)
    (only,) = ask("cluster", "brokers", "--broker", "broker-b", "--json").document["brokers"]
    assert only["broker"] == "broker-b"
    assert "broker-a" in ask("cluster", "brokers").out


def test_a_broker_tells_all_about_itself(ask: Ask, servers: EmbeddedThread) -> None:
    (told,) = ask("cluster", "status", "broker-a", "--json").document["brokers"]
    assert (told["broker"], told["runtime"]["brokerActive"]) == ("broker-a", "true")
    assert len(ask("cluster", "status", "--json").document["brokers"]) == 2
    assert "brokerVersionDesc" in ask("cluster", "status", servers.addresses[1]).out


def test_settings_of_brokers_are_shown_and_changed(ask: Ask) -> None:
    got = ask("cluster", "config", "get", "brokerName", "brokerPermission", "--json").document["servers"]
    assert got["broker-b"] == {"brokerName": "broker-b", "brokerPermission": "6"}
    assert "brokerClusterName=DefaultCluster" in ask("cluster", "config", "get", "-b", "broker-a").lines
    words = ("cluster", "config", "set", "traceOn=false", "--broker", "broker-a")
    assert "from true to false" in ask(*words, "--dry-run").out
    assert "--yes" in ask(*words).complaint
    assert ask(*words, "--yes", "--json").document["brokers"] == ["broker-a"]
    got = ask("cluster", "config", "get", "traceOn", "--json").document["servers"]
    assert (got["broker-a"]["traceOn"], got["broker-b"]["traceOn"]) == ("false", "true")


def test_settings_of_name_servers_are_shown_and_changed(ask: Ask, servers: EmbeddedThread) -> None:
    assert ask("cluster", "namesrv", "get", "enableTopicList").out == "enableTopicList=true\n"
    words = ("cluster", "namesrv", "set", "orderMessageEnable=true")
    assert "from false to true" in ask(*words, "--dry-run").out
    assert ask(*words, "--yes").status == 0
    got = ask("cluster", "namesrv", "get", "orderMessageEnable", "--json").document["servers"]
    assert got == {servers.namesrv: {"orderMessageEnable": "true"}}


def test_values_are_kept_by_name_servers(ask: Ask) -> None:
    assert ask("cluster", "kv", "set", "space", "key", "a value").status == 0
    assert ask("cluster", "kv", "get", "space", "key").out == "a value\n"
    assert ask("cluster", "kv", "list", "space", "--json").document["values"] == {"key": "a value"}
    assert "--yes" in ask("cluster", "kv", "delete", "space", "key").complaint
    assert ask("cluster", "kv", "delete", "space", "key", "--yes").status == 0
    assert "no key 'key'" in ask("cluster", "kv", "get", "space", "key").complaint


def test_producers_are_kept_away_and_let_back(ask: Ask) -> None:
    ask("topic", "create", "fenced", "-q", 1)

    def writable() -> dict[str, bool]:
        queues = ask("topic", "route", "fenced", "--json").document["queues"]
        return {each["broker"]: bool(each["perm"] & 2) for each in queues}

    assert "--yes" in ask("cluster", "write-perm", "broker-a", "--off").complaint
    assert ask("cluster", "write-perm", "broker-a", "--off", "--yes").status == 0
    assert writable() == {"broker-a": False, "broker-b": True}
    assert ask("cluster", "write-perm", "broker-a", "--on").status == 0
    assert writable() == {"broker-a": True, "broker-b": True}


@pytest.mark.parametrize("what", ["queues", "topics", "files"])
def test_brokers_clean_up_when_told(ask: Ask, what: str) -> None:
    assert "--yes" in ask("cluster", "clean", what).complaint
    assert ask("cluster", "clean", what, "--yes", "--json").document["brokers"] == ["broker-a", "broker-b"]


def test_nobody_is_connected_and_that_is_told(ask: Ask) -> None:
    assert ask("cluster", "producers", "--json").document["producers"] == []


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (1, ("status", "broker-z"), "broker-a"),
        (1, ("status", "127.0.0.1:1"), "127.0.0.1:1"),
        (1, ("brokers", "--cluster", "Nowhere"), "DefaultCluster"),
        (1, ("config", "get", "nothingLikeThis"), "nothingLikeThis"),
        (2, ("config", "set", "brokerPermission", "--yes"), "key=value"),
        (1, ("config", "set", "brokerPermission=many", "-b", "broker-a", "--yes"), "brokerPermission"),
        (1, ("namesrv", "set", "listenPort=1", "--yes"), "listenPort"),
        (1, ("kv", "set", " ", "k", "v"), "empty"),
    ],
)
def test_what_cannot_be_is_one_line(ask: Ask, status: int, words: tuple[str, ...], hint: str) -> None:
    assert hint in ask("cluster", *words).complaint_with(status)
